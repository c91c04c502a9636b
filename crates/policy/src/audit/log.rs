//! The audit in the log: one line for each call, on its refusal or its end.
//!
//! This is the default without a configured audit: the operator's trace of calls and their
//! principals, through the normal log. It is not the tamper-evident file; arguments and results
//! never appear in it.

use weir_core::failure::Failure;
use weir_core::port::{Action, Attempt, Audit, Decision, Ended, Entrance, Rejection};

/// An audit without records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Audit for Silent {
    fn entered(&self, _entrance: &Entrance<'_>) {}

    fn decided(&self, _attempt: &Attempt<'_>, _decision: Decision<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn ended(&self, _attempt: &Attempt<'_>, _ended: &Ended) {}

    fn operated(&self, _action: &Action<'_>) {}
}

/// Records through `tracing`, target `audit`. Refusals, and calls with an outcome other than
/// `complete`, are at `info`. Successes are at `debug`, since a line for each costs as much as the
/// call.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAudit;

impl Audit for LogAudit {
    fn entered(&self, entrance: &Entrance<'_>) {
        let Entrance {
            peer,
            endpoint,
            request,
            outcome,
        } = entrance;
        match outcome {
            Ok(principal) => {
                tracing::debug!(target: "audit", %principal, %peer, %endpoint, request, "let in")
            }
            Err(Rejection { reason, .. }) => {
                tracing::info!(target: "audit", reason, %peer, %endpoint, request, "not let in")
            }
        }
    }

    fn decided(&self, attempt: &Attempt<'_>, decision: Decision<'_>) -> Result<(), Failure> {
        let Attempt {
            principal, call, ..
        } = attempt;
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        match decision {
            Decision::Allowed(_) => {
                tracing::debug!(target: "audit", %principal, %endpoint, method, request, "allowed")
            }
            Decision::Refused(failure) => {
                let reason = failure.reason();
                tracing::info!(target: "audit", %principal, %endpoint, method, request, reason, "refused");
            }
        }
        Ok(())
    }

    fn ended(&self, attempt: &Attempt<'_>, ended: &Ended) {
        let Attempt {
            principal, call, ..
        } = attempt;
        let (endpoint, method, request) =
            (&call.endpoint, call.method_name(), call.request.as_str());
        let (outcome, took_ms) = (ended.outcome, ended.took.as_secs_f64() * 1e3);
        if outcome == "complete" {
            tracing::debug!(target: "audit", %principal, %endpoint, method, request, outcome, took_ms, "ended");
        } else {
            tracing::info!(target: "audit", %principal, %endpoint, method, request, outcome, took_ms, "ended");
        }
    }

    fn operated(&self, action: &Action<'_>) {
        let Action {
            who,
            what,
            detail,
            done,
        } = action;
        tracing::info!(target: "audit", who, what, detail, done, "operated");
    }
}
