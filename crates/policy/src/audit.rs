//! The audit: records of all actions and their actors, and the hash chain that shows if one of them
//! was changed.
//!
//! All code here is pure. [`Recorder`] turns calls of core's audit port into an [`Event`] and hands
//! that to a [`Keeper`]. The keeper renders events with a [`Chain`] and stores the bytes. Files,
//! threads and sockets are not here. Without a configured audit, [`LogAudit`] writes to the log.

mod arguments;
mod canonical;
mod chain;
mod event;
mod json;
mod key;
mod log;
mod recorder;
mod refusal_counter;
mod seen;
mod verify;

pub use arguments::{Pointer, Shape};
pub use chain::{Chain, Head, Sealed};
pub use event::{Event, Life};
pub(crate) use json::is_unseen;
pub use key::Key;
pub use log::{LogAudit, Silent};
pub use recorder::{Keeper, NotKept, Recorder};
pub use refusal_counter::{DENIALS, MOST_NETWORKS, RefusalCounter};
pub use verify::{Inspector, Link, Seam, Summary, Trouble};
