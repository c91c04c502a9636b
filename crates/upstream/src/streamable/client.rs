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

use super::tls::{Roots, TlsError};
use crate::credential::{Account, Challenge};
use crate::line::{Ask, Body, Bounded, Field, IDLE, LineError, Lines};
use crate::names::{Addresses, Resolver, SystemNames};
use crate::settings::HttpSettings;

/// The silence on a connection after which TCP keep-alive probes begin.
const KEEPALIVE: Duration = Duration::from_secs(30);

type Boxed = Box<dyn Error + Send + Sync>;

/// A pooled client for one server, for one account if the server wants tokens. Clones share the
/// connections.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    inner: Arc<Inner>,
    account: Option<Arc<Account>>,
    /// True if every request goes on a connection of its own.
    is_anew: bool,
}

#[derive(Debug)]
struct Inner {
    lines: Arc<Lines>,
    uri: Uri,
    headers: Vec<Field>,
}

/// The error of a request without a response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// The connection failed.
    Lost(LineError),
    /// The request was not sent, for want of a token.
    NoToken(Failure),
}

impl Http {
    /// Makes a client for `settings`. Connects with the first request.
    pub(crate) fn new(
        settings: &HttpSettings,
        connect: Duration,
        agent: &HeaderValue,
        roots: &Roots,
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
        let tcp = tcp(Resolver::new(Arc::new(Addresses::new(Arc::new(
            SystemNames,
        )))));
        let lines = Lines::new(
            dial(tcp, tls, connect),
            settings.url.clone(),
            settings.h2c,
            budgets,
        );
        let inner = Arc::new(Inner {
            lines,
            uri: settings.url.clone(),
            headers,
        });
        Ok(Self {
            inner,
            account: None,
            is_anew: false,
        })
    }

    /// Returns the same client for an account.
    pub(crate) fn by(&self, account: Arc<Account>) -> Self {
        Self {
            account: Some(account),
            ..self.clone()
        }
    }

    /// Returns the same client for another URL of the same origin.
    pub(crate) fn at(&self, uri: Uri) -> Self {
        let Inner { lines, headers, .. } = &*self.inner;
        let inner = Inner {
            lines: lines.clone(),
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
    pub(crate) fn anew(&self) -> Self {
        Self {
            is_anew: true,
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
        own: Vec<Field>,
        body: Bytes,
    ) -> Result<Response<Body>, SendError> {
        match &self.account {
            None => self.once(&method, &own, &body).await,
            Some(account) => Box::pin(self.signed(account, &method, own, &body)).await,
        }
    }

    /// Sends one attempt. The headers of the protocol, `own`, override those of the config.
    async fn once(
        &self,
        method: &Method,
        own: &[Field],
        body: &Bytes,
    ) -> Result<Response<Body>, SendError> {
        let Inner {
            lines,
            uri,
            headers,
        } = &*self.inner;
        let ask = Ask {
            method,
            uri,
            usual: headers,
            own,
            body,
        };
        let answer = if self.is_anew {
            Box::pin(lines.request_anew(ask)).await
        } else {
            lines.request(ask).await
        };
        answer.map_err(SendError::Lost)
    }

    async fn signed(
        &self,
        account: &Arc<Account>,
        method: &Method,
        mut own: Vec<Field>,
        body: &Bytes,
    ) -> Result<Response<Body>, SendError> {
        let mut bearer = account.bearer().await.map_err(SendError::NoToken)?;
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
            let answer = self.once(method, &own, body).await?;
            let challenge = || Challenge::read(answer.headers());
            let another = match answer.status() {
                StatusCode::UNAUTHORIZED if !std::mem::replace(&mut renewed, true) => account
                    .renewed(&bearer, challenge())
                    .await
                    .map_err(SendError::NoToken)?,
                StatusCode::FORBIDDEN if !std::mem::replace(&mut widened, true) => {
                    account.stepped_up(&challenge()).await
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
pub(crate) type Pooled<C> = Client<BoundedConnector<Deadlined<HttpsConnector<C>>>, Full<Bytes>>;

/// Makes a TCP connector that resolves names by `resolver`.
pub(crate) fn tcp<R>(resolver: R) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(Duration::from_secs(10)));
    tcp.set_keepalive_retries(Some(3));
    tcp
}

/// Makes a connector with the timeout `connect`. Over TLS the server chooses the version of HTTP.
pub(crate) fn dial<C>(
    tcp: C,
    mut tls: rustls::ClientConfig,
    connect: Duration,
) -> Deadlined<HttpsConnector<C>> {
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Deadlined {
        inner: HttpsConnector::from((tcp, tls)),
        after: connect,
    }
}

/// Makes a pooled client with the connection timeout `connect`.
pub(crate) fn pooled<C>(tcp: C, tls: rustls::ClientConfig, connect: Duration) -> Pooled<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Boxed>,
{
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(BoundedConnector(dial(tcp, tls, connect)))
}

/// A connector of connections that end if a server sends too much beside documents.
#[derive(Clone, Debug)]
pub(crate) struct BoundedConnector<C>(C);

impl<C> Service<Uri> for BoundedConnector<C>
where
    C: Service<Uri, Error = Boxed>,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
{
    type Response = TokioIo<Bounded<TokioIo<C::Response>>>;
    type Error = Boxed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Boxed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let made = self.0.call(uri);
        Box::pin(async move {
            let stream = made.await?;
            let is_h2 = stream.connected().is_negotiated_h2();
            let stream = TokioIo::new(stream);
            Ok(TokioIo::new(if is_h2 {
                Bounded::frames(stream)
            } else {
                Bounded::documents(stream)
            }))
        })
    }
}

/// A connector with a timeout, name lookup and TLS handshake included.
#[derive(Clone, Debug)]
pub(crate) struct Deadlined<C> {
    inner: C,
    after: Duration,
}

/// The timeout of a new connection.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(crate) struct ConnectTimeout;

impl<C> Service<Uri> for Deadlined<C>
where
    C: Service<Uri>,
    C::Error: Into<Boxed>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = Boxed;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, Boxed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Boxed>> {
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
