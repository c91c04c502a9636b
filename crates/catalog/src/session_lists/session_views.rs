//! Views for clients of sessions with lists of their own: the shared view with the session's
//! difference applied.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use weir_core::call::SessionKey;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::content_version::ContentVersion;
use weir_core::endpoint::Endpoint;
use weir_core::failure::Failure;
use weir_core::fast::FastMap;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Visibility;
use weir_core::principal::Principal;
use weir_core::upstream::{ListKind, ListKinds};

use crate::catalog::Catalog;
use crate::catalog_source::CatalogSource;
use crate::resource_updates::subscription_table::ResourceSubscriber;
use crate::session_lists::WalkCause;
use crate::session_lists::session_subscriptions::SessionSubscription;
use crate::session_lists::session_walk::ServedSession;
use crate::view::{Freshness, NameIndex, View};
use weir_items::ListDifference;
use weir_items::ListEntry;

/// A client of an endpoint, in its session.
#[derive(Clone, Copy, Debug)]
pub struct SessionClient<'a> {
    /// The endpoint.
    pub endpoint: &'a EndpointId,
    /// The requests that the client accepts.
    pub class: CapabilityClass,
    /// The principal of the client.
    pub principal: &'a Principal,
    /// The client's session.
    pub session: SessionKey,
}

/// An upstream's part of a view that has to be changed.
struct SessionPart {
    served: ServedSession,
    difference: Arc<ListDifference>,
}

/// The known differences of these sessions.
fn known_parts(served: Vec<ServedSession>, kind: ListKind) -> Vec<SessionPart> {
    let part = |served: ServedSession| {
        let difference = served.lists.known(kind).filter(|known| !known.is_empty())?;
        Some(SessionPart { served, difference })
    };
    served.into_iter().filter_map(part).collect()
}

impl Catalog {
    /// The shared view with the differences of the client's sessions; `whole` if no session of an
    /// upstream serves the client. Lists that are due are walked first, each for at most
    /// [`super::super::CatalogSettings::first_list_wait`]. Cancel safe.
    pub(crate) async fn session_view(
        &self,
        client: &SessionClient<'_>,
        whole: Arc<View>,
        kind: ListKind,
    ) -> Arc<View> {
        let served = self.served_sessions(client.endpoint, &client.session);
        if served.is_empty() {
            return whole;
        }
        for served in &served {
            self.refresh_session(served, kind, client.class, WalkCause::Changed)
                .await;
        }
        // Before the view: a difference is from the shared list of its walk, which may be newer than
        // `whole`.
        let parts = known_parts(served, kind);
        let views = self.context.rebuild.wait_for_views();
        let _in_time = timeout(self.context.settings.first_list_wait, views).await;
        let whole = self
            .view(client.endpoint, kind, client.class)
            .unwrap_or(whole);
        self.with_parts(client.endpoint, whole, &parts)
    }

    /// `whole` with these differences.
    fn with_parts(
        &self,
        endpoint: &EndpointId,
        whole: Arc<View>,
        parts: &[SessionPart],
    ) -> Arc<View> {
        match self.endpoint(endpoint).filter(|_| !parts.is_empty()) {
            Some(endpoint) => Arc::new(joined(&endpoint, &whole, parts)),
            None => whole,
        }
    }

    /// True if the lists of any session differ from the shared ones. Otherwise every name of a
    /// shared item means that item.
    #[must_use]
    pub fn has_differing_sessions(&self) -> bool {
        self.context.ports.session_lists.differing() > 0
    }

    /// The client's item in place of an item of the shared list; absent if the client's session
    /// lacks it.
    #[must_use]
    pub fn shared_item_in_session(
        &self,
        client: &SessionClient<'_>,
        kind: ListKind,
        shared: CatalogItem,
    ) -> Option<CatalogItem> {
        let mut served = self.served_sessions(client.endpoint, &client.session);
        let Some(endpoint) = self
            .endpoint(client.endpoint)
            .filter(|_| !served.is_empty())
        else {
            return Some(shared);
        };
        served.retain(|served| *served.source.id() == shared.tool.upstream);
        match served
            .into_iter()
            .next()
            .and_then(|served| served.part(kind))
        {
            Some(part) => part
                .in_place_of(&endpoint, &shared)
                .filter(|item| self.is_seen(client.principal, &endpoint, item)),
            None => Some(shared),
        }
    }

    /// The item of a name that the shared list lacks, from the lists of the client's sessions.
    /// Lists that calls may have changed are walked before the name counts as unknown, those of
    /// resources only after a notification. Cancel safe.
    pub async fn own_item_of_session(
        &self,
        client: &SessionClient<'_>,
        whole: &View,
        kind: ListKind,
        name: &str,
    ) -> Option<CatalogItem> {
        let served = self.served_sessions(client.endpoint, &client.session);
        let endpoint = self
            .endpoint(client.endpoint)
            .filter(|_| !served.is_empty())?;
        let find = |served: ServedSession| {
            let part = served.part(kind)?;
            part.added(&endpoint, whole)
                .find(|item| *item.exposed == *name)
        };
        // Servers have resources that no list of theirs shows, and a URI names its server: a read
        // does not depend on the list.
        let cause = if kind == ListKind::Resources {
            WalkCause::Changed
        } else {
            WalkCause::Called
        };
        let mut found = None;
        for served in served {
            let again = ServedSession {
                source: served.source.clone(),
                lists: served.lists.clone(),
            };
            found = find(served);
            if found.is_none() {
                self.refresh_session(&again, kind, client.class, cause)
                    .await;
                found = find(again);
            }
            if found.is_some() {
                break;
            }
        }
        found.filter(|item| self.is_seen(client.principal, &endpoint, item))
    }

    /// The lists of which a client gets a notification after `upstream` sent one about `kinds` in
    /// the client's session. On a transparent endpoint that hides no item from the client: all of
    /// them. Otherwise the lists are walked, and those are left that changed for the client. Cancel
    /// safe.
    pub async fn changed_session_lists(
        &self,
        client: &SessionClient<'_>,
        upstream: &UpstreamId,
        kinds: ListKinds,
    ) -> ListKinds {
        let SessionClient {
            endpoint,
            principal,
            ..
        } = *client;
        let Some(served) = self
            .endpoint(endpoint)
            .filter(|served| served.mode.upstreams().contains(upstream))
        else {
            return ListKinds::default();
        };
        if served.mode.is_transparent()
            && served.tools.is_none()
            && self.audience(endpoint, principal).is_none()
        {
            return kinds;
        }
        let mut news = ListKinds::default();
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            let Some(whole) = self.view(endpoint, kind, client.class) else {
                continue;
            };
            let known = known_parts(self.served_sessions(endpoint, &client.session), kind);
            let before = self.with_parts(endpoint, whole.clone(), &known);
            let after = self.session_view(client, whole, kind).await;
            let seen = |view: Arc<View>| self.visible_part(endpoint, view, principal).content();
            if seen(before) != seen(after) {
                news = news.with(kind);
            }
        }
        news
    }

    /// Lists with notifications since the client's last request for them, by upstream.
    #[must_use]
    pub fn unread_session_changes(
        &self,
        endpoint: &EndpointId,
        client: &SessionKey,
    ) -> Vec<(UpstreamId, ListKinds)> {
        let unread = |served: ServedSession| {
            let due = ListKind::ALL
                .into_iter()
                .filter(|kind| served.lists.is_due(*kind, WalkCause::Changed));
            let kinds: ListKinds = due.collect();
            (!kinds.is_empty()).then(|| (served.source.id().clone(), kinds))
        };
        self.served_sessions(endpoint, client)
            .into_iter()
            .filter_map(unread)
            .collect()
    }

    /// Subscribes to a resource that the client's own session alone lists; no value for any other
    /// resource.
    pub(crate) async fn subscribe_in_session(
        self: &Arc<Self>,
        client: &SessionKey,
        subscriber: ResourceSubscriber,
    ) -> Option<Result<SessionSubscription, Failure>> {
        let (catalog, native) = (Arc::downgrade(self), subscriber.item.tool.native.clone());
        let mut served = self
            .served_sessions(&subscriber.endpoint, client)
            .into_iter()
            .map(|served| served.lists);
        let lists = served.find(|lists| lists.upstream == subscriber.item.tool.upstream)?;
        lists.known(ListKind::Resources)?.changed(&native)?;
        let tell = move |uri: &Arc<str>| {
            let visible_name = catalog
                .upgrade()
                .and_then(|catalog| catalog.name_for_subscriber(&subscriber, uri));
            if let Some(exposed) = visible_name {
                subscriber.inbox.put(exposed, &subscriber.uri);
            }
        };
        Some(lists.subscribed.subscribe(native, Box::new(tell)).await)
    }

    /// True if the server of a transparent endpoint can send notifications in its session of this
    /// client. Then a notification to all sessions comes there, too.
    #[must_use]
    pub fn receives_in_session(&self, endpoint: &EndpointId, client: &SessionKey) -> bool {
        let is_heard = |served: &ServedSession| served.lists.has_stream.load(Ordering::Relaxed);
        self.is_transparent(endpoint) && self.served_sessions(endpoint, client).iter().any(is_heard)
    }

    /// The time in which a client gets at most one notification about a list.
    #[must_use]
    pub fn change_window(&self) -> Duration {
        self.context.settings.change_window
    }

    /// The number of sessions at an upstream with lists that differ from the shared ones.
    #[must_use]
    pub fn sessions_that_differ(&self, upstream: &UpstreamId) -> usize {
        self.context.ports.session_lists.differing_at(upstream)
    }

    /// Removes client sessions that ended.
    pub fn end_sessions(&self, sessions: &HashSet<SessionKey>) {
        self.context.ports.session_lists.ended(sessions);
    }

    fn is_seen(&self, principal: &Principal, endpoint: &Endpoint, item: &CatalogItem) -> bool {
        self.context
            .ports
            .authorizer
            .may_see(principal, &endpoint.id, item)
            == Visibility::Visible
    }

    /// The lists of a client's sessions at the upstreams of an endpoint, in config order.
    fn served_sessions(&self, endpoint: &EndpointId, client: &SessionKey) -> Vec<ServedSession> {
        let all = self.context.ports.session_lists.of(client);
        if all.is_empty() {
            return Vec::new();
        }
        let layout = self.layout.load();
        let open = layout
            .sources_of(endpoint)
            .iter()
            .filter(|source| self.context.closed_upstreams.find(source.id()).is_none());
        let served = |source: &Arc<CatalogSource>| {
            // A session opened anew stands behind the one that it replaces.
            let lists = all.iter().rfind(|lists| lists.upstream == *source.id())?;
            Some(ServedSession {
                source: source.clone(),
                lists: lists.clone(),
            })
        };
        open.filter_map(served).collect()
    }
}

impl ServedSession {
    fn part(self, kind: ListKind) -> Option<SessionPart> {
        let difference = self.lists.known(kind).filter(|known| !known.is_empty())?;
        Some(SessionPart {
            served: self,
            difference,
        })
    }
}

impl SessionPart {
    /// The session's item in place of a shared one of its upstream; absent if the session lacks it.
    fn in_place_of(&self, endpoint: &Endpoint, shared: &CatalogItem) -> Option<CatalogItem> {
        // An item that the server lists for clients without sessions only is in no session's list.
        if shared.listed_without != CapabilityClass::BASE {
            return Some(shared.clone());
        }
        if self.difference.removed.contains(&shared.tool.native) {
            return None;
        }
        match self.difference.changed(&shared.tool.native) {
            Some(own) => {
                let entry = ListEntry::new(endpoint, own, &self.served.source.rules())?;
                Some(entry.named(shared.exposed.clone()))
            }
            None => Some(shared.clone()),
        }
    }

    /// The session's items that the shared view lacks, under names that are free in the view.
    fn added<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        whole: &'a View,
    ) -> impl Iterator<Item = CatalogItem> + 'a {
        let rules = self.served.source.rules();
        let upstream = self.served.source.id();
        let shared: HashSet<&str> = if self.difference.changed.is_empty() {
            HashSet::new()
        } else {
            let own = whole
                .items
                .iter()
                .filter(move |item| item.tool.upstream == *upstream);
            own.map(|item| &*item.tool.native).collect()
        };
        let added = self
            .difference
            .changed
            .iter()
            .filter(move |tool| !shared.contains(&*tool.native));
        added.filter_map(move |tool| {
            let entry = ListEntry::new(endpoint, tool, &rules)?;
            let name = entry
                .first_free_name(&whole.name_index.reserved, |name| {
                    whole.is_taken(name, upstream)
                })?
                .clone();
            Some(entry.named(name))
        })
    }
}

/// Applies differences to the shared view: changed items take the place of shared ones, new items
/// follow at the end.
fn joined(endpoint: &Endpoint, whole: &View, parts: &[SessionPart]) -> View {
    let mut items: Vec<CatalogItem> = Vec::with_capacity(whole.items.len() + 8);
    for item in whole.items.iter() {
        match parts
            .iter()
            .find(|part| *part.served.source.id() == item.tool.upstream)
        {
            Some(part) => items.extend(part.in_place_of(endpoint, item)),
            None => items.push(item.clone()),
        }
    }
    let mut taken: FastMap<Arc<str>, u32> = (0u32..)
        .zip(&items)
        .map(|(at, item)| (item.exposed.clone(), at))
        .collect();
    for item in parts.iter().flat_map(|part| part.added(endpoint, whole)) {
        if !taken.contains_key(&item.exposed) {
            taken.insert(
                item.exposed.clone(),
                u32::try_from(items.len()).unwrap_or(u32::MAX),
            );
            items.push(item);
        }
    }
    let ids: Vec<[u8; 8]> = parts
        .iter()
        .map(|part| part.served.lists.id.to_be_bytes())
        .collect();
    let mut digests: Vec<&[u8]> = vec![b"session", &whole.version.0];
    for (part, id) in parts.iter().zip(&ids) {
        digests.extend([&id[..], &part.difference.digest.0[..]]);
    }
    let body = Arc::new(NameIndex::index(
        taken,
        &items,
        whole.name_index.reserved.clone(),
        whole.name_index.kept.clone(),
    ));
    View {
        version: ContentVersion::of(&digests),
        items: items.into(),
        missing: whole.missing.clone(),
        collisions: whole.collisions.clone(),
        public: false,
        settled: whole.settled,
        is_asked_for: whole.is_asked_for,
        is_of_session: true,
        name_index: body,
        freshness: Freshness::NONE,
        wait_until: whole.wait_until,
        has_cursors: AtomicBool::new(false),
        content: std::sync::OnceLock::new(),
        change_count: whole.change_count,
        repeats: whole.repeats.clone(),
    }
}
