//! The end of sessions: here, on the other replicas, and by their age.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::sync::broadcast::error::RecvError;
use weir_core::SessionKey;
use weir_core::port::{BusMessage, RecordKey, RecordKind};
use weir_core::telemetry::instruments;
use weir_core::upstream::ClientSessionChange;
use weir_router::Router;
use weir_wire::RequestId;

use super::client_answers::ANSWER_TOPIC;
use super::session_table::{CANCEL_TOPIC, LegacySessions, session_key};
use crate::known_clients::KnownClients;
use crate::session_settings::SessionLimits;

/// The bus topic of ended sessions: the replica that sends it, which has ended them locally, and
/// their keys.
const ENDED_TOPIC: &str = "session-ended";
/// Ended sessions in one message. After as many, other tasks have their turn.
const ENDED_PER_MESSAGE: usize = 1024;
/// The interval between searches for expired sessions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between searches for parked calls of absent clients: each holds a connection.
const PARKED_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The user of a session that is not idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionUser {
    /// An open stream, which lasts as long as its client likes.
    Stream,
    /// A call, which has time limits of its own.
    Call,
}

impl LegacySessions {
    /// Ends sessions here, and announces their end to every other replica.
    pub(super) fn end_and_announce(&self, keys: &[SessionKey]) {
        for keys in keys.chunks(ENDED_PER_MESSAGE) {
            instruments()
                .sessions
                .add(-i64::try_from(keys.len()).unwrap_or(i64::MAX), &[]);
            self.lock_ended().extend_from_slice(keys);
            keys.iter().for_each(|key| self.anonymous.remove(key));
            let mut body = BytesMut::with_capacity(16 * (1 + keys.len()));
            body.put_slice(&self.replica);
            keys.iter().for_each(|key| body.put_slice(&key.0));
            self.ports.bus.publish(BusMessage {
                topic: ENDED_TOPIC,
                body: body.freeze(),
            });
        }
        self.ended_notify.notify_one();
    }

    /// Counts an open stream or a call as a use of its session: the session is not idle. The
    /// session of a stream ends if it is too old. That of a call may be older until its next
    /// request, so that the call is not cut off.
    pub async fn keep_in_use(&self, record: RecordKey, user: SessionUser, limits: &SessionLimits) {
        let touch = Some(limits.session_idle);
        // The record is on this replica. Without it, the session has ended or was taken over, and
        // the stream or call is about to end.
        if let Ok(Some(found)) = self.ports.records.load(&record, touch).await
            && user == SessionUser::Stream
        {
            self.opened_session(record, &found, limits).await;
        }
    }

    /// The sessions that another replica took over since the last call. They live on there, so their
    /// end here is not announced.
    fn taken_over(&self) -> Vec<SessionKey> {
        let lost = self.ports.records.lost(RecordKind::Session);
        let keys: Vec<_> = lost.iter().map(|record| session_key(&record.id)).collect();
        keys.iter().for_each(|key| self.anonymous.remove(key));
        instruments()
            .sessions
            .add(-i64::try_from(keys.len()).unwrap_or(i64::MAX), &[]);
        keys
    }

    /// The sessions that another replica has ended.
    fn ended_elsewhere(&self, body: &[u8]) -> Vec<SessionKey> {
        match body.split_first_chunk::<16>() {
            Some((replica, keys)) if *replica != self.replica => keys
                .as_chunks::<16>()
                .0
                .iter()
                .map(|key| SessionKey(*key))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn lock_ended(&self) -> MutexGuard<'_, Vec<SessionKey>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the local state of an ended session.
    pub fn remove_local(&self, key: &SessionKey) {
        let live = self.shard(key).remove(key);
        self.ports.replays.forget(*key);
        self.notified_lists.forget(key);
        self.lock_inherited().remove(key);
        let Some(live) = live else { return };
        live.calls
            .values()
            .flatten()
            .for_each(|(_, token)| token.cancel());
        if let Some((_, token)) = live.stream {
            token.cancel();
        }
        live.readers.values().for_each(|(_, token)| token.cancel());
    }
}

/// The parts of weir that hear of the end of sessions.
pub struct SessionUpkeep {
    /// The sessions with state on this replica.
    pub sessions: Arc<LegacySessions>,
    /// The router, which tells upstreams of ended sessions.
    pub router: Arc<Router>,
    /// The client programs, which are known by session.
    pub known_clients: Arc<KnownClients>,
}

impl std::fmt::Debug for SessionUpkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionUpkeep").finish_non_exhaustive()
    }
}

/// Receives the bus messages of replicas, and clears expired sessions away. Runs until it is
/// dropped.
pub async fn run_upkeep(upkeep: SessionUpkeep) {
    let sessions = &upkeep.sessions;
    let mut cancels = sessions.ports.bus.subscribe(CANCEL_TOPIC);
    let mut ends = sessions.ports.bus.subscribe(ENDED_TOPIC);
    let mut answers = sessions.ports.bus.subscribe(ANSWER_TOPIC);
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    let mut parked = tokio::time::interval(PARKED_SWEEP_INTERVAL);
    loop {
        tokio::select! {
            told = cancels.recv() => match told {
                Ok(message) => {
                    if let Some((key, request)) = message.body.split_first_chunk::<16>()
                        && let Ok(request) = RequestId::from_json(request)
                    {
                        sessions.cancel_local(&SessionKey(*key), &request);
                    }
                }
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "cancellations lost: bus receiver lagged"),
                Err(RecvError::Closed) => return,
            },
            told = ends.recv() => match told {
                Ok(message) => end_all(&upkeep, &sessions.ended_elsewhere(&message.body)).await,
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "session ends of other replicas lost: bus receiver lagged");
                }
                Err(RecvError::Closed) => return,
            },
            () = sessions.ended_notify.notified() => {
                let ended = std::mem::take(&mut *sessions.lock_ended());
                end_all(&upkeep, &ended).await;
                sessions.remove_abandoned().await;
            }
            told = answers.recv() => match told {
                Ok(message) => sessions.answer_from_bus(&message.body),
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "client answers lost: bus receiver lagged"),
                Err(RecvError::Closed) => return,
            },
            _ = parked.tick() => upkeep.router.drop_expired_parked(),
            _ = sweep.tick() => {
                sessions.ports.replays.expire();
                let expired = sessions.ports.records.expired(RecordKind::Session);
                let expired: Vec<_> = expired.iter().map(|record| session_key(&record.id)).collect();
                sessions.end_and_announce(&expired);
                end_all(&upkeep, &sessions.taken_over()).await;
            }
        }
    }
}

/// Ends the local state of sessions: calls, streams, subscriptions, and the sessions that upstreams
/// hold open for them.
async fn end_all(upkeep: &SessionUpkeep, ended: &[SessionKey]) {
    for keys in ended.chunks(ENDED_PER_MESSAGE) {
        for key in keys {
            upkeep.sessions.remove_local(key);
            upkeep.known_clients.forget(key);
        }
        upkeep
            .router
            .notify_sessions(&keys.iter().copied().collect(), ClientSessionChange::Ended);
        tokio::task::yield_now().await;
    }
}
