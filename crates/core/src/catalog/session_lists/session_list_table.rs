//! The lists of all sessions, by client session.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use super::walk_pace::WalkPace;
use super::{ListSession, SessionLists};
use crate::budget::ByteBudget;
use crate::call::SessionKey;
use crate::list_kind::ListKinds;
use crate::names::UpstreamId;
use crate::port::Random;
use crate::session_notifier::SessionNotifier;

/// The most bytes of all differences together.
const MOST_BYTES: usize = 64 << 20;

/// The lists of all sessions at all servers. The table holds weak references; the upstreams'
/// sessions own the lists.
pub struct SessionListTable {
    pub(super) notifier: Arc<SessionNotifier>,
    /// The memory of all differences.
    pub(super) memory: ByteBudget,
    by_client: RwLock<HashMap<SessionKey, Vec<Weak<SessionLists>>>>,
    paces: Mutex<HashMap<UpstreamId, Weak<WalkPace>>>,
    /// The number of sessions with lists that differ from the shared ones.
    differing: AtomicUsize,
    /// The next [`SessionLists::id`]. It starts at a random number.
    ids: AtomicU64,
}

impl SessionListTable {
    /// An empty table. Notifications go to clients' streams over `bells`.
    #[must_use]
    pub fn new(bells: Arc<SessionNotifier>, random: &dyn Random) -> Arc<Self> {
        // Versions of views contain these numbers, so another process must not give the same ones.
        let mut seed = [0; 8];
        random.fill(&mut seed);
        let memory = ByteBudget::new("session_lists");
        memory.set_limit(MOST_BYTES);
        Arc::new(Self {
            notifier: bells,
            memory,
            by_client: RwLock::default(),
            paces: Mutex::default(),
            differing: AtomicUsize::new(0),
            ids: AtomicU64::new(u64::from_be_bytes(seed)),
        })
    }

    /// The lists of a new session at an upstream. They are the shared ones until a notification
    /// comes.
    #[must_use]
    pub fn open(
        self: &Arc<Self>,
        upstream: UpstreamId,
        tells_of: ListKinds,
        session: Weak<dyn ListSession>,
    ) -> Arc<SessionLists> {
        let pace = self.pace(&upstream);
        Arc::new(SessionLists {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            upstream,
            declares_changes: tells_of,
            session,
            table: self.clone(),
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
            subscribed: Default::default(),
        })
    }

    /// Removes client sessions that ended.
    pub fn ended(&self, sessions: &HashSet<SessionKey>) {
        let gone: Vec<_> = {
            let mut by_client = self
                .by_client
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            sessions
                .iter()
                .filter_map(|client| Some((*client, by_client.remove(client)?)))
                .collect()
        };
        for (client, lists) in gone {
            for lists in lists.iter().filter_map(Weak::upgrade) {
                lists
                    .clients
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&client);
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
        let by_client = self
            .by_client
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let lists: HashMap<u64, Arc<SessionLists>> = by_client
            .values()
            .flatten()
            .filter_map(Weak::upgrade)
            .map(|lists| (lists.id, lists))
            .collect();
        drop(by_client);
        lists
            .values()
            .filter(|lists| lists.upstream == *upstream && lists.differs.load(Ordering::Relaxed))
            .count()
    }

    /// The lists of the sessions that serve a client session.
    pub(super) fn of(&self, client: &SessionKey) -> Vec<Arc<SessionLists>> {
        let by_client = self
            .by_client
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        by_client
            .get(client)
            .map(|lists| lists.iter().filter_map(Weak::upgrade).collect())
            .unwrap_or_default()
    }

    pub(super) fn enter(&self, client: SessionKey, lists: &Arc<SessionLists>) {
        let mut by_client = self
            .by_client
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        by_client
            .entry(client)
            .or_default()
            .push(Arc::downgrade(lists));
    }

    /// Removes the lists of a session that is being dropped from the client sessions that it
    /// served.
    pub(super) fn leave(&self, clients: &HashSet<SessionKey>) {
        let mut by_client = self
            .by_client
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        for client in clients {
            let Some(lists) = by_client.get_mut(client) else {
                continue;
            };
            lists.retain(|lists| lists.strong_count() > 0);
            if lists.is_empty() {
                by_client.remove(client);
            }
        }
    }

    /// Counts one more session that differs, or one fewer.
    pub(super) fn count_differing(&self, differs: bool) {
        match differs {
            true => self.differing.fetch_add(1, Ordering::Relaxed),
            false => self.differing.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn pace(&self, upstream: &UpstreamId) -> Arc<WalkPace> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
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

impl fmt::Debug for SessionListTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionListTable({} differ)", self.differing())
    }
}
