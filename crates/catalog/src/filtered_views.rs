//! Filtered views: the part of a view that a principal's audience may see, as a view of its own.
//!
//! All code that reads a list for a client goes through here, so hiding cannot be forgotten: pages,
//! names of calls and announcements all work on the part as if it were the whole. If no item is
//! hidden, the part is the whole itself.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quick_cache::sync::Cache;
use weir_core::catalog_item::CatalogItem;
use weir_core::content_version::ContentVersion;
use weir_core::fast::FastMap;
use weir_core::names::EndpointId;
use weir_core::port::{Audience, Authorizer, Visibility};
use weir_core::principal::Principal;

use crate::view::{NameIndex, View, content};

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
        write!(f, "FilteredViews({})", self.0.len())
    }
}

impl FilteredViews {
    /// The part of `whole` that the principal, who is of this audience, sees.
    pub(super) fn part_of(
        &self,
        whole: Arc<View>,
        audience: Audience,
        visibility: &PrincipalVisibility<'_>,
    ) -> Arc<View> {
        let key = (visibility.endpoint.clone(), whole.version, audience);
        let seen = match self.0.get(&key) {
            Some(known) if Arc::ptr_eq(&known.whole, &whole) => return known.seen,
            // Only the state changed: names and items are the same.
            Some(known) if Arc::ptr_eq(&known.whole.items, &whole.items) => Arc::new(restated(
                &whole,
                known.seen.version,
                known.seen.items.clone(),
                known.seen.name_index.clone(),
            )),
            _ => Arc::new(visibility.filter(&whole)),
        };
        self.0.insert(
            key,
            FilteredView {
                whole,
                seen: seen.clone(),
            },
        );
        seen
    }

    /// Drops the parts of views that no endpoint has any more: they hold the items of upstreams that
    /// are gone.
    pub(super) fn keep(&self, versions: &FastMap<&EndpointId, HashSet<ContentVersion>>) {
        self.0.retain(|(endpoint, version, _), _| {
            let kept = versions.get(endpoint);
            kept.is_some_and(|versions| versions.contains(version))
        });
    }
}

/// A principal on an endpoint, and the authorizer that decides what it sees there.
pub(super) struct PrincipalVisibility<'a> {
    pub(super) authorizer: &'a dyn Authorizer,
    pub(super) endpoint: &'a EndpointId,
    pub(super) principal: &'a Principal,
}

impl PrincipalVisibility<'_> {
    fn filter(&self, whole: &Arc<View>) -> View {
        let seen = |item: &&CatalogItem| {
            self.authorizer.may_see(self.principal, self.endpoint, item) == Visibility::Visible
        };
        let items: Vec<CatalogItem> = whole.items.iter().filter(seen).cloned().collect();
        let version = content(&items);
        let body = Arc::new(whole.name_index.index_part(&items));
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
    let change_count = whole
        .change_count
        .filter(|_| items.len() == whole.items.len());
    let repeats = whole.repeats.iter();
    let repeats = repeats.filter(|(upstream, _)| upstreams.contains(upstream));
    let repeats = repeats.cloned().collect();
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
        change_count,
        repeats,
        items,
        name_index: body,
    }
}
