//! The audit in the log: one line for each call, on its refusal or its end.
//!
//! This is the default without a configured audit: the operator's trace of calls and their
//! principals, through the normal log. It is not the tamper-evident file; arguments and results
//! never appear in it.

use weir_core::CallOutcome;
use weir_core::failure::Failure;
use weir_core::log_text::sanitize_text;
use weir_core::port::{
    AuditLog, CallAttempt, EndedCall, GateDecision, OperatorAction, SenderEntrance, SenderRejection,
};

/// The longest part of the name of a tool, a prompt or a resource, in characters.
const MAX_NAME_CHARS: usize = 128;

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
        // Not computed unless the level is on.
        let (item, upstream) = (|| item_name(attempt), || upstream_of(attempt));
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        match decision {
            GateDecision::Allowed(_) => {
                tracing::debug!(target: "audit", %principal, %endpoint, method, item = item(), upstream = upstream(), request, "call allowed")
            }
            GateDecision::Refused(failure) => {
                let reason = failure.reason();
                tracing::info!(target: "audit", %principal, %endpoint, method, item = item(), upstream = upstream(), request, reason, "call refused");
            }
        }
        Ok(())
    }

    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall) {
        let CallAttempt {
            principal, call, ..
        } = attempt;
        // Not computed unless the level is on.
        let (item, upstream) = (|| item_name(attempt), || upstream_of(attempt));
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        let (outcome, took_ms) = (ended.outcome.as_str(), ended.took.as_secs_f64() * 1e3);
        if ended.outcome == CallOutcome::Complete {
            tracing::debug!(target: "audit", %principal, %endpoint, method, item = item(), upstream = upstream(), request, outcome, took_ms, "call ended");
        } else {
            tracing::info!(target: "audit", %principal, %endpoint, method, item = item(), upstream = upstream(), request, outcome, took_ms, "call ended");
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

/// Returns the name of the tool, the prompt or the resource as the client sees it; of one that the
/// client does not see, the name in its request.
fn item_name(attempt: &CallAttempt<'_>) -> Option<String> {
    let requested = || attempt.call.params.name().ok().flatten();
    match (attempt.item, &attempt.call.extension) {
        (Some(item), None) => Some(sanitize_text(&item.exposed, MAX_NAME_CHARS)),
        (None, None) => requested().map(|name| sanitize_text(&name, MAX_NAME_CHARS)),
        (_, Some(_)) => None,
    }
}

/// Returns the upstream of a call, if it is known.
fn upstream_of<'a>(attempt: &CallAttempt<'a>) -> Option<impl tracing::Value + use<'a>> {
    let item = attempt.item?;
    Some(tracing::field::display(&item.tool.upstream))
}
