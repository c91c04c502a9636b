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

use crate::dns::DnsResolver;

/// The silence on a connection after which TCP keep-alive probes begin.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// The error of a connector.
pub(crate) type ConnectError = Box<dyn Error + Send + Sync>;

/// Makes a TCP connector that resolves names by `resolver`. Addresses of one family share the time
/// `connect` equally, so that one that never answers leaves time for the other. An address of the
/// other family is tried beside the first, after 300 ms (RFC 8305).
pub(crate) fn tcp_connector(
    resolver: DnsResolver,
    connect: Duration,
) -> HttpConnector<DnsResolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.set_connect_timeout(Some(connect));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::io;
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use socket2::{Domain, Socket, Type};
    use weir_core::port::BoxFuture;

    use super::*;
    use crate::dns::AddressLookup;

    /// An address at which nobody answers, before one with a server.
    struct SilentAddressFirst;

    const SILENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    const LIVE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    impl AddressLookup for SilentAddressFirst {
        fn addresses(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(async { Ok(vec![SILENT, LIVE]) })
        }
    }

    /// Listens at `at` without room for further connections: the system drops every later attempt.
    fn listen_without_room(at: SocketAddr) -> (Socket, Vec<Socket>) {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&at.into()).unwrap();
        listener.listen(0).unwrap();
        let waiting = (0..4).map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            // The answer does not matter: the first ones fill the queue.
            let _in_progress = socket.connect(&at.into());
            socket
        });
        let waiting = waiting.collect();
        (listener, waiting)
    }

    #[tokio::test]
    async fn second_address_of_a_family_is_dialled_if_the_first_never_answers() {
        let live = tokio::net::TcpListener::bind((LIVE, 0)).await.unwrap();
        let port = live.local_addr().unwrap().port();
        let _silent = listen_without_room((SILENT, port).into());
        let resolver = DnsResolver::new(Arc::new(SilentAddressFirst));
        let connect = Duration::from_secs(8);
        let mut connector = TimeoutConnector {
            inner: tcp_connector(resolver, connect),
            after: connect,
        };
        let uri = format!("http://two.example:{port}/").parse().unwrap();
        let (connected, accepted) = tokio::join!(connector.call(uri), live.accept());
        connected.unwrap();
        assert!(accepted.unwrap().1.ip().is_loopback());
    }
}
