//! The requests that the successor of this process forwards to it in a graceful restart: those
//! about calls that are parked here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use weir_core::Budgets;
use weir_listen::{AcceptedStream, ForwardedRequests, ListenerState, ListenerTlsError};

use crate::router::FrontRouter;

/// The requests that the successor of this process forwards. Clones share them.
#[derive(Clone)]
pub struct SuccessorRequests(Arc<ListenerState<ForwardedRequests<FrontRouter>>>);

impl SuccessorRequests {
    /// Serves by the service of `public`, at no stream yet.
    pub(crate) fn new(
        public: Arc<ListenerState<FrontRouter>>,
        budgets: Budgets,
    ) -> Result<Self, ListenerTlsError> {
        let requests = ForwardedRequests::new(public);
        let listening = ListenerState::new(requests, budgets, CancellationToken::new(), None)?;
        Ok(Self(listening))
    }

    /// Serves the requests on a stream to the successor. Must be called inside a tokio runtime.
    pub fn serve(&self, stream: impl AcceptedStream) {
        let listening = self.0.clone();
        self.0.tasks().spawn(async move {
            tokio::select! {
                // A successor has more time until it begins than a client.
                () = stream.wait_readable() => {
                    listening.serve_connection(stream, IpAddr::V4(Ipv4Addr::LOCALHOST));
                }
                () = listening.drain().cancelled() => {}
            }
        });
    }

    /// Waits until no successor can forward requests.
    pub async fn wait_for_end(&self) {
        self.0.tasks().close();
        self.0.tasks().wait().await;
    }

    /// Takes no further requests.
    pub(crate) fn begin_drain(&self) {
        self.0.drain().cancel();
    }

    /// Closes the streams.
    pub(crate) fn force(&self) {
        self.0.force().cancel();
    }
}

impl fmt::Debug for SuccessorRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuccessorRequests").finish_non_exhaustive()
    }
}
