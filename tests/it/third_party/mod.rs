//! Peers of other projects: reference servers, servers as people write them, and the clients of
//! four SDKs.

mod client_programs;
mod custom_methods;
mod dual_era_servers;
mod http_sse_peers;
mod message_types;
mod real_servers;
mod sdk_clients;
mod sdk_questions;
mod sdk_tasks;
mod session_toolsets;
mod version_negotiation;
