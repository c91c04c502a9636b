//! The shared idle connections to one server: responses return theirs here, and a task closes those
//! that rest for too long.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::http1_connection::Http1Connection;
use super::http2_connection::StreamSlot;
use super::idle_connections::{IDLE_TIMEOUT, IdleConnections};

/// The idle connections to one server.
#[derive(Debug, Default)]
pub(super) struct IdlePool(Mutex<IdleConnections>);

impl IdlePool {
    pub(super) fn lock(&self) -> MutexGuard<'_, IdleConnections> {
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
        let mut idle = self.lock();
        idle.add(connection, Instant::now());
        self.start_sweep(idle);
    }

    /// Starts the task that closes idle connections, once. Takes the guard of the caller's change:
    /// all requests to the server share the lock.
    pub(super) fn start_sweep(self: &Arc<Self>, mut idle: MutexGuard<'_, IdleConnections>) {
        if idle.is_swept {
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // The runtime is ending, and no later request could use a connection.
            *idle = IdleConnections::default();
            return;
        }
        idle.is_swept = true;
        tokio::spawn(close_idle(Arc::downgrade(self)));
    }
}

async fn close_idle(pool: Weak<IdlePool>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        if idle.prune(Instant::now()) {
            idle.is_swept = false;
            return;
        }
    }
}
