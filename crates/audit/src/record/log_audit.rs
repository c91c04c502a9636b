//! The audit in the log: one line for each call, on its refusal or its end.
//!
//! This is the default without a configured audit: the operator's trace of calls and their
//! principals, through the normal log. It is not the tamper-evident file; arguments and results
//! never appear in it.

use weir_core::CallOutcome;
use weir_core::failure::Failure;
use weir_core::port::{
    AuditLog, CallAttempt, EndedCall, GateDecision, OperatorAction, SenderEntrance, SenderRejection,
};

/// Records through `tracing`, target `audit`. Refusals, and calls with an outcome other than
/// `complete`, are at `info`. Successes are at `debug`, since a line for each costs as much as the
/// call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogAudit;

impl AuditLog for LogAudit {
    fn record_entrance(&self, entrance: &SenderEntrance<'_>) {
        let SenderEntrance {
            peer,
            endpoint,
            request,
            outcome,
        } = entrance;
        match outcome {
            Ok(principal) => {
                tracing::debug!(target: "audit", %principal, %peer, %endpoint, request, "request admitted")
            }
            Err(SenderRejection { reason, .. }) => {
                tracing::info!(target: "audit", reason, %peer, %endpoint, request, "request rejected")
            }
        }
    }

    fn record_decision(
        &self,
        attempt: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        let CallAttempt {
            principal, call, ..
        } = attempt;
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        match decision {
            GateDecision::Allowed(_) => {
                tracing::debug!(target: "audit", %principal, %endpoint, method, request, "call allowed")
            }
            GateDecision::Refused(failure) => {
                let reason = failure.reason();
                tracing::info!(target: "audit", %principal, %endpoint, method, request, reason, "call refused");
            }
        }
        Ok(())
    }

    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall) {
        let CallAttempt {
            principal, call, ..
        } = attempt;
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        let (outcome, took_ms) = (ended.outcome.as_str(), ended.took.as_secs_f64() * 1e3);
        if ended.outcome == CallOutcome::Complete {
            tracing::debug!(target: "audit", %principal, %endpoint, method, request, outcome, took_ms, "call ended");
        } else {
            tracing::info!(target: "audit", %principal, %endpoint, method, request, outcome, took_ms, "call ended");
        }
    }

    fn record_operator_action(&self, action: &OperatorAction<'_>) {
        let OperatorAction {
            actor: who,
            action: what,
            detail,
            took_effect: done,
        } = action;
        tracing::info!(target: "audit", who, what, detail, done, "admin action");
    }
}
