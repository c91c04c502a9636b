//! State of clients: legacy sessions, replay logs, subscriptions, open streams, HTTP+SSE
//! connections. It knows no method.

pub(crate) mod known_clients;
pub(crate) mod moved_sessions;
pub(crate) mod permits;
pub(crate) mod replay;
pub(crate) mod session_lookup;
pub(crate) mod session_news;
pub(crate) mod sessions;
pub(crate) mod sse_connections;
pub(crate) mod stream_registry;
