//! weir's internal model: the canonical call and its reply, principals, names, failures, schemas,
//! and the ports (traits) that other crates implement. `weir-catalog` has the lists, `weir-router`
//! makes the calls.
//!
//! A canonical call is shaped like the newest protocol revision: a request carries all that it
//! needs. This crate knows no HTTP, no config format, and not that protocol eras exist.
//!
//! No two files need each other. The order, from below: ids and versions, the call and its reply,
//! schemas, tools, the ports.

pub mod authenticated;
pub mod budget;
mod budget_owner;
pub mod call;
mod call_deadlines;
pub mod call_limits;
mod call_outcome;
pub mod capability;
pub mod catalog_item;
pub mod clean;
pub mod completed_elicitations;
pub mod content_version;
pub mod endpoint;
pub mod failure;
pub mod fast;
mod handover_arrival;
pub mod hold;
pub mod instant;
mod list_kind;
pub mod log_text;
pub mod names;
pub mod network;
mod open_questions;
pub mod parked;
pub mod port;
pub mod principal;
pub mod question;
pub mod reply;
mod reply_events;
pub mod resource_uri;
pub mod secrets;
pub mod server_item;
pub mod session_notifier;
pub mod supervision;
mod sync;
pub mod telemetry;
pub mod token;
pub mod toolset;
pub mod trace;
pub mod upstream;

pub use authenticated::{Authenticated, authenticate};
pub use budget::Budgets;
pub use call::{Call, CallResumption, SessionKey};
pub use call_outcome::CallOutcome;
pub use capability::CapabilityClass;
pub use endpoint::Endpoint;
pub use failure::{Failure, FailureKind, causes, chain};
pub use handover_arrival::HandoverArrival;
pub use log_text::is_invisible;
pub use names::{EndpointId, UpstreamId};
pub use parked::{ParkedCall, ParkedId, ParkedReply};
pub use principal::Principal;
pub use question::{PendingQuestion, UpstreamQuestion};
pub use reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplyNote};
pub use token::ClientToken;
pub use weir_wire::case_folding;
