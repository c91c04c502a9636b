//! The gate of authentication, and the type that proves that a request passed it.
//!
//! [`Authenticated`] has no other constructor than [`authenticate`], so a later step that asks for
//! it cannot be reached by a request that skipped the gate.

use crate::failure::Failure;
use crate::port::decisions::{Evidence, Verifier};
use crate::principal::Principal;
use crate::token::ClientToken;

/// A payload of a known sender.
#[derive(Debug)]
pub struct Authenticated<T> {
    principal: Principal,
    token: Option<ClientToken>,
    inner: T,
}

/// The parts of an [`Authenticated`] payload; the proof ends here.
#[derive(Debug)]
pub struct AuthenticatedParts<T> {
    /// The sender.
    pub principal: Principal,
    /// The sender's token, if it was kept.
    pub token: Option<ClientToken>,
    /// The payload.
    pub inner: T,
}

impl<T> Authenticated<T> {
    /// The sender.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The sender's token, if it was kept.
    pub fn token(&self) -> Option<&ClientToken> {
        self.token.as_ref()
    }

    /// The payload.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Swaps the payload, keeping the proof: a decoded call comes from the same sender as its
    /// bytes.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Authenticated<U> {
        Authenticated {
            principal: self.principal,
            token: self.token,
            inner: change(self.inner),
        }
    }

    /// The proof of the same sender for another payload: a call that was read from the request, or
    /// the part of a stream that outlives it.
    pub fn for_payload<U>(&self, inner: U) -> Authenticated<U> {
        Authenticated {
            principal: self.principal.clone(),
            token: self.token.clone(),
            inner,
        }
    }

    /// Keeps the token by which the sender was authenticated, for upstreams that weir calls in the
    /// sender's name. `evidence` is the verified evidence. A token that the verifier did not use is
    /// not kept.
    #[must_use]
    pub fn with_verified_token(mut self, evidence: &Evidence<'_>) -> Self {
        let verified = self
            .principal
            .subject()
            .is_some_and(|subject| subject.is_by_token);
        self.token = evidence.bearer.filter(|_| verified).map(ClientToken::mint);
        self
    }

    /// Splits into sender, token and payload; the proof ends here.
    pub fn into_parts(self) -> AuthenticatedParts<T> {
        let Self {
            principal,
            token,
            inner,
        } = self;
        AuthenticatedParts {
            principal,
            token,
            inner,
        }
    }
}

/// Authenticates the sender of a request with `verifier`.
///
/// # Errors
///
/// The verifier's failure, unchanged: there is no path from an error to a default identity.
pub async fn authenticate(
    verifier: &dyn Verifier,
    evidence: &Evidence<'_>,
) -> Result<Authenticated<()>, Failure> {
    let identity = match verifier.verify_at_once(evidence) {
        Some(known) => known?,
        None => verifier.verify(evidence).await?,
    };
    Ok(Authenticated {
        principal: Principal::mint(identity),
        token: None,
        inner: (),
    })
}
