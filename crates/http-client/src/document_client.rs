//! A general client, for documents.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower::Service;

use crate::bounded_connection::BoundedConnection;
use crate::connector::{ConnectError, TimeoutConnector, https_connector};
use crate::pool_state::IDLE_TIMEOUT;

/// A pooled client over some connector, for documents.
pub(crate) type PooledClient<C> =
    Client<BoundedConnector<TimeoutConnector<HttpsConnector<C>>>, Full<Bytes>>;

/// Makes a pooled client with the connection timeout `connect`.
pub(crate) fn pooled_client<C>(
    tcp: C,
    tls: rustls::ClientConfig,
    connect: Duration,
) -> PooledClient<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<ConnectError>,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(BoundedConnector(https_connector(tcp, tls, connect)))
}

/// A connector of connections that end if a server sends too much beside documents.
#[derive(Clone, Debug)]
pub(crate) struct BoundedConnector<C>(C);

impl<C> Service<Uri> for BoundedConnector<C>
where
    C: Service<Uri, Error = ConnectError>,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    type Response = TokioIo<BoundedConnection<TokioIo<C::Response>>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let made = self.0.call(uri);
        Box::pin(async move {
            let stream = made.await?;
            let is_h2 = stream.connected().is_negotiated_h2();
            let stream = TokioIo::new(stream);
            Ok(TokioIo::new(if is_h2 {
                BoundedConnection::frames(stream)
            } else {
                BoundedConnection::documents(stream)
            }))
        })
    }
}
