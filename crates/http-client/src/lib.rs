//! The HTTP client of weir: requests to the servers of the config, and documents and tokens from
//! URLs of outsiders.
//!
//! A general client hands every request to a task that owns its connection, and every response
//! back: two wakes, a dozen allocations and two header maps for one call. Here the task that waits
//! for the response reads it from the socket. Messages are written and read by `weir-http1`; a
//! property test compares it with hyper.
//!
//! Nothing here knows JSON-RPC, tokens or sessions, and the pool knows no redirects or cookies. Its
//! errors state how far a request got, because that decides if it may be sent again.

mod advice;
mod bounded_connection;
mod byte_stream;
mod connection_pool;
mod connector;
mod dns;
mod document_client;
mod fetcher;
mod forward_proxy;
mod guard;
mod http1_connection;
mod http2_connection;
mod http_client;
mod http_error;
mod pool_state;
mod poster;
mod response_body;
mod shared_pool;
mod tls;

pub use advice::{AdvisedError, proxy_failure, with_advice};
pub use fetcher::Fetcher;
pub use forward_proxy::{
    BypassError, EnvironmentProxy, ForwardProxy, ProxiedConnector, ProxyBypass, ProxyUrlError,
};
pub use http_client::{HttpClient, HttpServer};
pub use http_error::{RequestProgress, UpstreamHttpError};
pub use poster::Poster;
pub use response_body::HttpResponseBody;
pub use tls::{CaFile, CertificateFileError, RootCertificates, TlsError, client_tls};
pub use weir_http1::HeaderField;
