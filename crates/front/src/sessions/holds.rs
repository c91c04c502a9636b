//! What hangs on a session on this replica, and the guards by which it does: each takes its own
//! away when it is dropped.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::SessionKey;
use weir_core::catalog::{Inbox, Version};
use weir_core::port::StreamKey;
use weir_core::upstream::ListKind;

use super::{FromClient, Sessions, Subscribed};
use crate::settings::Limits;
use crate::stack::Shared;

/// What hangs on a session here. The entry goes when nothing does; so open connections and the
/// limit of subscriptions bound the map.
#[derive(Default)]
pub(super) struct Live {
    /// What its stream is to tell of single resources.
    pub(super) inbox: Inbox,
    /// By the client's own names.
    pub(super) subscribed: HashMap<Box<str>, Subscribed>,
    /// Subscriptions under way.
    pub(super) subscribing: usize,
    /// Who reads which stream that can be taken up again: one at a time.
    pub(super) readers: HashMap<u64, (u64, CancellationToken)>,
    pub(super) calls: HashMap<Bytes, Vec<(u64, CancellationToken)>>,
    pub(super) stream: Option<(u64, CancellationToken)>,
    /// What the client was asked, by the request's id. Each belongs to one of the calls.
    pub(super) asks: HashMap<Bytes, mpsc::Sender<FromClient>>,
    pub(super) next: u64,
    pub(super) detached: usize,
}

impl Live {
    /// Whether nothing hangs on the session.
    pub(super) fn is_idle(&self) -> bool {
        let streams = self.stream.is_some() || !self.readers.is_empty();
        self.calls.is_empty() && !streams && self.subscribed.is_empty() && self.subscribing == 0
    }
}

/// How many answers run on without their connections at most.
#[derive(Clone, Copy)]
pub(crate) struct MostDetached {
    pub(super) of_session: usize,
    pub(super) altogether: usize,
}

impl MostDetached {
    pub(crate) fn of(limits: &Limits) -> Self {
        Self {
            of_session: limits.detached_per_session,
            altogether: limits.detached,
        }
    }
}

/// A registered call.
pub(crate) struct InFlight {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SessionKey,
    pub(super) request: Bytes,
    pub(super) nth: u64,
    pub(super) most: MostDetached,
    pub(super) detached: Cell<Option<Detached>>,
}

impl InFlight {
    /// Whether the call may run on without its connection: bounded by session and altogether.
    pub(crate) fn may_detach(&self) -> bool {
        let place = Sessions::detach(&self.shared, self.key, self.most);
        let may = place.is_some();
        self.detached.set(place);
        may
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // It takes the same lock.
        drop(self.detached.take());
        self.shared.sessions.leave(&self.key, |live| {
            let Some(calls) = live.calls.get_mut(&self.request) else {
                return;
            };
            calls.retain(|(nth, _)| *nth != self.nth);
            if calls.is_empty() {
                live.calls.remove(&self.request);
            }
        });
    }
}

/// Who reads a stream.
pub(crate) struct ReadHold {
    pub(super) shared: Arc<Shared>,
    pub(super) key: StreamKey,
    pub(super) nth: u64,
}

impl Drop for ReadHold {
    fn drop(&mut self) {
        self.shared.sessions.leave(&self.key.session, |live| {
            if live
                .readers
                .get(&self.key.stream)
                .is_some_and(|(nth, _)| *nth == self.nth)
            {
                live.readers.remove(&self.key.stream);
            }
        });
    }
}

/// The place of an answer without a connection.
pub(crate) struct Detached {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SessionKey,
}

impl Drop for Detached {
    fn drop(&mut self) {
        let mut shard = self.shared.sessions.shard(&self.key);
        self.shared
            .sessions
            .detached
            .fetch_sub(1, Ordering::Relaxed);
        if let Some(live) = shard.get_mut(&self.key) {
            live.detached = live.detached.saturating_sub(1);
        }
    }
}

/// A subscription under way.
pub(crate) struct Subscribing {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SessionKey,
}

impl Subscribing {
    /// Keeps what was subscribed to, until the session ends or takes it back.
    pub(crate) fn keep(self, uri: &str, subscribed: Subscribed) {
        let before = {
            let mut shard = self.shared.sessions.shard(&self.key);
            shard
                .entry(self.key)
                .or_default()
                .subscribed
                .insert(uri.into(), subscribed)
        };
        drop(before);
    }
}

impl Drop for Subscribing {
    fn drop(&mut self) {
        self.shared.sessions.leave(&self.key, |live| {
            live.subscribing = live.subscribing.saturating_sub(1)
        });
    }
}

/// Something that a client is asked.
pub(crate) struct AskHold {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SessionKey,
    pub(super) id: Bytes,
}

impl Drop for AskHold {
    fn drop(&mut self) {
        if let Some(live) = self.shared.sessions.shard(&self.key).get_mut(&self.key) {
            live.asks.remove(&self.id);
        }
    }
}

/// A registered GET stream.
pub(crate) struct StreamHold {
    pub(super) shared: Arc<Shared>,
    pub(super) key: SessionKey,
    pub(super) nth: u64,
}

impl StreamHold {
    /// What the session was told of a list, on this stream or one before it.
    pub(crate) fn last_told(&self, list: ListKind) -> Option<Version> {
        self.shared.sessions.told.last(&self.key, list)
    }

    /// The session is told of a list as it is now.
    pub(crate) fn tell(&self, list: ListKind, version: Version) {
        self.shared.sessions.told.note(self.key, list, version);
    }
}

impl Drop for StreamHold {
    fn drop(&mut self) {
        self.shared.sessions.leave(&self.key, |live| {
            if live
                .stream
                .as_ref()
                .is_some_and(|(nth, _)| *nth == self.nth)
            {
                live.stream = None;
            }
        });
    }
}
