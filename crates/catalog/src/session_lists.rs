//! Lists that belong to one session at a server.
//!
//! A legacy server may change a list in one session alone: a tool adds tools, a call makes a
//! resource. The client of that session gets a notification and the session's list; all other
//! clients get the shared list. The catalog keeps the difference between the two lists only. The
//! upstream's session owns it, so both end together.

mod client_index;
pub(crate) mod session_list_table;
pub(crate) mod session_subscriptions;
mod session_view_cache;
pub(crate) mod session_views;
mod session_walk;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use parking_lot::RwLock;
use weir_core::call::SessionKey;
use weir_core::names::UpstreamId;
use weir_core::port::{ListSession, SessionListObserver};
use weir_core::session_notifier::{SessionMessage, SessionNotifier};
use weir_core::upstream::{ListKind, ListKinds};
use weir_items::{ListDifference, WalkMark, WalkPace};

use client_index::ClientIndex;
use session_subscriptions::SessionSubscriptions;

pub use session_list_table::SessionListTable;
pub use session_subscriptions::SessionSubscription;
pub(super) use session_view_cache::SessionViewCache;
pub use session_views::SessionClient;

/// The most client sessions that one upstream session serves. A child process may serve several,
/// all of one principal; further ones see the shared list.
const MAX_CLIENTS: usize = 1024;

/// The lists of one session at a server. The upstream's session owns this and reports notifications
/// to it; the catalog reads it.
pub struct SessionLists {
    own: Weak<Self>,
    /// A number that no other session has, also not in another process. It is part of the versions
    /// of this session's views.
    id: u64,
    upstream: UpstreamId,
    /// The lists for which the server declares `listChanged`.
    declares_changes: ListKinds,
    session: Weak<dyn ListSession>,
    notifier: Arc<SessionNotifier>,
    /// The lists of all sessions, these among them.
    index: Arc<ClientIndex<Self>>,
    /// The number of all sessions with lists that differ from the shared ones.
    differing: Arc<AtomicUsize>,
    pace: Arc<WalkPace>,
    /// The client sessions that this session serves.
    clients: RwLock<HashSet<SessionKey>>,
    /// Notifications about each list so far. By [`ListKind`].
    notification_counts: [AtomicU64; 4],
    /// Calls made in this session.
    calls: AtomicU64,
    /// Calls made, and streams opened, while a notification could have been missed.
    unheard: AtomicU64,
    /// True while a stream is open for notifications.
    has_stream: AtomicBool,
    /// The differences that the last walks found. By [`ListKind`].
    known: [ArcSwapOption<ListDifference>; 4],
    /// Held during a walk: walks run one after the other.
    walking: tokio::sync::Mutex<()>,
    /// After a walk that failed: the earliest time for the next one, in milliseconds of
    /// [`super::context::CatalogContext::millis`].
    not_before: AtomicU64,
    /// True if [`Self::known`] has a difference.
    differs: AtomicBool,
    subscribed: Arc<SessionSubscriptions>,
}

/// The reason for a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkCause {
    /// The server notified of a change, or may have done so without a stream to receive it.
    Changed,
    /// A call was made since the last walk: any call may have changed the list.
    Called,
}

impl SessionLists {
    fn notify_clients(&self, kinds: ListKinds) {
        for client in self.clients.read().iter() {
            // A client without a stream gets the notification when it opens one.
            let _unheard = self.notifier.notify(
                client,
                SessionMessage::ListsChanged(self.upstream.clone(), kinds),
            );
        }
    }

    fn mark(&self, kind: ListKind) -> WalkMark {
        let unheard = if self.declares_changes.has(kind) {
            self.unheard.load(Ordering::Relaxed)
        } else {
            0
        };
        let changes = self.notification_counts[kind as usize]
            .load(Ordering::Relaxed)
            .wrapping_add(unheard);
        WalkMark {
            changes,
            calls: self.calls.load(Ordering::Relaxed),
        }
    }

    /// True if a list has to be walked before it is shown, or before a name counts as unknown.
    fn is_due(&self, kind: ListKind, cause: WalkCause) -> bool {
        let (now, walked) = (
            self.mark(kind),
            self.known(kind).map(|known| known.mark).unwrap_or_default(),
        );
        match cause {
            WalkCause::Changed => now.changes != walked.changes,
            WalkCause::Called => now != walked,
        }
    }

    fn known(&self, kind: ListKind) -> Option<Arc<ListDifference>> {
        self.known[kind as usize].load_full()
    }

    fn learn(&self, kind: ListKind, difference: ListDifference) {
        self.known[kind as usize].store(Some(Arc::new(difference)));
        let differs = ListKind::ALL
            .into_iter()
            .any(|kind| self.known(kind).is_some_and(|known| !known.is_empty()));
        if self.differs.swap(differs, Ordering::Relaxed) != differs {
            self.count_differing(differs);
        }
    }

    /// Counts one more session that differs, or one fewer.
    fn count_differing(&self, differs: bool) {
        match differs {
            true => self.differing.fetch_add(1, Ordering::Relaxed),
            false => self.differing.fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl SessionListObserver for SessionLists {
    fn serves(&self, client: SessionKey) {
        if self.clients.read().contains(&client) {
            return;
        }
        let mut clients = self.clients.write();
        if clients.len() < MAX_CLIENTS && clients.insert(client) {
            drop(clients);
            self.index.enter(client, self.own.clone());
        }
    }

    fn clients(&self) -> Vec<SessionKey> {
        self.clients.read().iter().copied().collect()
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.has_stream.load(Ordering::Relaxed) {
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn set_heard(&self, is_heard: bool) {
        if !self.has_stream.swap(is_heard, Ordering::Relaxed)
            && is_heard
            && self.calls.load(Ordering::Relaxed) > 0
        {
            self.unheard.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn handle_list_changed(&self, kinds: ListKinds) {
        for kind in ListKind::ALL.into_iter().filter(|kind| kinds.has(*kind)) {
            self.notification_counts[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        self.notify_clients(kinds);
    }

    fn handle_resource_updated(&self, uri: &str) {
        self.subscribed.updated(uri);
    }
}

impl Drop for SessionLists {
    fn drop(&mut self) {
        let clients = std::mem::take(self.clients.get_mut());
        self.index.leave(&clients);
        if !*self.differs.get_mut() {
            return;
        }
        self.count_differing(false);
        // The clients see the shared list again.
        let differing = ListKind::ALL
            .into_iter()
            .filter(|kind| self.known(*kind).is_some_and(|known| !known.is_empty()));
        let kinds: ListKinds = differing.collect();
        for client in &clients {
            let _unheard = self.notifier.notify(
                client,
                SessionMessage::ListsChanged(self.upstream.clone(), kinds),
            );
        }
    }
}

impl fmt::Debug for SessionLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SessionLists({} of {} clients)",
            self.upstream,
            self.clients.read().len()
        )
    }
}

#[cfg(test)]
mod tests;
