//! The requests that the other processes of a graceful restart forward to this one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::Budgets;

use crate::accepted_stream::AcceptedStream as _;
use crate::forwarded_requests::ForwardedRequests;
use crate::forwarding::OtherProcess;
use crate::listener_state::ListenerState;
use crate::request_service::RequestService;
use crate::tls::ListenerTlsError;

/// The requests that the other processes of a graceful restart forward to this one: the predecessor
/// those about what it has handed over, the successor those about what stayed here.
#[derive(Debug)]
pub struct ProcessRequests {
    predecessor: StreamRequests,
    successor: StreamRequests,
}

impl ProcessRequests {
    /// Serves by the service of `public`, at no stream yet.
    ///
    /// # Errors
    /// As [`ListenerState::new`].
    pub fn new<R: RequestService>(
        public: &Arc<ListenerState<R>>,
        budgets: &Budgets,
    ) -> Result<Self, ListenerTlsError> {
        let of = |process| StreamRequests::new(process, public.clone(), budgets.clone());
        Ok(Self {
            predecessor: of(OtherProcess::Predecessor)?,
            successor: of(OtherProcess::Successor)?,
        })
    }

    /// Serves the requests on a stream from this process. Must be called inside a tokio runtime.
    pub fn serve(&self, from: OtherProcess, stream: UnixStream) {
        let requests = match from {
            OtherProcess::Predecessor => &self.predecessor,
            OtherProcess::Successor => &self.successor,
        };
        (requests.serve)(stream);
    }

    /// Waits until no successor can forward requests.
    pub async fn wait_for_end_of_successor(&self) {
        self.successor.wait_for_end().await;
    }

    /// Waits until no other process can forward requests.
    pub async fn wait_for_end(&self) {
        self.predecessor.wait_for_end().await;
        self.successor.wait_for_end().await;
    }

    /// Takes no further requests.
    pub fn begin_drain(&self) {
        self.predecessor.drain.cancel();
        self.successor.drain.cancel();
    }

    /// Closes the streams.
    pub fn force(&self) {
        self.predecessor.force.cancel();
        self.successor.force.cancel();
    }
}

/// The requests on the streams of one other process.
struct StreamRequests {
    tasks: TaskTracker,
    drain: CancellationToken,
    force: CancellationToken,
    serve: Box<dyn Fn(UnixStream) + Send + Sync>,
}

impl StreamRequests {
    fn new<R: RequestService>(
        from: OtherProcess,
        public: Arc<ListenerState<R>>,
        budgets: Budgets,
    ) -> Result<Self, ListenerTlsError> {
        let requests = ForwardedRequests::new(public).of_process(from);
        let listening = ListenerState::new(requests, budgets, CancellationToken::new(), None)?;
        Ok(Self {
            tasks: listening.tasks().clone(),
            drain: listening.drain().clone(),
            force: listening.force().clone(),
            serve: Box::new(move |stream| {
                let own = listening.clone();
                listening.tasks().spawn(async move {
                    tokio::select! {
                        // Another process has more time until it begins than a client.
                        () = stream.wait_readable() => {
                            own.serve_connection(stream, IpAddr::V4(Ipv4Addr::LOCALHOST));
                        }
                        () = own.drain().cancelled() => {}
                    }
                });
            }),
        })
    }

    async fn wait_for_end(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl fmt::Debug for StreamRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRequests").finish_non_exhaustive()
    }
}
