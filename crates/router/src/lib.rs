//! The router: from a client's call to the upstream that has the tool, and back.
//!
//! It finds the item in the caller's view, has the call admitted, checks arguments against the
//! tool's schema, and ensures that every call leaves one record. On the way back it removes hidden
//! characters and secrets, renames URIs, and parks calls that wait for input.
//!
//! It knows no HTTP, no config format, and not that protocol eras exist.

mod admit;
mod answer_search;
mod call_record;
mod call_repeats;
mod call_subject;
mod caller_reading;
mod cancelled_call;
mod item_search;
pub mod live_calls;
mod message_edits;
mod own_request;
mod parking;
mod recorded_reply;
mod reply_cleaning;
mod reply_transform;
mod router;
mod schema_check;
mod sent_call;
mod session_search;
mod size_check;
mod target;
mod task_names;
mod tasks;
mod uri_names;
mod uri_renaming;

pub use admit::Gates;
pub use call_repeats::CallRepeats;
pub use cancelled_call::CancelledCall;
pub use router::Router;
pub use task_names::{TaskLocation, TaskNames, UpstreamTask};
pub use tasks::TaskChanges;
pub use tasks::TaskRequests;
pub use tasks::poll_backoff::PollBackoff;
pub use tasks::{TaskHolders, silent_holder};
