//! The ids of sessions, as clients carry them.
//!
//! The id of a single replica is 16 random bytes. Replicas that share a store seal the name of the
//! replica that opened the session into the id, so that every replica finds the session's owner
//! without a trip, and a forged id costs none. A sealed id opens for its principal alone.

use std::fmt;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use http::HeaderValue;
use weir_core::Principal;
use weir_core::port::{Random, ReplicaId};
use weir_seal::Sealer;

use crate::opened_ids::{NamedSession, OpenedIds};

/// Layout of the sealed bytes; another one is another number.
const LAYOUT: u8 = 1;
/// The length of an id of 16 bytes.
const PLAIN_LENGTH: usize = 22;
/// No sealed id is longer; a longer text is not opened.
const MAX_SEALED_LENGTH: usize = 128;

/// Writes and reads the ids of sessions.
#[derive(Clone, Debug, Default)]
pub enum SessionIds {
    /// Random ids, of a replica that shares no sessions.
    #[default]
    Random,
    /// Sealed ids, of replicas that share their sessions.
    Sealed(SealedIds),
}

/// Writes and reads sealed ids.
#[derive(Clone)]
pub struct SealedIds {
    /// Has the keys that all replicas share.
    sealer: Sealer,
    /// The name of this replica.
    own: ReplicaId,
    opened: Arc<OpenedIds>,
}

impl SessionIds {
    /// Sealed ids of the replica `own`, with the keys that all replicas share.
    pub fn sealed(sealer: Sealer, own: ReplicaId) -> Self {
        Self::Sealed(SealedIds {
            sealer,
            own,
            opened: Arc::default(),
        })
    }

    /// The text of the id of a session that is opened here.
    pub(crate) fn write(
        &self,
        principal: &Principal,
        id: &[u8; 16],
        random: &dyn Random,
    ) -> String {
        match self {
            Self::Random => BASE64URL_NOPAD.encode(id),
            Self::Sealed(ids) => {
                let mut plain = [LAYOUT; 25];
                plain[1..9].copy_from_slice(&ids.own.0);
                plain[9..].copy_from_slice(id);
                ids.sealer.seal(random, &purpose(principal), &plain)
            }
        }
    }

    /// The session with the id in a header. `None` if it is no id, or one of another principal.
    pub(crate) fn read(&self, principal: &Principal, id: &HeaderValue) -> Option<NamedSession> {
        let text = id.to_str().ok()?;
        if text.len() > MAX_SEALED_LENGTH {
            return None;
        }
        match self {
            _ if text.len() == PLAIN_LENGTH => Some(NamedSession {
                id: BASE64URL_NOPAD
                    .decode(text.as_bytes())
                    .ok()?
                    .try_into()
                    .ok()?,
                opened_by: None,
            }),
            Self::Random => None,
            Self::Sealed(ids) => ids.open(principal, text),
        }
    }
}

impl SealedIds {
    fn open(&self, principal: &Principal, text: &str) -> Option<NamedSession> {
        if let Some(known) = self.opened.find(&self.sealer, principal, text) {
            return Some(known);
        }
        let opened = self.sealer.open_naming_key(&purpose(principal), text);
        let (plain, key) = opened.ok()?;
        let (&[LAYOUT], rest) = plain.split_first_chunk::<1>()? else {
            return None;
        };
        let (replica, id) = rest.split_first_chunk::<8>()?;
        let session = NamedSession {
            id: id.try_into().ok()?,
            opened_by: Some(ReplicaId(*replica)),
        };
        self.opened.keep(principal, text, &session, key);
        Some(session)
    }
}

impl fmt::Debug for SealedIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.own, f)
    }
}

fn purpose(principal: &Principal) -> Vec<u8> {
    let mut purpose = b"weir session ".to_vec();
    purpose.extend_from_slice(principal.digest());
    purpose
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_seal::SealerKey;
    use weir_testkit::FixedRandom;

    use super::*;

    fn header(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    fn ids() -> SessionIds {
        let own = ReplicaId(*b"replica1");
        SessionIds::sealed(Sealer::ephemeral(&FixedRandom(7)), own)
    }

    #[test]
    fn sealed_id_names_its_replica_to_its_own_principal_alone() {
        let [ada, bob] = ["ada", "bob"].map(|name| Principal::owner(Some(("idp", name))));
        let text = ids().write(&ada, &[3; 16], &FixedRandom(7));
        let named = NamedSession {
            id: [3; 16],
            opened_by: Some(ReplicaId(*b"replica1")),
        };
        assert_eq!(ids().read(&ada, &header(&text)), Some(named));
        assert_eq!(ids().read(&bob, &header(&text)), None);
        assert_eq!(SessionIds::Random.read(&ada, &header(&text)), None);
        let forged = format!("{}A", &text[..text.len() - 1]);
        for bad in ["", "x", &forged, &"A".repeat(88), &"A".repeat(4000)] {
            assert_eq!(ids().read(&ada, &header(bad)), None, "{bad:.40}");
        }
    }

    /// The second reading finds the id among the opened ones.
    #[test]
    fn opened_id_names_its_session_as_long_as_its_key_is_known() {
        let [ada, bob] = ["ada", "bob"].map(|name| Principal::owner(Some(("idp", name))));
        let key = |id, secret| SealerKey::new(id, &[secret; 32]);
        let sealer = Sealer::new(vec![key(1, 1)]);
        let ids = SessionIds::sealed(sealer.clone(), ReplicaId(*b"replica1"));
        let text = ids.write(&ada, &[3; 16], &FixedRandom(7));
        let is_read = |principal| ids.read(principal, &header(&text)).is_some();
        assert_eq!([is_read(&ada), is_read(&ada)], [true, true]);
        assert_eq!([is_read(&bob), is_read(&bob)], [false, false]);
        sealer.replace(vec![key(2, 2), key(1, 1)]);
        assert!(is_read(&ada));
        sealer.replace(vec![key(2, 2), key(1, 9)]);
        assert!(!is_read(&ada), "another key has the id of the old one");
        sealer.replace(vec![key(2, 2)]);
        assert!(!is_read(&ada));
        sealer.replace(vec![key(1, 1)]);
        assert!(is_read(&ada));
    }

    #[test]
    fn only_ids_that_open_are_kept() {
        let ada = Principal::owner(Some(("idp", "ada")));
        let ids = ids();
        let SessionIds::Sealed(sealed) = &ids else {
            panic!("{ids:?}")
        };
        let text = ids.write(&ada, &[3; 16], &FixedRandom(7));
        let forged = format!("{}A", &text[..text.len() - 1]);
        for given in [&forged, &"A".repeat(88)] {
            assert_eq!(ids.read(&ada, &header(given)), None, "{given}");
        }
        assert_eq!(sealed.opened.len(), 0);
        for _ in 0..2 {
            assert!(ids.read(&ada, &header(&text)).is_some());
        }
        assert_eq!(sealed.opened.len(), 1);
    }

    #[test]
    fn random_id_is_read_by_both_forms() {
        let ada = Principal::owner(Some(("idp", "ada")));
        let text = SessionIds::Random.write(&ada, &[3; 16], &FixedRandom(7));
        for form in [SessionIds::Random, ids()] {
            let named = form.read(&ada, &header(&text)).unwrap();
            assert_eq!((named.id, named.opened_by), ([3; 16], None));
        }
    }
}
