//! Bearer tokens that are JWTs (RFC 7519, RFC 9068): from text to subject, each check in its order.
//!
//! The order: size and shape, header, issuer, key, signature, and only then the claims. No claim is
//! trusted, and no URL in a token is fetched, before the signature is checked; the `iss` claim only
//! selects among the issuers of the config.

pub(crate) mod claims;
pub(crate) mod jwt;
pub(crate) mod mapping;
pub(crate) mod token_refusal;

use jsonwebtoken::crypto;

#[cfg(test)]
pub(crate) use claims::audiences;
pub(crate) use claims::{TokenClaims, has_audience};
pub(crate) use jwt::JwtParts;
pub(crate) use mapping::subject;
pub(crate) use token_refusal::TokenRefusal;

use crate::auth_failure::AuthFailure;
use crate::jwks::key_keeper::{KeyKeeper, KeyLookup};
use crate::settings::{SignatureAlgorithm, TokenIssuer, TokenValidation};

/// The longest token that is checked, in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 << 10;

/// Checks the signature of a token; returns its claims.
pub(crate) async fn verify_signature(
    parts: JwtParts<'_>,
    issuer: &TokenIssuer,
    keeper: &KeyKeeper,
) -> Result<TokenClaims, AuthFailure> {
    let TokenValidation::Keys {
        algorithms,
        strict_type,
        ..
    } = &issuer.validation
    else {
        return Err(TokenRefusal::Malformed.into());
    };
    if !algorithms.contains(&parts.algorithm) {
        return Err(TokenRefusal::Algorithm.into());
    }
    if *strict_type && !parts.is_access_token {
        return Err(TokenRefusal::Type.into());
    }
    check_signature(&parts, keeper).await?;
    let is_access_token = parts.is_access_token;
    let claims = TokenClaims::read(parts.into_payload(), issuer)?;
    if !is_access_token {
        claims.refuse_other_kinds()?;
    }
    Ok(claims)
}

/// Checks that the key of the issuer made the token's signature. If the known key did not, the check
/// is made again with keys that are fetched now: an issuer may have replaced a key under its id.
async fn check_signature(parts: &JwtParts<'_>, keeper: &KeyKeeper) -> Result<(), AuthFailure> {
    let (mut refusal, mut tried) = (TokenRefusal::Key, None);
    for _ in 0..2 {
        let found = match keeper.find(parts, tried).await {
            KeyLookup::Found(found) => found,
            KeyLookup::Unknown => break,
            KeyLookup::Unavailable => {
                return Err(AuthFailure::Unavailable("the issuer's keys are not there"));
            }
            KeyLookup::New(wait) => return Err(AuthFailure::NewKey(wait)),
        };
        let algorithm = jsonwebtoken_algorithm(parts.algorithm);
        let (signature, signed) = (parts.signature, parts.signed.as_bytes());
        if crypto::verify(signature, signed, &found.key, algorithm).is_ok_and(|genuine| genuine) {
            return Ok(());
        }
        (refusal, tried) = (TokenRefusal::Signature, Some(found.generation));
    }
    Err(refusal.into())
}

/// The algorithm in jsonwebtoken's type.
fn jsonwebtoken_algorithm(algorithm: SignatureAlgorithm) -> jsonwebtoken::Algorithm {
    match algorithm {
        SignatureAlgorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        SignatureAlgorithm::Rs384 => jsonwebtoken::Algorithm::RS384,
        SignatureAlgorithm::Rs512 => jsonwebtoken::Algorithm::RS512,
        SignatureAlgorithm::Ps256 => jsonwebtoken::Algorithm::PS256,
        SignatureAlgorithm::Ps384 => jsonwebtoken::Algorithm::PS384,
        SignatureAlgorithm::Ps512 => jsonwebtoken::Algorithm::PS512,
        SignatureAlgorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        SignatureAlgorithm::Es384 => jsonwebtoken::Algorithm::ES384,
        SignatureAlgorithm::EdDsa => jsonwebtoken::Algorithm::EdDSA,
    }
}
