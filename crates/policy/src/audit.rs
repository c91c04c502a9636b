//! Audit to the log: one record when a call is decided, one when it ends.
//!
//! This is the operator's trace of who called what, by the same way as the rest of the log. It is not yet the
//! tamper-evident file; arguments and results never appear in it.

use std::time::Duration;

use weir_core::call::Call;
use weir_core::port::Audit;
use weir_core::principal::Principal;

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Audit for Silent {
    fn decided(&self, _principal: &Principal, _call: &Call, _allowed: bool) {}

    fn ended(&self, _principal: &Principal, _call: &Call, _outcome: &'static str, _took: Duration) {}
}

/// Records through `tracing`, target `audit`: refusals, and calls that ended otherwise than well, at `info`; permissions and
/// calls that went well at `debug`: a line for each costs as much as the call.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogAudit;

impl Audit for LogAudit {
    fn decided(&self, principal: &Principal, call: &Call, allowed: bool) {
        if allowed {
            tracing::debug!(target: "audit", %principal, endpoint = %call.endpoint, method = %call.method.as_str(),
                request = call.request.as_str(), "allowed");
        } else {
            tracing::info!(target: "audit", %principal, endpoint = %call.endpoint, method = %call.method.as_str(),
                request = call.request.as_str(), "refused");
        }
    }

    fn ended(&self, principal: &Principal, call: &Call, outcome: &'static str, took: Duration) {
        let took_ms = took.as_secs_f64() * 1e3;
        if outcome == "complete" {
            tracing::debug!(target: "audit", %principal, endpoint = %call.endpoint, method = %call.method.as_str(),
                request = call.request.as_str(), outcome, took_ms, "ended");
        } else {
            tracing::info!(target: "audit", %principal, endpoint = %call.endpoint, method = %call.method.as_str(),
                request = call.request.as_str(), outcome, took_ms, "ended");
        }
    }
}
