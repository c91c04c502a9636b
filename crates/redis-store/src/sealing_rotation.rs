//! The rotation of the sealing key over all replicas: a new key opens first, and seals only once
//! every replica has announced it.
//!
//! Each replica announces its keys, the one that it seals with, and if it opens the texts of all
//! others. Replicas move to newer keys alone, each by its own view of the registry. No two of them
//! need to move at the same moment, because all open both keys by then.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::port::ReplicaId;
use weir_core::telemetry::instruments;
use weir_seal::{Sealer, SealerKey, SealingKeyName};

use crate::replica_info::ReplicaInfo;

/// Another replica that is listed and not ending.
#[derive(Clone, Debug)]
pub(crate) struct ListedKeys {
    pub(crate) id: ReplicaId,
    pub(crate) info: ReplicaInfo,
    /// True after a silence that counts as its end.
    pub(crate) is_silent: bool,
}

/// The other replicas, as a view of the registry lists them.
#[derive(Clone, Debug)]
pub(crate) struct KeyView {
    pub(crate) others: Vec<ListedKeys>,
    /// True while replicas may be missing in the view, because the store lost its data.
    pub(crate) is_incomplete: bool,
}

/// A key that a replica seals with and another one lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealingKeyUse {
    /// The id of the key.
    pub key: u8,
    /// The replica that seals with it.
    pub replica: ReplicaId,
}

impl fmt::Display for SealingKeyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {} seals with key {}", self.replica, self.key)
    }
}

/// The keys of this replica.
struct OwnKeys<'a> {
    /// The keys, newest first.
    names: &'a [SealingKeyName],
    sealing: SealingKeyName,
    /// It has opened the texts of all others in a view before.
    has_joined: bool,
}

/// The conclusions from a view.
#[derive(Debug, PartialEq, Eq)]
struct KeyDecision {
    /// The key that seals from now on.
    sealing: SealingKeyName,
    /// The key that this replica needs before it is ready.
    missing: Option<SealingKeyUse>,
    /// A key of another replica that neither can open of the other.
    conflict: Option<SealingKeyUse>,
    /// The number of replicas without the newest key of this one.
    waits_for: usize,
}

/// The rotation as one replica takes part in it.
pub(crate) struct SealingRotation {
    sealer: Sealer,
    own: ReplicaId,
    /// Held while the keys change.
    state: Mutex<RotationState>,
}

#[derive(Default)]
struct RotationState {
    has_joined: bool,
    missing: Option<SealingKeyUse>,
    conflict: Option<SealingKeyUse>,
    waits_for: usize,
}

impl SealingRotation {
    /// Seals with the oldest key until there is a view: the other replicas may not have a newer one
    /// yet.
    pub(crate) fn new(sealer: Sealer, own: ReplicaId, now: Duration) -> Self {
        if let Some(oldest) = sealer.key_names().last() {
            sealer.seal_with(*oldest, now);
        }
        Self {
            sealer,
            own,
            state: Mutex::default(),
        }
    }

    /// The name of this replica.
    pub(crate) fn own(&self) -> &ReplicaId {
        &self.own
    }

    /// Replaces the keys, newest first. They open from now on.
    pub(crate) fn replace_keys(&self, keys: Vec<SealerKey>) {
        let _held = self.state.lock();
        self.sealer.replace(keys);
    }

    /// Chooses the key that seals by a view of the registry, at the monotonic time `now`.
    pub(crate) fn review(&self, view: &KeyView, now: Duration) {
        let mut state = self.state.lock();
        let (names, sealing) = (self.sealer.key_names(), self.sealer.sealing_key());
        let own = OwnKeys {
            names: &names,
            sealing,
            has_joined: state.has_joined,
        };
        let decision = own.decide(view);
        self.sealer.seal_with(decision.sealing, now);
        if decision.sealing != sealing {
            let (key, before) = (decision.sealing.id, sealing.id);
            tracing::info!(key, before, "sealing key changed");
        }
        let newest = names.first().map_or(sealing.id, |name| name.id);
        state.take(decision, newest);
        instruments()
            .sealing_key
            .record(u64::from(self.sealer.sealing_key().id), &[]);
    }

    /// Writes the facts of the keys that the other replicas need.
    pub(crate) fn describe(&self, info: &mut ReplicaInfo) {
        let state = self.state.lock();
        info.set_keys(&self.sealer.key_names(), self.sealer.sealing_key());
        info.opens_all = state.has_joined && state.missing.is_none();
    }

    /// Returns the key that this replica needs before it is ready.
    pub(crate) fn missing(&self) -> Option<SealingKeyUse> {
        self.state.lock().missing.clone()
    }

    /// Returns a key that seals now, here or at a replica of `others`, and would be lost if these
    /// keys replaced those of this replica.
    pub(crate) fn lost_use(
        &self,
        kept: &[SealingKeyName],
        others: &[ListedKeys],
    ) -> Option<SealingKeyUse> {
        let names = self.sealer.key_names();
        let own = self.sealer.sealing_key();
        if !kept.contains(&own) {
            return Some(SealingKeyUse {
                key: own.id,
                replica: self.own.clone(),
            });
        }
        let lost = |info: &ReplicaInfo| !info.seals_for(kept) && info.seals_for(&names);
        let other = others.iter().find(|other| lost(&other.info))?;
        other.sealing_use()
    }
}

impl RotationState {
    /// Takes a decision over, and logs what is new in it. `newest` is the id of the newest key.
    fn take(&mut self, decision: KeyDecision, newest: u8) {
        if decision.waits_for != self.waits_for && decision.waits_for > 0 {
            let replicas = decision.waits_for;
            tracing::info!(key = newest, replicas, "new sealing key waits for replicas");
        }
        let key_of = |missing: &Option<SealingKeyUse>| missing.as_ref().map(|missing| missing.key);
        if key_of(&decision.missing) != key_of(&self.missing) {
            match &decision.missing {
                Some(SealingKeyUse { key, replica }) => {
                    let replica = replica.to_string();
                    tracing::warn!(key, replica, "not ready: sealing key of a replica missing");
                }
                None => tracing::info!("sealing keys of all replicas known"),
            }
        }
        if let Some(SealingKeyUse { key, replica }) = &decision.conflict
            && decision.conflict != self.conflict
        {
            let replica = replica.to_string();
            tracing::warn!(key, replica, "no common sealing key with a replica");
        }
        let all = instruments();
        all.sealing_waiting.record(decision.waits_for as u64, &[]);
        all.sealing_missing
            .record(u64::from(decision.missing.is_some()), &[]);
        self.has_joined |= decision.missing.is_none();
        self.missing = decision.missing;
        self.conflict = decision.conflict;
        self.waits_for = decision.waits_for;
    }
}

impl OwnKeys<'_> {
    fn decide(&self, view: &KeyView) -> KeyDecision {
        // A silent replica seals for nobody that this one has to serve.
        let unknown = view.others.iter().filter(|other| {
            !other.is_silent && other.info.opens_all && !other.info.seals_for(self.names)
        });
        let (mut missing, mut conflict) = (None, None);
        for other in unknown {
            // The replica that joins is the one that waits. Of two that serve it is the one that is
            // behind: those that all others can open stay ready.
            if !self.has_joined || other.info.opens(self.sealing) {
                missing = missing.or_else(|| other.sealing_use());
            } else {
                conflict = conflict.or_else(|| other.sealing_use());
            }
        }
        let newest = self.names.first().copied().unwrap_or(self.sealing);
        let lacks_newest = |other: &&ListedKeys| !other.info.opens(newest);
        KeyDecision {
            sealing: self.choose(view),
            missing,
            conflict,
            waits_for: view.others.iter().filter(lacks_newest).count(),
        }
    }

    /// Returns the key that seals. A silent replica counts as long as it is listed: it may have lost
    /// only its connection to the store, and serve on.
    fn choose(&self, view: &KeyView) -> SealingKeyName {
        let mut names = self.names.iter();
        if !self.has_joined {
            let serving = || view.others.iter().filter(|other| other.info.opens_all);
            if serving().next().is_some() {
                let common = names.find(|name| serving().all(|other| other.info.opens(**name)));
                return common.copied().unwrap_or(self.sealing);
            }
        }
        if view.is_incomplete {
            return self.sealing;
        }
        // Never back to an older key: a replica that starts with old keys must not undo a rotation.
        let newer = names.take_while(|name| **name != self.sealing);
        let mut newer =
            newer.filter(|name| view.others.iter().all(|other| other.info.opens(**name)));
        newer.next().copied().unwrap_or(self.sealing)
    }
}

impl ListedKeys {
    /// Returns the key that this replica seals with.
    fn sealing_use(&self) -> Option<SealingKeyUse> {
        Some(SealingKeyUse {
            key: self.info.sealing_id()?,
            replica: self.id.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
