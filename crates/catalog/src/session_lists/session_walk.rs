//! Walks over a session's lists, on a client's request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use opentelemetry::KeyValue;
use tokio::time::timeout;
use weir_core::capability::CapabilityClass;
use weir_core::failure::{Failure, FailureKind};
use weir_core::instant::millis;
use weir_core::server_item::ServerItem;
use weir_core::telemetry::instruments;
use weir_core::upstream::ListKind;

use crate::catalog::Catalog;
use crate::catalog_source::CatalogSource;
use crate::ingest::{DefinitionOwner, ListOrigin, ingest};
use crate::session_lists::{SessionLists, WalkCause};
use crate::walk::walk;
use weir_items::ListDifference;

/// The pause after a walk that failed. Meanwhile the client sees the last known list.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// An upstream of an endpoint, and the lists of the session that serves a client there.
pub(super) struct ServedSession {
    pub(super) source: Arc<CatalogSource>,
    pub(super) lists: Arc<SessionLists>,
}

impl Catalog {
    /// Walks a session's list if it is due. A failure keeps the last known difference: an
    /// incomplete list is better than a late one. Cancel safe.
    pub(super) async fn refresh_session(
        &self,
        served: &ServedSession,
        kind: ListKind,
        class: CapabilityClass,
        cause: WalkCause,
    ) {
        let lists = &served.lists;
        if !lists.is_due(kind, cause) {
            return;
        }
        let _one = lists.walking.lock().await;
        let now = self.context.millis();
        // Another request may have walked it meanwhile.
        if !lists.is_due(kind, cause) || now < lists.not_before.load(Ordering::Relaxed) {
            return;
        }
        let label = || KeyValue::new("upstream", lists.upstream.as_str().to_owned());
        let count = |outcome| {
            instruments()
                .session_list_walks
                .add(1, &[label(), KeyValue::new("outcome", outcome)])
        };
        if !lists.pace.wait_turn().await {
            return count("limited");
        }
        let mark = lists.mark(kind);
        let walking = timeout(
            self.context.settings.first_list_wait,
            self.walk_session(served, kind, class),
        );
        let late = || {
            Failure::new(
                FailureKind::TimedOut,
                "the server did not list in a client's session in time",
            )
        };
        let walked = walking.await.unwrap_or_else(|_| Err(late()));
        let (shared, own, is_cut) = match walked {
            Ok(Some(walked)) => walked,
            // The session is over, or the shared list is not known.
            Ok(None) => return,
            Err(failure) => {
                let retry = now.saturating_add(millis(RETRY_PAUSE));
                lists.not_before.store(retry, Ordering::Relaxed);
                tracing::debug!(upstream = %lists.upstream, list = kind.word(), error = failure.cause(), "session list walk failed");
                return count("failed");
            }
        };
        match ListDifference::between(
            &shared,
            &own,
            is_cut,
            mark,
            &self.context.ports.session_lists.memory,
        ) {
            Ok(difference) => {
                count(if difference.is_empty() {
                    "same"
                } else {
                    "differs"
                });
                lists.learn(kind, difference);
            }
            Err(bound) => {
                count(bound);
                lists.learn(kind, ListDifference::none(mark));
            }
        }
    }

    /// The shared list, the session's list, and the flag that a guard cut the latter; no value
    /// without a session or a shared list.
    async fn walk_session(
        &self,
        served: &ServedSession,
        kind: ListKind,
        class: CapabilityClass,
    ) -> Result<Option<(Arc<[Arc<ServerItem>]>, Arc<[Arc<ServerItem>]>, bool)>, Failure> {
        let ServedSession { source, lists } = served;
        let Some(session) = lists.session.upgrade() else {
            return Ok(None);
        };
        let mut watch = session.lists();
        let was_given =
            watch.about().offers.has(kind) && !source.base().snapshot().list(kind).items.is_empty();
        let walked = walk(&mut *watch, kind, &source.rules().given.walk, was_given).await?;
        let is_cut = walked.truncated.is_some();
        let of_class = source.feed(&self.context, class).snapshot();
        let snapshot = if of_class.state.was_read() {
            of_class
        } else {
            source.base().snapshot()
        };
        if !snapshot.state.was_read() {
            return Ok(None);
        }
        let shared = snapshot.list(kind).items.clone();
        let before = lists
            .known(kind)
            .map(|known| known.changed.clone())
            .unwrap_or_default();
        let known: Arc<[Arc<ServerItem>]> = match before.is_empty() {
            true => shared.clone(),
            // Items of the session's last walk keep their meters.
            false => shared
                .iter()
                .filter(|tool| !before.iter().any(|own| own.native == tool.native))
                .chain(&before)
                .cloned()
                .collect(),
        };
        let origin = ListOrigin {
            upstream: source.id(),
            kind,
            definitions: DefinitionOwner::OfSession,
        };
        let own = ingest(&self.context, origin, walked.items, known)
            .await?
            .items;
        Ok(Some((shared, own, is_cut)))
    }
}
