//! The messages of a session beside its requests, and its end.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;
use weir_core::port::Fut;
use weir_core::upstream::ListKinds;
use weir_era::lower;

use super::{DELETE_TIMEOUT, PostContext, UpstreamSession};
use crate::outbox::PushOutcome;
use crate::own_requests;
use crate::streamable::http_client::UpstreamHttpClient;
use crate::streamable::http_post;
use crate::streamable::response_reader::ResponseReader;
use crate::streamable::side_channel::SideChannel;
use crate::streamable::stream_reader;
use crate::upstream_context::UpstreamContext;

/// Sends a server the end of a session (DELETE), within a timeout.
pub(super) async fn send_delete(
    site: &UpstreamContext,
    http: &UpstreamHttpClient,
    headers: Vec<(HeaderName, HeaderValue)>,
) {
    let telling = async {
        // Many sessions may end at once, and each takes a connection for this.
        let _place = site.session_end_permits.acquire().await;
        http.send(http::Method::DELETE, headers, Bytes::new()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(DELETE_TIMEOUT, telling).await {
        let refusal = http_post::unsent_attempt(site, error);
        tracing::debug!(upstream = %site.id, error = %refusal.failure, "session delete failed");
    }
}

impl SideChannel for UpstreamSession {
    fn send(&self, message: Bytes) {
        let Some(reservation) = self
            .site
            .budgets
            .messages
            .try_reserve_of(self.site.owner(), message.len())
        else {
            if !self.outbox.over().is_cancelled() {
                self.outbox.end();
                self.overflowed();
            }
            return;
        };
        match self.outbox.push(message, (self.http(), reservation)) {
            PushOutcome::Queued | PushOutcome::Over => return,
            PushOutcome::Overflow => return self.overflowed(),
            PushOutcome::Idle => {}
        }
        let (site, headers, outbox) = (self.site.clone(), self.headers(), self.outbox.clone());
        self.site.spawn(async move {
            let post = |message, (http, reservation): PostContext| {
                let (site, headers) = (&site, headers.clone());
                async move {
                    let sent = own_requests::within_list_deadline(site, http_post::post_notification(site, &http, headers, message)).await;
                    drop(reservation);
                    if let Err(refusal) = sent {
                        tracing::debug!(upstream = %site.id, error = %refusal.failure, "message to upstream not delivered");
                    }
                }
            };
            outbox.run(post).await;
        });
    }

    fn over(&self) -> Option<CancellationToken> {
        Some(self.outbox.over().clone())
    }

    fn list_changed(&self, kinds: ListKinds) -> bool {
        let Some(lists) = self.lists.get() else {
            return false;
        };
        lists.handle_list_changed(kinds);
        true
    }

    fn cancel(&self, id: u64) {
        self.send(lower::cancelled(id));
    }

    fn resume(self: Arc<Self>, last_event: String) -> Fut<'static, Option<ResponseReader>> {
        Box::pin(async move { stream_reader::open_get_stream(self, Some(last_event)).await })
    }
}
