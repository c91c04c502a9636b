//! The state of a pool as its requests and responses share it: responses return their connections
//! here, and a task closes those that rest for too long.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::http1_connection::Http1Connection;
use crate::http2_connection::StreamSlot;
use crate::pool_state::{IDLE_TIMEOUT, PoolState};

/// The connections to one server, behind their lock.
#[derive(Debug, Default)]
pub(super) struct SharedPool(Mutex<PoolState>);

impl SharedPool {
    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock()
    }

    /// Retires the HTTP/2 connection of this stream: it gets no more requests and ends with those
    /// that it has.
    pub(super) fn retire(&self, slot: &StreamSlot) {
        slot.retire_connection();
        self.lock().remove_retired();
    }

    /// Returns a connection that is ready for another request to the pool.
    pub(super) fn return_to_pool(self: &Arc<Self>, connection: Http1Connection) {
        let mut state = self.lock();
        state.add(connection, Instant::now());
        self.start_sweep(state);
    }

    /// Starts the task that closes idle connections, once. Takes the guard of the caller's change:
    /// all requests to the server share the lock.
    pub(super) fn start_sweep(self: &Arc<Self>, mut state: MutexGuard<'_, PoolState>) {
        if state.is_swept {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is ending, and no later request could use a connection.
            *state = PoolState::default();
            return;
        }
        state.is_swept = true;
        tokio::spawn(close_idle(Arc::downgrade(self)));
    }
}

async fn close_idle(pool: Weak<SharedPool>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.lock();
        if state.prune(Instant::now()) {
            state.is_swept = false;
            return;
        }
    }
}
