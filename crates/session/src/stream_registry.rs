//! The registry of open streams: operators list them, and end those of a blocked principal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::telemetry::instruments;
use weir_core::{EndpointId, Principal};
use weir_wire::Era;

/// The kind of an open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A stream of `subscriptions/listen`, the only kind of 2026-07-28.
    Listen,
    /// The GET stream of a session.
    Session,
    /// A stream that its client resumed.
    Resumed,
    /// The connection of an HTTP+SSE client.
    HttpSse,
}

impl StreamKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Session => "session",
            Self::Resumed => "resumed",
            Self::HttpSse => "http_sse",
        }
    }

    /// The era that has streams of this kind.
    const fn era(self) -> Era {
        match self {
            Self::Listen => Era::Modern,
            Self::Session | Self::Resumed | Self::HttpSse => Era::Legacy,
        }
    }
}

/// An open stream.
#[derive(Clone, Debug)]
pub struct StreamSeen {
    /// The principal that opened it.
    pub principal: Principal,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its kind.
    pub kind: StreamKind,
    /// The time since it was opened.
    pub age: Duration,
}

/// All open streams. The stream permits bound it.
#[derive(Debug, Default)]
pub struct StreamRegistry {
    open: Mutex<HashMap<u64, RegisteredStream>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct RegisteredStream {
    principal: Principal,
    endpoint: EndpointId,
    kind: StreamKind,
    since: Instant,
    end: CancellationToken,
}

/// A stream's own entry; it is removed when dropped.
#[derive(Debug)]
pub struct StreamRegistration {
    registry: Arc<StreamRegistry>,
    id: u64,
    /// Cancelled when an operator ends the stream.
    pub end: CancellationToken,
}

impl StreamRegistry {
    /// Registers a stream.
    pub fn register(
        self: &Arc<Self>,
        principal: &Principal,
        endpoint: &EndpointId,
        kind: StreamKind,
    ) -> StreamRegistration {
        count_open(kind, 1);
        let end = CancellationToken::new();
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let (principal, endpoint, since) = (principal.clone(), endpoint.clone(), Instant::now());
        self.open.lock().insert(
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
            registry: self.clone(),
            id,
            end,
        }
    }

    /// The open streams, in no order.
    pub fn all(&self) -> Vec<StreamSeen> {
        let seen = |entry: &RegisteredStream| StreamSeen {
            principal: entry.principal.clone(),
            endpoint: entry.endpoint.clone(),
            kind: entry.kind,
            age: entry.since.elapsed(),
        };
        self.open.lock().values().map(seen).collect()
    }

    /// Ends the streams of a principal; returns their number.
    pub fn end_of_principal(&self, digest: &[u8; 16]) -> usize {
        let ends: Vec<_> = {
            let open = self.open.lock();
            open.values()
                .filter(|entry| entry.principal.digest() == digest)
                .map(|entry| entry.end.clone())
                .collect()
        };
        // Woken without the lock.
        ends.iter().for_each(CancellationToken::cancel);
        ends.len()
    }
}

impl Drop for StreamRegistration {
    fn drop(&mut self) {
        let gone = self.registry.open.lock().remove(&self.id);
        if let Some(gone) = gone {
            count_open(gone.kind, -1);
        }
    }
}

/// Adds `change` to the number of open streams of the kind's era.
fn count_open(kind: StreamKind, change: i64) {
    instruments()
        .streams
        .add(change, &[KeyValue::new("kind", kind.era().as_str())]);
}
