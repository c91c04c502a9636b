//! HTTP without MCP: answers and their heads, bodies, checks of a head, documents under `/.well-
//! known/`.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod challenge;
pub(crate) mod client_address;
pub(crate) mod head_guard;
pub(crate) mod header_names;
pub(crate) mod keep_alive;
pub(crate) mod well_known_documents;
