//! The connections to one server: HTTP/1.1, each carried by the request that uses it, and one of
//! HTTP/2 where the server has it.
//!
//! A general client hands every request to a task that owns its connection, and every answer back:
//! two wakes, a dozen allocations and two header maps for one call. Here whoever waits for the
//! answer reads it from the socket. What is read strictly and what is not follows RFC 9112; a
//! property test holds it against hyper.
//!
//! It knows no redirects, cookies, proxies or messages. Its errors say how far a request got,
//! because that decides whether it may be sent again.

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
use weir_core::budget::{ByteBudget, Descriptors, Side};

pub(crate) use body::Body;
pub(crate) use bounded::Bounded;
use many::{Many, Retired};
use reuse::{Idle, Rested, TRIAL};
use stream::Stream;
use turn::Line;

use crate::names::Resolver;
use crate::streamable::{ConnectTimeout, Deadlined};

/// Unused connections are given up before common servers close them (node and uvicorn after 5 s),
/// so that a request seldom meets a connection that is being closed.
pub(crate) const IDLE: Duration = Duration::from_secs(4);
/// How many unused connections are kept.
const MOST_IDLE: usize = 256;

/// How connections to a server are made.
pub(crate) type Dial = Deadlined<HttpsConnector<HttpConnector<Resolver>>>;

/// A header field of a request.
pub(crate) type Field = (HeaderName, HeaderValue);

/// One request. Its own fields take the place of the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) usual: &'a [Field],
    pub(crate) own: &'a [Field],
    pub(crate) body: &'a Bytes,
}

impl<'a> Ask<'a> {
    /// The fields to send.
    fn fields(self) -> impl Iterator<Item = &'a Field> {
        let usual = self
            .usual
            .iter()
            .filter(move |(name, _)| self.own.iter().all(|(other, _)| other != name));
        usual.chain(self.own)
    }
}

/// How far a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// No connection: the process keeps its last descriptors for others.
    NotTried,
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

/// Why there is no answer, or no more of it.
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
    /// No byte of the request left.
    #[error("the connection was lost before the request was written")]
    NotSent(#[source] std::io::Error),
    /// The server took the request back to where it came from.
    #[error("the server did not read the request")]
    Unread(#[source] hyper::Error),
    /// The end, in the middle of something.
    #[error("the server closed the connection")]
    Closed,
    /// Broken in the middle of something.
    #[error("the connection broke")]
    Broken(#[source] std::io::Error),
    /// Broken in the middle of something, over HTTP/2.
    #[error("the stream broke")]
    Stream(#[source] hyper::Error),
    /// What came is not HTTP.
    #[error("the answer is not valid HTTP: {0}")]
    Malformed(&'static str),
}

impl LineError {
    /// How far the request got.
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

/// The connections to one server. Opens none before the first request.
#[derive(Debug)]
pub(crate) struct Lines {
    dial: Dial,
    origin: Uri,
    prior_knowledge: bool,
    descriptors: Descriptors,
    windows: ByteBudget,
    idle: Mutex<Idle>,
}

/// What carries a request.
enum Way {
    Single(Line),
    Many(Many),
}

impl Lines {
    /// The connections to the server of `origin`; HTTP/2 without asking with `prior_knowledge`.
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

    /// Sends one request and waits for the answer's head. Dropping the future, or later the body
    /// before its end, takes the request back: the connection is closed (HTTP/1.1) or the stream
    /// reset (HTTP/2).
    ///
    /// # Errors
    /// The request got no answer. Where a kept connection turns out to be dead before anything is
    /// written, another is taken.
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

    /// The same, never on a connection of HTTP/1.1 that carried another request before.
    ///
    /// # Errors
    /// The request got no answer.
    pub(crate) async fn request_anew(
        self: &Arc<Self>,
        ask: Ask<'_>,
    ) -> Result<Response<Body>, LineError> {
        match self.over_many(ask).await {
            Some(answer) => answer,
            None => self.over_new(ask).await,
        }
    }

    /// Sends a request over the connection of HTTP/2; `None` where there is none that takes it.
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
            // A connection may be told to take no more before it ends.
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

    /// Gives no more requests to the connection of HTTP/2 that has this mark: it ends with those
    /// that it has.
    fn retire(&self, mark: &Retired) {
        mark.set();
        self.idle().many.take_if(|(many, _)| many.is(mark));
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An unused connection that is open and has nothing to be read.
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

    /// A new connection, or one of HTTP/2 that another request has opened meanwhile.
    async fn opened(self: &Arc<Self>) -> Result<Way, LineError> {
        let descriptor = self
            .descriptors
            .take(Side::Upstream)
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

    /// Takes a connection back that is ready for another request.
    fn keep(self: &Arc<Self>, line: Line) {
        self.idle().put(line);
        self.sweep();
    }

    /// Sees to it that what nobody uses is closed in time.
    fn sweep(self: &Arc<Self>) {
        let mut idle = self.idle();
        if idle.is_swept {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is ending, and with it whoever could use a connection.
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
