//! The state of a session that another replica needs to take the session over: its record, and the
//! resources that its client subscribed to.
//!
//! The bytes of a record begin with the session's settings. Behind them stand the subscribed URIs,
//! each after its length, if replicas share the sessions.

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::SessionKey;
use weir_core::port::WriteOutcome;
use weir_core::upstream::ListKind;
use weir_era::session::LegacySessionRecord;

use crate::session_ids::SessionIds;
use crate::session_settings::SessionLimits;
use crate::sessions::LoadedSession;
use crate::sessions::notified_lists::UNKNOWN_VERSION;
use crate::sessions::session_table::LegacySessions;

/// The most bytes of URIs in a record. Subscriptions beyond that end with their replica.
const MAX_SHARED_URI_BYTES: usize = 48 << 10;
/// Attempts to write a record that changes meanwhile.
const WRITE_ATTEMPTS: usize = 3;

impl LegacySessions {
    /// The bytes of a session's record.
    pub(super) fn record_value(&self, key: &SessionKey, session: &LegacySessionRecord) -> Bytes {
        let settings = session.encode();
        if matches!(self.ports.ids, SessionIds::Random) {
            return settings;
        }
        let mut value = BytesMut::from(&settings[..]);
        for uri in self.subscribed_uris(key) {
            let Ok(length) = u16::try_from(uri.len()) else {
                continue;
            };
            if value.len() + uri.len() > MAX_SHARED_URI_BYTES {
                tracing::debug!("subscriptions not shared with other replicas: too many");
                break;
            }
            value.put_u16(length);
            value.put_slice(uri.as_bytes());
        }
        value.freeze()
    }

    /// Stores the subscriptions of a session for the replica that may take it over.
    pub async fn share_subscriptions(&self, session: &LoadedSession, limits: &SessionLimits) {
        if matches!(self.ports.ids, SessionIds::Random) || !session.is_stored {
            return;
        }
        for _ in 0..WRITE_ATTEMPTS {
            let Ok(Some(found)) = self.ports.records.load(&session.record_key, None).await else {
                return;
            };
            let Some(record) = LegacySessionRecord::decode(&found.value) else {
                return;
            };
            let current = LoadedSession {
                record,
                version: found.version,
                ..session.clone()
            };
            let written = self.write_record(&current, &record, limits).await;
            if matches!(written, Ok(WriteOutcome::Stored(_))) {
                return;
            }
        }
    }

    /// Takes over a session whose replica has ended. Its client is notified of every list, because
    /// a change may have been missed.
    pub(super) fn take_over(&self, key: SessionKey, value: &[u8]) {
        // The state that the session left here earlier is removed under the same lock, if at all.
        let _shard = self.shard(&key);
        self.announce_lists(key);
        self.inherit_subscriptions(key, shared_uris(value));
    }

    /// Has the session's next stream announce all lists that its endpoint declares, because its
    /// client may know older ones.
    pub(super) fn announce_lists(&self, key: SessionKey) {
        for list in ListKind::ALL {
            self.notified_lists.record(key, list, UNKNOWN_VERSION);
        }
    }

    /// The URIs that the session's client subscribed to, here or on the replica before.
    pub(super) fn subscribed_uris(&self, key: &SessionKey) -> Vec<String> {
        // In the order of their move: a renewal makes an inherited subscription the session's own.
        let inherited = self
            .inherited_subscriptions
            .lock()
            .get(key)
            .map(|own| own.uris().to_vec());
        let mut uris = inherited.unwrap_or_default();
        if let Some(live) = self.shard(key).get(key) {
            live.add_subscribed_to(&mut uris);
        }
        uris
    }
}

/// The URIs behind the settings of a record; those that are whole.
fn shared_uris(value: &[u8]) -> Vec<String> {
    let mut rest = value.get(LegacySessionRecord::LENGTH..).unwrap_or_default();
    let mut uris = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let Some((uri, behind)) = behind.split_at_checked(length) else {
            break;
        };
        uris.extend(String::from_utf8(uri.to_vec()));
        rest = behind;
    }
    uris
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_uris_behind_a_record_are_read() {
        let mut value = vec![0; LegacySessionRecord::LENGTH];
        assert!(shared_uris(&value).is_empty() && shared_uris(&[]).is_empty());
        for uri in ["a://b", "", "c://d"] {
            value.extend_from_slice(&(uri.len() as u16).to_be_bytes());
            value.extend_from_slice(uri.as_bytes());
        }
        assert_eq!(shared_uris(&value), ["a://b", "", "c://d"]);
        value.truncate(value.len() - 1);
        assert_eq!(shared_uris(&value), ["a://b", ""]);
    }
}
