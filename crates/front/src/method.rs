//! Methods of MCP over one request, for both eras.

pub(crate) mod canonical_call;
pub(crate) mod extensions;
pub(crate) mod followed_tasks;
mod listening_stream;
pub(crate) mod lists;
pub(crate) mod mirrored_headers;
pub(crate) mod offered_methods;
pub(crate) mod open_listening;
pub(crate) mod subscriptions;
pub(crate) mod tasks;
