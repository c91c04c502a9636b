//! The HTTP client of one upstream: pooled, HTTP/1.1 and HTTP/2, without redirects, cookies or proxies.
//!
//! It knows requests and answers, not messages. Its errors say how far a request got, because that decides whether it
//! may be sent again.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::Service;
use weir_core::Failure;

use super::tls::{Roots, TlsError};
use crate::credential::{Account, Challenge};
use crate::names::{Addresses, Resolver, SystemNames};
use crate::settings::HttpSettings;

/// Unused connections are given up before common servers close them (node and uvicorn after 5 s), so that a request
/// seldom meets a connection that is being closed.
const POOL_IDLE: Duration = Duration::from_secs(4);
/// Silence on a connection after which the other side is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(30);

type Boxed = Box<dyn Error + Send + Sync>;

/// A pooled client for one server, in somebody's name where the server wants tokens. Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    inner: Arc<Inner>,
    account: Option<Arc<Account>>,
}

#[derive(Debug)]
struct Inner {
    client: Pooled<HttpConnector<Resolver>>,
    uri: Uri,
    headers: HeaderMap,
}

/// A request that got no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// It was on its way.
    Lost {
        /// How far it got.
        reached: Reached,
        /// The cause, for the log.
        source: hyper_util::client::legacy::Error,
    },
    /// It was not sent, for want of a token.
    NoToken(Failure),
}

/// How far a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// No connection: refused, no route, name or certificate wrong.
    NoConnection,
    /// No connection in time.
    ConnectTimeout,
    /// A connection, but the request was not written to it.
    NotSent,
    /// Written, and the server says that it was not read.
    Unread,
    /// Written, and then the connection was lost. The server may have acted on it.
    Maybe,
}

impl Http {
    /// A client for `settings`; opens nothing before the first request.
    pub(crate) fn new(
        settings: &HttpSettings,
        connect: Duration,
        agent: &HeaderValue,
        roots: &Roots,
    ) -> Result<Self, TlsError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, agent.clone());
        for (name, value) in &settings.headers {
            headers.append(name, value.expose().clone());
        }
        let tls = roots.config(settings.ca_file.as_deref())?;
        let client =
            pooled(tcp(Resolver::new(Arc::new(Addresses::new(Arc::new(SystemNames))))), tls, connect, settings.h2c);
        let inner = Arc::new(Inner { client, uri: settings.url.clone(), headers });
        Ok(Self { inner, account: None })
    }

    /// The same client in the name of an account.
    pub(crate) fn by(&self, account: Arc<Account>) -> Self {
        Self { inner: self.inner.clone(), account: Some(account) }
    }

    /// The same client for another place of the same server.
    pub(crate) fn at(&self, uri: Uri) -> Self {
        let Inner { client, headers, .. } = &*self.inner;
        let inner = Inner { client: client.clone(), uri, headers: headers.clone() };
        Self { inner: Arc::new(inner), account: self.account.clone() }
    }

    /// Where the server is.
    pub(crate) fn url(&self) -> &Uri {
        &self.inner.uri
    }

    /// Sends one request and waits for the answer's head. Dropping the future, or later the body, takes the request
    /// back: the connection is closed (HTTP/1.1) or the stream reset (HTTP/2).
    ///
    /// A token that the server refuses (401) is replaced once, and one with too narrow scopes (403) widened once, where that
    /// can be done: whoever refuses a token has not looked at the request.
    pub(crate) async fn send(
        &self,
        method: Method,
        own: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<Response<Incoming>, SendError> {
        let mut headers = self.inner.headers.clone();
        // What the protocol needs cannot be overridden by the config.
        for (name, value) in own {
            headers.insert(name, value);
        }
        match &self.account {
            None => self.once(method, headers, body).await,
            Some(account) => Box::pin(self.signed(account, method, headers, body)).await,
        }
    }

    async fn once(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<Response<Incoming>, SendError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.inner.uri.clone();
        *request.headers_mut() = headers;
        let sent = self.inner.client.request(request).await;
        sent.map_err(|source| SendError::Lost { reached: reached(&source), source })
    }

    async fn signed(
        &self,
        account: &Arc<Account>,
        method: Method,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, SendError> {
        let mut bearer = account.bearer().await.map_err(SendError::NoToken)?;
        let (mut renewed, mut widened) = (false, false);
        loop {
            headers.insert(header::AUTHORIZATION, bearer.header.clone());
            let answer = self.once(method.clone(), headers.clone(), body.clone()).await?;
            let challenge = || Challenge::read(answer.headers());
            let another = match answer.status() {
                StatusCode::UNAUTHORIZED if !std::mem::replace(&mut renewed, true) => {
                    account.renewed(&bearer, challenge()).await.map_err(SendError::NoToken)?
                }
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

/// A pooled client over some connector.
pub(crate) type Pooled<C> = Client<Deadlined<HttpsConnector<C>>, Full<Bytes>>;

/// How TCP connections are made with the names that `resolver` finds.
pub(crate) fn tcp<R>(resolver: R) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(Duration::from_secs(10)));
    tcp.set_keepalive_retries(Some(3));
    tcp
}

/// A client whose connections stand after at most `connect`.
pub(crate) fn pooled<C>(tcp: C, mut tls: rustls::ClientConfig, connect: Duration, h2c: bool) -> Pooled<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<Boxed>,
{
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let connector = Deadlined { inner: HttpsConnector::from((tcp, tls)), after: connect };
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(256)
        .http2_only(h2c)
        .http2_keep_alive_interval(KEEPALIVE)
        .http2_keep_alive_timeout(Duration::from_secs(20))
        .http2_initial_stream_window_size(256 << 10)
        .http2_initial_connection_window_size(4 << 20)
        .build(connector)
}

fn reached(error: &hyper_util::client::legacy::Error) -> Reached {
    let mut cause = error.source();
    let mut text = String::new();
    while let Some(inner) = cause {
        if inner.is::<ConnectTimeout>() {
            return Reached::ConnectTimeout;
        }
        // hyper gives a request back only where no byte of it was written.
        if inner.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled) {
            return Reached::NotSent;
        }
        text = inner.to_string();
        cause = inner.source();
    }
    if error.is_connect() {
        Reached::NoConnection
    } else if text == REFUSED_STREAM {
        Reached::Unread
    } else {
        Reached::Maybe
    }
}

/// How HTTP/2's REFUSED_STREAM reads at the end of hyper's chain of causes, which does not show the code itself. Were
/// the text to change, such a request would count as perhaps executed: the safe side.
const REFUSED_STREAM: &str = "stream error received: refused stream before processing any application logic";

/// A connector that gives up after a time, name lookup and TLS handshake included.
#[derive(Clone, Debug)]
pub(crate) struct Deadlined<C> {
    inner: C,
    after: Duration,
}

/// No connection in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
struct ConnectTimeout;

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
