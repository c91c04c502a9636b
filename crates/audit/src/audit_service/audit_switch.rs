//! The audit port of a running weir, which stays the same while the audit is switched on and off.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use weir_core::failure::Failure;
use weir_core::port::{
    AuditLog, CallAttempt, EndedCall, GateDecision, OperatorAction, SenderEntrance,
};

use crate::record::{AuditRecorder, LogAudit};

/// The audit port: the recorder while the audit is on, the log while it is off.
#[derive(Debug, Default)]
pub(super) struct AuditSwitch(ArcSwapOption<AuditRecorder>);

impl AuditSwitch {
    /// Switches the audit on with this recorder, or off.
    pub(super) fn set(&self, recorder: Option<Arc<AuditRecorder>>) {
        self.0.store(recorder);
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.load().is_some()
    }

    fn with<T>(&self, record: impl FnOnce(&dyn AuditLog) -> T) -> T {
        match &*self.0.load() {
            Some(recorder) => record(&**recorder),
            None => record(&LogAudit),
        }
    }
}

impl AuditLog for AuditSwitch {
    fn record_entrance(&self, entrance: &SenderEntrance<'_>) {
        self.with(|audit| audit.record_entrance(entrance));
    }

    fn record_decision(
        &self,
        attempt: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        self.with(|audit| audit.record_decision(attempt, decision))
    }

    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall) {
        self.with(|audit| audit.record_end(attempt, ended));
    }

    fn can_record(&self) -> bool {
        self.with(|audit| audit.can_record())
    }

    fn record_operator_action(&self, action: &OperatorAction<'_>) {
        self.with(|audit| audit.record_operator_action(action));
    }
}
