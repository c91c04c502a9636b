//! An issuer of tokens, with the keys or the introspection that its tokens are checked by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::auth_failure::AuthFailure;
use crate::introspect::{Introspector, PresentedToken};
use crate::jwks::key_keeper::KeyKeeper;
use crate::settings::{TokenIssuer, TokenValidation, VerifierSettings};
use crate::token;
use crate::token::claims::TokenClaims;
use crate::token::jwt::JwtParts;
use crate::token::token_refusal::TokenRefusal;
use crate::verifier_ports::VerifierPorts;

/// The status of an issuer; for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerStatus {
    /// Its name, the `iss` of its tokens.
    pub issuer: Arc<str>,
    /// True if its tokens can be checked now: it has fresh keys, or it answered the last
    /// introspection request.
    pub ready: bool,
    /// True if it is asked about each token.
    pub is_introspected: bool,
    /// Attempts in a row to get its keys that failed, or introspection requests in a row that it
    /// did not answer.
    pub failures: u32,
    /// The age of its keys. `None`: they never came, or it is asked about each token.
    pub keys_age: Option<Duration>,
    /// Tokens of this issuer that were refused since the config was applied.
    pub refused: u64,
}

/// An issuer that answers, by the way its tokens are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweringIssuer {
    /// Its keys, of this number, can be fetched.
    Keys(usize),
    /// Its introspection endpoint knows a made-up token as inactive.
    Introspection,
}

/// Fetches the keys of an issuer once, or asks its introspection endpoint about a made-up token.
///
/// # Errors
/// The failure, for operators.
pub async fn examine_issuer(
    issuer: &TokenIssuer,
    ports: &VerifierPorts,
) -> Result<AnsweringIssuer, String> {
    let name = &issuer.name;
    match &ActiveIssuer::new(issuer.clone(), None, ports).check {
        IssuerCheck::Keys(keeper) => {
            let counted = keeper.count_keys().await;
            counted
                .map(AnsweringIssuer::Keys)
                .map_err(|why| format!("the keys of the issuer {name} cannot be fetched: {why}"))
        }
        IssuerCheck::Introspection(introspector) => {
            let answered = introspector.examine().await;
            answered
                .map(|()| AnsweringIssuer::Introspection)
                .map_err(|why| format!("the issuer {name} cannot be asked about tokens: {why}"))
        }
    }
}

/// An issuer in use.
pub(super) struct ActiveIssuer {
    pub(super) issuer: TokenIssuer,
    check: IssuerCheck,
    refused: AtomicU64,
}

/// The method of checking an issuer's tokens.
enum IssuerCheck {
    Keys(Arc<KeyKeeper>),
    Introspection(Arc<Introspector>),
}

impl ActiveIssuer {
    /// Puts an issuer to use. It keeps the keys of the one `before` it from the same source, or its
    /// introspector at the same endpoint.
    pub(super) fn new(issuer: TokenIssuer, before: Option<&Self>, ports: &VerifierPorts) -> Self {
        let check = match &issuer.validation {
            TokenValidation::Keys {
                source: at,
                algorithms,
                ..
            } => match before.and_then(|before| before.keeper()) {
                Some(same) if same.is_same_source(at) => {
                    same.use_algorithms(algorithms);
                    IssuerCheck::Keys(same.clone())
                }
                other => IssuerCheck::Keys(KeyKeeper::new(
                    issuer.name.clone(),
                    at.clone(),
                    algorithms.clone(),
                    ports.clone(),
                    other.map(|keeper| &**keeper),
                )),
            },
            TokenValidation::Introspection {
                url,
                client_id,
                client_secret,
            } => match before.and_then(Self::introspector) {
                Some(same) if same.is_same_endpoint(url, client_id, client_secret) => {
                    IssuerCheck::Introspection(same.clone())
                }
                _ => IssuerCheck::Introspection(Introspector::new(
                    issuer.name.clone(),
                    url,
                    client_id,
                    client_secret,
                    ports.clone(),
                )),
            },
        };
        Self {
            issuer,
            check,
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The keeper of its keys; absent if it is asked about each token.
    pub(super) fn keeper(&self) -> Option<&Arc<KeyKeeper>> {
        match &self.check {
            IssuerCheck::Keys(keeper) => Some(keeper),
            IssuerCheck::Introspection(_) => None,
        }
    }

    fn introspector(&self) -> Option<&Arc<Introspector>> {
        match &self.check {
            IssuerCheck::Introspection(introspector) => Some(introspector),
            IssuerCheck::Keys(_) => None,
        }
    }

    /// A number that changes when earlier verifications are no longer valid.
    pub(super) fn generation(&self) -> u64 {
        self.keeper().map_or(0, |keeper| keeper.generation())
    }

    /// The claims of a token that its issuer signed and that is valid now.
    pub(super) async fn claims(
        &self,
        token: PresentedToken<'_>,
        parts: Option<JwtParts<'_>>,
        settings: &VerifierSettings,
        ports: &VerifierPorts,
    ) -> Result<TokenClaims, AuthFailure> {
        let leeway = settings.leeway;
        match (&self.check, &self.issuer.validation, parts) {
            (
                IssuerCheck::Keys(keeper),
                TokenValidation::Keys { max_lifetime, .. },
                Some(parts),
            ) => {
                let claims = token::verify_signature(parts, &self.issuer, keeper).await?;
                let now = ports.clock.wall();
                claims.times().check(now, leeway)?;
                claims.times().check_lifetime(now, leeway, *max_lifetime)?;
                Ok(claims)
            }
            (IssuerCheck::Introspection(asked), _, _) => {
                let claims = asked.ask(token, &self.issuer).await?;
                claims.times().check(ports.clock.wall(), leeway)?;
                Ok(claims)
            }
            (IssuerCheck::Keys(_), _, _) => Err(TokenRefusal::Malformed.into()),
        }
    }

    /// The status for operators.
    pub(super) fn status(&self) -> IssuerStatus {
        let (ready, failures, keys_age) = match &self.check {
            IssuerCheck::Keys(keeper) => keeper.status(),
            IssuerCheck::Introspection(introspector) => {
                let failures = introspector.failures();
                (failures == 0, failures, None)
            }
        };
        IssuerStatus {
            issuer: self.issuer.name.clone(),
            ready,
            is_introspected: self.introspector().is_some(),
            failures,
            keys_age,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}
