//! The local state of a session on this replica, and the guards that register it. A guard removes
//! its own part when it is dropped.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::SessionKey;
use weir_core::catalog::{ContentVersion, UpdateInbox};
use weir_core::port::StreamKey;
use weir_core::upstream::ListKind;

use super::{ClientReply, LegacySessions, SubscribedResource};
use crate::settings::FrontLimits;
use crate::stack::FrontState;

/// The local state of a session. The entry goes once it is empty, so open connections and the limit
/// of subscriptions bound the map.
#[derive(Default)]
pub(super) struct LocalSession {
    /// Updates of single resources that its stream will send.
    pub(super) inbox: UpdateInbox,
    /// Subscriptions, by the client's own URIs.
    pub(super) subscribed: HashMap<Box<str>, SubscribedResource>,
    /// The number of subscriptions in progress.
    pub(super) subscribing: usize,
    /// The reader of each resumable stream: one at a time.
    pub(super) readers: HashMap<u64, (u64, CancellationToken)>,
    pub(super) calls: HashMap<Bytes, Vec<(u64, CancellationToken)>>,
    pub(super) stream: Option<(u64, CancellationToken)>,
    /// Open requests to the client, by the request's id. Each belongs to one of the calls.
    pub(super) asks: HashMap<Bytes, mpsc::Sender<ClientReply>>,
    pub(super) next: u64,
    pub(super) detached: usize,
}

impl LocalSession {
    /// Returns true if the session has no local state.
    pub(super) fn is_idle(&self) -> bool {
        let streams = self.stream.is_some() || !self.readers.is_empty();
        self.calls.is_empty() && !streams && self.subscribed.is_empty() && self.subscribing == 0
    }
}

/// The limits of answers that run on without their connections.
#[derive(Clone, Copy)]
pub(crate) struct DetachLimits {
    pub(super) of_session: usize,
    pub(super) overall: usize,
}

impl DetachLimits {
    pub(crate) fn of(limits: &FrontLimits) -> Self {
        Self {
            of_session: limits.detached_per_session,
            overall: limits.detached,
        }
    }
}

/// A registered call.
pub(crate) struct RegisteredCall {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: SessionKey,
    pub(super) request: Bytes,
    pub(super) nth: u64,
    pub(super) most: DetachLimits,
    pub(super) detached: Cell<Option<DetachedPermit>>,
}

impl RegisteredCall {
    /// Returns true if the call may run on without its connection: bounded by session and overall.
    pub(crate) fn try_detach(&self) -> bool {
        let place = LegacySessions::detach(&self.shared, self.key, self.most);
        let may = place.is_some();
        self.detached.set(place);
        may
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        // The drop of the permit takes the same lock.
        drop(self.detached.take());
        self.shared.sessions.release(&self.key, |live| {
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

/// The registered reader of a stream.
pub(crate) struct StreamReaderGuard {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: StreamKey,
    pub(super) nth: u64,
}

impl Drop for StreamReaderGuard {
    fn drop(&mut self) {
        self.shared.sessions.release(&self.key.session, |live| {
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

/// The permit of an answer without a connection.
pub(crate) struct DetachedPermit {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: SessionKey,
}

impl Drop for DetachedPermit {
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

/// A subscription in progress.
pub(crate) struct SubscriptionGuard {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: SessionKey,
}

impl SubscriptionGuard {
    /// Stores the subscription, until the session ends or unsubscribes.
    pub(crate) fn keep(self, uri: &str, subscribed: SubscribedResource) {
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

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.shared.sessions.release(&self.key, |live| {
            live.subscribing = live.subscribing.saturating_sub(1)
        });
    }
}

/// A registered request to a client.
pub(crate) struct AskGuard {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: SessionKey,
    pub(super) id: Bytes,
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        if let Some(live) = self.shared.sessions.shard(&self.key).get_mut(&self.key) {
            live.asks.remove(&self.id);
        }
    }
}

/// A registered GET stream.
pub(crate) struct GetStreamGuard {
    pub(super) shared: Arc<FrontState>,
    pub(super) key: SessionKey,
    pub(super) nth: u64,
}

impl GetStreamGuard {
    /// The last version of a list that the session was notified of, on this stream or one before
    /// it.
    pub(crate) fn last_notified(&self, list: ListKind) -> Option<ContentVersion> {
        self.shared.sessions.notified_lists.last(&self.key, list)
    }

    /// Records that the session is notified of a list at this version.
    pub(crate) fn record_notified(&self, list: ListKind, version: ContentVersion) {
        self.shared
            .sessions
            .notified_lists
            .record(self.key, list, version);
    }
}

impl Drop for GetStreamGuard {
    fn drop(&mut self) {
        self.shared.sessions.release(&self.key, |live| {
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
