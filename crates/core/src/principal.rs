//! The identity of a request's sender. A [`Principal`] is minted only by [`crate::authenticate`];
//! no header, flag or config names one.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::telemetry::client_meter::ClientMeter;

/// The result of a [`crate::port::Verifier`]. It is not yet a [`Principal`]: only
/// [`crate::authenticate`] turns one into the other.
#[derive(Clone, Debug)]
pub enum VerifiedIdentity {
    /// No identity: the listener asks for no credentials.
    Anonymous,
    /// A subject that an issuer vouches for.
    Subject(Arc<Subject>),
}

impl VerifiedIdentity {
    /// A subject without further claims.
    #[must_use]
    pub fn subject(issuer: impl Into<Arc<str>>, subject: impl Into<Arc<str>>) -> Self {
        Self::Subject(Arc::new(Subject::new(issuer, subject)))
    }
}

/// The issuer of the subjects of API keys. It is not a URL, so no issuer of tokens can have this
/// name.
pub const API_KEY_ISSUER: &str = "api-key";

/// A subject, with its issuer's claims. It has no secrets.
#[derive(Clone, Debug)]
pub struct Subject {
    digest: [u8; 16],
    /// The issuer: the `iss` of a token, or a name of weir's own such as [`API_KEY_ISSUER`].
    issuer: Arc<str>,
    /// The subject. Unique together with the issuer.
    subject: Arc<str>,
    /// The scopes of the credentials.
    pub scopes: Arc<[Arc<str>]>,
    /// The groups it is in.
    pub groups: Arc<[Arc<str>]>,
    /// The OAuth client that uses the credentials, or the id of an API key.
    pub client: Option<Arc<str>>,
    /// The actor for the subject, if it is not the subject itself (RFC 8693 `act`).
    pub actor: Option<Arc<str>>,
    /// Further claims that the operator's rules may look at, by name.
    pub claims: Arc<[(Arc<str>, Arc<str>)]>,
    /// The expiry of the credentials.
    pub expires: Option<SystemTime>,
    /// True if all this comes from the bearer token of the request, and its issuer may be asked to
    /// exchange that token: it is an access token, not a key of weir's own.
    pub is_by_token: bool,
    /// The metrics of its client, looked up once.
    meter: OnceLock<Arc<ClientMeter>>,
}

impl Subject {
    /// A subject without further claims.
    #[must_use]
    pub fn new(issuer: impl Into<Arc<str>>, subject: impl Into<Arc<str>>) -> Self {
        let (issuer, subject) = (issuer.into(), subject.into());
        let mut hash = Sha256::new();
        // The length keeps ("a", "bc") and ("ab", "c") apart.
        hash.update((issuer.len() as u64).to_be_bytes());
        hash.update(issuer.as_bytes());
        hash.update(subject.as_bytes());
        let full: [u8; 32] = hash.finalize().into();
        let mut digest = [0; 16];
        digest.copy_from_slice(&full[..16]);
        Self {
            digest,
            issuer,
            subject,
            scopes: Arc::new([]),
            groups: Arc::new([]),
            client: None,
            actor: None,
            claims: Arc::new([]),
            expires: None,
            is_by_token: false,
            meter: OnceLock::new(),
        }
    }

    fn meter(&self) -> &ClientMeter {
        self.meter
            .get_or_init(|| ClientMeter::of(self.client_name().unwrap_or(&self.subject)))
    }

    /// The client that metrics and limits name: the OAuth client, or the subject of an API key,
    /// which stays the same when the key is replaced.
    #[must_use]
    pub fn client_name(&self) -> Option<&Arc<str>> {
        if *self.issuer == *API_KEY_ISSUER {
            return Some(&self.subject);
        }
        self.client.as_ref()
    }

    /// A stable key of issuer and subject; see [`Principal::digest`].
    #[must_use]
    pub fn digest(&self) -> &[u8; 16] {
        &self.digest
    }

    fn has_same_claims(&self, other: &Self) -> bool {
        self.digest == other.digest
            && is_same_set(&self.scopes, &other.scopes)
            && is_same_set(&self.groups, &other.groups)
            && is_same_set(&self.claims, &other.claims)
            && (&self.client, &self.actor) == (&other.client, &other.actor)
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

/// An issuer may name the members of a claim in any order.
fn is_same_set<T: Ord>(own: &[T], other: &[T]) -> bool {
    let sets = [own, other].map(|members| members.iter().collect::<BTreeSet<_>>());
    sets[0] == sets[1]
}

/// The authenticated sender of a request, or the owner of state that such a sender left. It is the
/// first part of every key under which weir keeps state for a client.
///
/// Two are equal if issuer and subject are: other claims may differ from request to request.
#[derive(Clone)]
pub struct Principal(Option<Arc<Subject>>);

impl Principal {
    /// Only [`crate::authenticate`] may call this.
    pub(crate) fn mint(identity: VerifiedIdentity) -> Self {
        match identity {
            VerifiedIdentity::Anonymous => Self(None),
            VerifiedIdentity::Subject(subject) => Self(Some(subject)),
        }
    }

    /// The owner of state that another process of this gateway kept, by issuer and subject; `None`
    /// is the anonymous one. It finds the state and authenticates no request.
    #[must_use]
    pub fn owner(name: Option<(&str, &str)>) -> Self {
        Self(name.map(|(issuer, subject)| Arc::new(Subject::new(issuer, subject))))
    }

    /// The issuer and the subject; absent for the anonymous one.
    #[must_use]
    pub fn owner_name(&self) -> Option<(&str, &str)> {
        self.subject()
            .map(|subject| (subject.issuer(), subject.subject()))
    }

    /// True for the one principal of all requests without credentials.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// The subject; absent for the anonymous one.
    #[must_use]
    pub fn subject(&self) -> Option<&Subject> {
        self.0.as_deref()
    }

    /// True if both are equal, and no rule can tell their scopes, groups and other claims apart.
    #[must_use]
    pub fn has_same_claims(&self, other: &Self) -> bool {
        match (self.subject(), other.subject()) {
            (Some(own), Some(other)) => own.has_same_claims(other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// The metrics of its client.
    #[must_use]
    pub fn meter(&self) -> &ClientMeter {
        self.subject()
            .map_or_else(|| ClientMeter::anonymous(), Subject::meter)
    }

    /// The expiry of its credentials, if they have one.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.subject().and_then(|subject| subject.expires)
    }

    /// A stable, unguessable-enough key for maps, records and sealed state. Not reversible.
    #[must_use]
    pub fn digest(&self) -> &[u8; 16] {
        self.0.as_ref().map_or(&[0; 16], |subject| &subject.digest)
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject().map_or("anonymous", Subject::subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_of_a_key_is_its_subject() {
        let named = |issuer: &str, client: Option<&str>| {
            let mut subject = Subject::new(issuer, "ci");
            subject.client = client.map(Into::into);
            subject.client_name().map(ToString::to_string)
        };
        let https = "https://id.example";
        assert_eq!(named(API_KEY_ISSUER, Some("0123")).as_deref(), Some("ci"));
        assert_eq!(named(https, Some("ide")).as_deref(), Some("ide"));
        assert_eq!(named(https, None), None);
    }

    #[test]
    fn length_prefix_keeps_issuer_and_subject_apart() {
        let one = Principal::mint(VerifiedIdentity::subject("a", "bc"));
        let two = Principal::mint(VerifiedIdentity::subject("ab", "c"));
        assert_ne!(one, two);
        assert_ne!(one.digest(), two.digest());
        assert!(!one.is_anonymous());
        assert!(Principal::mint(VerifiedIdentity::Anonymous).is_anonymous());
    }

    #[test]
    fn claims_are_the_same_in_any_order() {
        let of = |change: &dyn Fn(&mut Subject)| {
            let mut subject = Subject::new("issuer", "ada");
            subject.groups = Arc::new(["a".into(), "b".into()]);
            change(&mut subject);
            Principal(Some(Arc::new(subject)))
        };
        let ada = of(&|_| ());
        let later: [&dyn Fn(&mut Subject); 2] = [
            &|subject| subject.groups = Arc::new(["b".into(), "a".into()]),
            &|subject| subject.expires = Some(SystemTime::UNIX_EPOCH),
        ];
        for change in later {
            assert!(of(change).has_same_claims(&ada));
        }
        let other: [&dyn Fn(&mut Subject); 5] = [
            &|subject| subject.groups = Arc::new(["a".into()]),
            &|subject| subject.scopes = Arc::new(["read".into()]),
            &|subject| subject.claims = Arc::new([("team".into(), "x".into())]),
            &|subject| subject.client = Some("cli".into()),
            &|subject| subject.actor = Some("bot".into()),
        ];
        for change in other {
            assert!(!of(change).has_same_claims(&ada));
        }
        let anonymous = Principal::owner(None);
        assert!(anonymous.has_same_claims(&anonymous));
        assert!(!ada.has_same_claims(&anonymous) && !anonymous.has_same_claims(&ada));
    }
}
