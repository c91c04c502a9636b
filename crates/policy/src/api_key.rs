//! API keys of machines without OAuth: `weir_<id>_<secret>`. The config holds only their digests,
//! so a reader of the config has no key.
//!
//! The secret part is 256 random bits, so a plain SHA-256 is enough: it cannot be guessed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_core::principal::{API_KEY_ISSUER, Subject};

use crate::settings::{ApiKey, VerifierSettings};
use crate::token::mapping::with_implied;
use crate::token::token_refusal::TokenRefusal;

/// The prefix of every key.
const BEGIN: &str = "weir_";
/// The longest key that is checked, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// The keys of a config.
#[derive(Debug)]
pub(crate) struct ApiKeys(HashMap<String, (ApiKey, Arc<Subject>)>);

/// The digest that the config keeps of a key.
#[must_use]
pub fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

impl ApiKeys {
    pub(crate) fn new(settings: &VerifierSettings) -> Self {
        let subject = |key: &ApiKey| {
            let mut subject = Subject::new(API_KEY_ISSUER, key.subject.clone());
            subject.scopes = with_implied(key.scopes.iter().cloned().collect(), &settings.implied);
            let groups: BTreeSet<Arc<str>> = key.groups.iter().cloned().collect();
            subject.groups = groups.into_iter().collect();
            subject.client = Some(key.id.as_str().into());
            subject.expires = key.expires;
            Arc::new(subject)
        };
        let keys = settings
            .api_keys
            .iter()
            .map(|key| (key.id.clone(), (key.clone(), subject(key))));
        Self(keys.collect())
    }

    /// True if a text has the form of a key.
    pub(crate) fn is_key(text: &str) -> bool {
        text.starts_with(BEGIN)
    }

    /// The subject of the key with this id.
    pub(crate) fn named(&self, id: &str) -> Option<&Arc<Subject>> {
        self.0.get(id).map(|(_, subject)| subject)
    }

    /// Checks a key and returns its subject.
    pub(crate) fn check(&self, text: &str, now: SystemTime) -> Result<Arc<Subject>, TokenRefusal> {
        let id = text
            .strip_prefix(BEGIN)
            .and_then(|rest| rest.split_once('_'))
            .map(|(id, _)| id);
        let id = id
            .filter(|_| text.len() <= MAX_KEY_BYTES)
            .ok_or(TokenRefusal::Malformed)?;
        // An unknown id takes as long as a known one, and no digest equals it.
        let (known, subject) = self.0.get(id).map_or((&[0; 32], None), |(key, subject)| {
            (&key.digest, Some((key, subject)))
        });
        let equal = bool::from(digest(text).ct_eq(known));
        match subject {
            Some((key, subject)) if equal => match key.expires {
                Some(expires) if expires <= now => Err(TokenRefusal::Expired),
                _ => Ok(subject.clone()),
            },
            _ => Err(TokenRefusal::Key),
        }
    }
}
