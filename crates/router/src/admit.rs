//! The gate of a call, and the type that proves that a call passed it.
//!
//! [`Admitted`] has no other constructor than [`admit`], so a later step that asks for it cannot be
//! reached by a call that skipped the gate.

use std::sync::Arc;

use tokio::time::Instant;
use weir_core::failure::Failure;
use weir_core::port::{
    AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, GateDecision, Limiter,
    PermitWait,
};
use weir_core::token::ClientToken;

use crate::call_record::{CallRecord, RecordedCall};
use crate::call_subject::CallSubject;

/// A call that its principal may make now, of a tool that the principal sees. The router sends only
/// this type.
#[derive(Debug)]
pub(crate) struct Admitted {
    subject: Arc<CallSubject>,
    token: Option<ClientToken>,
    verdict: CallPermission,
    permit: CallPermit,
    admitted_at: Instant,
}

/// The parts of an [`Admitted`] call that begins; the proof ends here.
pub(crate) struct BegunCall {
    pub(crate) subject: Arc<CallSubject>,
    pub(crate) token: Option<ClientToken>,
    /// The time of the admission: that of the call's beginning, unless it waited for its permit.
    pub(crate) admitted_at: Instant,
    /// Its record, which keeps the permit as long as the call is in flight.
    pub(crate) record: CallRecord,
}

impl Admitted {
    /// Begins the call's record in the audit of `gates`.
    pub(crate) fn begin(self, gates: &Gates) -> BegunCall {
        let Self {
            subject,
            token,
            verdict,
            permit,
            admitted_at,
        } = self;
        let recorded = RecordedCall {
            subject: subject.clone(),
            verdict,
            permit,
        };
        BegunCall {
            subject,
            token,
            admitted_at,
            record: CallRecord::begin(gates.audit.clone(), recorded, admitted_at),
        }
    }
}

/// The parts that decide about calls, and the audit that records the decisions.
#[derive(Clone, Debug)]
pub struct Gates {
    /// Decides if the principal may make a call.
    pub authorizer: Arc<dyn Authorizer>,
    /// Decides how often a principal may call.
    pub limiter: Arc<dyn Limiter>,
    /// Records the decisions.
    pub audit: Arc<dyn AuditLog>,
}

/// The charge of a call at its rates and quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallCharge {
    /// It is charged.
    Due,
    /// It goes on with a call that was charged at its beginning.
    Paid,
}

/// Decides if the principal may make this call of an item that it sees, and if it may make it at
/// `now`. Waits its turn if the limiter queues it. Both decisions are recorded. Cancel safe: a
/// future that is dropped while it waits has taken no permit.
///
/// # Errors
///
/// A refusal by the authorizer; by the limiter, with the time to come again; or by the audit, if no
/// call may be made without a record.
pub(crate) async fn admit(
    gates: &Gates,
    subject: Arc<CallSubject>,
    token: Option<ClientToken>,
    charge: CallCharge,
    now: Instant,
) -> Result<Admitted, Failure> {
    let CallSubject {
        principal,
        call,
        item,
    } = &*subject;
    let attempt = CallAttempt {
        principal,
        call,
        item: Some(item),
    };
    let permit = || match charge {
        CallCharge::Due => gates.limiter.admit_call(principal, call, item),
        CallCharge::Paid => gates.limiter.admit_continuation(principal, item),
    };
    let decided = match gates.authorizer.may_call(principal, call, item) {
        Ok(verdict) => match permit() {
            Ok(PermitWait::Now(permit)) => Ok((verdict, permit, now)),
            Ok(PermitWait::Later(turn)) => {
                turn.await.map(|permit| (verdict, permit, Instant::now()))
            }
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
        Ok((verdict, permit, admitted_at)) => {
            gates
                .audit
                .record_decision(&attempt, GateDecision::Allowed(&verdict))?;
            Ok(Admitted {
                subject,
                token,
                verdict,
                permit,
                admitted_at,
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
