//! The client of the process before this one, which a graceful restart replaced: it sends that
//! process the requests about calls that are parked there.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Response;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use weir_core::Budgets;
use weir_core::port::{Fut, ReplicaId};
use weir_listen::{ForwardError, ForwardedBody, ForwardedRequest, RequestForwarder};

use crate::peer_connection::{self, OpenedPeer, PeerConnection, SendFailure};
use crate::peer_forwarder::{client_answer, request_head};

/// The longest wait for the stream to the process before.
const STREAM_WAIT: Duration = Duration::from_secs(20);

/// Sends requests of clients to the process before this one, over one HTTP/2 connection without
/// TLS: its stream is a pair of sockets that no other process has.
pub struct PredecessorForwarder {
    link: watch::Sender<PredecessorLink>,
    /// True once there is no connection and none to come: every request reads it.
    is_gone: AtomicBool,
    budgets: Budgets,
}

/// The connection to the process before.
enum PredecessorLink {
    /// The stream is on its way.
    Awaited,
    Open(PeerConnection),
    /// There is no such process, or it has ended, or it takes no requests.
    Gone,
}

impl PredecessorForwarder {
    /// A forwarder without a connection. Requests wait for one if it is `awaited`. Its window
    /// counts in `budgets`.
    #[must_use]
    pub fn new(awaited: bool, budgets: Budgets) -> Self {
        let link = if awaited {
            PredecessorLink::Awaited
        } else {
            PredecessorLink::Gone
        };
        let (link, _) = watch::channel(link);
        Self {
            link,
            is_gone: AtomicBool::new(!awaited),
            budgets,
        }
    }

    /// Sends requests over this stream, and returns once it has ended.
    pub async fn run<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let window = peer_connection::reserve_window(&self.budgets);
        match peer_connection::begin_local(stream, window).await {
            Ok(OpenedPeer { connection, driver }) => {
                self.link.send_replace(PredecessorLink::Open(connection));
                driver.await;
            }
            Err(error) => tracing::debug!(%error, "no connection to the previous process"),
        }
        self.end();
    }

    /// Refuses further requests: the process before has ended, or takes none.
    pub fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.link.send_replace(PredecessorLink::Gone);
    }

    async fn connection(&self) -> Result<PeerConnection, ForwardError> {
        let mut link = self.link.subscribe();
        let arrived = link.wait_for(|link| !matches!(link, PredecessorLink::Awaited));
        match timeout(STREAM_WAIT, arrived).await {
            Ok(Ok(link)) => match &*link {
                PredecessorLink::Open(connection) => Ok(connection.clone()),
                PredecessorLink::Awaited | PredecessorLink::Gone => Err(not_sent("it has ended")),
            },
            Ok(Err(_)) | Err(_) => Err(not_sent("it sent no stream")),
        }
    }

    async fn send(
        &self,
        request: ForwardedRequest,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let head = request_head(&request)?;
        let connection = self.connection().await?;
        match connection.send(head, request.body).await {
            Ok(answer) => client_answer(answer),
            Err(SendFailure::Retired(cause) | SendFailure::NotProcessed(cause)) => {
                Err(ForwardError::NotSent(cause))
            }
            Err(SendFailure::Lost(cause)) => Err(ForwardError::Lost(cause)),
        }
    }
}

fn not_sent(cause: &str) -> ForwardError {
    ForwardError::NotSent(cause.to_owned())
}

impl RequestForwarder for PredecessorForwarder {
    /// The process before has the name of this replica, so the name is not needed.
    fn forward<'a>(
        &'a self,
        _to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> Fut<'a, Result<Response<ForwardedBody>, ForwardError>> {
        Box::pin(self.send(request))
    }

    fn takes_requests(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for PredecessorForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredecessorForwarder")
            .finish_non_exhaustive()
    }
}
