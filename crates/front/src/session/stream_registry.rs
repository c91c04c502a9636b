//! The registry of open streams: operators list them, and end those of a blocked principal.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::{EndpointId, Principal};

/// An open stream.
#[derive(Clone, Debug)]
pub struct StreamSeen {
    /// The principal that opened it.
    pub principal: Principal,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// `listen` (2026-07-28), `session` (a GET stream), `resumed` or `line` (HTTP+SSE).
    pub kind: &'static str,
    /// The time since it was opened.
    pub age: Duration,
}

/// All open streams. The stream permits bound it.
#[derive(Default)]
pub(crate) struct StreamRegistry {
    open: Mutex<HashMap<u64, RegisteredStream>>,
    last: AtomicU64,
}

struct RegisteredStream {
    principal: Principal,
    endpoint: EndpointId,
    kind: &'static str,
    since: Instant,
    end: CancellationToken,
}

/// A stream's own entry; it is removed when dropped.
pub(crate) struct StreamRegistration {
    roll: Arc<StreamRegistry>,
    id: u64,
    pub(crate) end: CancellationToken,
}

impl StreamRegistry {
    pub(crate) fn register(
        self: &Arc<Self>,
        principal: &Principal,
        endpoint: &EndpointId,
        kind: &'static str,
    ) -> StreamRegistration {
        let end = CancellationToken::new();
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let (principal, endpoint, since) = (principal.clone(), endpoint.clone(), Instant::now());
        self.lock().insert(
            id,
            RegisteredStream {
                principal,
                endpoint,
                kind,
                since,
                end: end.clone(),
            },
        );
        StreamRegistration {
            roll: self.clone(),
            id,
            end,
        }
    }

    pub(crate) fn all(&self) -> Vec<StreamSeen> {
        let seen = |entry: &RegisteredStream| StreamSeen {
            principal: entry.principal.clone(),
            endpoint: entry.endpoint.clone(),
            kind: entry.kind,
            age: entry.since.elapsed(),
        };
        self.lock().values().map(seen).collect()
    }

    /// Ends the streams of a principal; returns their number.
    pub(crate) fn end_of_principal(&self, digest: &[u8; 16]) -> usize {
        let ends: Vec<_> = {
            let open = self.lock();
            open.values()
                .filter(|entry| entry.principal.digest() == digest)
                .map(|entry| entry.end.clone())
                .collect()
        };
        // Woken without the lock.
        ends.iter().for_each(CancellationToken::cancel);
        ends.len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, RegisteredStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        let gone = self.roll.lock().remove(&self.id);
        drop(gone);
    }
}
