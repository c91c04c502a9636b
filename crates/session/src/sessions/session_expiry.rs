//! The end of sessions: here, on the other replicas, and by their age.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio::sync::broadcast::error::RecvError;
use weir_core::SessionKey;
use weir_core::port::{BusMessage, RecordKey};
use weir_core::upstream::ClientSessionChange;
use weir_router::Router;
use weir_wire::RequestId;

use crate::known_clients::KnownClients;
use crate::session_settings::SessionLimits;
use crate::sessions::call_cancellation::CancellationCause;
use crate::sessions::client_answers::ANSWER_TOPIC;
use crate::sessions::session_table::{CANCEL_TOPIC, LegacySessions, session_key};

/// The bus topic of ended sessions: the replica that sends it, which has ended them locally, and
/// their keys.
const ENDED_TOPIC: &str = "session-ended";
/// Ended sessions in one message. After as many, other tasks have their turn.
const ENDED_PER_MESSAGE: usize = 1024;
/// The interval between searches for expired sessions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between searches for parked calls of absent clients, each of which holds a
/// connection, and for sessions that another replica took over, whose clients wait for answers.
const FREQUENT_SWEEP_INTERVAL: Duration = Duration::from_secs(1);

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
        // At once: the client may open its next session before the upkeep runs.
        keys.iter().for_each(|key| self.anonymous.remove(key));
        self.ended.lock().extend_from_slice(keys);
        self.ended_notify.notify_one();
        for keys in keys.chunks(ENDED_PER_MESSAGE) {
            let mut body = BytesMut::with_capacity(16 * (1 + keys.len()));
            body.put_slice(&self.replica);
            keys.iter().for_each(|key| body.put_slice(&key.0));
            self.ports.bus.publish(BusMessage {
                topic: ENDED_TOPIC,
                body: body.freeze(),
            });
        }
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
            self.loaded_session(record, &found, limits).await;
        }
    }

    /// Removes the local state of sessions whose records left this replica, and returns them. The
    /// state of one that this replica has taken back meanwhile stays.
    fn remove_left(&self, left: &[RecordKey]) -> Vec<SessionKey> {
        let is_gone = |record: &&RecordKey| {
            let is_here = || self.ports.records.contains(record);
            self.remove_state(&key_of_record(record), is_here)
        };
        left.iter().filter(is_gone).map(key_of_record).collect()
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

    /// Removes the local state of an ended session.
    pub fn remove_local(&self, key: &SessionKey) {
        self.remove_state(key, || false);
    }

    /// Removes the local state of a session, unless it is here; false if it is. Its record comes
    /// here before any state of it does, so none that is newer than the question is removed.
    fn remove_state(&self, key: &SessionKey, is_here: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(key);
        if is_here() {
            return false;
        }
        let live = shard.remove(key);
        self.ports.replays.forget(*key);
        self.notified_lists.forget(key);
        self.inherited_subscriptions.lock().remove(key);
        drop(shard);
        self.anonymous.remove(key);
        let Some(live) = live else { return true };
        // The readers of the calls' streams end after the calls: each reads the answer of its own.
        for (_, call) in live.calls.values().flatten() {
            call.cancel(CancellationCause::SessionGone);
        }
        if let Some((_, token)) = live.stream {
            token.cancel();
        }
        true
    }
}

fn key_of_record(record: &RecordKey) -> SessionKey {
    session_key(&record.id)
}

/// The parts of weir that hear of the end of sessions.
#[derive(Debug)]
pub struct SessionUpkeep {
    /// The sessions with state on this replica.
    pub sessions: Arc<LegacySessions>,
    /// The router, which tells upstreams of ended sessions.
    pub router: Arc<Router>,
    /// The client programs, which are known by session.
    pub known_clients: Arc<KnownClients>,
}

/// Receives the bus messages of replicas, and clears expired sessions away. Runs until it is
/// dropped.
pub async fn run_upkeep(upkeep: SessionUpkeep) {
    let sessions = &upkeep.sessions;
    let mut cancels = sessions.ports.bus.subscribe(CANCEL_TOPIC);
    let mut ends = sessions.ports.bus.subscribe(ENDED_TOPIC);
    let mut answers = sessions.ports.bus.subscribe(ANSWER_TOPIC);
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    let mut frequent = tokio::time::interval(FREQUENT_SWEEP_INTERVAL);
    loop {
        tokio::select! {
            received = cancels.recv() => match received {
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
            received = ends.recv() => match received {
                Ok(message) => end_all(&upkeep, &sessions.ended_elsewhere(&message.body)).await,
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "session ends of other replicas lost: bus receiver lagged");
                }
                Err(RecvError::Closed) => return,
            },
            () = sessions.ended_notify.notified() => {
                let ended = std::mem::take(&mut *sessions.ended.lock());
                end_all(&upkeep, &ended).await;
                sessions.remove_abandoned().await;
            }
            received = answers.recv() => match received {
                Ok(message) => sessions.answer_from_bus(&message.body),
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "client answers lost: bus receiver lagged"),
                Err(RecvError::Closed) => return,
            },
            _ = frequent.tick() => {
                upkeep.router.drop_expired_parked();
                leave_all(&upkeep, &sessions.ports.records.lost()).await;
            }
            _ = sweep.tick() => {
                sessions.ports.replays.expire();
                leave_all(&upkeep, &sessions.ports.records.expired()).await;
            }
        }
    }
}

/// Ends the local state of sessions: calls, streams, subscriptions, and the sessions that upstreams
/// hold open for them.
async fn end_all(upkeep: &SessionUpkeep, ended: &[SessionKey]) {
    for keys in ended.chunks(ENDED_PER_MESSAGE) {
        keys.iter()
            .for_each(|key| upkeep.sessions.remove_local(key));
        forget_all(upkeep, keys, ClientSessionChange::Ended).await;
    }
}

/// Ends the local state of sessions whose records left this replica: they expired here, or another
/// replica took them over. Their end is not announced, because they may go on at another replica:
/// also those that expired here, if this replica was paused meanwhile. A store that replicas share
/// has the copies of expired sessions dropped once it confirms the end.
async fn leave_all(upkeep: &SessionUpkeep, left: &[RecordKey]) {
    for records in left.chunks(ENDED_PER_MESSAGE) {
        let keys = upkeep.sessions.remove_left(records);
        forget_all(upkeep, &keys, ClientSessionChange::EndedHere).await;
    }
}

/// Has the other parts of weir forget sessions whose local state is removed.
async fn forget_all(upkeep: &SessionUpkeep, ended: &[SessionKey], change: ClientSessionChange) {
    for keys in ended.chunks(ENDED_PER_MESSAGE) {
        keys.iter().for_each(|key| upkeep.known_clients.forget(key));
        upkeep
            .router
            .notify_sessions(&keys.iter().copied().collect(), change);
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;
    use weir_core::Principal;
    use weir_core::network::SenderNetwork;
    use weir_core::port::WriteCondition;

    use super::*;
    use crate::sessions::session_guards::{DetachLimits, NoDetachPermit};
    use crate::sessions::test_sessions::{KEY, sessions};

    async fn store_record(sessions: &LegacySessions, ttl: Duration) -> RecordKey {
        let record = RecordKey {
            principal: Principal::owner(None),
            id: [1; 16],
        };
        let value = Bytes::from_static(b"any");
        let stored = sessions
            .ports
            .records
            .store(&record, value, ttl, WriteCondition::Absent)
            .await;
        stored.unwrap();
        record
    }

    #[tokio::test(start_paused = true)]
    async fn expiry_is_not_announced_because_another_replica_may_have_the_session() {
        let sessions = sessions();
        let mut ends = sessions.ports.bus.subscribe(ENDED_TOPIC);
        let record = store_record(&sessions, Duration::from_secs(1)).await;
        tokio::time::advance(Duration::from_secs(2)).await;
        let expired = sessions.ports.records.expired();
        assert_eq!(sessions.remove_left(&expired), [key_of_record(&record)]);
        assert!(ends.try_recv().is_err());
        sessions.end_and_announce(&[key_of_record(&record)]);
        assert!(ends.try_recv().is_ok());
    }

    #[tokio::test]
    async fn session_that_ended_elsewhere_leaves_its_network_room() {
        let sessions = sessions();
        let network = SenderNetwork::of([192, 0, 2, 1].into());
        assert!(sessions.anonymous.add(KEY, network, 1));
        let other = SessionKey([2; 16]);
        assert!(!sessions.anonymous.add(other, network, 1));
        sessions.remove_local(&KEY);
        assert!(sessions.anonymous.add(other, network, 1));
    }

    #[tokio::test]
    async fn state_of_a_session_that_is_here_stays() {
        let sessions = sessions();
        let record = store_record(&sessions, Duration::from_secs(60)).await;
        let key = key_of_record(&record);
        let (replaced, _, _stream) = sessions.register_get_stream(key);
        let is_here = || sessions.ports.records.contains(&record);
        assert!(!sessions.remove_state(&key, is_here));
        assert!(!replaced.is_cancelled());
        sessions.ports.records.remove(&record).await.unwrap();
        assert!(sessions.remove_state(&key, is_here));
        assert!(replaced.is_cancelled());
    }

    #[tokio::test]
    async fn answer_of_a_session_that_is_gone_may_not_run_on() {
        let sessions = sessions();
        let most = DetachLimits {
            of_session: 1,
            overall: 2,
        };
        let _stream = sessions.register_get_stream(KEY);
        let _first = sessions.detach(KEY, most).unwrap();
        assert_eq!(
            sessions.detach(KEY, most).err(),
            Some(NoDetachPermit::TooMany)
        );
        sessions.remove_local(&KEY);
        assert_eq!(
            sessions.detach(KEY, most).err(),
            Some(NoDetachPermit::SessionGone)
        );
    }
}
