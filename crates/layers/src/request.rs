//! One request: its context, its facts, its session, its labels and its trace.

pub mod credential_check;
pub mod endpoint_meters;
pub mod endpoint_request;
pub mod endpoint_route;
pub mod forwarded_tasks;
pub mod message_labels;
pub mod moved_sessions;
pub mod outcome;
pub mod question_id;
pub mod request_context;
pub(crate) mod request_facts;
pub mod request_head;
pub mod request_span;
pub mod request_tracing;
pub mod session_lookup;
pub mod stream_credentials;
