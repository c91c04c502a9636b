//! HTTP without MCP: answers, their heads and their memory, bodies, checks of a head, documents under `/.well-
//! known/`.

pub mod answer;
pub mod batch_budget;
pub mod body;
pub mod challenge;
pub(crate) mod client_address;
pub(crate) mod cors_headers;
pub mod forwarded_stream;
pub(crate) mod head_guard;
pub mod header_names;
pub mod held_part;
pub mod message_parts;
pub mod sse_path;
pub mod well_known_documents;
