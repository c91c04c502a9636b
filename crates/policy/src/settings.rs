//! What the verifier can be told: who vouches for whom, already checked. No config format here: the
//! gateway makes these values.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::names::EndpointId;

/// How senders are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// False: nobody is asked, everybody is the anonymous principal.
    pub required: bool,
    /// `scheme://host[:port]` of weir as clients see it. A token for an endpoint names this and the
    /// endpoint's path as its audience.
    pub base: String,
    /// How far the clocks of issuers may differ from this one.
    pub leeway: Duration,
    /// Who issues tokens.
    pub issuers: Vec<Issuer>,
    /// Which scopes each scope includes, in any number of steps.
    pub implied: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// Keys of machines without OAuth.
    pub api_keys: Vec<ApiKey>,
    /// How client certificates name a principal; `None`: they name nobody.
    pub certificates: Option<Certificates>,
}

impl Settings {
    /// The clocks of a well-kept service differ by less.
    pub const LEEWAY: Duration = Duration::from_secs(30);

    /// Nobody is asked.
    #[must_use]
    pub fn open() -> Self {
        Self {
            required: false,
            base: String::new(),
            leeway: Self::LEEWAY,
            issuers: Vec::new(),
            implied: HashMap::new(),
            api_keys: Vec::new(),
            certificates: None,
        }
    }

    /// Whether an audience is this endpoint: its URL, character by character, but for the case of
    /// scheme and host, which RFC 3986 (6.2.2.1) does not tell apart. A slash at the end makes
    /// another URL of any path but the root.
    #[must_use]
    pub(crate) fn is_endpoint(&self, audience: &str, endpoint: &EndpointId) -> bool {
        let Some((base, path)) = audience.split_at_checked(self.base.len()) else {
            return false;
        };
        let path = if path.is_empty() { "/" } else { path };
        !self.base.is_empty() && base.eq_ignore_ascii_case(&self.base) && path == endpoint.as_str()
    }
}

/// Somebody whose word about senders counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Issuer {
    /// As it names itself, character by character.
    pub name: Arc<str>,
    /// How its word is known to be its own.
    pub proof: Proof,
    /// Audiences that stand for every endpoint of weir, beside an endpoint's own URL.
    pub audiences: Vec<Arc<str>>,
    /// Where the groups of a subject stand: a list of names into the claims for each place.
    pub groups: Vec<Vec<String>>,
    /// Further claims that rules look at, by name.
    pub claims: Vec<Arc<str>>,
}

/// How an issuer's word is known to be its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// Tokens are signed with one of its keys.
    Keys {
        /// Where its keys are.
        at: KeysAt,
        /// The algorithms that it signs with. A token has no say in it.
        algorithms: Vec<Algorithm>,
        /// Whether only tokens that call themselves access tokens count (`typ: at+jwt`, RFC 9068).
        strict_type: bool,
        /// The longest time from issue to expiry.
        max_lifetime: Duration,
    },
    /// It is asked about each token (RFC 7662).
    Introspection {
        /// Its introspection endpoint.
        url: String,
        /// As whom weir asks.
        client_id: String,
        /// weir's password there.
        client_secret: Password,
    },
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAt {
    /// Where its metadata says (RFC 8414, or OpenID discovery).
    Metadata,
    /// At this URL.
    Url(String),
}

/// A signature algorithm. There are no symmetric ones here: whoever can check those can forge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    /// What an issuer may use that the config says nothing of.
    pub const DEFAULT: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// The algorithm of a JOSE name (RFC 7518, 3.1), in its exact letters.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            // RFC 9864 names the curve too.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A key of a machine. What is kept is a digest; the key itself is with the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The part of the key that names it.
    pub id: String,
    /// SHA-256 of the whole key.
    pub digest: [u8; 32],
    /// Whom it stands for. Several keys may stand for the same.
    pub subject: Arc<str>,
    /// The groups of the subject.
    pub groups: Vec<Arc<str>>,
    /// What the key is good for.
    pub scopes: Vec<Arc<str>>,
    /// When it ends.
    pub expires: Option<SystemTime>,
}

/// How a client certificate, which the listener has verified, names a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificates {
    /// The part that names the subject.
    pub subject: CertificateName,
    /// The groups of everybody with a certificate.
    pub groups: Vec<Arc<str>>,
    /// What a certificate is good for.
    pub scopes: Vec<Arc<str>>,
}

/// A part of a certificate that can name its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    CommonName,
    /// The one URI among the alternative names, such as a SPIFFE id.
    Uri,
    /// The one DNS name among the alternative names.
    Dns,
}
