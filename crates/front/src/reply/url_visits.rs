//! The visits of URLs that a server requires before it serves the call of a modern client
//! (`-32042`): the client's answers, and the repeats of the call until the visits are complete.
//!
//! The user's consent is not yet the visit. A server goes on refusing the call until the user is
//! done; meanwhile weir repeats the call instead of asking again. It repeats at once when the
//! server reports the visit as complete, and otherwise after growing delays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use weir_core::port::BoxFuture;
use weir_core::{
    Authenticated, Call, CallResumption, Failure, FailureKind, Reply, ReplyEnd, UpstreamId,
};
use weir_era::request_state::VisitedUrl;
use weir_era::server_questions::{UrlElicitation, required_visits};
use weir_layers::state::FrontState;
use weir_router::CallRepeats;
use weir_wire::{ErrorObject, error_code};

use crate::reply::client_asker;

/// The wait for a visit to be reported as complete before the client is asked for another one. A
/// server may name a new URL in each of its refusals.
const WAIT_BEFORE_NEW_VISIT: Duration = Duration::from_secs(5);

/// The end of a call whose user declined a visit.
pub(crate) fn end_of_declined(call: &Call) -> ReplyEnd {
    let text = "the user did not agree to visit the URL";
    client_asker::end_of_declined(call, &ErrorObject::new(error_code::INTERNAL_ERROR, text))
}

/// The repeats of a call whose client agreed to visits.
pub(crate) struct UrlVisitRepeats {
    shared: Arc<FrontState>,
    sender: Authenticated<()>,
    call: Arc<Call>,
    accepted: Arc<[VisitedUrl]>,
    repeats: CallRepeats,
    /// Set once a report of completion caused a repeat: it causes no second one.
    is_complete: Arc<AtomicBool>,
    /// True once the client's next question waited for such a report.
    has_waited: bool,
}

impl UrlVisitRepeats {
    /// The repeats of `call` after the user agreed to `accepted`.
    pub(crate) fn new(
        shared: Arc<FrontState>,
        sender: &Authenticated<()>,
        call: &Arc<Call>,
        accepted: &[VisitedUrl],
    ) -> Box<Self> {
        Box::new(Self {
            shared,
            sender: sender.for_payload(()),
            call: call.clone(),
            accepted: accepted.into(),
            repeats: CallRepeats::default(),
            is_complete: Arc::default(),
            has_waited: false,
        })
    }

    /// Takes the end of a call with this deadline: returns the next call if the server still waits
    /// for the accepted visits.
    ///
    /// # Errors
    ///
    /// The end for the client.
    pub(crate) fn next_call(
        &mut self,
        end: ReplyEnd,
        deadline: Option<tokio::time::Instant>,
    ) -> Result<BoxFuture<'static, Reply>, ReplyEnd> {
        let ReplyEnd::Failed(failure) = &end else {
            return Err(end);
        };
        let Some((_, visits)) = required_visits(failure).filter(|(_, visits)| !visits.is_empty())
        else {
            return Err(end);
        };
        let is_accepted = |visit: &UrlElicitation| {
            let visit = VisitedUrl::of(visit);
            self.accepted.iter().any(|known| known.is_same(&visit))
        };
        if visits.iter().all(is_accepted) {
            return match self.repeats.next_delay(deadline) {
                Some(delay) => {
                    let upstream = failure.upstream().cloned();
                    Ok(self.repeat_after(upstream, delay, None))
                }
                None => Err(still_waiting().into()),
            };
        }
        if self.has_waited || self.is_complete() || self.accepted.is_empty() {
            return Err(end);
        }
        self.has_waited = true;
        let upstream = failure.upstream().cloned();
        Ok(self.repeat_after(upstream, WAIT_BEFORE_NEW_VISIT, Some(end)))
    }

    fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// Repeats the call after this delay, or as soon as a visit is reported as complete. With
    /// `otherwise`, there is no repeat after the delay: the call has this end.
    fn repeat_after(
        &mut self,
        upstream: Option<UpstreamId>,
        delay: Duration,
        otherwise: Option<ReplyEnd>,
    ) -> BoxFuture<'static, Reply> {
        let (shared, accepted) = (self.shared.clone(), self.accepted.clone());
        let call = Arc::new(Call {
            resume: Some(CallResumption::Again),
            is_continuation: true,
            trace: self.call.trace.clone().next_hop(&*shared.ports.random),
            ..(*self.call).clone()
        });
        let call = self.sender.for_payload(call);
        let (is_complete, may_complete) = (self.is_complete.clone(), !self.is_complete());
        Box::pin(async move {
            let is_accepted = |name: &str| accepted.iter().any(|visit| visit.is_named(name));
            let completed = async {
                match &upstream {
                    Some(upstream) if may_complete => {
                        let completed = shared.ports.notifier.completed_elicitations(upstream);
                        completed.wait_for(is_accepted).await;
                        is_complete.store(true, Ordering::Relaxed);
                    }
                    _ => std::future::pending().await,
                }
            };
            match (timeout(delay, completed).await, otherwise) {
                (Err(_), Some(end)) => Reply::ended(end),
                _ => shared.router.call(call).await,
            }
        })
    }
}

/// The failure of a call whose visits took longer than its time.
fn still_waiting() -> Failure {
    let text = "The server still waits for the visit of its URL: finish it there, then call again";
    Failure::new(FailureKind::TimedOut, text)
}
