//! Careless and hostile clients. weir answers each of them as the protocol demands, serves all
//! other clients as before, and sends no upstream a request for them.
//!
//! Every test looks at the binary from outside, over a socket. A refusal is checked by its status,
//! its code and its id. After each refusal [`Stage::is_well`] makes a good call and checks the
//! requests that reached the upstream in the meantime.

mod answers;
mod batches;
mod bombs;
mod calls;
mod codes;
mod door;
mod envelope;
mod framing;
mod headers;
mod hosts;
mod ids;
mod json;
mod legacy;
mod letter;
mod modern;
mod order;
mod origins;
mod raw;
mod requests;
mod sessions;
mod stage;
mod streams;
mod tails;
mod timing;
mod vanishing;

use letter::Row;
pub use letter::{Letter, refused};
pub use stage::{Stage, in_time, usual_tools};
