//! Guards that register parts of a session's local state. A guard removes its own part when it is
//! dropped.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_core::SessionKey;
use weir_core::content_version::ContentVersion;
use weir_core::port::StreamKey;
use weir_core::upstream::ListKind;
use weir_wire::RequestId;

use crate::session_settings::SessionLimits;
use crate::sessions::local_session::SubscribedResource;
use crate::sessions::session_table::LegacySessions;

/// The limits of answers that run on without their connections.
#[derive(Debug, Clone, Copy)]
pub struct DetachLimits {
    pub(super) of_session: usize,
    pub(super) overall: usize,
}

impl DetachLimits {
    /// The limits of a session and of all sessions.
    pub fn of(limits: &SessionLimits) -> Self {
        Self {
            of_session: limits.detached_per_session,
            overall: limits.detached,
        }
    }
}

/// The reason that an answer may not run on without its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDetachPermit {
    /// Too many answers run without theirs.
    TooMany,
    /// The session ended, or another replica took it over.
    SessionGone,
}

impl LegacySessions {
    /// Takes a permit for an answer that runs on without its connection: bounded by session and
    /// overall.
    pub fn detach(
        self: &Arc<Self>,
        key: SessionKey,
        most: DetachLimits,
    ) -> Result<DetachedPermit, NoDetachPermit> {
        let mut shard = self.shard(&key);
        // The answer's own reader or call is registered until the session goes.
        let live = shard.get_mut(&key).ok_or(NoDetachPermit::SessionGone)?;
        let all = &self.detached;
        if live.detached >= most.of_session || all.load(Ordering::Relaxed) >= most.overall {
            return Err(NoDetachPermit::TooMany);
        }
        live.detached += 1;
        all.fetch_add(1, Ordering::Relaxed);
        drop(shard);
        Ok(DetachedPermit {
            sessions: self.clone(),
            key,
        })
    }
}

/// A registered call.
pub struct RegisteredCall {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: SessionKey,
    pub(super) request: RequestId,
    pub(super) nth: u64,
    pub(super) most: DetachLimits,
    pub(super) detached: Cell<Option<DetachedPermit>>,
}

impl std::fmt::Debug for RegisteredCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredCall").finish_non_exhaustive()
    }
}

impl RegisteredCall {
    /// Returns true if the call may run on without its connection: bounded by session and overall.
    pub fn try_detach(&self) -> bool {
        let permit = self.sessions.detach(self.key, self.most).ok();
        let is_permitted = permit.is_some();
        self.detached.set(permit);
        is_permitted
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        // The drop of the permit takes the same lock.
        drop(self.detached.take());
        self.sessions.release(&self.key, |live| {
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
#[derive(Debug)]
pub struct StreamReaderGuard {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: StreamKey,
    pub(super) nth: u64,
}

impl Drop for StreamReaderGuard {
    fn drop(&mut self) {
        self.sessions.release(&self.key.session, |live| {
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
#[derive(Debug)]
pub struct DetachedPermit {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: SessionKey,
}

impl Drop for DetachedPermit {
    fn drop(&mut self) {
        let mut shard = self.sessions.shard(&self.key);
        self.sessions.detached.fetch_sub(1, Ordering::Relaxed);
        if let Some(live) = shard.get_mut(&self.key) {
            live.detached = live.detached.saturating_sub(1);
        }
    }
}

/// A subscription in progress.
#[derive(Debug)]
pub struct SubscriptionGuard {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: SessionKey,
    /// The registration of the renewal of inherited subscriptions that it belongs to.
    pub(super) renewal: Option<u64>,
}

impl SubscriptionGuard {
    /// A guard that stores the subscription in place of an inherited one.
    pub(super) fn for_renewal(mut self, renewal: u64) -> Self {
        self.renewal = Some(renewal);
        self
    }

    /// Stores the subscription, until the session ends or unsubscribes. Returns false if the client
    /// ended the inherited subscription meanwhile, or a newer renewal runs: the new one is dropped.
    pub fn keep(self, uri: &str, subscribed: SubscribedResource) -> bool {
        let (is_kept, unneeded) = {
            let mut shard = self.sessions.shard(&self.key);
            let is_inherited = |renewal| {
                self.sessions
                    .remove_inherited(&self.key, uri, Some(renewal))
            };
            if self.renewal.is_some_and(|renewal| !is_inherited(renewal)) {
                (false, Some(subscribed))
            } else {
                let live = shard.entry(self.key).or_default();
                (true, live.subscribed.insert(uri.into(), subscribed))
            }
        };
        drop(unneeded);
        is_kept
    }
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.sessions.release(&self.key, |live| {
            live.subscribing = live.subscribing.saturating_sub(1)
        });
    }
}

/// A registered request to a client.
#[derive(Debug)]
pub struct AskGuard {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: SessionKey,
    pub(super) id: Bytes,
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        if let Some(live) = self.sessions.shard(&self.key).get_mut(&self.key) {
            live.asks.remove(&self.id);
        }
    }
}

/// A registered GET stream.
#[derive(Debug)]
pub struct GetStreamGuard {
    pub(super) sessions: Arc<LegacySessions>,
    pub(super) key: SessionKey,
    pub(super) nth: u64,
}

impl GetStreamGuard {
    /// The last version of a list that the session was notified of, on this stream or one before
    /// it.
    pub fn last_notified(&self, list: ListKind) -> Option<ContentVersion> {
        self.sessions.notified_lists.last(&self.key, list)
    }

    /// Records that the session is notified of a list at this version.
    pub fn record_notified(&self, list: ListKind, version: ContentVersion) {
        self.sessions.notified_lists.record(self.key, list, version);
    }
}

impl Drop for GetStreamGuard {
    fn drop(&mut self) {
        self.sessions.release(&self.key, |live| {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::sessions::call_cancellation::CancellationCause;
    use crate::sessions::test_sessions::{KEY, sessions};

    #[tokio::test]
    async fn late_end_of_a_replaced_stream_ends_no_newer_registration() {
        let sessions = sessions();
        let (_, _, first) = sessions.register_get_stream(KEY);
        let (_, _, second) = sessions.register_get_stream(KEY);
        // The session has no other state: its entry goes.
        drop(second);
        let (third_replaced, _, _third) = sessions.register_get_stream(KEY);
        drop(first);
        assert!(!third_replaced.is_cancelled());
        let (_, _, _fourth) = sessions.register_get_stream(KEY);
        assert!(
            third_replaced.is_cancelled(),
            "the newest stream is the only one"
        );
    }

    #[tokio::test]
    async fn late_end_of_a_replaced_reader_ends_no_newer_registration() {
        let sessions = sessions();
        let key = StreamKey {
            session: KEY,
            stream: 7,
        };
        let (_, first) = sessions.register_reader(key);
        let (_, second) = sessions.register_reader(key);
        drop(second);
        let (third_replaced, _third) = sessions.register_reader(key);
        drop(first);
        assert!(!third_replaced.is_cancelled());
        let (_, _fourth) = sessions.register_reader(key);
        assert!(
            third_replaced.is_cancelled(),
            "the newest reader is the only one"
        );
    }

    #[tokio::test]
    async fn calls_are_cancelled_by_the_value_of_their_ids() {
        let sessions = sessions();
        let id = |json: &str| RequestId::from_json(json.as_bytes()).unwrap();
        for (registered, cancelled, is_same) in [
            (r#""a\u0062""#, r#""ab""#, true),
            (r#""a\/b""#, r#""a/b""#, true),
            ("-0", "0", true),
            ("1", r#""1""#, false),
        ] {
            let limits = SessionLimits::default();
            let (cancellation, call) = sessions.register_call(KEY, id(registered), &limits);
            sessions.cancel(&KEY, &id(cancelled));
            let cause = is_same.then_some(CancellationCause::Client);
            assert_eq!(cancellation.cause(), cause, "{registered} {cancelled}");
            drop(call);
            assert_eq!(sessions.local_counts(&KEY).0, 0);
        }
    }
}
