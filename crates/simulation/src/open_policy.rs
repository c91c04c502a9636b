//! A verifier and an audit in their smallest form: a token is the name of its bearer, and nothing is
//! recorded.

use weir_core::failure::AuthenticationDenial;
use weir_core::port::{
    AuditLog, BoxFuture, CallAttempt, EndedCall, Evidence, GateDecision, OperatorAction,
    SenderEntrance, Verifier,
};
use weir_core::principal::VerifiedIdentity;
use weir_core::{Failure, FailureKind};

/// The issuer of all principals.
pub(crate) const ISSUER: &str = "world";

/// Takes a token as the name of its bearer.
#[derive(Debug)]
pub(crate) struct NameVerifier;

impl Verifier for NameVerifier {
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>> {
        let name = evidence.bearer.map(|bearer| bearer.expose().to_owned());
        Box::pin(async move {
            name.map(|name| VerifiedIdentity::subject(ISSUER, &*name))
                .ok_or_else(|| {
                    let missing = FailureKind::Unauthenticated(AuthenticationDenial::Missing);
                    Failure::new(missing, "no token")
                })
        })
    }
}

/// Nothing is recorded.
#[derive(Debug)]
pub(crate) struct NoAudit;

impl AuditLog for NoAudit {
    fn record_entrance(&self, _entrance: &SenderEntrance<'_>) {}

    fn record_decision(
        &self,
        _attempt: &CallAttempt<'_>,
        _decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        Ok(())
    }

    fn record_end(&self, _attempt: &CallAttempt<'_>, _ended: &EndedCall) {}

    fn record_operator_action(&self, _action: &OperatorAction<'_>) {}
}
