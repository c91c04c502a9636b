//! The two gates of a request, and the types that prove that a request passed them.
//!
//! [`Authenticated`] and [`Admitted`] have no other constructor than the two functions here, so a
//! later step that asks for one of them cannot be reached by a request that skipped the gate.

use std::fmt;
use std::sync::Arc;

use crate::call::Call;
use crate::catalog::view::CatalogItem;
use crate::failure::Failure;
use crate::port::decisions::{
    AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, Evidence, GateDecision, Limiter,
    PermitWait, Verifier,
};
use crate::principal::Principal;
use crate::token::ClientToken;

/// A payload of a known sender.
#[derive(Debug)]
pub struct Authenticated<T> {
    principal: Principal,
    token: Option<ClientToken>,
    inner: T,
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

    /// The sender's proof alone, for a further message of the same request (an item of a batch).
    pub fn for_item<U>(&self, inner: U) -> Authenticated<U> {
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

    /// Splits into sender and payload; the proof ends here.
    pub fn into_parts(self) -> (Principal, T) {
        (self.principal, self.inner)
    }
}

/// A call that its principal may make now, of a tool that the principal sees. The router accepts
/// only this type.
#[derive(Debug)]
pub struct Admitted {
    principal: Principal,
    token: Option<ClientToken>,
    call: Arc<Call>,
    item: CatalogItem,
    verdict: CallPermission,
    permit: CallPermit,
}

/// The parts of an [`Admitted`] call; the proof ends here.
#[derive(Debug)]
pub(crate) struct AdmittedParts {
    pub(crate) principal: Principal,
    pub(crate) token: Option<ClientToken>,
    pub(crate) call: Arc<Call>,
    pub(crate) item: CatalogItem,
    pub(crate) verdict: CallPermission,
    /// Kept as long as the call is in flight.
    pub(crate) permit: CallPermit,
}

impl Admitted {
    /// The principal that makes the call.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The call.
    pub fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// The tool that is called.
    pub fn item(&self) -> &CatalogItem {
        &self.item
    }

    pub(crate) fn into_parts(self) -> AdmittedParts {
        let Self {
            principal,
            token,
            call,
            item,
            verdict,
            permit,
        } = self;
        AdmittedParts {
            principal,
            token,
            call,
            item,
            verdict,
            permit,
        }
    }
}

/// The parts that decide about calls, and the audit that records the decisions.
#[derive(Clone)]
pub struct Gates {
    /// Decides if the principal may make a call.
    pub authorizer: Arc<dyn Authorizer>,
    /// Decides how often a principal may call.
    pub limiter: Arc<dyn Limiter>,
    /// Records the decisions.
    pub audit: Arc<dyn AuditLog>,
}

/// Authenticates the sender of `inner` with `verifier`.
///
/// # Errors
///
/// The verifier's failure, unchanged: there is no path from an error to a default identity.
pub async fn authenticate<T>(
    verifier: &dyn Verifier,
    evidence: &Evidence<'_>,
    inner: T,
) -> Result<Authenticated<T>, Failure> {
    let identity = verifier.verify(evidence).await?;
    Ok(Authenticated {
        principal: Principal::mint(identity),
        token: None,
        inner,
    })
}

/// Decides if the principal may make this call of `item`, an item that it sees, and if it may make
/// it now. Waits its turn if the limiter queues it. Both decisions are recorded. Cancel safe: a
/// future that is dropped while it waits has taken no permit.
///
/// # Errors
///
/// A refusal by the authorizer; by the limiter, with the time to come again; or by the audit, if no
/// call may be made without a record.
pub async fn admit(
    gates: &Gates,
    call: Authenticated<Arc<Call>>,
    item: CatalogItem,
) -> Result<Admitted, Failure> {
    let Authenticated {
        principal,
        token,
        inner: call,
    } = call;
    let attempt = CallAttempt {
        principal: &principal,
        call: &call,
        item: Some(&item),
    };
    let decided = match gates.authorizer.may_call(&principal, &call, &item) {
        Ok(verdict) => match gates.limiter.admit_call(&principal, &call, &item) {
            Ok(PermitWait::Now(permit)) => Ok((verdict, permit)),
            Ok(PermitWait::Later(turn)) => turn.await.map(|permit| (verdict, permit)),
            Err(failure) => Err(failure),
        },
        Err(failure) => Err(failure),
    };
    if decided
        .as_ref()
        .is_err_and(|failure| failure.limit_reached().is_some())
    {
        principal.meter().limited();
    }
    match decided {
        Ok((verdict, permit)) => {
            gates
                .audit
                .record_decision(&attempt, GateDecision::Allowed(&verdict))?;
            Ok(Admitted {
                principal,
                token,
                call,
                item,
                verdict,
                permit,
            })
        }
        Err(failure) => {
            gates
                .audit
                .record_decision(&attempt, GateDecision::Refused(&failure))?;
            Err(failure)
        }
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gates")
    }
}
