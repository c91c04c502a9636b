//! The posts of one HTTP+SSE connection.
//!
//! Some servers respond to a POST at once, others after they have handled its message, with a tool
//! that runs for minutes. So each request has a post of its own, which ends with the request.
//! Beside these there is one post for each other lane of the outbox: a server that does not read
//! weir's messages costs no more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use weir_era::upstream_messages::ResendProof;
use weir_oauth_client::AuthorizedHttpClient;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::outbox::{OutboxLane, OutgoingMessage};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_stdio::{ChildChannel, OutgoingPurpose, PendingChildRequest};

use crate::answer_delivery::deliver;
use crate::http_post::post_one_way;

/// The longest wait for the response to a request that is answered. It usually follows the answer,
/// and then the connection can be used again.
const LATE_RESPONSE_TIME: Duration = Duration::from_secs(1);
/// The most posts of requests that are answered.
const MAX_LATE_RESPONSES: usize = 64;

/// The posts of one connection.
pub(crate) struct SsePosts {
    context: Arc<UpstreamContext>,
    http: AuthorizedHttpClient,
    pipe: Arc<ChildChannel>,
    /// The permits of posts that outlast their requests.
    late: Semaphore,
}

impl SsePosts {
    pub(crate) fn new(
        context: Arc<UpstreamContext>,
        http: AuthorizedHttpClient,
        pipe: Arc<ChildChannel>,
    ) -> Self {
        Self {
            context,
            http,
            pipe,
            late: Semaphore::new(MAX_LATE_RESPONSES),
        }
    }

    /// Posts the outgoing messages, until the connection ends.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let closed = self.pipe.closed();
        tokio::select! {
            () = self.post_all() => {}
            () = stop.cancelled() => {}
            () = closed.cancelled() => {}
        }
        stop.cancel();
    }

    /// Begins the posts in the order of the messages. Messages of one lane, other than requests,
    /// wait for the response to the one before.
    async fn post_all(&self) {
        let mut posts = FuturesUnordered::new();
        let mut busy = Vec::new();
        // Requests wait for the response to an earlier notification, such as `initialized`.
        let mut notified: Option<CancellationToken> = None;
        loop {
            let next = self.pipe.next_message_of(|lane| !busy.contains(&lane));
            let next = tokio::select! {
                biased;
                Some(ended) = posts.next() => {
                    busy.retain(|lane| *lane != ended);
                    continue;
                }
                next = next => next,
            };
            let lane = next.lane;
            if lane != OutboxLane::Requests {
                busy.push(lane);
            }
            if lane == OutboxLane::Notifications {
                notified = Some(CancellationToken::new());
            }
            let notified = notified.clone();
            posts.push(async move {
                self.post(next, notified).await;
                lane
            });
        }
    }

    async fn post(
        &self,
        next: OutgoingMessage<OutgoingPurpose>,
        notified: Option<CancellationToken>,
    ) {
        match next.with {
            OutgoingPurpose::Request(request, permit) => {
                drop(permit);
                self.post_request(next.message, &request, notified).await;
            }
            OutgoingPurpose::OneWay(_share) => {
                let is_notification = next.lane == OutboxLane::Notifications;
                let _guard = notified
                    .filter(|_| is_notification)
                    .map(CancellationToken::drop_guard);
                // An answer is posted again after a failure that may pass.
                let lost = next.is_answer.then(CancellationToken::new);
                deliver(&self.context, &self.http, Vec::new(), next.message, lost).await;
            }
        }
    }

    /// Posts a request. One that is refused fails alone.
    async fn post_request(
        &self,
        message: Bytes,
        request: &PendingChildRequest,
        notified: Option<CancellationToken>,
    ) {
        if let Some(notified) = notified
            && request
                .over()
                .run_until_cancelled(notified.cancelled())
                .await
                .is_none()
        {
            return;
        }
        let (context, http) = (&self.context, &self.http);
        let mut posting = Box::pin(post_one_way(
            context,
            http,
            Vec::new(),
            message,
            Some(request.id()),
        ));
        let posted = tokio::select! {
            posted = &mut posting => posted,
            () = request.over().cancelled() => {
                // A request that is given up must not be sent after its cancellation.
                if request.is_answered() && let Ok(_permit) = self.late.try_acquire() {
                    // The response makes no difference any more.
                    let _late = timeout(LATE_RESPONSE_TIME, posting).await;
                }
                return;
            }
        };
        match posted {
            Ok(None) => {}
            Ok(Some(refused)) => {
                let status = refused.status;
                let is_own = refused.is_own();
                let refusal = refused.into_refusal(context);
                if status == StatusCode::NOT_FOUND {
                    // The server does not know the session that the URL names.
                    let why = refusal.failure.to_string();
                    let proof = is_own.then_some(ResendProof::SessionLost);
                    self.refuse(request, refusal.with_proof(proof), Some(status));
                    self.pipe.close(&why);
                } else {
                    self.refuse(request, refusal, Some(status));
                }
            }
            Err(refusal) => self.refuse(request, refusal, None),
        }
    }

    fn refuse(
        &self,
        request: &PendingChildRequest,
        refusal: FailedAttempt,
        status: Option<StatusCode>,
    ) {
        let status = status.map(|status| status.as_u16());
        tracing::debug!(upstream = %self.context.label.id, status, error = refusal.failure.cause(), "request to upstream failed");
        // The open stream shows that the server is the same as before.
        request.refuse(refusal.without_era_signs());
    }
}
