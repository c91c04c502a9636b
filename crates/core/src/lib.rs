//! weir's internal model: the canonical call and its reply, principals, names, the catalog,
//! cursors, routing, failures, and the ports (traits) that other crates implement.
//!
//! A canonical call is shaped like the newest protocol revision: a request carries all that it
//! needs. This crate knows no HTTP, no config format, and not that protocol eras exist.
//!
//! No two files need each other. The order, from below: ids and versions, the call and its reply,
//! the ports, schemas, the catalog, the router. A file with an `impl Catalog` of its own stands
//! above `catalog.rs`.

pub mod admit;
pub mod budget;
pub mod call;
mod call_deadlines;
pub mod capability;
pub mod catalog;
mod clean;
mod content_version;
pub mod cursor;
pub mod endpoint;
pub mod failure;
mod fakes;
pub mod fast;
pub mod fuzzing;
mod handover_arrival;
pub mod hold;
pub mod instant;
mod list_kind;
pub mod live_calls;
mod log_text;
pub mod names;
pub mod network;
pub mod parked;
pub mod port;
pub mod principal;
pub mod question;
pub mod reply;
pub mod route;
pub mod schema;
pub mod seal;
pub mod secrets;
pub mod session_notifier;
pub mod task;
pub mod telemetry;
pub mod token;
pub mod toolset;
pub mod trace;
pub mod upstream;

pub use admit::{Admitted, Authenticated, Gates, admit, authenticate};
pub use budget::Budgets;
pub use call::{Call, CallResumption, SessionKey};
pub use capability::CapabilityClass;
pub use catalog::Catalog;
pub use endpoint::Endpoint;
pub use failure::{Failure, FailureKind, causes, chain};
pub use handover_arrival::HandoverArrival;
pub use names::{EndpointId, UpstreamId};
pub use parked::{ParkedCall, ParkedId, ParkedReply};
pub use principal::Principal;
pub use question::{PendingQuestion, UpstreamQuestion};
pub use reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
pub use route::Router;
pub use task::{TaskLocation, TaskNames};
pub use token::ClientToken;
pub use weir_wire::case_folding;
