//! The text of a token and its header, before any of it is trusted.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value};

use crate::settings::SignatureAlgorithm;
use crate::strict_json;
use crate::token::token_refusal::TokenRefusal;

/// The longest header, decoded.
const MAX_HEADER: usize = 1 << 10;
/// The longest name of a key.
const MAX_KID: usize = 256;

/// A token in the shape of a signed JWT.
#[derive(Debug)]
pub(crate) struct JwtParts<'a> {
    /// Header and payload as they came: the signed text.
    pub(crate) signed: &'a str,
    /// In base64.
    pub(crate) signature: &'a str,
    /// The key it names.
    pub(crate) kid: Option<String>,
    pub(crate) algorithm: SignatureAlgorithm,
    /// True if it declares itself an access token (RFC 9068, 2.1).
    pub(crate) is_access_token: bool,
    /// Its claims, not verified yet.
    payload: Map<String, Value>,
}

impl<'a> JwtParts<'a> {
    /// Splits a token. Text that is too long has been refused before.
    pub(crate) fn of(token: &'a str) -> Result<Self, TokenRefusal> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenRefusal::Malformed);
        };
        // The last letters of base64 must be the canonical ones, and there is no padding: one token
        // has one text.
        if header.is_empty() || payload.is_empty() {
            return Err(TokenRefusal::Malformed);
        }
        if header.len() > MAX_HEADER * 4 / 3 + 1 {
            return Err(TokenRefusal::Malformed);
        }
        let decode = |text: &str| {
            BASE64URL_NOPAD
                .decode(text.as_bytes())
                .map_err(|_| TokenRefusal::Malformed)
        };
        let header = strict_json::parse_object(&decode(header)?).ok_or(TokenRefusal::Malformed)?;
        // An unsigned token declares that in its header: then the algorithm is the reason.
        let algorithm = algorithm(&header)?;
        if signature.is_empty() {
            return Err(TokenRefusal::Malformed);
        }
        decode(signature)?;
        let is_access_token = kind(&header)?;
        let kid = kid(&header)?;
        let payload =
            strict_json::parse_object(&decode(payload)?).ok_or(TokenRefusal::Malformed)?;
        let signed = &token[..token.len() - signature.len() - 1];
        Ok(Self {
            signed,
            signature,
            kid,
            algorithm,
            is_access_token,
            payload,
        })
    }

    /// The issuer that the token claims: only good for selecting among known ones.
    pub(crate) fn claimed_issuer(&self) -> Option<&str> {
        self.payload.get("iss")?.as_str()
    }

    /// The time at which the token claims to be issued, in seconds since 1970: only good for
    /// deciding whether the keys that are known may be older.
    pub(crate) fn claimed_issue_time(&self) -> Option<u64> {
        self.payload.get("iat")?.as_u64()
    }

    /// The claims, for a caller that has checked the signature.
    pub(crate) fn into_payload(self) -> Map<String, Value> {
        self.payload
    }
}

fn algorithm(header: &Map<String, Value>) -> Result<SignatureAlgorithm, TokenRefusal> {
    let name = header.get("alg").ok_or(TokenRefusal::Malformed)?.as_str();
    name.and_then(SignatureAlgorithm::parse)
        .ok_or(TokenRefusal::Algorithm)
}

/// Refuses all but plain signed JWTs. `jku`, `x5u`, `jwk` and `x5c` are ignored: a token does not
/// define how it is checked.
fn kind(header: &Map<String, Value>) -> Result<bool, TokenRefusal> {
    // `crit` lists extensions that a reader must understand, and weir has no extensions (RFC 7515,
    // 4.1.11). The others change how the payload is to be read: unencoded, compressed, encrypted,
    // nested.
    if ["crit", "b64", "zip", "enc"]
        .iter()
        .any(|name| header.contains_key(*name))
    {
        return Err(TokenRefusal::Type);
    }
    if header.get("cty").is_some_and(|cty| {
        cty.as_str()
            .is_none_or(|cty| cty.eq_ignore_ascii_case("jwt"))
    }) {
        return Err(TokenRefusal::Type);
    }
    let Some(typ) = header.get("typ") else {
        return Ok(false);
    };
    let typ = typ.as_str().ok_or(TokenRefusal::Type)?.to_ascii_lowercase();
    match typ.strip_prefix("application/").unwrap_or(&typ) {
        "at+jwt" => Ok(true),
        "jwt" => Ok(false),
        _ => Err(TokenRefusal::Type),
    }
}

fn kid(header: &Map<String, Value>) -> Result<Option<String>, TokenRefusal> {
    match header.get("kid") {
        None => Ok(None),
        Some(Value::String(kid)) if kid.len() <= MAX_KID => Ok(Some(kid.clone())),
        Some(_) => Err(TokenRefusal::Malformed),
    }
}
