//! The server side: how weir reaches upstream servers, over Streamable HTTP of both eras and as
//! child processes.
//!
//! One object stands for each server ([`UpstreamFactory::build`]) and implements core's port. It
//! finds out the server's era, holds its sessions and connections, limits and times the calls, and
//! sends again only calls that provably did not run. It knows no client, no endpoint and no other
//! upstream, and it never forwards a client's header or token.

mod breaker;
mod call_attempts;
mod call_time_limits;
pub(crate) mod credential;
pub mod descriptors;
mod exported;
mod factory;
mod failed_attempt;
mod held_blocks;
pub(crate) mod http;
mod idle_events;
mod in_flight;
pub mod keeper;
mod keyed_slots;
mod list_changes;
mod list_items;
mod list_page;
mod message_limits;
mod out_of_call_requests;
mod outbox;
mod own_requests;
mod pending_updates;
mod ports;
mod repeat;
mod repeat_budget;
mod request_inbox;
mod resend;
mod result_expectation;
mod retry_backoff;
mod secret;
mod secret_mask;
mod server_questions;
mod server_transport;
mod settings;
mod stack;
mod started_reply;
pub(crate) mod stdio;
pub(crate) mod streamable;
mod task_progress;
mod tasks;
mod upstream_context;
mod upstream_service;

pub use credential::{
    ClientAuthMethod, ProvidedToken, SharedTokenProvider, TokenAuthority, TokenExchange,
    TokenProvider, UpstreamOAuth,
};
pub use factory::{ClientImplementation, UpstreamBuildError, UpstreamFactory};
pub use http::{TlsError, client_tls};
pub use ports::UpstreamPorts;
pub use secret::{SecretHeader, SecretText};
pub use settings::{
    HttpUpstreamSettings, OwnDeadlines, SessionSharing, StdioUpstreamSettings, TransportSettings,
    UpstreamBounds, UpstreamProtocol, UpstreamSettings,
};
