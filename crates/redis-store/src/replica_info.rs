//! The facts of a replica in the registry, as JSON. Unknown members are ignored and absent ones have
//! defaults, so that replicas of different versions list each other.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use weir_seal::SealingKeyName;

/// The facts of a replica for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicaInfo {
    /// The `host:port` of its cluster listener.
    pub(crate) address: Arc<str>,
    /// The version of weir.
    #[serde(default = "empty")]
    pub(crate) version: Arc<str>,
    /// The digest of its config.
    #[serde(default = "empty")]
    pub(crate) config: Arc<str>,
    /// The ids of its sealing keys, newest first.
    #[serde(default)]
    pub(crate) keys: Vec<u8>,
    /// The fingerprints of its sealing keys, in the same order. Empty from versions without them.
    #[serde(default)]
    pub(crate) fingerprints: Vec<String>,
    /// The id of the key that it seals with. Versions that announce none seal with the first.
    #[serde(default)]
    pub(crate) sealing_key: Option<u8>,
    /// False while it lacks a key that another replica seals with, and before it knows.
    #[serde(default = "yes")]
    pub(crate) opens_all: bool,
    /// True once it ends.
    #[serde(default)]
    pub(crate) draining: bool,
    /// The number of its last frame on the shared channel. Absent from versions without numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) frames: Option<u64>,
}

impl ReplicaInfo {
    /// Sets the keys, newest first, and the one that seals.
    pub(crate) fn set_keys(&mut self, names: &[SealingKeyName], sealing: SealingKeyName) {
        let fingerprint = |name: &SealingKeyName| HEXLOWER.encode(&name.fingerprint);
        self.keys = names.iter().map(|name| name.id).collect();
        self.fingerprints = names.iter().map(fingerprint).collect();
        self.sealing_key = Some(sealing.id);
    }

    /// The id of the key that it seals with.
    pub(crate) fn sealing_id(&self) -> Option<u8> {
        self.sealing_key.or(self.keys.first().copied())
    }

    /// Reports if it has this key.
    pub(crate) fn opens(&self, name: SealingKeyName) -> bool {
        self.keys.contains(&name.id) && self.has_fingerprint(name)
    }

    /// Reports if a replica with these keys opens the texts that this one seals.
    pub(crate) fn seals_for(&self, names: &[SealingKeyName]) -> bool {
        let Some(sealing) = self.sealing_id() else {
            return true;
        };
        let mut same = names.iter().filter(|name| name.id == sealing);
        same.any(|name| self.has_fingerprint(*name))
    }

    /// Reports if the announced fingerprint of the key's id is that of the key, or not known.
    fn has_fingerprint(&self, name: SealingKeyName) -> bool {
        let at = self.keys.iter().position(|id| *id == name.id);
        let announced = at.and_then(|at| self.fingerprints.get(at));
        announced.is_none_or(|announced| *announced == HEXLOWER.encode(&name.fingerprint))
    }
}

fn yes() -> bool {
    true
}

fn empty() -> Arc<str> {
    "".into()
}
