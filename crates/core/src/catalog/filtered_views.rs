//! Filtered views: the part of a view that a principal's audience may see, as a view of its own.
//!
//! All code that reads a list for a client goes through here, so hiding cannot be forgotten: pages,
//! names of calls and announcements all work on the part as if it were the whole. If no item is
//! hidden, the part is the whole itself.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use quick_cache::sync::Cache;

use super::list_changes::{ChangeReceiver, ListChange};
use super::view::{CatalogItem, ChangeCount, NameIndex, View, content};
use super::{Catalog, EMPTY_VIEW};
use crate::capability::CapabilityClass;
use crate::content_version::ContentVersion;
use crate::fast::FastMap;
use crate::list_kind::ListKind;
use crate::names::EndpointId;
use crate::port::{Audience, Visibility};
use crate::principal::Principal;

/// Parts kept at the same time. One is a few words for each item, and few audiences are awake at
/// once.
const MAX_FILTERED_VIEWS: usize = 1024;

/// Parts made before, by endpoint, version and audience.
pub(super) struct FilteredViews(Cache<(EndpointId, ContentVersion, Audience), FilteredView>);

#[derive(Clone)]
struct FilteredView {
    whole: Arc<View>,
    seen: Arc<View>,
}

impl Default for FilteredViews {
    fn default() -> Self {
        Self(Cache::new(MAX_FILTERED_VIEWS))
    }
}

impl fmt::Debug for FilteredViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lenses({})", self.0.len())
    }
}

impl Catalog {
    /// The part of an endpoint's list that a principal sees now, without waiting.
    #[must_use]
    pub fn visible_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
        principal: &Principal,
    ) -> Option<Arc<View>> {
        self.view(endpoint, kind, class)
            .map(|whole| self.visible_part(endpoint, whole, principal))
    }

    /// Announcements of changes of the list that a principal sees, from now on. Changes of hidden
    /// items are not announced.
    #[must_use]
    pub fn watch_list(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        class: CapabilityClass,
        kind: ListKind,
        principal: &Principal,
    ) -> ViewWatch {
        let changes = self.changes(endpoint, class, kind);
        let mut watching = ViewWatch {
            changes,
            catalog: self.clone(),
            endpoint: endpoint.clone(),
            kind,
            class,
            principal: principal.clone(),
            last: ContentVersion::default(),
            change_count: None,
            is_behind: false,
        };
        (watching.last, watching.change_count) = watching.now();
        watching
    }

    /// Announces that the visibility rules changed: clients that see another list than before are
    /// notified.
    pub fn announce_rule_change(&self) {
        self.layout
            .load()
            .endpoint_lists
            .values()
            .for_each(|stand| stand.list_views.announce_all());
    }

    /// The audience for [`crate::cursor::CursorScope`]: a cursor is good only as long as its owner
    /// sees the same list.
    pub(super) fn audience(
        &self,
        endpoint: &EndpointId,
        principal: &Principal,
    ) -> Option<Audience> {
        self.context.ports.authorizer.audience(principal, endpoint)
    }

    /// The part of `whole` that the principal sees.
    pub(crate) fn visible_part(
        &self,
        endpoint: &EndpointId,
        whole: Arc<View>,
        principal: &Principal,
    ) -> Arc<View> {
        let Some(audience) = self.audience(endpoint, principal) else {
            return whole;
        };
        let key = (endpoint.clone(), whole.version, audience);
        let seen = match self.filtered_views.0.get(&key) {
            Some(known) if Arc::ptr_eq(&known.whole, &whole) => return known.seen,
            // Only the state changed: names and items are the same.
            Some(known) if Arc::ptr_eq(&known.whole.items, &whole.items) => Arc::new(restated(
                &whole,
                known.seen.version,
                known.seen.items.clone(),
                known.seen.name_index.clone(),
            )),
            _ => Arc::new(self.look(endpoint, &whole, principal)),
        };
        self.filtered_views.0.insert(
            key,
            FilteredView {
                whole,
                seen: seen.clone(),
            },
        );
        seen
    }

    fn look(&self, endpoint: &EndpointId, whole: &Arc<View>, principal: &Principal) -> View {
        let authorizer = &*self.context.ports.authorizer;
        let seen = |item: &&CatalogItem| {
            authorizer.may_see(principal, endpoint, item) == Visibility::Visible
        };
        let items: Vec<CatalogItem> = whole.items.iter().filter(seen).cloned().collect();
        let version = content(&items);
        let names: FastMap<_, _> = (0u32..)
            .zip(&items)
            .map(|(at, item)| (item.exposed.clone(), at))
            .collect();
        let body = Arc::new(NameIndex::index(names, &items));
        restated(whole, version, items.into(), body)
    }
}

/// A part of `whole` as it stands now.
fn restated(
    whole: &Arc<View>,
    version: ContentVersion,
    items: Arc<[CatalogItem]>,
    body: Arc<NameIndex>,
) -> View {
    // Upstreams without a visible item are not shown.
    let upstreams: HashSet<_> = items.iter().map(|item| &item.tool.upstream).collect();
    // A client that sees a part of a server's list is notified of changes of that part alone.
    let said = whole
        .change_count
        .filter(|_| items.len() == whole.items.len());
    let missing = whole
        .missing
        .iter()
        .filter(|missing| upstreams.contains(&missing.upstream))
        .cloned()
        .collect();
    View {
        version,
        missing,
        collisions: Arc::new([]),
        public: false,
        settled: whole.settled,
        is_asked_for: whole.is_asked_for,
        is_of_session: whole.is_of_session,
        freshness: whole.freshness,
        wait_until: whole.wait_until,
        has_cursors: AtomicBool::new(false),
        content: version.into(),
        change_count: said,
        items,
        name_index: body,
    }
}

/// The receiver of [`Catalog::watch_list`]. Cheap enough for tens of thousands: no task, no
/// channel.
pub struct ViewWatch {
    changes: ChangeReceiver,
    catalog: Arc<Catalog>,
    endpoint: EndpointId,
    kind: ListKind,
    class: CapabilityClass,
    principal: Principal,
    /// The version that the client saw when it was last notified.
    last: ContentVersion,
    /// The server's notifications up to then.
    change_count: Option<ChangeCount>,
    /// The client was last notified of another version, before this watch began.
    is_behind: bool,
}

impl ViewWatch {
    /// The next change of the list that the principal sees. For a caller that is polled itself,
    /// such as a response body.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<ListChange> {
        if std::mem::take(&mut self.is_behind) {
            return Poll::Ready(ListChange::Changed);
        }
        loop {
            match self.changes.poll_changed(cx) {
                Poll::Ready(ListChange::Changed) => {
                    let (version, said) = self.now();
                    let is_news = ChangeCount::is_news_after(
                        said,
                        std::mem::replace(&mut self.change_count, said),
                    );
                    if std::mem::replace(&mut self.last, version) != version || is_news {
                        return Poll::Ready(ListChange::Changed);
                    }
                }
                end @ (Poll::Ready(ListChange::EndpointGone) | Poll::Pending) => return end,
            }
        }
    }

    /// The version that the client knows, once it was notified of the last change.
    #[must_use]
    pub fn last(&self) -> ContentVersion {
        self.last
    }

    /// Continues from the version of which the client was notified in an earlier watch: if it sees
    /// another one now, that is a change.
    pub fn resume_from(&mut self, told: ContentVersion) {
        self.is_behind = told != self.last;
    }

    fn now(&self) -> (ContentVersion, Option<ChangeCount>) {
        let seen =
            self.catalog
                .visible_view(&self.endpoint, self.kind, self.class, &self.principal);
        let seen = seen.unwrap_or_else(|| EMPTY_VIEW.clone());
        (seen.content(), seen.change_count)
    }
}

impl fmt::Debug for ViewWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watching({} of {})", self.endpoint, self.principal)
    }
}
