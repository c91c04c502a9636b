//! HTTP without MCP: answers and their heads, bodies, checks of a head, documents under `/.well-
//! known/`.

pub mod answer;
pub mod body;
pub mod challenge;
pub(crate) mod client_address;
pub mod head_guard;
pub mod header_names;
pub mod well_known_documents;
