//! The instance of a server whose lists weir watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_core::upstream::{ListKind, ListKinds};

use crate::instances::server_instance::ServerInstance;

/// The position of the watched instance. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedInstance {
    index: Arc<AtomicUsize>,
    /// The lists that an instance gave.
    given: Arc<Mutex<ListKinds>>,
}

impl WatchedInstance {
    /// Begins with the instance that gets the most calls: with canary weights, the usual version.
    pub(crate) fn of(all: &[Arc<ServerInstance>]) -> Self {
        let weights = all.iter().enumerate().rev();
        let most = weights.max_by_key(|(_, one)| one.weight);
        let first = most.map_or(0, |(index, _)| index);
        Self {
            index: Arc::new(AtomicUsize::new(first)),
            given: Arc::default(),
        }
    }

    /// Notes that an instance gave a list.
    pub(crate) fn note_given(&self, kind: ListKind) {
        let mut given = self.given.lock();
        *given = given.with(kind);
    }

    /// True if an instance gave this list before.
    pub(crate) fn was_given(&self, kind: ListKind) -> bool {
        self.given.lock().has(kind)
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Ordering::Acquire)
    }

    /// Moves on from `from`, unless another watch did so before.
    pub(crate) fn move_on(&self, from: usize, to: usize) {
        let _moved_before =
            self.index
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}
