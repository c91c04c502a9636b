//! What the client of a session with lists of its own is shown: the shared view, with that session's items in it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;

use super::difference::Difference;
use super::{Cause, SessionLists, SessionSubscription};
use crate::call::SessionKey;
use crate::capability::CapabilityClass;
use crate::catalog::build::Entry;
use crate::catalog::source::Source;
use crate::catalog::updates::Subscriber;
use crate::catalog::view::{Body, Freshness, Item, Version, View};
use crate::catalog::{Catalog, members};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::fast::FastMap;
use crate::names::{EndpointId, UpstreamId};
use crate::port::Sight;
use crate::principal::Principal;
use crate::upstream::{Kinds, ListKind};

/// Views kept for cursors into them. A client whose view is gone begins its list anew.
const KEPT: usize = 64;

/// Views of sessions into which cursors were given, by the client's session: nobody else's cursor opens there.
pub(in crate::catalog) struct SessionViews(Cache<(SessionKey, Version), Arc<View>>);

impl Default for SessionViews {
    fn default() -> Self {
        Self(Cache::new(KEPT))
    }
}

impl SessionViews {
    pub(in crate::catalog) fn keep(&self, client: SessionKey, view: &Arc<View>) {
        self.0.insert((client, view.version), view.clone());
    }

    pub(in crate::catalog) fn find(&self, client: SessionKey, version: Version) -> Option<Arc<View>> {
        self.0.get(&(client, version))
    }
}

/// One session's lists, of an upstream of the endpoint in question.
struct Served {
    source: Arc<Source>,
    lists: Arc<SessionLists>,
}

/// The part of a view in which a session differs.
struct Part {
    served: Served,
    difference: Arc<Difference>,
}

impl Catalog {
    /// `whole` as the client of a session sees it. Where its server said that a list changed there, that list is read first: at most
    /// for [`super::super::CatalogSettings::first_list_wait`], and never more often than so many times a second.
    pub(in crate::catalog) async fn of_session(
        &self,
        (endpoint, whole): (&EndpointId, Arc<View>),
        (kind, class): (ListKind, CapabilityClass),
        client: Option<SessionKey>,
    ) -> Arc<View> {
        let Some(client) = client else { return whole };
        let served = self.served(endpoint, &client);
        if served.is_empty() {
            return whole;
        }
        for Served { source, lists } in &served {
            self.refresh_session((source, lists), (kind, class), Cause::Changed).await;
        }
        self.known_of_session((endpoint, whole), kind, served)
    }

    /// `whole` with what is known of these sessions' lists.
    fn known_of_session(
        &self,
        (endpoint, whole): (&EndpointId, Arc<View>),
        kind: ListKind,
        served: Vec<Served>,
    ) -> Arc<View> {
        let parts = served.into_iter().filter_map(|served| {
            let difference = served.lists.known(kind).filter(|known| !known.is_empty())?;
            Some(Part { served, difference })
        });
        let parts: Vec<Part> = parts.collect();
        match self.endpoint(endpoint).filter(|_| !parts.is_empty()) {
            Some(endpoint) => Arc::new(joined(&endpoint, &whole, &parts)),
            None => whole,
        }
    }

    /// Whether the lists of any session differ from the shared ones. Where none does, a shared item is what its name stands for.
    pub(crate) fn has_differing_sessions(&self) -> bool {
        self.works.ports.session_lists.differing() > 0
    }

    /// What a name stands for in the session of a call's client, where that may be something else than on the shared list; `shared` is
    /// what it stands for there. Where it stands for nothing, sessions whose list may have changed are asked.
    pub(crate) async fn item_of_session(
        &self,
        (endpoint, whole): (&EndpointId, &View),
        (kind, class): (ListKind, CapabilityClass),
        (principal, client): (&Principal, &SessionKey),
        (name, shared): (&str, Option<Item>),
    ) -> Option<Item> {
        let mut served = self.served(endpoint, client);
        let Some(endpoint) = self.endpoint(endpoint).filter(|_| !served.is_empty()) else { return shared };
        if let Some(shared) = shared {
            served.retain(|served| *served.source.id() == shared.tool.upstream);
            return match served.into_iter().next().and_then(|served| served.part(kind)) {
                Some(part) => {
                    part.in_place_of(&endpoint, &shared).filter(|item| self.is_seen(principal, &endpoint, item))
                }
                None => Some(shared),
            };
        }
        let find = |served: Served| {
            let part = served.part(kind)?;
            part.added(&endpoint, whole).find(|item| *item.exposed == *name)
        };
        let mut found = None;
        for served in served {
            let again = Served { source: served.source.clone(), lists: served.lists.clone() };
            found = find(served);
            if found.is_none() {
                self.refresh_session((&again.source, &again.lists), (kind, class), Cause::Called).await;
                found = find(again);
            }
            if found.is_some() {
                break;
            }
        }
        found.filter(|item| self.is_seen(principal, &endpoint, item))
    }

    /// What a client is to be told of, of the lists that an upstream said have changed in its session. On an endpoint that shows one
    /// server as it is, to a client from whom nothing of it is hidden: all. Elsewhere what the client sees decides, so its lists are read.
    /// Cancel safe.
    pub async fn session_news(
        &self,
        (endpoint, upstream): (&EndpointId, &UpstreamId),
        class: CapabilityClass,
        (principal, client): (&Principal, SessionKey),
        kinds: Kinds,
    ) -> Kinds {
        let Some(stand) = self.endpoint(endpoint).filter(|stand| members(stand).contains(upstream)) else {
            return Kinds::default();
        };
        if stand.mode.is_transparent() && stand.tools.is_none() && self.audience(endpoint, principal).is_none() {
            return kinds;
        }
        let mut news = Kinds::default();
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            let Some(whole) = self.view(endpoint, kind, class) else { continue };
            let before = self.known_of_session((endpoint, whole.clone()), kind, self.served(endpoint, &client));
            let after = self.of_session((endpoint, whole), (kind, class), Some(client)).await;
            let seen = |view: Arc<View>| self.part(endpoint, view, principal).content();
            if seen(before) != seen(after) {
                news = news.with(kind);
            }
        }
        news
    }

    /// The lists that servers said have changed in a client's sessions and that it has not asked for since, by upstream.
    #[must_use]
    pub fn unread_session_news(&self, endpoint: &EndpointId, client: &SessionKey) -> Vec<(UpstreamId, Kinds)> {
        let unread = |served: Served| {
            let due = ListKind::ALL.into_iter().filter(|kind| served.lists.is_due(*kind, Cause::Changed));
            let kinds: Kinds = due.collect();
            (!kinds.is_empty()).then(|| (served.source.id().clone(), kinds))
        };
        self.served(endpoint, client).into_iter().filter_map(unread).collect()
    }

    /// Has `subscriber` told of updates of a resource that its own session alone lists; `None` where it is none.
    pub(in crate::catalog) async fn subscribe_in_session(
        self: &Arc<Self>,
        client: &SessionKey,
        subscriber: Subscriber,
    ) -> Option<Result<SessionSubscription, Failure>> {
        let (catalog, native) = (Arc::downgrade(self), subscriber.item.tool.native.clone());
        let mut served = self.served(&subscriber.endpoint, client).into_iter().map(|served| served.lists);
        let lists = served.find(|lists| lists.upstream == subscriber.item.tool.upstream)?;
        lists.known(ListKind::Resources)?.changed(&native)?;
        let tell = move |uri: &Arc<str>| {
            let told = catalog.upgrade().and_then(|catalog| catalog.told_as(&subscriber, uri));
            if let Some(exposed) = told {
                subscriber.inbox.put(exposed, &subscriber.item.exposed);
            }
        };
        Some(lists.subscribe(native, Box::new(tell)).await)
    }

    /// Whether the one server of an endpoint is heard in the session that it has for a client: what it tells everybody, it tells there.
    #[must_use]
    pub fn hears_in_session(&self, endpoint: &EndpointId, client: &SessionKey) -> bool {
        let is_heard = |served: &Served| served.lists.is_heard.load(Ordering::Relaxed);
        self.is_transparent(endpoint) && self.served(endpoint, client).iter().any(is_heard)
    }

    /// In which time at most one change of a list is told.
    #[must_use]
    pub fn change_window(&self) -> Duration {
        self.works.settings.change_window
    }

    /// Sessions at an upstream whose lists differ from what all others see.
    #[must_use]
    pub fn sessions_that_differ(&self, upstream: &UpstreamId) -> usize {
        self.works.ports.session_lists.differing_at(upstream)
    }

    /// These sessions of clients are over.
    pub(crate) fn end_sessions(&self, sessions: &HashSet<SessionKey>) {
        self.works.ports.session_lists.ended(sessions);
    }

    fn is_seen(&self, principal: &Principal, endpoint: &Endpoint, item: &Item) -> bool {
        self.works.ports.authorizer.may_see(principal, &endpoint.id, item) == Sight::Seen
    }

    /// The sessions that serve a client at the upstreams of an endpoint, in config order.
    fn served(&self, endpoint: &EndpointId, client: &SessionKey) -> Vec<Served> {
        let all = self.works.ports.session_lists.of(client);
        if all.is_empty() {
            return Vec::new();
        }
        let layout = self.layout.load();
        let sources = layout.stands.get(endpoint).map(|stand| &stand.sources[..]).unwrap_or_default();
        let open = sources.iter().filter(|source| self.works.closed.find(source.id()).is_none());
        let served = |source: &Arc<Source>| {
            // A session that was opened anew comes after the one that it replaces.
            let lists = all.iter().rfind(|lists| lists.upstream == *source.id())?;
            Some(Served { source: source.clone(), lists: lists.clone() })
        };
        open.filter_map(served).collect()
    }
}

impl Served {
    fn part(self, kind: ListKind) -> Option<Part> {
        let difference = self.lists.known(kind).filter(|known| !known.is_empty())?;
        Some(Part { served: self, difference })
    }
}

impl Part {
    /// What the session has in the place of a shared item of its upstream: that item, another one, or nothing.
    fn in_place_of(&self, endpoint: &Endpoint, shared: &Item) -> Option<Item> {
        // What its server lists only for clients without sessions is no part of any session's list.
        if shared.listed_without != CapabilityClass::BASE {
            return Some(shared.clone());
        }
        if self.difference.removed.contains(&shared.tool.native) {
            return None;
        }
        match self.difference.changed(&shared.tool.native) {
            Some(own) => {
                let entry = Entry::new(endpoint, own, &self.served.source.rules())?;
                Some(entry.named(shared.exposed.clone()))
            }
            None => Some(shared.clone()),
        }
    }

    /// The session's items that the shared view does not have, under names that nothing has there.
    fn added<'a>(&'a self, endpoint: &'a Endpoint, whole: &'a View) -> impl Iterator<Item = Item> + 'a {
        let rules = self.served.source.rules();
        let upstream = self.served.source.id();
        let shared: HashSet<&str> = if self.difference.changed.is_empty() {
            HashSet::new()
        } else {
            let own = whole.items.iter().filter(move |item| item.tool.upstream == *upstream);
            own.map(|item| &*item.tool.native).collect()
        };
        let added = self.difference.changed.iter().filter(move |tool| !shared.contains(&*tool.native));
        added.filter_map(move |tool| {
            let entry = Entry::new(endpoint, tool, &rules)?;
            let name = entry.free_name(|name| whole.has_exposed(name))?.clone();
            Some(entry.named(name))
        })
    }
}

/// The shared view with what sessions have otherwise: in the place of shared items, and behind all of them.
fn joined(endpoint: &Endpoint, whole: &View, parts: &[Part]) -> View {
    let mut items: Vec<Item> = Vec::with_capacity(whole.items.len() + 8);
    for item in whole.items.iter() {
        match parts.iter().find(|part| *part.served.source.id() == item.tool.upstream) {
            Some(part) => items.extend(part.in_place_of(endpoint, item)),
            None => items.push(item.clone()),
        }
    }
    let mut taken: FastMap<Arc<str>, u32> = (0u32..).zip(&items).map(|(at, item)| (item.exposed.clone(), at)).collect();
    for item in parts.iter().flat_map(|part| part.added(endpoint, whole)) {
        if !taken.contains_key(&item.exposed) {
            taken.insert(item.exposed.clone(), u32::try_from(items.len()).unwrap_or(u32::MAX));
            items.push(item);
        }
    }
    let ids: Vec<[u8; 8]> = parts.iter().map(|part| part.served.lists.id.to_be_bytes()).collect();
    let mut digests: Vec<&[u8]> = vec![b"session", &whole.version.0];
    for (part, id) in parts.iter().zip(&ids) {
        digests.extend([&id[..], &part.difference.digest.0[..]]);
    }
    let body = Arc::new(Body::index(taken, &items));
    View {
        version: Version::of(&digests),
        items: items.into(),
        missing: whole.missing.clone(),
        collisions: whole.collisions.clone(),
        public: false,
        settled: whole.settled,
        is_of_session: true,
        body,
        freshness: Freshness::NONE,
        wait_until: whole.wait_until,
        promised: AtomicBool::new(false),
        content: std::sync::OnceLock::new(),
        said: whole.said,
    }
}
