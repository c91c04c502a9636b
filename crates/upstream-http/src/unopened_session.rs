//! A session between the head of the answer to `initialize`, which has its id, and its opening.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_core::port::BoxFuture;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use crate::http_post::SESSION_ID;
use crate::response_reader::ResponseReader;
use crate::session_channel::{self, SessionChannel};
use crate::side_channel::{SideChannel, StreamRefusal};

/// The revision of requests before the answer to `initialize`: one without a version header, since
/// no version is agreed on yet and the server may not have the offered one.
const UNAGREED_REVISION: Revision = Revision::V2025_03_26;

/// A session that the server has opened, and weir not yet: the answer may be late, or the rest of it
/// missing or wrong, or the caller may leave. The session ends at the server when this is dropped
/// before it has its channel.
#[derive(Debug)]
pub(crate) struct UnopenedSession {
    context: Arc<UpstreamContext>,
    http: AuthorizedHttpClient,
    id: Option<HeaderValue>,
    offered: Revision,
    /// The end of the upstream waits for that of the session.
    _hold: TaskTrackerToken,
}

impl UnopenedSession {
    /// Takes the id, if there is one, from the head of a response to `initialize` that offered this
    /// revision.
    pub(crate) fn new<B>(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        response: &Response<B>,
        offered: Revision,
    ) -> Self {
        let id = response.headers().get(SESSION_ID).cloned();
        Self {
            _hold: context.tasks.hold(),
            context,
            http,
            // A refusal opens no session.
            id: id.filter(|_| response.status().is_success()),
            offered,
        }
    }

    /// Returns the channel for messages beside `initialize`: the server may ask for a sign of life
    /// before its answer, or let the stream be resumed.
    pub(crate) fn side_channel(&self) -> Arc<dyn SideChannel> {
        let (context, http) = (self.context.clone(), self.http.clone());
        let channel = SessionChannel::new(context, http, self.id.clone(), UNAGREED_REVISION);
        Arc::new(OpeningChannel(Arc::new(channel)))
    }

    /// Returns the channel of the session in the revision that the server answered with. The
    /// session is ended by its channel from now on.
    pub(crate) fn into_channel(mut self, revision: Revision) -> SessionChannel {
        let id = self.id.take();
        SessionChannel::new(self.context.clone(), self.http.clone(), id, revision)
    }
}

/// The channel for messages beside `initialize`.
struct OpeningChannel(Arc<SessionChannel>);

impl SideChannel for OpeningChannel {
    fn send(&self, message: Bytes) {
        self.0.send(message);
    }

    fn send_answer(&self, message: Bytes, lost: &CancellationToken) {
        self.0.send_answer(message, lost.clone());
    }

    /// `initialize` must not be cancelled (every revision, basic/utilities/cancellation).
    fn cancel(&self, _id: u64) {}

    fn resume(
        self: Arc<Self>,
        last_event: String,
    ) -> BoxFuture<'static, Result<ResponseReader, StreamRefusal>> {
        Box::pin(self.0.clone().open_get_stream(Some(last_event)))
    }
}

impl Drop for UnopenedSession {
    fn drop(&mut self) {
        let Some(mut id) = self.id.take() else {
            return;
        };
        // The id grants the use of the session.
        id.set_sensitive(true);
        let headers = session_channel::session_headers(Some(&id), self.offered);
        session_channel::delete_later(&self.context, self.http.clone(), headers);
    }
}
