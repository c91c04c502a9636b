//! The server side as one: the stack of a call, tasks, and the factory of upstreams. The transports
//! are `weir-upstream-http` and `weir-upstream-stdio`; their shared parts are `weir-upstream-core`.
//!
//! One object stands for each server ([`UpstreamFactory::build`]) and implements core's port. It
//! finds out the server's era, holds its sessions and connections, limits and times the calls, and
//! sends again only calls that provably did not run. It knows no client, no endpoint and no other
//! upstream, and it never forwards a client's header or token.

mod breaker;
mod call_attempts;
mod call_routing;
mod called_server;
mod factory;
mod in_flight;
mod instances;
mod ports;
mod repeat;
mod repeated_checks;
mod resend;
mod server_transport;
mod settings;
mod single_server;
mod stack;
mod tasks;
mod upstream_service;

pub use factory::{ClientImplementation, UpstreamBuildError, UpstreamFactory};
pub use ports::UpstreamPorts;
pub use settings::{HttpUpstreamSettings, InstanceSettings, TransportSettings, UpstreamSettings};
pub use weir_http_client::{
    CaFile, CertificateFileError, EnvironmentProxy, ForwardProxy, ProxiedConnector, ProxyBypass,
    TlsError, client_tls,
};
pub use weir_oauth_client::{
    ClientAuthMethod, ProvidedToken, SharedTokenProvider, TokenAuthority, TokenExchange,
    TokenProvider, UpstreamOAuth,
};
pub use weir_upstream_core::secret::{SecretHeader, SecretText};
pub use weir_upstream_core::settings::{
    OwnDeadlines, SessionSharing, UpstreamBounds, UpstreamProtocol,
};
pub use weir_upstream_stdio::{ChildInstances, StdioUpstreamSettings};
