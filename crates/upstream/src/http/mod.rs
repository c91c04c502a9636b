//! The pool of connections to one server: HTTP/1.1 connections, each driven by the request that
//! uses it, and one HTTP/2 connection if the server has that.
//!
//! A general client hands every request to a task that owns its connection, and every response
//! back: two wakes, a dozen allocations and two header maps for one call. Here the task that waits
//! for the response reads it from the socket. The parser is strict where RFC 9112 asks for it; a
//! property test compares it with hyper.
//!
//! The pool knows no redirects, cookies, proxies or messages. Its errors state how far a request
//! got, because that decides if it may be sent again.

mod bounded_connection;
mod byte_stream;
mod chunk_decoder;
mod http1_connection;
mod http2_connection;
mod idle_connections;
mod message_head;
mod response_body;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::Instant;
use tower::Service;
use weir_core::Budgets;
use weir_core::budget::{ByteBudget, ConnectionSide, DescriptorBudget};

pub(crate) use bounded_connection::BoundedConnection;
use byte_stream::ByteStream;
use http1_connection::Http1Connection;
use http2_connection::{Http2Connection, RetiredMark};
use idle_connections::{IdleConnections, RestedConnection, TRIAL_TIME};
pub(crate) use response_body::HttpResponseBody;

use crate::dns::DnsResolver;
use crate::streamable::{ConnectTimeout, TimeoutConnector};

/// The idle timeout of connections. It is shorter than that of common servers (5 s for node and
/// uvicorn), so that a request seldom meets a connection that is being closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The most idle connections that are kept.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// The connector to a server.
pub(crate) type UpstreamConnector = TimeoutConnector<HttpsConnector<HttpConnector<DnsResolver>>>;

/// A header field of a request.
pub(crate) type HeaderField = (HeaderName, HeaderValue);

/// One request. Its own fields replace the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) usual: &'a [HeaderField],
    pub(crate) own: &'a [HeaderField],
    pub(crate) body: &'a Bytes,
}

impl<'a> OutgoingRequest<'a> {
    /// Returns the fields to send.
    fn fields(self) -> impl Iterator<Item = &'a HeaderField> {
        let usual = self
            .usual
            .iter()
            .filter(move |(name, _)| self.own.iter().all(|(other, _)| other != name));
        usual.chain(self.own)
    }
}

/// The point that a request reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    /// No connection: the process keeps its last file descriptors for other uses.
    NotTried,
    /// No connection: refused, no route, name or certificate wrong.
    NoConnection,
    /// No connection in time.
    ConnectTimeout,
    /// A connection, but the request was not written to it.
    NotSent,
    /// Written, and the server reported that it was not read.
    Unread,
    /// Written, and then the connection was lost. The server may have acted on it.
    MaybeExecuted,
}

/// The reason for a missing or incomplete response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamHttpError {
    /// See [`RequestProgress::ConnectTimeout`].
    #[error("no connection in time")]
    ConnectTimeout,
    /// See [`RequestProgress::NotTried`].
    #[error("no file descriptor is left for a connection")]
    NoDescriptor,
    /// See [`RequestProgress::NoConnection`].
    #[error("no connection")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// No byte of the request was sent.
    #[error("the connection was lost before the request was written")]
    NotSent(#[source] std::io::Error),
    /// The server refused the request without reading it.
    #[error("the server did not read the request")]
    Unread(#[source] hyper::Error),
    /// The connection ended in the middle of a response.
    #[error("the server closed the connection")]
    Closed,
    /// The connection broke in the middle of a response.
    #[error("the connection broke")]
    Broken(#[source] std::io::Error),
    /// The stream broke in the middle of a response, over HTTP/2.
    #[error("the stream broke")]
    Stream(#[source] hyper::Error),
    /// The response is not HTTP.
    #[error("the answer is not valid HTTP: {0}")]
    Malformed(&'static str),
}

impl UpstreamHttpError {
    /// Returns the point that the request reached.
    pub(crate) fn progress(&self) -> RequestProgress {
        match self {
            Self::NoDescriptor => RequestProgress::NotTried,
            Self::ConnectTimeout => RequestProgress::ConnectTimeout,
            Self::Connect(_) => RequestProgress::NoConnection,
            Self::NotSent(_) => RequestProgress::NotSent,
            Self::Unread(_) => RequestProgress::Unread,
            Self::Closed | Self::Broken(_) | Self::Stream(_) | Self::Malformed(_) => {
                RequestProgress::MaybeExecuted
            }
        }
    }
}

/// The pool of connections to one server. Opens the first one with the first request.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    dial: UpstreamConnector,
    origin: Uri,
    prior_knowledge: bool,
    descriptors: DescriptorBudget,
    windows: ByteBudget,
    idle: Mutex<IdleConnections>,
}

/// The connection that carries a request.
enum PooledConnection {
    Http1(Http1Connection),
    Http2(Http2Connection),
}

impl ConnectionPool {
    /// Makes the pool for the server of `origin`. `prior_knowledge`: HTTP/2 without negotiation.
    pub(crate) fn new(
        dial: UpstreamConnector,
        origin: Uri,
        prior_knowledge: bool,
        budgets: &Budgets,
    ) -> Arc<Self> {
        let (descriptors, windows) = (budgets.descriptors.clone(), budgets.windows.clone());
        Arc::new(Self {
            dial,
            origin,
            prior_knowledge,
            descriptors,
            windows,
            idle: Mutex::default(),
        })
    }

    /// Sends one request and waits for the response's head. Dropping the future, or later the body
    /// before its end, cancels the request: the connection is closed (HTTP/1.1) or the stream reset
    /// (HTTP/2).
    ///
    /// # Errors
    /// The request got no response. A kept connection that is dead before a byte is written is
    /// replaced by another.
    pub(crate) async fn send_request(
        self: &Arc<Self>,
        ask: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        if let Some(answer) = self.send_over_http2(ask).await {
            return answer;
        }
        while let Some(line) = self.take_idle().await {
            match line.send_request(self, ask).await {
                Err(UpstreamHttpError::NotSent(_)) => {}
                answer => {
                    if matches!(
                        answer,
                        Err(UpstreamHttpError::Closed | UpstreamHttpError::Broken(_))
                    ) {
                        self.idle().record_loss();
                    }
                    return answer;
                }
            }
        }
        // On the heap: most requests need no new connection.
        Box::pin(self.send_over_new(ask)).await
    }

    /// Sends a request as [`Self::send_request`] does, but never on a kept HTTP/1.1 connection.
    ///
    /// # Errors
    /// The request got no response.
    pub(crate) async fn send_on_new_connection(
        self: &Arc<Self>,
        ask: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        match self.send_over_http2(ask).await {
            Some(answer) => answer,
            None => self.send_over_new(ask).await,
        }
    }

    /// Sends a request over the HTTP/2 connection; absent if no such connection takes it.
    async fn send_over_http2(
        self: &Arc<Self>,
        ask: OutgoingRequest<'_>,
    ) -> Option<Result<Response<HttpResponseBody>, UpstreamHttpError>> {
        let many = {
            let mut idle = self.idle();
            idle.http2.take_if(|(many, _)| !many.is_open());
            let (many, used) = idle.http2.as_mut()?;
            *used = Instant::now();
            many.clone()
        };
        let mark = many.retired();
        match Box::pin(many.send_request(self, ask)).await {
            // A connection may refuse new requests before it ends.
            Err(UpstreamHttpError::NotSent(_)) => {
                self.retire(&mark);
                None
            }
            answer => Some(answer),
        }
    }

    async fn send_over_new(
        self: &Arc<Self>,
        ask: OutgoingRequest<'_>,
    ) -> Result<Response<HttpResponseBody>, UpstreamHttpError> {
        match Box::pin(self.open()).await? {
            PooledConnection::Http1(line) => line.send_request(self, ask).await,
            PooledConnection::Http2(many) => Box::pin(many.send_request(self, ask)).await,
        }
    }

    /// Retires the HTTP/2 connection that has this mark: it gets no more requests and ends with
    /// those that it has.
    fn retire(&self, mark: &RetiredMark) {
        mark.set();
        self.idle().http2.take_if(|(many, _)| many.has_mark(mark));
    }

    fn idle(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection that is open and has no unread bytes.
    async fn take_idle(&self) -> Option<Http1Connection> {
        loop {
            let RestedConnection {
                connection: mut line,
                mut rest,
                watch,
            } = self.idle().take(Instant::now())?;
            if let Some(watch) = watch {
                let _still_quiet =
                    Box::pin(tokio::time::timeout(watch, line.wait_until_disturbed())).await;
                rest = TRIAL_TIME;
            }
            let is_quiet = line.is_quiet(rest);
            self.idle().record_check(is_quiet, rest);
            if is_quiet && rest < IDLE_TIMEOUT {
                return Some(line);
            }
        }
    }

    /// Opens a connection, or returns the HTTP/2 connection that another request has opened
    /// meanwhile.
    async fn open(self: &Arc<Self>) -> Result<PooledConnection, UpstreamHttpError> {
        let descriptor = self
            .descriptors
            .take(ConnectionSide::Upstream)
            .ok_or(UpstreamHttpError::NoDescriptor)?;
        let mut dial = self.dial.clone();
        let made = async {
            poll_fn(|cx| dial.poll_ready(cx)).await?;
            dial.call(self.origin.clone()).await
        };
        let stream = ByteStream::from(made.await.map_err(|error| {
            if error.is::<ConnectTimeout>() {
                UpstreamHttpError::ConnectTimeout
            } else {
                UpstreamHttpError::Connect(error)
            }
        })?);
        if !self.prior_knowledge && !stream.is_h2() {
            return Ok(PooledConnection::Http1(Http1Connection::new(
                stream, descriptor,
            )));
        }
        if let Some((many, _)) = self
            .idle()
            .http2
            .as_ref()
            .filter(|(many, _)| many.is_open())
        {
            return Ok(PooledConnection::Http2(many.clone()));
        }
        let many = Http2Connection::open(stream, descriptor, &self.windows).await?;
        self.idle().http2 = Some((many.clone(), Instant::now()));
        self.start_sweep();
        Ok(PooledConnection::Http2(many))
    }

    /// Returns a connection that is ready for another request to the pool.
    fn return_to_pool(self: &Arc<Self>, line: Http1Connection) {
        self.idle().add(line);
        self.start_sweep();
    }

    /// Starts the task that closes idle connections, once.
    fn start_sweep(self: &Arc<Self>) {
        let mut idle = self.idle();
        if idle.is_swept {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is ending, and no later request could use a connection.
            *idle = IdleConnections::default();
            return;
        }
        idle.is_swept = true;
        tokio::spawn(close_idle(Arc::downgrade(self)));
    }
}

async fn close_idle(lines: Weak<ConnectionPool>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let Some(lines) = lines.upgrade() else { return };
        let mut idle = lines.idle();
        if idle.prune(Instant::now()) {
            idle.is_swept = false;
            return;
        }
    }
}
