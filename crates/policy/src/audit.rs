//! Who did what: the records of the audit, and the chain that shows if one of them was changed.
//!
//! Everything here is pure: [`Recorder`] turns what core tells it into an [`Event`] and hands that
//! to a [`Keeper`]; whoever keeps events renders them with a [`Chain`] and puts the bytes where
//! they belong. Files, threads and sockets are not here. Neither is the log: see [`LogAudit`] for
//! what happens where no audit is configured.

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
