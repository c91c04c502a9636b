//! The server side: how weir reaches upstream servers, over Streamable HTTP of both eras and as
//! child processes.
//!
//! One object stands for each server ([`Factory::build`]) and implements core's port. It finds out
//! the server's era, holds its sessions and connections, limits and times the calls, and sends
//! again only calls that provably did not run. It knows no client, no endpoint and no other
//! upstream, and it never forwards a client's header or token.

mod advice;
mod alone;
mod asking;
mod begun_reply;
mod breaker;
mod column;
mod credential;
mod deadline;
pub mod descriptors;
mod exported;
mod factory;
mod fetch;
mod guard;
mod hold;
mod idle_events;
mod inbox;
mod judgment;
pub mod keeper;
mod line;
mod list_items;
mod list_news;
mod listing;
mod mask;
mod names;
mod outbox;
mod pace;
mod post;
mod refusal;
mod repeat;
mod server;
mod settings;
mod settle;
mod site;
mod slots;
mod stdio;
mod streamable;
mod tasks;
mod told;
mod tracks;

pub use credential::{Authority, ClientAuth, Exchange, KeepsTokens, KeptToken, OAuth, TokenKeeper};
pub use factory::{BuildError, Factory, Identity, Ports};
pub use settings::{
    Bounds, HttpSettings, OwnDeadlines, Protocol, SecretHeader, SecretText, Settings, Sharing,
    StdioSettings, Transport,
};
pub use streamable::{TlsError, client_tls};
