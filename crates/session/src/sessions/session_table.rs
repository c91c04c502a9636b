//! The table of sessions with state on this replica.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use weir_core::SessionKey;
use weir_core::port::{RecordKey, random_id};

use crate::session_settings::SessionPorts;
use crate::sessions::anonymous_sessions::AnonymousSessions;
use crate::sessions::inherited_uris::InheritedUris;
use crate::sessions::local_session::LocalSession;
use crate::sessions::notified_lists::NotifiedLists;

/// The bus topic of cancellations: session key, then the request's id.
pub(super) const CANCEL_TOPIC: &str = "cancel";
/// Parts of the map of running calls, to reduce contention between sessions.
const SESSION_SHARDS: usize = 16;

/// The sessions with local state on this replica.
pub struct LegacySessions {
    pub(super) ports: SessionPorts,
    pub(super) shards: [Mutex<HashMap<SessionKey, LocalSession>>; SESSION_SHARDS],
    pub(super) notified_lists: NotifiedLists,
    /// The number of the last registration of a call, reader or stream. It is not the session's
    /// own: a guard can outlive its session's entry here, and must not remove a registration in a
    /// later one.
    registrations: AtomicU64,
    pub(super) detached: AtomicUsize,
    /// Ended sessions with state left on this replica. Not on the bus, because it may lose
    /// messages.
    pub(super) ended: Mutex<Vec<SessionKey>>,
    /// Records of sessions whose client left while they were written. At most one for each request
    /// in flight.
    pub(super) abandoned: Mutex<Vec<RecordKey>>,
    /// Notified of ended and abandoned sessions.
    pub(super) ended_notify: Notify,
    /// This replica's name, by which it knows its own messages on the bus.
    pub(super) replica: [u8; 16],
    pub(super) anonymous: AnonymousSessions,
    /// Subscriptions of sessions that came from another process, until they are renewed. They end
    /// with their sessions. Locked within the lock of a shard, never around it.
    pub(super) inherited_subscriptions: Mutex<HashMap<SessionKey, InheritedUris>>,
    /// True once the sessions move to a successor process.
    pub(crate) has_moved: AtomicBool,
}

impl std::fmt::Debug for LegacySessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LegacySessions").finish_non_exhaustive()
    }
}

impl LegacySessions {
    /// No session has local state yet.
    pub fn new(ports: SessionPorts) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            notified_lists: NotifiedLists::default(),
            registrations: AtomicU64::new(0),
            detached: AtomicUsize::new(0),
            ended: Mutex::default(),
            abandoned: Mutex::default(),
            ended_notify: Notify::new(),
            replica: random_id(&*ports.random),
            ports,
            anonymous: AnonymousSessions::default(),
            inherited_subscriptions: Mutex::default(),
            has_moved: AtomicBool::new(false),
        }
    }

    /// True once the sessions move to a successor process.
    pub fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    /// Returns the number of a new registration.
    pub(super) fn next_registration(&self) -> u64 {
        self.registrations.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn shard(
        &self,
        key: &SessionKey,
    ) -> MutexGuard<'_, HashMap<SessionKey, LocalSession>> {
        let at = usize::from(key.0[0]) % SESSION_SHARDS;
        self.shards[at].lock()
    }

    /// Changes a session's local state, and removes the entry once it is empty. The value that
    /// `change` takes out is returned, so that it is dropped without the lock.
    pub(super) fn release<T>(
        &self,
        key: &SessionKey,
        change: impl FnOnce(&mut LocalSession) -> T,
    ) -> Option<T> {
        let mut shard = self.shard(key);
        let live = shard.get_mut(key)?;
        let taken = change(live);
        if live.is_idle() {
            shard.remove(key);
        }
        Some(taken)
    }
}

/// The session's key for other crates: a digest, so that the id itself never leaves the client side.
pub fn session_key(id: &[u8; 16]) -> SessionKey {
    let digest = Sha256::digest(id);
    let mut key = [0; 16];
    key.copy_from_slice(&digest[..16]);
    SessionKey(key)
}
