//! The client of another process of a graceful restart: it sends the process before this one the
//! requests about what stayed there, or the process after this one those about what is there now.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Response;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use weir_core::port::{BoxFuture, ReplicaId};
use weir_core::{Budgets, HandoverArrival};
use weir_listen::{ForwardError, ForwardedBody, ForwardedRequest, RequestForwarder};

use crate::peer_connection::{self, OpenedPeer, PeerConnection, PeerSendFailure};
use crate::peer_forwarder::{client_answer, request_head};

/// The longest wait for the stream to the other process.
const STREAM_WAIT: Duration = Duration::from_secs(20);
/// The longest wait for the last messages of the other process, once it takes no requests.
const END_WAIT: Duration = Duration::from_secs(10);

/// Sends requests of clients to another process of a graceful restart, over one HTTP/2 connection
/// without TLS: its stream is a pair of sockets that no third process has.
pub struct ProcessForwarder {
    link: watch::Sender<ProcessLink>,
    /// True once there is no connection and none to come: every request reads it.
    is_gone: AtomicBool,
    budgets: Budgets,
}

/// The connection to the other process.
enum ProcessLink {
    /// The stream is on its way.
    Awaited,
    Open(PeerConnection),
    /// There is no such process, or it has ended, or it takes no requests.
    Gone,
}

impl ProcessForwarder {
    /// A forwarder without a connection. Requests wait for one if it is `awaited`. Its window
    /// counts in `budgets`.
    #[must_use]
    pub fn new(awaited: bool, budgets: Budgets) -> Self {
        let link = if awaited {
            ProcessLink::Awaited
        } else {
            ProcessLink::Gone
        };
        let (link, _) = watch::channel(link);
        Self {
            link,
            is_gone: AtomicBool::new(!awaited),
            budgets,
        }
    }

    /// Waits with requests from now on: the stream to the other process is on its way.
    pub fn await_stream(&self) {
        self.link.send_replace(ProcessLink::Awaited);
        self.is_gone.store(false, Ordering::Relaxed);
    }

    /// Sends requests over this stream until it ends. Returns once the last messages of the other
    /// process are taken, after a bounded time at the latest: until then requests wait, because this
    /// process does not have all state of that one yet.
    pub async fn run<S>(&self, stream: S, last_messages: &HandoverArrival)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let window = peer_connection::reserve_window(&self.budgets);
        match peer_connection::begin_local(stream, window).await {
            Ok(OpenedPeer { connection, driver }) => {
                self.link.send_replace(ProcessLink::Open(connection));
                driver.await;
            }
            Err(error) => {
                tracing::debug!(%error, "no connection to the other process of a graceful restart")
            }
        }
        let _in_time = timeout(END_WAIT, last_messages.wait()).await;
        self.end();
    }

    /// Refuses further requests: the other process has ended, or takes none.
    pub fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.link.send_replace(ProcessLink::Gone);
    }

    async fn connection(&self) -> Result<PeerConnection, ForwardError> {
        let mut link = self.link.subscribe();
        let arrived = link.wait_for(|link| !matches!(link, ProcessLink::Awaited));
        match timeout(STREAM_WAIT, arrived).await {
            Ok(Ok(link)) => match &*link {
                ProcessLink::Open(connection) => Ok(connection.clone()),
                ProcessLink::Awaited | ProcessLink::Gone => Err(not_sent("it has ended")),
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
        let failure = match connection.send(head, request.body).await {
            Ok(answer) => return client_answer(answer),
            Err(PeerSendFailure::Retired(cause) | PeerSendFailure::NotProcessed(cause)) => {
                ForwardError::NotSent(cause)
            }
            Err(PeerSendFailure::Lost(cause)) => ForwardError::Lost(cause),
        };
        // The other process ends: what it leaves is here once it has ended.
        let mut link = self.link.subscribe();
        let gone = link.wait_for(|link| matches!(link, ProcessLink::Gone));
        let _in_time = timeout(END_WAIT, gone).await.is_ok();
        Err(failure)
    }
}

fn not_sent(cause: &str) -> ForwardError {
    ForwardError::NotSent(cause.to_owned())
}

impl RequestForwarder for ProcessForwarder {
    /// The other process has the name of this replica, so the name is not needed.
    fn forward<'a>(
        &'a self,
        _to: &'a ReplicaId,
        request: ForwardedRequest,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, ForwardError>> {
        Box::pin(self.send(request))
    }

    fn takes_requests(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ProcessForwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessForwarder").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::pin;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::Request;
    use weir_core::names::RequestName;
    use weir_listen::{ForwardedClient, ForwardedSender};

    use super::*;

    fn request() -> ForwardedRequest {
        ForwardedRequest {
            sender: ForwardedSender::Client,
            head: Request::post("http://weir/mcp")
                .body(())
                .unwrap()
                .into_parts()
                .0,
            body: Bytes::from_static(b"{}"),
            client: ForwardedClient {
                forwarded_by: ReplicaId([1; 8]),
                request: RequestName::from_bits(7),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                secure: false,
                certificate: None,
            },
        }
    }

    /// The clock is paused: it moves on only once all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn requests_wait_until_the_last_messages_of_the_other_process_are_taken() {
        let forwarder = Arc::new(ProcessForwarder::new(true, Budgets::default()));
        let last_messages = HandoverArrival::awaited();
        let (own, other) = tokio::io::duplex(1 << 16);
        let running = tokio::spawn({
            let (forwarder, last_messages) = (forwarder.clone(), last_messages.clone());
            async move { forwarder.run(own, &last_messages).await }
        });
        drop(other);
        let name = ReplicaId([0; 8]);
        let mut forwarding = pin!(forwarder.forward(&name, request()));
        let early = timeout(END_WAIT / 2, &mut forwarding).await;
        assert!(
            early.is_err(),
            "the state of that process is still on its way"
        );
        assert!(forwarder.takes_requests());
        last_messages.complete();
        let refused = forwarding.await.err();
        assert!(matches!(
            refused,
            Some(ForwardError::NotSent(_) | ForwardError::Lost(_))
        ));
        running.await.unwrap();
        assert!(!forwarder.takes_requests());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_last_messages_has_an_end() {
        let forwarder = ProcessForwarder::new(true, Budgets::default());
        let (own, other) = tokio::io::duplex(1 << 16);
        drop(other);
        forwarder.run(own, &HandoverArrival::awaited()).await;
        assert!(!forwarder.takes_requests());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_the_stream_of_a_process_that_starts() {
        let forwarder = ProcessForwarder::new(false, Budgets::default());
        let name = ReplicaId([0; 8]);
        let refused = forwarder.forward(&name, request()).await.err();
        assert!(matches!(refused, Some(ForwardError::NotSent(_))));
        // The first one does not start, the second one does, and ends.
        for starts in [false, true] {
            forwarder.await_stream();
            assert!(forwarder.takes_requests());
            let mut forwarding = pin!(forwarder.forward(&name, request()));
            let early = timeout(STREAM_WAIT / 2, &mut forwarding).await;
            assert!(early.is_err(), "the stream is on its way");
            if starts {
                let (own, other) = tokio::io::duplex(1 << 16);
                drop(other);
                forwarder.run(own, &HandoverArrival::default()).await;
            } else {
                forwarder.end();
            }
            let refused = forwarding.await.err();
            assert!(
                matches!(refused, Some(ForwardError::NotSent(_))),
                "{refused:?}"
            );
            assert!(!forwarder.takes_requests());
        }
    }
}
