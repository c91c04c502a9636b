//! Connectors: TCP, TLS, and the timeout of both.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tower::Service;

use super::dns::DnsResolver;

/// The silence on a connection after which TCP keep-alive probes begin.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The error of a connector.
pub(super) type ConnectError = Box<dyn Error + Send + Sync>;

/// The connector to a server.
pub(crate) type UpstreamConnector = TimeoutConnector<HttpsConnector<HttpConnector<DnsResolver>>>;

/// Makes a TCP connector that resolves names by `resolver`.
pub(crate) fn tcp_connector<R>(resolver: R) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEPALIVE));
    tcp.set_keepalive_interval(Some(Duration::from_secs(10)));
    tcp.set_keepalive_retries(Some(3));
    tcp
}

/// Makes a connector with the timeout `connect`. Over TLS the server chooses the version of HTTP.
pub(crate) fn https_connector<C>(
    tcp: C,
    mut tls: rustls::ClientConfig,
    connect: Duration,
) -> TimeoutConnector<HttpsConnector<C>> {
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TimeoutConnector {
        inner: HttpsConnector::from((tcp, tls)),
        after: connect,
    }
}

/// A connector with a timeout, name lookup and TLS handshake included.
#[derive(Clone, Debug)]
pub(crate) struct TimeoutConnector<C> {
    inner: C,
    after: Duration,
}

/// The timeout of a new connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(crate) struct ConnectTimeout;

impl<C> Service<Uri> for TimeoutConnector<C>
where
    C: Service<Uri>,
    C::Error: Into<ConnectError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let made = tokio::time::timeout(self.after, self.inner.call(uri));
        Box::pin(async move {
            match made.await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(ConnectTimeout.into()),
            }
        })
    }
}
