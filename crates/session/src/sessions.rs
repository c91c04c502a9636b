//! Legacy sessions: a record behind core's port, and on this replica the session's calls, stream
//! and subscriptions.
//!
//! An idle session is its record alone: no task, no channel, no entry here.

mod anonymous_sessions;
pub(crate) mod call_cancellation;
mod client_answers;
pub(crate) mod inherited_subscriptions;
mod inherited_uris;
pub(crate) mod local_session;
pub(crate) mod notified_lists;
pub(crate) mod session_expiry;
pub(crate) mod session_guards;
mod session_opening;
pub(crate) mod session_table;
mod session_transfer;
mod shared_state;
#[cfg(test)]
mod test_sessions;

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use opentelemetry::KeyValue;
use tokio_util::sync::CancellationToken;
use weir_catalog::{UpdateInbox, UpdateReader};
use weir_core::network::SenderNetwork;
use weir_core::port::{
    BusMessage, RecordKey, RecordPlace, ReplicaId, StoreError, StoredRecord, StreamKey,
    WriteCondition, WriteOutcome, random_id,
};
use weir_core::telemetry::instruments;
use weir_core::{CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_era::server_questions;
use weir_era::session::LegacySessionRecord;
use weir_wire::{RequestId, Revision};

use self::call_cancellation::{CallCancellation, CancellationCause};
use self::session_guards::{
    DetachLimits, GetStreamGuard, RegisteredCall, StreamReaderGuard, SubscriptionGuard,
};
use self::session_opening::SessionOpening;
use self::session_table::CANCEL_TOPIC;
use self::session_table::{LegacySessions, session_key};
use crate::session_settings::SessionLimits;

/// The session of a request.
#[derive(Clone, Debug)]
pub struct LoadedSession {
    /// The record as it was read.
    pub record: LegacySessionRecord,
    /// The key of the session's state on this replica.
    pub key: SessionKey,
    /// The key of the record.
    pub record_key: RecordKey,
    version: u64,
    /// False for a request without a session: its state ends with it.
    pub is_stored: bool,
}

/// A session that was just opened.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    /// The id, for its client.
    pub text: String,
    /// The key of the session's state on this replica.
    pub key: SessionKey,
}

/// The place of the session that a request names.
#[derive(Clone, Debug)]
pub enum SessionPlace {
    /// This replica owns it.
    Here(LoadedSession),
    /// Another replica owns it: the request is answered there.
    Elsewhere(ReplicaId),
    /// It is unknown, ended, expired or foreign.
    Gone,
}

impl LoadedSession {
    /// The client's capabilities, as far as its revision defines them; before
    /// `notifications/initialized` only those of a session.
    pub fn class(&self) -> CapabilityClass {
        if !self.record.initialized {
            return CapabilityClass::SESSIONS;
        }
        self.class_of_lists()
    }

    /// The class of the lists that the client is notified of. Its stream may open before it is
    /// initialized (over HTTP+SSE it always does) and outlives that moment, so the stream must
    /// watch the lists that the client will see.
    pub fn class_of_lists(&self) -> CapabilityClass {
        Self::class_of_revision(self.record.revision, self.record.class)
    }

    /// The class of the lists of a client that declares these capabilities in this revision.
    pub fn class_of_revision(revision: Revision, declared: CapabilityClass) -> CapabilityClass {
        server_questions::cut_to_revision(revision, declared).with(CapabilityClass::SESSIONS)
    }
}

impl LegacySessions {
    /// Opens a session for a client at `peer` that goes on from an earlier session with these
    /// settings, which has ended or is ending.
    pub async fn reopen(
        &self,
        principal: &Principal,
        peer: IpAddr,
        earlier: LegacySessionRecord,
        limits: &SessionLimits,
    ) -> Result<OpenedSession, Failure> {
        let session = LegacySessionRecord {
            initialized: true,
            began: self.ports.clock.wall(),
            ..earlier
        };
        let opened = self.open(principal, peer, &session, limits).await?;
        self.announce_lists(opened.key);
        Ok(opened)
    }

    /// Opens a session for a client at `peer`.
    pub async fn open(
        &self,
        principal: &Principal,
        peer: IpAddr,
        session: &LegacySessionRecord,
        limits: &SessionLimits,
    ) -> Result<OpenedSession, Failure> {
        let id = random_id(&*self.ports.random);
        let key = RecordKey {
            principal: principal.clone(),
            id,
        };
        if principal.is_anonymous()
            && !self.anonymous.add(
                session_key(&id),
                SenderNetwork::of(peer),
                self.most_of_network(limits),
            )
        {
            return Err(Failure::new(
                FailureKind::Limit,
                "Your network has too many sessions open",
            ));
        }
        let opening = SessionOpening::new(self, &key);
        let stored = self
            .ports
            .records
            .store(
                &key,
                session.encode(),
                limits.session_idle,
                WriteCondition::Absent,
            )
            .await;
        opening.finish();
        if !matches!(stored, Ok(WriteOutcome::Stored(_))) {
            self.anonymous.remove(&session_key(&id));
        }
        match stored {
            Ok(WriteOutcome::Stored(_)) => Ok(OpenedSession {
                text: self.ports.ids.write(principal, &id, &*self.ports.random),
                key: session_key(&id),
            }),
            Ok(WriteOutcome::OwnerFull) => Err(Failure::new(
                FailureKind::Limit,
                "You have too many sessions open",
            )),
            Ok(WriteOutcome::Full) => Err(Failure::new(
                FailureKind::Overloaded,
                "Too many sessions are open",
            )),
            Ok(WriteOutcome::Conflict) => Err(Failure::internal("two sessions got one id")),
            Err(error) => Err(
                Failure::new(FailureKind::Overloaded, "Sessions cannot be kept now").because(error),
            ),
        }
    }

    /// The number of anonymous sessions that one network may have: as many as are free, and at
    /// least `sessions_per_principal`, or half of all sessions if that is less.
    fn most_of_network(&self, limits: &SessionLimits) -> usize {
        let free = limits.sessions.saturating_sub(self.ports.records.count());
        free.max(limits.sessions_per_principal.min(limits.sessions / 2))
    }

    /// The session with the id in the header of a request. An unknown, ended, expired and foreign
    /// session are alike.
    ///
    /// # Errors
    /// The records cannot be read: the state of the session is unknown.
    pub async fn load(
        &self,
        principal: &Principal,
        id: &HeaderValue,
        limits: &SessionLimits,
    ) -> Result<SessionPlace, StoreError> {
        let Some(named) = self.ports.ids.read(principal, id) else {
            return Ok(SessionPlace::Gone);
        };
        let record_key = RecordKey {
            principal: principal.clone(),
            id: named.id,
        };
        let (records, touch) = (&self.ports.records, Some(limits.session_idle));
        let found = match &named.opened_by {
            None => records.load(&record_key, touch).await?,
            Some(opened_by) => match records.locate(&record_key, touch, opened_by).await? {
                RecordPlace::Here(found) => Some(found),
                RecordPlace::TakenOver(found) => {
                    self.take_over(session_key(&record_key.id), &found.value);
                    Some(found)
                }
                RecordPlace::Elsewhere(owner) => return Ok(SessionPlace::Elsewhere(owner)),
                RecordPlace::Gone => None,
            },
        };
        let loaded = match found {
            Some(found) => self.loaded_session(record_key, &found, limits).await,
            None => None,
        };
        Ok(loaded.map_or(SessionPlace::Gone, SessionPlace::Here))
    }

    /// The session of a record, unless it is too old.
    async fn loaded_session(
        &self,
        record_key: RecordKey,
        found: &StoredRecord,
        limits: &SessionLimits,
    ) -> Option<LoadedSession> {
        let record = LegacySessionRecord::decode(&found.value)?;
        let age = self
            .ports
            .clock
            .wall()
            .duration_since(record.began)
            .unwrap_or_default();
        if age > limits.session_age {
            self.end(&record_key, &record).await;
            return None;
        }
        Some(LoadedSession {
            record,
            key: session_key(&record_key.id),
            record_key,
            version: found.version,
            is_stored: true,
        })
    }

    /// A session for one request alone; it is not stored.
    pub fn without_record(
        &self,
        principal: &Principal,
        record: LegacySessionRecord,
    ) -> LoadedSession {
        let id = random_id(&*self.ports.random);
        LoadedSession {
            record,
            key: session_key(&id),
            record_key: RecordKey {
                principal: principal.clone(),
                id,
            },
            version: 0,
            is_stored: false,
        }
    }

    /// Stores a changed session. A concurrent change wins; the client may set the level again.
    pub async fn store_changed(
        &self,
        session: &LoadedSession,
        record: &LegacySessionRecord,
        limits: &SessionLimits,
    ) -> bool {
        let stored = self.write_record(session, record, limits).await;
        matches!(stored, Ok(WriteOutcome::Stored(_)))
    }

    async fn write_record(
        &self,
        session: &LoadedSession,
        record: &LegacySessionRecord,
        limits: &SessionLimits,
    ) -> Result<WriteOutcome, StoreError> {
        let value = self.record_value(&session.key, record);
        let expect = WriteCondition::Version(session.version);
        self.ports
            .records
            .store(&session.record_key, value, limits.session_idle, expect)
            .await
    }

    /// Marks a session's client as initialized. On a concurrent change, reads the session again and
    /// retries.
    pub async fn mark_initialized(&self, session: &LoadedSession, limits: &SessionLimits) {
        let mut session = session.clone();
        for _ in 0..3 {
            let record = LegacySessionRecord {
                initialized: true,
                ..session.record
            };
            if session.record.initialized || self.store_changed(&session, &record, limits).await {
                return;
            }
            let Ok(Some(found)) = self.ports.records.load(&session.record_key, None).await else {
                return;
            };
            let Some(record) = LegacySessionRecord::decode(&found.value) else {
                return;
            };
            session = LoadedSession {
                record,
                version: found.version,
                ..session
            };
        }
    }

    /// Ends a session everywhere; returns true if it existed.
    pub async fn end(&self, record: &RecordKey, session: &LegacySessionRecord) -> bool {
        let was = self.ports.records.remove(record).await.unwrap_or(false);
        if was {
            let lasted = self
                .ports
                .clock
                .wall()
                .duration_since(session.began)
                .unwrap_or_default();
            let revision = KeyValue::new("mcp.protocol.version", session.revision.as_str());
            instruments()
                .session_duration
                .record(lasted.as_secs_f64(), &[revision]);
            self.end_and_announce(&[session_key(&record.id)]);
        }
        was
    }

    /// Cancels a call on the replica that runs it. A local call is cancelled directly: the bus may
    /// lose messages under a flood.
    pub fn cancel(&self, key: &SessionKey, request: &RequestId) {
        if self.cancel_local(key, request) {
            return;
        }
        let request = request.as_json();
        let mut body = BytesMut::with_capacity(16 + request.len());
        body.put_slice(&key.0);
        body.put_slice(request);
        self.ports.bus.publish(BusMessage {
            topic: CANCEL_TOPIC,
            body: body.freeze(),
        });
    }

    /// The local state of a session: its number of calls, if its stream is open, and its number of
    /// subscribed resources.
    pub fn local_counts(&self, key: &SessionKey) -> (usize, bool, usize) {
        let shard = self.shard(key);
        let of = |live: &local_session::LocalSession| {
            let calls = live.calls.values().map(Vec::len).sum();
            (calls, live.stream.is_some(), live.subscribed.len())
        };
        shard.get(key).map(of).unwrap_or_default()
    }

    /// Registers a running call; dropping the guard removes it.
    pub fn register_call(
        self: &Arc<Self>,
        key: SessionKey,
        request: RequestId,
        limits: &SessionLimits,
    ) -> (CallCancellation, RegisteredCall) {
        let cancellation = CallCancellation::default();
        let mut shard = self.shard(&key);
        let live = shard.entry(key).or_default();
        let nth = self.next_registration();
        live.calls
            .entry(request.clone())
            .or_default()
            .push((nth, cancellation.clone()));
        drop(shard);
        let most = DetachLimits::of(limits);
        (
            cancellation,
            RegisteredCall {
                sessions: self.clone(),
                key,
                request,
                nth,
                most,
                detached: Cell::default(),
            },
        )
    }

    /// Registers a new reader of a stream and cancels the one before it.
    pub fn register_reader(
        self: &Arc<Self>,
        key: StreamKey,
    ) -> (CancellationToken, StreamReaderGuard) {
        let token = CancellationToken::new();
        let mut shard = self.shard(&key.session);
        let live = shard.entry(key.session).or_default();
        let nth = self.next_registration();
        if let Some((_, before)) = live.readers.insert(key.stream, (nth, token.clone())) {
            before.cancel();
        }
        drop(shard);
        (
            token,
            StreamReaderGuard {
                sessions: self.clone(),
                key,
                nth,
            },
        )
    }

    /// Registers a subscription in progress: returns the session's inbox, and the guard that stores
    /// the subscription.
    pub fn begin_subscription(
        self: &Arc<Self>,
        key: SessionKey,
    ) -> (UpdateInbox, SubscriptionGuard) {
        let mut shard = self.shard(&key);
        let live = shard.entry(key).or_default();
        live.subscribing += 1;
        let inbox = live.inbox.clone();
        drop(shard);
        (
            inbox,
            SubscriptionGuard {
                sessions: self.clone(),
                key,
                renewal: None,
            },
        )
    }

    /// The number of resources that the session is subscribed to, those beside this one included
    /// that it inherited and that are not renewed yet; and true if this is a subscribed one.
    pub fn subscription_status(&self, key: &SessionKey, uri: &str) -> (usize, bool) {
        let shard = self.shard(key);
        let subscribed = shard.get(key).map(|live| &live.subscribed);
        let is_subscribed = |uri: &str| subscribed.is_some_and(|own| own.contains_key(uri));
        let inherited = self.inherited_subscriptions.lock();
        let waiting = inherited.get(key).map_or(0, |of_session| {
            let is_other = |other: &&String| *other != uri && !is_subscribed(other);
            of_session.uris().iter().filter(is_other).count()
        });
        let own = subscribed.map_or(0, HashMap::len);
        (own + waiting, is_subscribed(uri))
    }

    /// Removes a subscription of the session.
    pub fn unsubscribe(&self, key: &SessionKey, uri: &str) {
        // First, so that no renewal stores it afterwards.
        self.remove_inherited(key, uri, None);
        let gone = self.release(key, |live| live.subscribed.remove(uri));
        drop(gone);
    }

    /// Queues a notification about a subscribed resource for the session's client.
    pub fn notify_updated(&self, key: &SessionKey, uri: String) {
        let inbox = self.shard(key).get(key).map(|live| live.inbox.clone());
        if let Some(inbox) = inbox {
            inbox.push_update(&uri.into());
        }
    }

    /// Returns true if the session exists. Does not extend its life.
    pub async fn is_alive(&self, record: &RecordKey) -> bool {
        self.ports
            .records
            .load(record, None)
            .await
            .is_ok_and(|found| found.is_some())
    }

    /// Registers the session's GET stream, and returns its reader of updates; cancels the stream
    /// before it.
    pub fn register_get_stream(
        self: &Arc<Self>,
        key: SessionKey,
    ) -> (CancellationToken, UpdateReader, GetStreamGuard) {
        let token = CancellationToken::new();
        let mut shard = self.shard(&key);
        let live = shard.entry(key).or_default();
        let nth = self.next_registration();
        if let Some((_, before)) = live.stream.replace((nth, token.clone())) {
            before.cancel();
        }
        let updates = live.inbox.open_reader();
        drop(shard);
        (
            token,
            updates,
            GetStreamGuard {
                sessions: self.clone(),
                key,
                nth,
            },
        )
    }

    /// Cancels a call on this replica; false if no such call runs here.
    fn cancel_local(&self, key: &SessionKey, request: &RequestId) -> bool {
        let shard = self.shard(key);
        let Some(calls) = shard.get(key).and_then(|live| live.calls.get(request)) else {
            return false;
        };
        let cause = CancellationCause::Client;
        calls.iter().for_each(|(_, call)| call.cancel(cause));
        true
    }
}
