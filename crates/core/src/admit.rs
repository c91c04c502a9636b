//! The two gates of a request, and the types that prove it went through them.
//!
//! [`Authenticated`] and [`Admitted`] have no other constructor than the two functions here, so a later step that asks
//! for one of them cannot be reached by a request that skipped the gate.

use crate::call::Call;
use crate::failure::Failure;
use crate::port::{Authorizer, Evidence, Limiter, Verifier};
use crate::principal::Principal;

/// Something whose sender is known.
#[derive(Debug)]
pub struct Authenticated<T> {
    principal: Principal,
    inner: T,
}

impl<T> Authenticated<T> {
    /// Who sent it.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What was sent.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Swaps the payload, keeping the proof: a decoded call comes from the same sender as its bytes.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Authenticated<U> {
        Authenticated { principal: self.principal, inner: change(self.inner) }
    }

    /// The sender's proof alone, for a further message of the same request (an item of a batch).
    pub fn with<U>(&self, inner: U) -> Authenticated<U> {
        Authenticated { principal: self.principal.clone(), inner }
    }

    /// Gives both parts; the proof ends here.
    pub fn into_parts(self) -> (Principal, T) {
        (self.principal, self.inner)
    }
}

/// A call that its principal may make now. The router accepts nothing else.
#[derive(Debug)]
pub struct Admitted<T> {
    principal: Principal,
    inner: T,
}

impl<T> Admitted<T> {
    /// Who makes the call.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The call.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Gives both parts.
    pub fn into_parts(self) -> (Principal, T) {
        (self.principal, self.inner)
    }
}

/// Asks `verifier` who sent `inner`.
///
/// # Errors
/// The verifier's failure, unchanged: there is no path from an error to a default identity.
pub async fn authenticate<T>(
    verifier: &dyn Verifier,
    evidence: &Evidence<'_>,
    inner: T,
) -> Result<Authenticated<T>, Failure> {
    let identity = verifier.verify(evidence).await?;
    Ok(Authenticated { principal: Principal::mint(&identity), inner })
}

/// Asks whether the principal may make this call, and whether it may make it now.
///
/// # Errors
/// A refusal by `authorizer` (looks like an unknown tool) or by `limiter` (says when to come again).
pub fn admit(
    authorizer: &dyn Authorizer,
    limiter: &dyn Limiter,
    call: Authenticated<Call>,
) -> Result<Admitted<Call>, Failure> {
    authorizer.may_call(&call.principal, &call.inner)?;
    limiter.take(&call.principal, &call.inner)?;
    Ok(Admitted { principal: call.principal, inner: call.inner })
}
