//! The instance of a server whose lists weir watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::instances::server_instance::ServerInstance;

/// The position of the watched instance. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WatchedInstance(Arc<AtomicUsize>);

impl WatchedInstance {
    /// Begins with the instance that gets the most calls: with canary weights, the usual version.
    pub(crate) fn of(all: &[Arc<ServerInstance>]) -> Self {
        let weights = all.iter().enumerate().rev();
        let most = weights.max_by_key(|(_, one)| one.weight);
        Self(Arc::new(AtomicUsize::new(
            most.map_or(0, |(index, _)| index),
        )))
    }

    pub(crate) fn index(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Moves on from `from`, unless another watch did so before.
    pub(crate) fn move_on(&self, from: usize, to: usize) {
        let _moved_before = self
            .0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}
