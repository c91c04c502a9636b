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

mod body;
mod bounded;
mod chunked;
mod head;
mod many;
mod reuse;
mod stream;
#[cfg(test)]
mod tests;
mod turn;

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

pub(crate) use body::Body;
pub(crate) use bounded::Bounded;
use many::{Many, Retired};
use reuse::{Idle, Rested, TRIAL};
use stream::Stream;
use turn::Line;

use crate::names::Resolver;
use crate::streamable::{ConnectTimeout, Deadlined};

/// The idle timeout of connections. It is shorter than that of common servers (5 s for node and
/// uvicorn), so that a request seldom meets a connection that is being closed.
pub(crate) const IDLE: Duration = Duration::from_secs(4);
/// The most idle connections that are kept.
const MOST_IDLE: usize = 256;

/// The connector to a server.
pub(crate) type Dial = Deadlined<HttpsConnector<HttpConnector<Resolver>>>;

/// A header field of a request.
pub(crate) type Field = (HeaderName, HeaderValue);

/// One request. Its own fields replace the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) usual: &'a [Field],
    pub(crate) own: &'a [Field],
    pub(crate) body: &'a Bytes,
}

impl<'a> Ask<'a> {
    /// Returns the fields to send.
    fn fields(self) -> impl Iterator<Item = &'a Field> {
        let usual = self
            .usual
            .iter()
            .filter(move |(name, _)| self.own.iter().all(|(other, _)| other != name));
        usual.chain(self.own)
    }
}

/// The point that a request reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
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
    Maybe,
}

/// The reason for a missing or incomplete response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// See [`Reached::ConnectTimeout`].
    #[error("no connection in time")]
    ConnectTimeout,
    /// See [`Reached::NotTried`].
    #[error("no file descriptor is left for a connection")]
    NoDescriptor,
    /// See [`Reached::NoConnection`].
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

impl LineError {
    /// Returns the point that the request reached.
    pub(crate) fn reached(&self) -> Reached {
        match self {
            Self::NoDescriptor => Reached::NotTried,
            Self::ConnectTimeout => Reached::ConnectTimeout,
            Self::Connect(_) => Reached::NoConnection,
            Self::NotSent(_) => Reached::NotSent,
            Self::Unread(_) => Reached::Unread,
            Self::Closed | Self::Broken(_) | Self::Stream(_) | Self::Malformed(_) => Reached::Maybe,
        }
    }
}

/// The pool of connections to one server. Opens the first one with the first request.
#[derive(Debug)]
pub(crate) struct Lines {
    dial: Dial,
    origin: Uri,
    prior_knowledge: bool,
    descriptors: DescriptorBudget,
    windows: ByteBudget,
    idle: Mutex<Idle>,
}

/// The connection that carries a request.
enum Way {
    Single(Line),
    Many(Many),
}

impl Lines {
    /// Makes the pool for the server of `origin`. `prior_knowledge`: HTTP/2 without negotiation.
    pub(crate) fn new(
        dial: Dial,
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
    pub(crate) async fn request(
        self: &Arc<Self>,
        ask: Ask<'_>,
    ) -> Result<Response<Body>, LineError> {
        if let Some(answer) = self.over_many(ask).await {
            return answer;
        }
        while let Some(line) = self.kept().await {
            match line.turn(self, ask).await {
                Err(LineError::NotSent(_)) => {}
                answer => {
                    if matches!(answer, Err(LineError::Closed | LineError::Broken(_))) {
                        self.idle().lost();
                    }
                    return answer;
                }
            }
        }
        // On the heap: most requests need no new connection.
        Box::pin(self.over_new(ask)).await
    }

    /// Sends a request as [`Self::request`] does, but never on a kept HTTP/1.1 connection.
    ///
    /// # Errors
    /// The request got no response.
    pub(crate) async fn request_anew(
        self: &Arc<Self>,
        ask: Ask<'_>,
    ) -> Result<Response<Body>, LineError> {
        match self.over_many(ask).await {
            Some(answer) => answer,
            None => self.over_new(ask).await,
        }
    }

    /// Sends a request over the HTTP/2 connection; absent if no such connection takes it.
    async fn over_many(
        self: &Arc<Self>,
        ask: Ask<'_>,
    ) -> Option<Result<Response<Body>, LineError>> {
        let many = {
            let mut idle = self.idle();
            idle.many.take_if(|(many, _)| !many.is_open());
            let (many, used) = idle.many.as_mut()?;
            *used = Instant::now();
            many.clone()
        };
        let mark = many.retired();
        match Box::pin(many.turn(self, ask)).await {
            // A connection may refuse new requests before it ends.
            Err(LineError::NotSent(_)) => {
                self.retire(&mark);
                None
            }
            answer => Some(answer),
        }
    }

    async fn over_new(self: &Arc<Self>, ask: Ask<'_>) -> Result<Response<Body>, LineError> {
        match Box::pin(self.opened()).await? {
            Way::Single(line) => line.turn(self, ask).await,
            Way::Many(many) => Box::pin(many.turn(self, ask)).await,
        }
    }

    /// Retires the HTTP/2 connection that has this mark: it gets no more requests and ends with
    /// those that it has.
    fn retire(&self, mark: &Retired) {
        mark.set();
        self.idle().many.take_if(|(many, _)| many.is(mark));
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection that is open and has no unread bytes.
    async fn kept(&self) -> Option<Line> {
        loop {
            let Rested {
                mut line,
                mut rest,
                watch,
            } = self.idle().take(Instant::now())?;
            if let Some(watch) = watch {
                let _still_quiet = Box::pin(tokio::time::timeout(watch, line.disturbed())).await;
                rest = TRIAL;
            }
            let is_quiet = line.is_quiet(rest);
            self.idle().found(is_quiet, rest);
            if is_quiet && rest < IDLE {
                return Some(line);
            }
        }
    }

    /// Opens a connection, or returns the HTTP/2 connection that another request has opened
    /// meanwhile.
    async fn opened(self: &Arc<Self>) -> Result<Way, LineError> {
        let descriptor = self
            .descriptors
            .take(ConnectionSide::Upstream)
            .ok_or(LineError::NoDescriptor)?;
        let mut dial = self.dial.clone();
        let made = async {
            poll_fn(|cx| dial.poll_ready(cx)).await?;
            dial.call(self.origin.clone()).await
        };
        let stream = Stream::from(made.await.map_err(|error| {
            if error.is::<ConnectTimeout>() {
                LineError::ConnectTimeout
            } else {
                LineError::Connect(error)
            }
        })?);
        if !self.prior_knowledge && !stream.is_h2() {
            return Ok(Way::Single(Line::new(stream, descriptor)));
        }
        if let Some((many, _)) = self.idle().many.as_ref().filter(|(many, _)| many.is_open()) {
            return Ok(Way::Many(many.clone()));
        }
        let many = Many::open(stream, descriptor, &self.windows).await?;
        self.idle().many = Some((many.clone(), Instant::now()));
        self.sweep();
        Ok(Way::Many(many))
    }

    /// Returns a connection that is ready for another request to the pool.
    fn keep(self: &Arc<Self>, line: Line) {
        self.idle().put(line);
        self.sweep();
    }

    /// Starts the task that closes idle connections, once.
    fn sweep(self: &Arc<Self>) {
        let mut idle = self.idle();
        if idle.is_swept {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is ending, and no later request could use a connection.
            *idle = Idle::default();
            return;
        }
        idle.is_swept = true;
        tokio::spawn(sweeping(Arc::downgrade(self)));
    }
}

async fn sweeping(lines: Weak<Lines>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(lines) = lines.upgrade() else { return };
        let mut idle = lines.idle();
        if idle.prune(Instant::now()) {
            idle.is_swept = false;
            return;
        }
    }
}
