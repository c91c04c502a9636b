//! The state that the reader of the host's messages shares with the tasks that answer them: the
//! way to the client side and to the host, and the host's session.

use parking_lot::{Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_front::InMemoryChannel;
use weir_wire::{ErrorObject, RequestId, write};

use crate::http_request::{HostSession, RequestMaker};
use crate::in_flight::InFlightRequests;
use crate::remote::RemoteGate;
use crate::streams::StdoutWriter;

/// The state of a gateway over standard input and output.
pub(super) struct StdioGatewayState {
    pub channel: InMemoryChannel,
    pub(super) requests: RequestMaker,
    pub remote: Option<RemoteGate>,
    pub longest: usize,
    pub(super) stdout: StdoutWriter,
    pub(super) in_flight: InFlightRequests,
    pub(super) session: Mutex<Option<OpenSession>>,
    /// The permit for large messages, one at a time.
    pub(super) room: Semaphore,
    pub(super) tasks: TaskTracker,
    /// Cancelled when running exchanges are dropped.
    pub(super) abandoned: CancellationToken,
}

/// The host's session and its standing stream.
pub(super) struct OpenSession {
    pub(super) session: HostSession,
    /// Ends the standing stream.
    pub(super) stream: CancellationToken,
    pub(super) is_streaming: bool,
}

impl StdioGatewayState {
    /// Sends a message without a response.
    pub(super) async fn send_without_response(&self, request: http::Request<Bytes>) {
        let Ok(response) = self.channel.send(request).await else {
            return;
        };
        let status = response.status();
        if !status.is_success() {
            let body = response
                .into_body()
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes)
                .unwrap_or_default();
            tracing::debug!(status = status.as_u16(), answer = %String::from_utf8_lossy(&body), "message from the host rejected");
        }
    }

    /// Writes a JSON-RPC error.
    pub(super) async fn refuse(&self, id: Option<&RequestId>, code: i64, text: String) {
        let null_id = self
            .session()
            .is_some_and(|session| !session.revision.has_optional_error_id());
        self.stdout
            .write(write::error_response(
                id,
                null_id,
                &ErrorObject::new(code, text),
            ))
            .await;
    }

    /// Returns the host's session.
    pub(super) fn session(&self) -> Option<HostSession> {
        self.open_session()
            .as_ref()
            .map(|open| open.session.clone())
    }

    /// Locks the host's session.
    pub(super) fn open_session(&self) -> MutexGuard<'_, Option<OpenSession>> {
        self.session.lock()
    }

    /// Replaces the former session, and ends it.
    pub(super) async fn begin_session(&self, session: Option<HostSession>) {
        let next = session.map(|session| OpenSession {
            session,
            stream: self.abandoned.child_token(),
            is_streaming: false,
        });
        let before = std::mem::replace(&mut *self.open_session(), next);
        if let Some(OpenSession {
            session, stream, ..
        }) = before
        {
            stream.cancel();
            self.send_without_response(self.requests.delete(&session))
                .await;
        }
    }
}
