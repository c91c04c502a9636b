//! The lists of all sessions, by client session.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use weir_core::budget::ByteBudget;
use weir_core::call::SessionKey;
use weir_core::names::UpstreamId;
use weir_core::port::{ListSession, Random, SessionListObserver, SessionListRegistry};
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::ListKinds;
use weir_items::WalkPace;

use crate::session_lists::SessionLists;
use crate::session_lists::client_index::ClientIndex;
use crate::session_lists::session_subscriptions::SessionSubscriptions;

/// The most bytes of all differences together.
const MAX_BYTES: usize = 64 << 20;

/// The lists of all sessions at all servers. The table holds weak references; the upstreams'
/// sessions own the lists.
pub struct SessionListTable {
    notifier: Arc<SessionNotifier>,
    /// The memory of all differences.
    pub(super) memory: ByteBudget,
    index: Arc<ClientIndex<SessionLists>>,
    paces: Mutex<HashMap<UpstreamId, Weak<WalkPace>>>,
    /// The number of sessions with lists that differ from the shared ones.
    differing: Arc<AtomicUsize>,
    /// The next [`SessionLists::id`]. It starts at a random number.
    ids: AtomicU64,
}

impl SessionListTable {
    /// An empty table. Notifications go to clients' streams over `notifier`.
    #[must_use]
    pub fn new(notifier: Arc<SessionNotifier>, random: &dyn Random) -> Arc<Self> {
        // Versions of views contain these numbers, so another process must not give the same ones.
        let mut seed = [0; 8];
        random.fill(&mut seed);
        let memory = ByteBudget::new("session_lists");
        memory.set_limit(MAX_BYTES);
        Arc::new(Self {
            notifier,
            memory,
            index: Arc::default(),
            paces: Mutex::default(),
            differing: Arc::default(),
            ids: AtomicU64::new(u64::from_be_bytes(seed)),
        })
    }

    /// The lists of a new session at an upstream. They are the shared ones until a notification
    /// comes.
    #[must_use]
    pub fn open(
        &self,
        upstream: UpstreamId,
        declares_changes: ListKinds,
        session: Weak<dyn ListSession>,
    ) -> Arc<SessionLists> {
        let pace = self.pace(&upstream);
        let subscribed = SessionSubscriptions::new(upstream.clone(), session.clone());
        Arc::new_cyclic(|own| SessionLists {
            own: own.clone(),
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            upstream,
            declares_changes,
            session,
            notifier: self.notifier.clone(),
            index: self.index.clone(),
            differing: self.differing.clone(),
            pace,
            clients: RwLock::default(),
            notification_counts: Default::default(),
            calls: AtomicU64::new(0),
            unheard: AtomicU64::new(0),
            has_stream: Default::default(),
            known: Default::default(),
            walking: tokio::sync::Mutex::default(),
            not_before: AtomicU64::new(0),
            differs: Default::default(),
            subscribed: Arc::new(subscribed),
        })
    }

    /// Removes client sessions that ended.
    pub fn ended(&self, sessions: &HashSet<SessionKey>) {
        for (client, lists) in self.index.remove(sessions) {
            for lists in lists.iter().filter_map(Weak::upgrade) {
                lists.clients.write().remove(&client);
            }
        }
    }

    /// The number of sessions with lists that differ from the shared ones now.
    #[must_use]
    pub fn differing(&self) -> usize {
        self.differing.load(Ordering::Relaxed)
    }

    /// The same for one upstream.
    #[must_use]
    pub fn differing_at(&self, upstream: &UpstreamId) -> usize {
        if self.differing() == 0 {
            return 0;
        }
        // Lists that serve several client sessions count once.
        let lists: HashMap<u64, Arc<SessionLists>> = self
            .index
            .all()
            .into_iter()
            .map(|lists| (lists.id, lists))
            .collect();
        lists
            .values()
            .filter(|lists| lists.upstream == *upstream && lists.differs.load(Ordering::Relaxed))
            .count()
    }

    /// The lists of the sessions that serve a client session.
    pub(super) fn of(&self, client: &SessionKey) -> Vec<Arc<SessionLists>> {
        self.index.of(client)
    }

    fn pace(&self, upstream: &UpstreamId) -> Arc<WalkPace> {
        let mut paces = self.paces.lock();
        if let Some(pace) = paces.get(upstream).and_then(Weak::upgrade) {
            return pace;
        }
        // Upstreams come and go with reloads.
        paces.retain(|_, pace| pace.strong_count() > 0);
        let pace = Arc::<WalkPace>::default();
        paces.insert(upstream.clone(), Arc::downgrade(&pace));
        pace
    }
}

impl SessionListRegistry for SessionListTable {
    fn open(
        &self,
        upstream: UpstreamId,
        declares_changes: ListKinds,
        session: Weak<dyn ListSession>,
    ) -> Arc<dyn SessionListObserver> {
        Self::open(self, upstream, declares_changes, session)
    }
}

impl fmt::Debug for SessionListTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionListTable({} differ)", self.differing())
    }
}
