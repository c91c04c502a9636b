//! Bearer tokens that are JWTs (RFC 7519, RFC 9068): from text to subject, each check in its order.
//!
//! The order: size and shape, header, issuer, key, signature, and only then the claims. No claim is
//! trusted, and no URL in a token is fetched, before the signature is checked; the `iss` claim only
//! selects among the issuers of the config.

mod claims;
mod mapping;
mod parts;

use jsonwebtoken::crypto;

#[cfg(test)]
pub(crate) use claims::audiences;
pub(crate) use claims::{Claims, Times, is_for};
pub(crate) use mapping::{subject, with_implied};
pub(crate) use parts::Parts;

use crate::credentials::Refused;
use crate::jwks::{Keeper, Lookup};
use crate::settings::{Algorithm, Issuer, Proof};

/// The longest token that is checked, in bytes.
pub(crate) const LONGEST: usize = 8 << 10;

/// The reason for refusing a token, as labels of the metric and of the audit. A client does not see
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// It is not a token, or the request has more than one kind of credentials.
    Malformed,
    /// Its algorithm is not one that its issuer uses.
    Algorithm,
    /// It is another kind of token, or has header parameters that change its meaning.
    Type,
    /// Its issuer is not accepted here.
    Issuer,
    /// The key is unknown.
    Key,
    /// Its signature is wrong.
    Signature,
    /// It lacks a required claim, or has one in another form.
    Claims,
    /// It has expired.
    Expired,
    /// It is not valid yet, or for too long.
    NotYet,
    /// It is for another audience.
    Audience,
}

impl Reason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "alg",
            Self::Type => "type",
            Self::Issuer => "issuer",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Audience => "audience",
        }
    }
}

/// Checks the signature of a token; returns its claims.
pub(crate) async fn signed(
    parts: Parts<'_>,
    issuer: &Issuer,
    keeper: &Keeper,
) -> Result<Claims, Refused> {
    let Proof::Keys {
        algorithms,
        strict_type,
        ..
    } = &issuer.proof
    else {
        return Err(Reason::Malformed.into());
    };
    if !algorithms.contains(&parts.algorithm) {
        return Err(Reason::Algorithm.into());
    }
    if *strict_type && !parts.is_access_token {
        return Err(Reason::Type.into());
    }
    let key = match keeper.find(parts.kid.as_deref(), parts.algorithm).await {
        Lookup::Found(key) => key,
        Lookup::Unknown => return Err(Reason::Key.into()),
        Lookup::Unavailable => return Err(Refused::Unavailable("the issuer's keys are not there")),
    };
    let genuine = crypto::verify(
        parts.signature,
        parts.signed.as_bytes(),
        &key,
        joined(parts.algorithm),
    );
    if !genuine.is_ok_and(|genuine| genuine) {
        return Err(Reason::Signature.into());
    }
    let is_access_token = parts.is_access_token;
    let claims = Claims::read(parts.into_payload(), issuer)?;
    if !is_access_token {
        claims.is_no_id_token()?;
    }
    Ok(claims)
}

/// The algorithm in jsonwebtoken's type.
fn joined(algorithm: Algorithm) -> jsonwebtoken::Algorithm {
    match algorithm {
        Algorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        Algorithm::Rs384 => jsonwebtoken::Algorithm::RS384,
        Algorithm::Rs512 => jsonwebtoken::Algorithm::RS512,
        Algorithm::Ps256 => jsonwebtoken::Algorithm::PS256,
        Algorithm::Ps384 => jsonwebtoken::Algorithm::PS384,
        Algorithm::Ps512 => jsonwebtoken::Algorithm::PS512,
        Algorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        Algorithm::Es384 => jsonwebtoken::Algorithm::ES384,
        Algorithm::EdDsa => jsonwebtoken::Algorithm::EdDSA,
    }
}
