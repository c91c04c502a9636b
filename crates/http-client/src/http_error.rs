//! The errors of requests: how far a request got decides if it may be sent again.

use std::error::Error;

use weir_http1::MalformedResponse;

/// The point that a request reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestProgress {
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
pub enum UpstreamHttpError {
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
    Unread(#[source] h2::Error),
    /// The connection ended in the middle of a response.
    #[error("the server closed the connection")]
    Closed,
    /// The connection broke in the middle of a response.
    #[error("the connection broke")]
    Broken(#[source] std::io::Error),
    /// The stream broke in the middle of a response, over HTTP/2.
    #[error("the stream broke")]
    Stream(#[source] h2::Error),
    /// The response is not HTTP.
    #[error("the answer is not valid HTTP: {0}")]
    Malformed(&'static str),
}

impl From<MalformedResponse> for UpstreamHttpError {
    fn from(malformed: MalformedResponse) -> Self {
        Self::Malformed(malformed.0)
    }
}

impl UpstreamHttpError {
    /// Returns the point that the request reached.
    pub fn progress(&self) -> RequestProgress {
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
