//! Careless and hostile clients. weir answers each of them as the protocol demands, serves all
//! other clients as before, and sends no upstream a request for them.
//!
//! Every test looks at the binary from outside, over a socket. A refusal is checked by its status,
//! its code and its id. After each refusal [`WeirWithUpstream::is_well`] makes a good call and
//! checks the requests that reached the upstream in the meantime.

mod batches;
mod disconnects;
mod envelope;
mod era_classification;
mod error_codes;
mod host_header;
mod invalid_calls;
mod legacy_handshakes;
mod malformed_json;
mod mirrored_headers;
mod modern_methods;
mod modern_responses;
mod origin_header;
mod oversized_requests;
mod paths_and_methods;
mod pipelined_bytes;
mod raw_connection;
mod refusal_order;
mod request_draft;
mod request_framing;
mod session_ends;
mod session_ids;
mod session_streams;
mod slow_clients;
mod weir_with_upstream;

use request_draft::RefusalRow;
pub use request_draft::{RequestDraft, assert_refused};
pub use weir_with_upstream::{WeirWithUpstream, usual_tools, within_timeout};
