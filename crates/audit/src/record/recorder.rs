//! Core's audit port: turns its calls into events for the keeper.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::{
    AuditLog, CallAttempt, Clock, EndedCall, GateDecision, OperatorAction, SenderEntrance,
    SenderRejection,
};

use crate::record::event::{
    AdmissionEvent, AuditEvent, AuditedEnding, CallEvent, EventContent, LOGIN,
};
use crate::record::recorded_admissions::{AdmissionKey, RecordedAdmissions};
use crate::record::recorded_arguments::{ArgumentRecording, RecordedArguments};
use crate::record::refusal_counter::RefusalCounter;

/// Arguments up to this many bytes wait for their record unchanged, so that their digest costs the
/// request no time. It bounds the memory of a full queue.
const RAW_ARGUMENTS_MAX: usize = 2048;
/// The most bytes of a client's description of itself (a name and a version); a longer one is not
/// read.
const CLIENT_INFO: usize = 1024;
/// The `Retry-After` for a client that was refused for want of a record.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Keeps events. Its methods do not block.
pub(crate) trait EventKeeper: Send + Sync {
    /// Reserves room for the event of a call that is allowed now and ends later.
    ///
    /// # Errors
    /// There is no room, and the call must not be made without a record.
    fn reserve(&self) -> Result<(), RecordNotKept>;

    /// Reports if [`Self::reserve`] would succeed now.
    fn can_reserve(&self) -> bool;

    /// Keeps the event of a call with reserved room. An event that cannot be kept is counted.
    fn keep_reserved(&self, event: AuditEvent);

    /// Keeps an event.
    ///
    /// # Errors
    /// It is not kept (and counted as such), and the action must not be done without a record.
    fn keep(&self, event: AuditEvent) -> Result<(), RecordNotKept>;
}

/// The error of a [`EventKeeper`] that cannot keep an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit record cannot be kept")]
pub(crate) struct RecordNotKept;

/// Records through a [`EventKeeper`].
pub(crate) struct AuditRecorder {
    clock: Arc<dyn Clock>,
    keeper: Arc<dyn EventKeeper>,
    shape: ArcSwap<ArgumentRecording>,
    seen: RecordedAdmissions,
    refusals: Arc<RefusalCounter>,
}

impl AuditRecorder {
    /// Records into `keeper`; `refusals` counts the refusals without a record of their own.
    #[must_use]
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        keeper: Arc<dyn EventKeeper>,
        shape: ArgumentRecording,
        refusals: Arc<RefusalCounter>,
    ) -> Self {
        Self {
            clock,
            keeper,
            shape: ArcSwap::from_pointee(shape),
            seen: RecordedAdmissions::new(),
            refusals,
        }
    }

    /// Changes the form of arguments in records, from the next call on.
    pub(crate) fn set_argument_recording(&self, shape: ArgumentRecording) {
        self.shape.store(Arc::new(shape));
    }

    fn event(&self, what: EventContent) -> AuditEvent {
        AuditEvent {
            time: self.clock.wall(),
            content: what,
        }
    }

    fn call(&self, attempt: &CallAttempt<'_>, end: AuditedEnding) -> AuditEvent {
        let CallAttempt {
            principal,
            call,
            item,
        } = *attempt;
        let shape = self.shape.load_full();
        let given = call.params.arguments().ok().flatten();
        let arguments = given.map_or(RecordedArguments::Absent, |raw| {
            RecordedArguments::keep(&raw, &shape, RAW_ARGUMENTS_MAX)
        });
        let requested_name = || {
            call.params
                .name()
                .ok()
                .flatten()
                .map(|name| name.chars().take(CLIENT_INFO).collect::<String>().into())
        };
        self.event(EventContent::Call(Box::new(CallEvent {
            principal: principal.clone(),
            endpoint: call.endpoint.clone(),
            method: match &call.extension {
                None => Cow::Borrowed(call.method.as_str()),
                Some(name) => Cow::Owned(String::from(&**name)),
            },
            tool: match call.extension {
                None => item.map_or_else(requested_name, |item| Some(item.exposed.clone())),
                Some(_) => None,
            },
            native: item.map(|item| (item.tool.upstream.clone(), item.tool.native.clone())),
            arguments,
            shape,
            client_info: client_info(call),
            request: call.request,
            trace: call.trace.parent.clone(),
            end,
        })))
    }
}

impl AuditLog for AuditRecorder {
    fn record_entrance(&self, entrance: &SenderEntrance<'_>) {
        let SenderEntrance {
            peer,
            endpoint,
            request,
            outcome,
        } = *entrance;
        let (principal, refused) = match outcome {
            Ok(principal) => (Some(principal), None),
            Err(SenderRejection { reason, principal }) => (principal, Some(reason)),
        };
        let identified = principal.filter(|principal| !principal.is_anonymous());
        let kept = match (identified, refused) {
            (Some(principal), None) => {
                let client = principal
                    .subject()
                    .and_then(|subject| subject.client.clone());
                self.seen.is_first(
                    AdmissionKey(*principal.digest(), client),
                    self.clock.monotonic(),
                )
            }
            (Some(principal), Some(_)) => self.refusals.admit_denial(principal),
            (None, Some(reason)) => {
                self.refusals.count(peer, endpoint, reason);
                false
            }
            // The anonymous principal has no identity to remember.
            (None, None) => false,
        };
        if !kept {
            return;
        }
        let principal = identified.cloned();
        let entry = AdmissionEvent {
            endpoint: endpoint.clone(),
            peer,
            request: request.into(),
            principal,
            refused,
        };
        // An admitted request has had no effect yet; its calls are refused if they cannot be
        // recorded.
        let _ = self
            .keeper
            .keep(self.event(EventContent::Entry(Box::new(entry))));
    }

    fn record_decision(
        &self,
        attempt: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        let kept = match decision {
            GateDecision::Allowed(_) => self.keeper.reserve(),
            GateDecision::Refused(_) if !self.refusals.admit_denial(attempt.principal) => Ok(()),
            GateDecision::Refused(failure) => {
                let (because, rule) = (failure.message().to_owned(), failure.rule().cloned());
                let end = AuditedEnding::Refused {
                    reason: failure.reason(),
                    because,
                    rule,
                };
                self.keeper.keep(self.call(attempt, end))
            }
        };
        kept.map_err(|error| {
            Failure::new(
                FailureKind::Overloaded,
                "No record of this call can be kept now, and none is made without one",
            )
            .retry_after(RETRY_AFTER)
            .because(error)
        })
    }

    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall) {
        let EndedCall {
            outcome,
            took,
            bytes,
            changes,
            revision,
            ref verdict,
        } = *ended;
        let verdict = verdict.clone();
        self.keeper.keep_reserved(self.call(
            attempt,
            AuditedEnding::Ended {
                outcome,
                took,
                bytes,
                changes,
                revision,
                verdict,
            },
        ));
    }

    fn can_record(&self) -> bool {
        self.keeper.can_reserve()
    }

    fn record_operator_action(&self, action: &OperatorAction<'_>) {
        let OperatorAction {
            actor: who,
            action: what,
            detail,
            took_effect: done,
        } = *action;
        if what == LOGIN && !done && !self.refusals.admit_login() {
            return;
        }
        let what = EventContent::Admin {
            who: who.to_owned(),
            what: what.to_owned(),
            detail: detail.to_owned(),
            done,
        };
        let _ = self.keeper.keep(self.event(what));
    }
}

impl fmt::Debug for AuditRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditRecorder")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// The description that a modern client sends of itself with the call. A copy, so that the
/// request's whole body does not wait with it.
fn client_info(call: &weir_core::Call) -> Option<Bytes> {
    let info = call
        .params
        .meta()
        .ok()
        .flatten()?
        .client_info()
        .ok()
        .flatten()?;
    (info.len() <= CLIENT_INFO).then(|| Bytes::copy_from_slice(&info))
}

#[cfg(test)]
mod tests;
