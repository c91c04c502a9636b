//! The messages of a session beside its requests, and its end.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;
use weir_core::port::Fut;
use weir_core::upstream::ListKinds;
use weir_era::lower;

use super::{FAREWELL, PostContext, Session};
use crate::outbox::Pushed;
use crate::settle;
use crate::site::Site;
use crate::streamable::answer::Answer;
use crate::streamable::client::Http;
use crate::streamable::exchange;
use crate::streamable::reading;
use crate::streamable::talk::Side;

/// Sends a server the end of a session (DELETE), within a timeout.
pub(super) async fn farewell(site: &Site, http: &Http, headers: Vec<(HeaderName, HeaderValue)>) {
    let telling = async {
        // Many sessions may end at once, and each takes a connection for this.
        let _place = site.farewells.acquire().await;
        http.send(http::Method::DELETE, headers, Bytes::new()).await
    };
    if let Ok(Err(error)) = tokio::time::timeout(FAREWELL, telling).await {
        let refusal = exchange::unsent(site, error);
        tracing::debug!(upstream = %site.id, error = %refusal.failure, "a session was not ended");
    }
}

impl Side for Session {
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
            Pushed::Queued | Pushed::Over => return,
            Pushed::Overflow => return self.overflowed(),
            Pushed::Idle => {}
        }
        let (site, headers, outbox) = (self.site.clone(), self.headers(), self.outbox.clone());
        self.site.spawn(async move {
            let post = |message, (http, reservation): PostContext| {
                let (site, headers) = (&site, headers.clone());
                async move {
                    let sent = settle::in_time(site, exchange::tell(site, &http, headers, message)).await;
                    drop(reservation);
                    if let Err(refusal) = sent {
                        tracing::debug!(upstream = %site.id, error = %refusal.failure, "a message did not reach the upstream");
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

    fn resume(self: Arc<Self>, last_event: String) -> Fut<'static, Option<Answer>> {
        Box::pin(async move { reading::get(self, Some(last_event)).await })
    }
}
