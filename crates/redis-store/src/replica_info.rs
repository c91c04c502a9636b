//! The facts of a replica in the registry, as JSON. Unknown members are ignored and absent ones have
//! defaults, so that replicas of different versions list each other.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use weir_core::port::ReplicaId;

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
    /// The ids of its sealing keys.
    #[serde(default)]
    pub(crate) keys: Vec<u8>,
    /// True once it ends.
    #[serde(default)]
    pub(crate) draining: bool,
}

fn empty() -> Arc<str> {
    "".into()
}

/// Writes an id in hexadecimal digits.
pub(crate) fn id_text(id: &ReplicaId) -> String {
    HEXLOWER.encode(&id.0)
}

/// Reads an id in hexadecimal digits.
pub(crate) fn id_from_text(text: &str) -> Option<ReplicaId> {
    let bytes = HEXLOWER.decode(text.as_bytes()).ok()?;
    Some(ReplicaId(bytes.try_into().ok()?))
}
