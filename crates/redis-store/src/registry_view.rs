//! The replicas as the last heartbeats listed them, and the judgement of their state.
//!
//! A replica's silence is the time that this replica watched it send no heartbeat. Outages of the shared
//! store do not count, and jumps of the server's clock do not matter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::port::{ReplicaId, ReplicaSeen};
use weir_store::FrameNumbers;

use crate::replica_info::ReplicaInfo;
use crate::sealing_rotation::ListedKeys;

/// The time between heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The silence after which a replica counts as ended.
pub(crate) const REPLICA_TTL: Duration = Duration::from_secs(6);
/// The time after the store was emptied in which the absence of a record or of a replica is no
/// proof of its end.
pub(crate) const EMPTIED_GRACE: Duration = Duration::from_secs(10);

/// A replica in the reply to a heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct ListedReplica {
    pub(crate) id: ReplicaId,
    /// The server's time of its last heartbeat; compared for equality alone.
    pub(crate) stamp: String,
    pub(crate) age: Duration,
    pub(crate) info: ReplicaInfo,
}

/// The reply to a heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatReply {
    /// A random value that is as old as the data.
    pub(crate) born: String,
    /// The time since this replica's heartbeat before.
    pub(crate) own_silence: Option<Duration>,
    pub(crate) replicas: Vec<ListedReplica>,
}

/// The conclusions from a heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewChange {
    /// The store lost its data since the heartbeat before.
    pub(crate) was_emptied: bool,
    /// The heartbeat of this replica was interrupted: others may have taken over its records.
    pub(crate) was_interrupted: bool,
}

/// The state of an owner of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// It answers requests.
    Live,
    /// It has ended, is ending, or cannot be reached.
    Ended,
    /// The last heartbeat did not list it: it has ended long ago, or just begun.
    Unknown,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownReplica {
    info: ReplicaInfo,
    stamp: String,
    age: Duration,
    silence: Duration,
    /// No request reached it since its last heartbeat.
    is_unreachable: bool,
}

/// The most replicas that are remembered as absent.
const MAX_ABSENT: usize = 1024;

/// The replicas as of the last heartbeat. Times are of the monotonic clock of this process.
#[derive(Debug, Default)]
pub(crate) struct RegistryView {
    replicas: HashMap<ReplicaId, KnownReplica>,
    /// Replicas that were looked for in vain.
    absent: HashSet<ReplicaId>,
    born: Option<String>,
    emptied_at: Option<Duration>,
    /// The time when the request for the last view was sent.
    asked_at: Option<Duration>,
}

/// The view of a process, for the one that goes on under the name of its replica. Its clock is
/// another one: times are those that have passed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MovedView {
    /// The replicas, by the texts of their names.
    replicas: Vec<(String, KnownReplica)>,
    born: Option<String>,
    since_emptied: Option<Duration>,
    age: Duration,
}

impl RegistryView {
    /// The view for another process. `None` before the first one.
    pub(crate) fn export(&self, now: Duration) -> Option<MovedView> {
        let since = |at: Duration| now.saturating_sub(at);
        let replicas = self.replicas.iter();
        Some(MovedView {
            replicas: replicas
                .map(|(id, known)| (id.to_string(), known.clone()))
                .collect(),
            born: self.born.clone(),
            since_emptied: self.emptied_at.map(since),
            age: since(self.asked_at?),
        })
    }

    /// The view of another process.
    pub(crate) fn import(moved: MovedView, now: Duration) -> Self {
        let at = |since: Duration| now.saturating_sub(since);
        let replicas = moved.replicas.into_iter();
        Self {
            replicas: replicas
                .filter_map(|(id, known)| Some((ReplicaId::from_text(&id)?, known)))
                .collect(),
            absent: HashSet::new(),
            born: moved.born,
            emptied_at: moved.since_emptied.map(at),
            asked_at: Some(at(moved.age)),
        }
    }

    /// Takes in the reply to a heartbeat that was sent at `asked_at`. `minted` is the value that
    /// this replica offers as `born`.
    pub(crate) fn apply(
        &mut self,
        reply: HeartbeatReply,
        asked_at: Duration,
        minted: &str,
    ) -> ViewChange {
        let gap = self.asked_at.map(|before| asked_at.saturating_sub(before));
        let was_emptied = match &self.born {
            Some(before) => *before != reply.born,
            // This replica found no data: others, which it does not see yet, may have some.
            None => reply.born == minted,
        };
        let change = ViewChange {
            was_emptied: was_emptied && self.born.is_some(),
            was_interrupted: gap.is_some()
                && !was_emptied
                && reply
                    .own_silence
                    .is_none_or(|silence| silence > REPLICA_TTL),
        };
        if was_emptied {
            self.emptied_at = Some(asked_at);
        }
        self.born = Some(reply.born);
        self.asked_at = Some(asked_at);
        let keeps_absent = self.is_emptied_lately(asked_at);
        let mut before = std::mem::take(&mut self.replicas);
        for listed in reply.replicas {
            let known = before.remove(&listed.id);
            self.replicas.insert(
                listed.id.clone(),
                KnownReplica::of(listed, known.as_ref(), gap),
            );
        }
        if keeps_absent {
            self.replicas.extend(before);
        }
        self.absent.retain(|id| !self.replicas.contains_key(id));
        change
    }

    /// Reports if the store lost its data within the last seconds.
    pub(crate) fn is_emptied_lately(&self, now: Duration) -> bool {
        self.emptied_at
            .is_some_and(|at| now.saturating_sub(at) < EMPTIED_GRACE)
    }

    /// The value that is as old as the store's data.
    pub(crate) fn born(&self) -> Option<&str> {
        self.born.as_deref()
    }

    /// The time when the request for this view was sent; `None` before the first.
    pub(crate) fn asked_at(&self) -> Option<Duration> {
        self.asked_at
    }

    /// The state of another replica.
    pub(crate) fn state(&self, id: &ReplicaId) -> OwnerState {
        match self.replicas.get(id) {
            Some(known) if known.is_live() => OwnerState::Live,
            Some(_) => OwnerState::Ended,
            None => OwnerState::Unknown,
        }
    }

    /// The address of a replica that can be reached. One that drains still answers requests about
    /// the calls that it has.
    pub(crate) fn address(&self, id: &ReplicaId) -> Option<Arc<str>> {
        let known = self.replicas.get(id).filter(|known| known.is_reachable())?;
        Some(known.info.address.clone())
    }

    /// Reports if a replica may answer: it can be reached, or is not known and was not looked for.
    pub(crate) fn may_answer(&self, id: &ReplicaId) -> bool {
        match self.replicas.get(id) {
            Some(known) => known.is_reachable(),
            None => !self.absent.contains(id),
        }
    }

    /// Takes note that the store does not list a replica, if this view does not either.
    pub(crate) fn note_absent(&mut self, id: &ReplicaId) {
        if self.replicas.contains_key(id) {
            return;
        }
        if self.absent.len() >= MAX_ABSENT {
            self.absent.clear();
        }
        self.absent.insert(id.clone());
    }

    /// Takes note that no request reaches a replica.
    pub(crate) fn report_unreachable(&mut self, id: &ReplicaId) {
        if let Some(known) = self.replicas.get_mut(id) {
            known.is_unreachable = true;
        }
    }

    /// The replicas besides `own`.
    fn known_besides(&self, own: &ReplicaId) -> impl Iterator<Item = (&ReplicaId, &KnownReplica)> {
        self.replicas.iter().filter(move |(id, _)| *id != own)
    }

    /// The number of live replicas besides `own`.
    pub(crate) fn live_others(&self, own: &ReplicaId) -> usize {
        self.known_besides(own)
            .filter(|(_, known)| known.is_live())
            .count()
    }

    /// Reports if a live replica besides `own` announces another config than this digest.
    pub(crate) fn has_other_config(&self, own: &ReplicaId, digest: &str) -> bool {
        self.known_besides(own)
            .filter(|(_, known)| known.is_live())
            .any(|(_, known)| *known.info.config != *digest)
    }

    /// The keys of the replicas besides `own` that are not ending. One that requests do not reach
    /// counts as well: it may serve its own clients.
    pub(crate) fn keys_of_others(&self, own: &ReplicaId) -> Vec<ListedKeys> {
        self.known_besides(own)
            .filter(|(_, known)| !known.info.draining)
            .map(|(id, known)| ListedKeys {
                id: id.clone(),
                info: known.info.clone(),
                is_silent: known.silence >= REPLICA_TTL,
            })
            .collect()
    }

    /// The last frame that each replica besides `own` announced.
    pub(crate) fn announced_frames(&self, own: &ReplicaId) -> FrameNumbers {
        self.known_besides(own)
            .filter_map(|(id, known)| Some((id.clone(), known.info.frames?)))
            .collect()
    }

    /// All replicas besides `own`.
    pub(crate) fn others(&self, own: &ReplicaId) -> Vec<ReplicaSeen> {
        self.known_besides(own)
            .map(|(id, known)| ReplicaSeen {
                id: id.clone(),
                address: known.info.address.clone(),
                version: known.info.version.clone(),
                config: known.info.config.clone(),
                keys: known.info.keys.clone(),
                sealing_key: known.info.sealing_id(),
                opens_all: known.info.opens_all,
                is_draining: known.info.draining,
                age: known.age,
            })
            .collect()
    }
}

impl KnownReplica {
    fn of(listed: ListedReplica, known: Option<&Self>, gap: Option<Duration>) -> Self {
        let (silence, is_unreachable) = match known {
            // It gets one more interval: the silence may be that of the whole store.
            None => (listed.age.min(REPLICA_TTL - HEARTBEAT_INTERVAL), false),
            Some(known) if known.stamp != listed.stamp => (Duration::ZERO, false),
            Some(known) => {
                let gap = gap.unwrap_or_default();
                // After an outage the others get as much time to come back as they have to be live.
                let is_outage = gap >= 2 * HEARTBEAT_INTERVAL && known.silence < REPLICA_TTL;
                let silence = if is_outage {
                    Duration::ZERO
                } else {
                    known.silence + gap
                };
                (silence, known.is_unreachable)
            }
        };
        Self {
            info: listed.info,
            stamp: listed.stamp,
            age: listed.age,
            silence,
            is_unreachable,
        }
    }

    fn is_live(&self) -> bool {
        !self.info.draining && self.is_reachable()
    }

    fn is_reachable(&self) -> bool {
        !self.is_unreachable && self.silence < REPLICA_TTL
    }
}

#[cfg(test)]
mod tests;
