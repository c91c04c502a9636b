//! The HTTP client of one upstream, for one account if the server wants tokens, and its connectors.
//!
//! The client knows requests and responses, not messages.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower::Service;
use weir_core::{Budgets, Failure};

use super::tls::{RootCertificates, TlsError};
use crate::credential::{BearerChallenge, TokenAccount};
use crate::dns::{DnsCache, DnsResolver, SystemLookup};
use crate::http::{
    BoundedConnection, ConnectionPool, HeaderField, HttpResponseBody, IDLE_TIMEOUT,
    OutgoingRequest, UpstreamHttpError,
};
use crate::settings::HttpUpstreamSettings;

/// The silence on a connection after which TCP keep-alive probes begin.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

type ConnectError = Box<dyn Error + Send + Sync>;

/// A pooled client for one server, for one account if the server wants tokens. Clones share the
/// connections.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamHttpClient {
    inner: Arc<HttpClientInner>,
    account: Option<Arc<TokenAccount>>,
    /// True if every request goes on a connection of its own.
    is_without_reuse: bool,
}

#[derive(Debug)]
struct HttpClientInner {
    pool: Arc<ConnectionPool>,
    uri: Uri,
    headers: Vec<HeaderField>,
}

/// The error of a request without a response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The connection failed.
    Lost(UpstreamHttpError),
    /// The request was not sent, for want of a token.
    NoToken(Failure),
}

impl UpstreamHttpClient {
    /// Makes a client for `settings`. Connects with the first request.
    pub(crate) fn new(
        settings: &HttpUpstreamSettings,
        connect: Duration,
        agent: &HeaderValue,
        roots: &RootCertificates,
        budgets: &Budgets,
    ) -> Result<Self, TlsError> {
        let mut headers = vec![(header::USER_AGENT, agent.clone())];
        headers.extend(
            settings
                .headers
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().clone())),
        );
        let tls = roots.config(settings.ca_file.as_deref())?;
        let tcp = tcp_connector(DnsResolver::new(Arc::new(DnsCache::new(Arc::new(
            SystemLookup,
        )))));
        let lines = ConnectionPool::new(
            https_connector(tcp, tls, connect),
            settings.url.clone(),
            settings.h2c,
            budgets,
        );
        let inner = Arc::new(HttpClientInner {
            pool: lines,
            uri: settings.url.clone(),
            headers,
        });
        Ok(Self {
            inner,
            account: None,
            is_without_reuse: false,
        })
    }

    /// Returns the same client for an account.
    pub(crate) fn with_account(&self, account: Arc<TokenAccount>) -> Self {
        Self {
            account: Some(account),
            ..self.clone()
        }
    }

    /// Returns the same client for another URL of the same origin.
    pub(crate) fn with_url(&self, uri: Uri) -> Self {
        let HttpClientInner {
            pool: lines,
            headers,
            ..
        } = &*self.inner;
        let inner = HttpClientInner {
            pool: lines.clone(),
            uri,
            headers: headers.clone(),
        };
        Self {
            inner: Arc::new(inner),
            ..self.clone()
        }
    }

    /// Returns the same client without reuse of HTTP/1.1 connections. On a new connection a
    /// response can only belong to its own request.
    pub(crate) fn without_reuse(&self) -> Self {
        Self {
            is_without_reuse: true,
            ..self.clone()
        }
    }

    /// Returns the server's URL.
    pub(crate) fn url(&self) -> &Uri {
        &self.inner.uri
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body,
    /// cancels the request: the connection is closed (HTTP/1.1) or the stream reset (HTTP/2).
    ///
    /// A token that the server refuses (401) is replaced once, and one with too narrow scopes (403)
    /// widened once, if possible. A server that refuses a token has not executed the request.
    pub(crate) async fn send(
        &self,
        method: Method,
        own: Vec<HeaderField>,
        body: Bytes,
    ) -> Result<Response<HttpResponseBody>, SendError> {
        match &self.account {
            None => self.send_once(&method, &own, &body).await,
            Some(account) => Box::pin(self.send_with_token(account, &method, own, &body)).await,
        }
    }

    /// Sends one attempt. The headers of the protocol, `own`, override those of the config.
    async fn send_once(
        &self,
        method: &Method,
        own: &[HeaderField],
        body: &Bytes,
    ) -> Result<Response<HttpResponseBody>, SendError> {
        let HttpClientInner {
            pool: lines,
            uri,
            headers,
        } = &*self.inner;
        let ask = OutgoingRequest {
            method,
            uri,
            usual: headers,
            own,
            body,
        };
        let answer = if self.is_without_reuse {
            Box::pin(lines.send_on_new_connection(ask)).await
        } else {
            lines.send_request(ask).await
        };
        answer.map_err(SendError::Lost)
    }

    async fn send_with_token(
        &self,
        account: &Arc<TokenAccount>,
        method: &Method,
        mut own: Vec<HeaderField>,
        body: &Bytes,
    ) -> Result<Response<HttpResponseBody>, SendError> {
        let mut bearer = account.current_token().await.map_err(SendError::NoToken)?;
        let (mut renewed, mut widened) = (false, false);
        let at = own.len();
        loop {
            own.truncate(at);
            own.extend(
                bearer
                    .header
                    .clone()
                    .map(|header| (header::AUTHORIZATION, header)),
            );
            let answer = self.send_once(method, &own, body).await?;
            let challenge = || BearerChallenge::read(answer.headers());
            let another = match answer.status() {
                StatusCode::UNAUTHORIZED if !std::mem::replace(&mut renewed, true) => account
                    .replace_refused(&bearer, challenge())
                    .await
                    .map_err(SendError::NoToken)?,
                StatusCode::FORBIDDEN if !std::mem::replace(&mut widened, true) => {
                    account.step_up(&challenge()).await
                }
                _ => None,
            };
            match another {
                Some(another) => bearer = another,
                None => return Ok(answer),
            }
        }
    }
}

/// A pooled client over some connector, for documents.
pub(crate) type PooledClient<C> =
    Client<BoundedConnector<TimeoutConnector<HttpsConnector<C>>>, Full<Bytes>>;

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
