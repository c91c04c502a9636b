//! Who a request is from. A [`Principal`] is minted only by [`crate::authenticate`]; no header, flag or config names one.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// What a [`crate::port::Verifier`] found out about the sender of a request. It is not yet a [`Principal`]:
/// only [`crate::authenticate`] turns one into the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nobody in particular: the listener asks for no credentials.
    Anonymous,
    /// A subject that an issuer vouches for. Both together are unique; neither is a secret.
    Subject {
        /// Who vouches: the `iss` of a token, or a name of weir's own such as `api-key`.
        issuer: Arc<str>,
        /// Whom it vouches for.
        subject: Arc<str>,
    },
}

/// The authenticated sender of a request. The first part of every key under which weir keeps anything for a client.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    digest: [u8; 16],
    name: Option<Arc<str>>,
}

impl Principal {
    /// Only [`crate::authenticate`] may call this.
    pub(crate) fn mint(identity: &Identity) -> Self {
        match identity {
            Identity::Anonymous => Self { digest: [0; 16], name: None },
            Identity::Subject { issuer, subject } => {
                let mut hash = Sha256::new();
                // The length keeps ("a", "bc") and ("ab", "c") apart.
                hash.update((issuer.len() as u64).to_be_bytes());
                hash.update(issuer.as_bytes());
                hash.update(subject.as_bytes());
                let full: [u8; 32] = hash.finalize().into();
                let mut digest = [0; 16];
                digest.copy_from_slice(&full[..16]);
                Self { digest, name: Some(subject.clone()) }
            }
        }
    }

    /// True for the one principal that everybody is where no credentials are asked for.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.name.is_none()
    }

    /// A stable, unguessable-enough key for maps, records and sealed state. Not reversible.
    #[must_use]
    pub fn digest(&self) -> &[u8; 16] {
        &self.digest
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("anonymous"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_prefix_keeps_issuer_and_subject_apart() {
        let one = Principal::mint(&Identity::Subject { issuer: "a".into(), subject: "bc".into() });
        let two = Principal::mint(&Identity::Subject { issuer: "ab".into(), subject: "c".into() });
        assert_ne!(one, two);
        assert_ne!(one.digest(), two.digest());
        assert!(!one.is_anonymous());
        assert!(Principal::mint(&Identity::Anonymous).is_anonymous());
    }
}
