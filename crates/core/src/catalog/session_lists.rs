//! Lists that belong to one session at a server.
//!
//! A legacy server may change what it lists in one session alone: a tool adds tools, a call makes a resource. The client of that
//! session is told of the change and sees the list as the server gives it there; everybody else sees the list that all share. What is
//! kept of a session is only how its list differs from the shared one. It belongs to the upstream's session: where that ends, the
//! difference goes with it.

mod difference;
mod pace;
mod shown;
mod subscribed;
mod table;
mod walked;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use arc_swap::ArcSwapOption;

use crate::Failure;
use crate::bell::Ring;
use crate::call::SessionKey;
use crate::names::UpstreamId;
use crate::port::Fut;
use crate::upstream::{Kinds, ListKind, Watch};
use difference::Difference;
use pace::WalkPace;
pub(super) use shown::SessionViews;
pub use subscribed::SessionSubscription;
use subscribed::Subscribed;
pub use table::SessionListTable;

/// Clients of one session at a server. A child process may have several, those of one principal; more than these see the shared list.
const MOST_CLIENTS: usize = 1024;

/// A session at a server in which lists can be read. Implemented by upstreams.
pub trait ListSession: Send + Sync {
    /// A watch that reads the lists in this session. It hears of no changes.
    fn lists(self: Arc<Self>) -> Box<dyn Watch>;

    /// Has the server tell of updates of a resource, by its own URI, in this session.
    ///
    /// # Errors
    /// As for any request to the upstream.
    fn subscribe(self: Arc<Self>, uri: Arc<str>) -> Fut<'static, Result<(), Failure>>;

    /// Takes a subscription back, without waiting for the server.
    fn unsubscribe(self: Arc<Self>, uri: Arc<str>);
}

/// What is known of the lists of one session at a server. The upstream's session has it and says what it hears; the catalog reads it.
pub struct SessionLists {
    /// Unique in this process, and random: part of the versions of what the session's clients see.
    id: u64,
    upstream: UpstreamId,
    /// The lists of which the server says that it tells when they change.
    tells_of: Kinds,
    session: Weak<dyn ListSession>,
    table: Arc<SessionListTable>,
    pace: Arc<WalkPace>,
    /// The sessions of clients that it serves.
    clients: RwLock<HashSet<SessionKey>>,
    /// How often the server said that a list changed. By [`ListKind`].
    said: [AtomicU64; 4],
    /// Calls in it.
    calls: AtomicU64,
    /// Calls, and gaps, in which the server could not be heard.
    unheard: AtomicU64,
    /// Whether a stream is open on which the server would tell of changes.
    is_heard: AtomicBool,
    /// What the last walks found. By [`ListKind`].
    known: [ArcSwapOption<Difference>; 4],
    /// Held during a walk: one at a time.
    walking: tokio::sync::Mutex<()>,
    /// No walk is tried before then, in milliseconds of the table's clock: the last one failed.
    not_before: AtomicU64,
    /// Whether [`Self::known`] has a difference; counted by the table.
    differs: AtomicBool,
    subscribed: Subscribed,
}

/// How far something was when the lists were walked: a walk is due once it went on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Changes that the server told of, and what it may have told unheard.
    changes: u64,
    calls: u64,
}

/// When a list of a session is walked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The server said that it changed, or may have said so unheard.
    Changed,
    /// A call was made since: any call may have changed it.
    Called,
}

impl SessionLists {
    /// A client's session is served in this one.
    pub fn serves(self: &Arc<Self>, client: SessionKey) {
        if self.clients().contains(&client) {
            return;
        }
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if clients.len() < MOST_CLIENTS && clients.insert(client) {
            drop(clients);
            self.table.enter(client, self);
        }
    }

    /// A call is made in the session.
    pub fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.is_heard.load(Ordering::Relaxed) {
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether changes would be heard from now on. Those of the time in between may have been missed.
    pub fn set_heard(&self, is_heard: bool) {
        if !self.is_heard.swap(is_heard, Ordering::Relaxed) && is_heard && self.calls.load(Ordering::Relaxed) > 0 {
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The server says in this session that lists changed: its clients are told.
    pub fn changed(&self, kinds: Kinds) {
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            self.said[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.ring(kinds);
    }

    /// The server says in this session that a resource was updated.
    pub fn updated(&self, uri: &str) {
        self.subscribed.updated(uri);
    }

    fn ring(&self, kinds: Kinds) {
        for client in self.clients().iter() {
            // A client without a stream is told on its next one.
            let _unheard = self.table.bells.ring(client, Ring::ListsChanged(self.upstream.clone(), kinds));
        }
    }

    fn mark(&self, kind: ListKind) -> Mark {
        let unheard = if self.tells_of.has(kind) { self.unheard.load(Ordering::Relaxed) } else { 0 };
        let changes = self.said[kind as usize].load(Ordering::Relaxed).wrapping_add(unheard);
        Mark { changes, calls: self.calls.load(Ordering::Relaxed) }
    }

    /// Whether a list is to be walked before it is shown, or before a name is called unknown.
    fn is_due(&self, kind: ListKind, cause: Cause) -> bool {
        let (now, walked) = (self.mark(kind), self.known(kind).map(|known| known.mark).unwrap_or_default());
        match cause {
            Cause::Changed => now.changes != walked.changes,
            Cause::Called => now != walked,
        }
    }

    fn known(&self, kind: ListKind) -> Option<Arc<Difference>> {
        self.known[kind as usize].load_full()
    }

    fn learn(&self, kind: ListKind, difference: Difference) {
        self.known[kind as usize].store(Some(Arc::new(difference)));
        let differs = ListKind::ALL.into_iter().any(|kind| self.known(kind).is_some_and(|known| !known.is_empty()));
        if self.differs.swap(differs, Ordering::Relaxed) != differs {
            self.table.count(differs);
        }
    }

    fn clients(&self) -> std::sync::RwLockReadGuard<'_, HashSet<SessionKey>> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionLists {
    fn drop(&mut self) {
        let clients = std::mem::take(self.clients.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.table.leave(&clients);
        if !*self.differs.get_mut() {
            return;
        }
        self.table.count(false);
        // They see the shared list again.
        let differing =
            ListKind::ALL.into_iter().filter(|kind| self.known(*kind).is_some_and(|known| !known.is_empty()));
        let kinds: Kinds = differing.collect();
        for client in &clients {
            let _unheard = self.table.bells.ring(client, Ring::ListsChanged(self.upstream.clone(), kinds));
        }
    }
}

impl fmt::Debug for SessionLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionLists({} of {} clients)", self.upstream, self.clients().len())
    }
}

#[cfg(test)]
mod tests;
