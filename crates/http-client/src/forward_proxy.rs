//! The forward proxy of the operator's network: its settings, the servers that are reached without
//! it, and the tunnels through it.
//!
//! Every connection through the proxy is a tunnel (`CONNECT`, RFC 9110, 9.3.6), to `http` servers
//! too: the proxy sees host and port, and nothing of weir depends on the messages that it forwards.

mod proxied_connector;
mod proxy_bypass;
mod proxy_settings;
mod proxy_tunnel;

pub use proxied_connector::ProxiedConnector;
pub(crate) use proxy_bypass::literal_address;
pub use proxy_bypass::{BypassError, ProxyBypass};
pub use proxy_settings::{EnvironmentProxy, ForwardProxy, ProxyUrlError};
pub(crate) use proxy_tunnel::ProxyError;
