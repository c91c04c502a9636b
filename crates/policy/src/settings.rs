//! The settings of the verifier: issuers, API keys and certificates, already checked. No config
//! format here: the gateway makes these values.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::names::EndpointId;

/// The authentication of callers.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifierSettings {
    /// False: no credentials are asked for, and all callers are the anonymous principal.
    pub required: bool,
    /// `scheme://host[:port]` of weir as clients see it. A token for an endpoint names this and the
    /// endpoint's path as its audience.
    pub base: String,
    /// The tolerated clock difference between issuers and weir.
    pub leeway: Duration,
    /// The accepted issuers of tokens.
    pub issuers: Vec<TokenIssuer>,
    /// The scopes that each scope includes, in any number of steps.
    pub implied: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// Keys of machines without OAuth.
    pub api_keys: Vec<ApiKey>,
    /// The mapping of client certificates to principals; `None`: certificates are not accepted.
    pub certificates: Option<CertificateRules>,
}

impl VerifierSettings {
    /// The default leeway: the clocks of a well-kept service differ by less.
    pub const LEEWAY: Duration = Duration::from_secs(30);

    /// Settings without authentication.
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

    /// True if an audience is this endpoint: its URL, character by character, except for the case
    /// of scheme and host (equivalent by RFC 3986, 6.2.2.1). A slash at the end makes another URL
    /// of any path but the root.
    #[must_use]
    pub(crate) fn is_endpoint(&self, audience: &str, endpoint: &EndpointId) -> bool {
        let Some((base, path)) = audience.split_at_checked(self.base.len()) else {
            return false;
        };
        let path = if path.is_empty() { "/" } else { path };
        !self.base.is_empty() && base.eq_ignore_ascii_case(&self.base) && path == endpoint.as_str()
    }
}

/// An accepted issuer of tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenIssuer {
    /// The `iss` of its tokens, character by character.
    pub name: Arc<str>,
    /// The method of checking its tokens.
    pub validation: TokenValidation,
    /// Audiences that stand for every endpoint of weir, beside an endpoint's own URL.
    pub audiences: Vec<Arc<str>>,
    /// The claims with the groups of a subject: each is a path of names into the claims, with dots
    /// between them.
    pub groups: Vec<Arc<str>>,
    /// Further claims that rules read, each by its path.
    pub claims: Vec<Arc<str>>,
}

/// The method of checking an issuer's tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenValidation {
    /// Tokens are signed with one of its keys.
    Keys {
        /// The location of its keys.
        source: KeySource,
        /// The algorithms that it signs with. A token cannot choose another one.
        algorithms: Vec<SignatureAlgorithm>,
        /// True if only tokens that declare themselves access tokens count (`typ: at+jwt`, RFC
        /// 9068).
        strict_type: bool,
        /// The longest time from issue to expiry.
        max_lifetime: Duration,
    },
    /// It is asked about each token (RFC 7662).
    Introspection {
        /// Its introspection endpoint.
        url: String,
        /// weir's client id there.
        client_id: String,
        /// weir's client secret there.
        client_secret: ClientSecret,
    },
}

/// The location of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The `jwks_uri` of its metadata (RFC 8414, or OpenID discovery).
    Metadata,
    /// At this URL.
    Url(String),
}

/// A signature algorithm. Symmetric ones are excluded: a party that can check those can forge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
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

impl SignatureAlgorithm {
    /// The algorithms of an issuer without any in the config.
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

    /// The JOSE name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSecret(String);

impl ClientSecret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// An API key of a machine. weir holds a digest; only the machine has the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The part of the key that names it.
    pub id: String,
    /// SHA-256 of the whole key.
    pub digest: [u8; 32],
    /// The subject it stands for. Several keys may have the same.
    pub subject: Arc<str>,
    /// The groups of the subject.
    pub groups: Vec<Arc<str>>,
    /// The scopes of the key.
    pub scopes: Vec<Arc<str>>,
    /// The expiry.
    pub expires: Option<SystemTime>,
}

/// The mapping of client certificates, verified by the listener, to principals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRules {
    /// The part that names the subject.
    pub subject: CertificateName,
    /// The groups of all subjects with a certificate.
    pub groups: Vec<Arc<str>>,
    /// The scopes of a certificate.
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
