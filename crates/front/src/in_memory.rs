//! A channel to the client side inside the process, without a socket: no other process can reach
//! it.
//!
//! Its requests go through the same stack of layers as those of the listener. It carries no headers
//! that mirror a body for routers in between (`Mcp-Param-*`), because it has no routers.

use std::error::Error;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_layers::layer::observe::ObservedBody;
use weir_listen::{ClientPeer, IncomingRequest, ListenerState, RequestBody, RequestService as _};

use crate::router::FrontRouter;

const LOCALHOST: HeaderValue = HeaderValue::from_static("localhost");

/// A channel to the client side. Clones share it.
#[derive(Clone)]
pub struct InMemoryChannel {
    listening: Arc<ListenerState<FrontRouter>>,
    peer: ClientPeer,
}

/// The client side has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("weir has stopped")]
pub struct FrontStopped;

impl InMemoryChannel {
    pub(crate) fn new(listening: Arc<ListenerState<FrontRouter>>) -> Self {
        Self {
            listening,
            peer: ClientPeer::in_memory(),
        }
    }

    /// Makes a drain wait for a request that is not sent yet.
    #[must_use]
    pub fn upcoming(&self) -> UpcomingRequest {
        UpcomingRequest(self.listening.tasks().token())
    }

    /// Sends a request, with its `Host` set here, and waits for the head of its response.
    /// Dropping the future, or later the body, has the effect of a closed connection.
    ///
    /// # Errors
    /// The client side has stopped, or stops before the response begins.
    pub async fn send(
        &self,
        mut request: Request<Bytes>,
    ) -> Result<Response<InMemoryBody>, FrontStopped> {
        request.headers_mut().insert(header::HOST, LOCALHOST);
        let (router, force) = (self.listening.service(), self.listening.force());
        let running = self.listening.tasks().token();
        let incoming = IncomingRequest {
            request: request.map(RequestBody::whole),
            peer: self.peer.clone(),
        };
        // Boxed: it is large, and a host may have many requests in flight.
        let served = Box::pin(force.run_until_cancelled(router.serve(incoming))).await;
        let Some(Ok(response)) = served else {
            return Err(FrontStopped);
        };
        let forced = Box::pin(force.clone().cancelled_owned());
        Ok(response.map(|body| InMemoryBody {
            body,
            forced,
            _running: running,
        }))
    }
}

/// A request that is to be sent. A drain waits until it is dropped.
#[derive(Debug)]
pub struct UpcomingRequest(#[expect(dead_code, reason = "its drop counts")] TaskTrackerToken);

impl fmt::Debug for InMemoryChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryChannel").finish_non_exhaustive()
    }
}

/// The body of a response. A drain waits for its end.
pub struct InMemoryBody {
    body: ObservedBody,
    forced: Pin<Box<WaitForCancellationFutureOwned>>,
    _running: TaskTrackerToken,
}

impl http_body::Body for InMemoryBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.forced
            .as_mut()
            .poll(cx)
            .map(|()| Some(Err(FrontStopped.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

impl fmt::Debug for InMemoryBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryBody").finish_non_exhaustive()
    }
}
