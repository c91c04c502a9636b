//! The keys of issuers: read, looked up, and kept fresh (RFC 7517).

mod discovery;
pub(crate) mod key_keeper;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value};

use crate::settings::SignatureAlgorithm;
use crate::strict_json;

/// The largest key set that is read.
const MAX_KEY_SET_BYTES: usize = 64 << 10;
/// The most usable keys of a set. A provider that rotates has two or three.
const MAX_KEYS: usize = 32;
/// RSA keys below this can be broken, above it a check takes too long.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The usable keys of an issuer at some time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JwkSet {
    keys: Vec<VerificationKey>,
    /// The number of usable keys beyond the bound.
    left_out: usize,
}

#[derive(Debug, PartialEq)]
struct VerificationKey {
    kid: Option<String>,
    /// The algorithms it may be used with, by its own kind. A token of an algorithm that is not on
    /// the issuer's list is refused before its key is looked up.
    algorithms: Vec<SignatureAlgorithm>,
    /// Two keys are the same if this is.
    material: Vec<Vec<u8>>,
}

impl JwkSet {
    /// Reads a set. Keys that cannot check signatures are left out: encryption keys, weak ones,
    /// private and symmetric ones (a published one is compromised). Keys that no algorithm of the
    /// issuer's list fits stay: a reload may add it. `None`: it is not a set, or no usable key is
    /// left.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_KEY_SET_BYTES {
            return None;
        }
        let set = strict_json::parse_object(text)?;
        let keys = set.get("keys")?.as_array()?;
        let mut keys: Vec<VerificationKey> = keys
            .iter()
            .filter_map(|key| VerificationKey::read(key.as_object()?))
            .collect();
        let left_out = keys.len().saturating_sub(MAX_KEYS);
        keys.truncate(MAX_KEYS);
        (!keys.is_empty()).then_some(Self { keys, left_out })
    }

    /// The algorithms that the keys can be used with.
    pub(crate) fn algorithms(&self) -> impl Iterator<Item = SignatureAlgorithm> {
        self.keys
            .iter()
            .flat_map(|key| key.algorithms.iter().copied())
    }

    /// True if one of the keys can be used with one of these algorithms.
    pub(crate) fn has_any_of(&self, algorithms: &[SignatureAlgorithm]) -> bool {
        self.algorithms().any(|one| algorithms.contains(&one))
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The number of usable keys that the issuer published beyond these.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// The one key that a token can be signed with. A token without a key id needs a set with a
    /// single fitting key; an id shared by two keys selects no key.
    pub(crate) fn find(
        &self,
        kid: Option<&str>,
        algorithm: SignatureAlgorithm,
    ) -> Option<DecodingKey> {
        let fits = |key: &&VerificationKey| {
            key.algorithms.contains(&algorithm)
                && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid))
        };
        let mut fitting = self.keys.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Some(key.decoding(algorithm)),
            _ => None,
        }
    }
}

impl VerificationKey {
    fn read(key: &Map<String, Value>) -> Option<Self> {
        // Some libraries write members that a key does not have as `null`.
        let member = |name: &str| key.get(name).filter(|value| !value.is_null());
        if ["d", "p", "q", "dp", "dq", "qi", "oth", "k"]
            .iter()
            .any(|name| member(name).is_some())
        {
            return None;
        }
        if member("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let checks = |list: &Value| {
            list.as_array()
                .is_some_and(|list| list.iter().any(|operation| operation == "verify"))
        };
        if member("key_ops").is_some_and(|operations| !checks(operations)) {
            return None;
        }
        let kid = match member("kid") {
            None => None,
            Some(kid) => Some(kid.as_str()?.to_owned()),
        };
        let (kind, material) = kind(key)?;
        let named = match member("alg") {
            None => None,
            Some(name) => Some(SignatureAlgorithm::parse(name.as_str()?)?),
        };
        let fits = |algorithm: &SignatureAlgorithm| named.is_none_or(|named| named == *algorithm);
        let algorithms: Vec<SignatureAlgorithm> = kind.iter().copied().filter(fits).collect();
        (!algorithms.is_empty()).then_some(Self {
            kid,
            algorithms,
            material,
        })
    }

    fn decoding(&self, algorithm: SignatureAlgorithm) -> DecodingKey {
        match (algorithm, self.material.as_slice()) {
            (SignatureAlgorithm::Es256 | SignatureAlgorithm::Es384, [point]) => {
                DecodingKey::from_ec_der(point)
            }
            (SignatureAlgorithm::EdDsa, [point]) => DecodingKey::from_ed_der(point),
            (_, [modulus, exponent]) => DecodingKey::from_rsa_raw_components(modulus, exponent),
            // `read` makes no others; an empty key verifies no signature.
            _ => DecodingKey::from_ed_der(&[]),
        }
    }
}

/// The algorithms that a key can be used with, and its numbers.
fn kind(key: &Map<String, Value>) -> Option<(&'static [SignatureAlgorithm], Vec<Vec<u8>>)> {
    use SignatureAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| BASE64URL_NOPAD.decode(text(name)?.as_bytes()).ok();
    match (text("kty")?, text("crv")) {
        ("RSA", _) => {
            let (modulus, exponent) = (bytes("n")?, bytes("e")?);
            // Some providers write a leading zero.
            let first = modulus.iter().position(|byte| *byte != 0)?;
            let modulus = modulus[first..].to_vec();
            let bits = modulus.len() * 8 - modulus[0].leading_zeros() as usize;
            let good = RSA_BITS.contains(&bits) && (1..=8).contains(&exponent.len());
            good.then_some((
                &[Rs256, Rs384, Rs512, Ps256, Ps384, Ps512][..],
                vec![modulus, exponent],
            ))
        }
        ("EC", Some(curve)) => {
            let (algorithms, width): (&[SignatureAlgorithm], _) = match curve {
                "P-256" => (&[Es256], 32),
                "P-384" => (&[Es384], 48),
                _ => return None,
            };
            let (x, y) = (bytes("x")?, bytes("y")?);
            let point = [&[4][..], &x, &y].concat();
            (x.len() == width && y.len() == width).then(|| (algorithms, vec![point]))
        }
        ("OKP", Some("Ed25519")) => {
            let point = bytes("x")?;
            (point.len() == 32).then(|| (&[EdDsa][..], vec![point]))
        }
        _ => None,
    }
}
