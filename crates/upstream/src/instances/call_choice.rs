//! The instance for one attempt at a call: the one that has what the call continues, or the one
//! that its load and weight favour.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_core::upstream::{ClientSessionChange, OutboundCall};
use weir_core::{FailureKind, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;

use crate::instances::instance_choice;
use crate::instances::{InstanceRoute, RequiredInstance, ServerInstances};

/// An instance that was chosen for a call.
#[derive(Clone, Copy)]
pub(super) struct ChosenInstance {
    pub(super) index: usize,
    /// The client's session that is bound to the instance.
    session: Option<SessionKey>,
    /// False if the call may go to this instance only.
    may_move: bool,
}

impl ServerInstances {
    /// Chooses the instance for a call that comes back to the one it was at.
    pub(super) fn stay_at(&self, index: usize) -> Result<ChosenInstance, FailedAttempt> {
        self.admit(index)?;
        Ok(ChosenInstance {
            index,
            session: None,
            may_move: false,
        })
    }

    /// Reports if another instance may get the call after this refusal, because it did not run.
    pub(super) fn goes_on(
        &self,
        refusal: &FailedAttempt,
        outbound: &OutboundCall,
        chosen: ChosenInstance,
    ) -> bool {
        if !chosen.may_move {
            return false;
        }
        let Some(session) = chosen.session else {
            let proof = refusal.proof;
            return refusal.may_run_elsewhere()
                || matches!(proof, Some(ResendProof::NotSent | ResendProof::Unread));
        };
        // A session ends with its instance: a closed connection, or a server that is busy, is no
        // sign of that.
        let is_over = self.all.get(chosen.index).is_some_and(|instance| {
            instance.breaker.is_open() || !instance.http.has_client_session(outbound)
        });
        let moves = refusal.may_run_elsewhere() && is_over;
        if moves {
            self.move_session(session, chosen.index);
        }
        moves
    }

    /// Chooses an instance for a call. `is_first` allows one that was tried before.
    ///
    /// # Errors
    /// No instance may get the call.
    pub(super) fn choose(
        &self,
        outbound: &OutboundCall,
        route: &InstanceRoute,
        is_first: bool,
    ) -> Result<ChosenInstance, FailedAttempt> {
        match route.required() {
            RequiredInstance::At(index) => return self.stay_at(index),
            RequiredInstance::Removed => {
                let text =
                    "The instance of the upstream that began this is not configured any more";
                let failure = self.context.label.fail(FailureKind::Unavailable, text);
                return Err(FailedAttempt::new(failure).mark_not_attempted());
            }
            RequiredInstance::Any => {}
        }
        if let Some(session) = outbound.call.session
            && let Some(index) = self.instance_of(session, outbound)
        {
            return Ok(ChosenInstance {
                index,
                session: Some(session),
                may_move: true,
            });
        }
        let index = self.choose_any(route, is_first)?;
        let session = outbound
            .call
            .session
            .filter(|_| self.keeps_client_session(index, outbound));
        // Calls of one session at once are bound to one instance.
        let index = session.map_or(index, |session| self.affinity.get_or_bind(session, index));
        Ok(ChosenInstance {
            index,
            session,
            may_move: true,
        })
    }

    /// Returns the instance that the client's session is bound to. A session whose instance takes no
    /// calls is over, like one at a server that was restarted.
    fn instance_of(&self, session: SessionKey, outbound: &OutboundCall) -> Option<usize> {
        let index = self.affinity.get(session)?;
        if !self.keeps_client_session(index, outbound) {
            // The server turned out to need no session of the client's own.
            self.affinity.unbind(session, index);
            return None;
        }
        if self.all.get(index)?.breaker.is_open() {
            self.move_session(session, index);
            return None;
        }
        Some(index)
    }

    fn keeps_client_session(&self, index: usize, outbound: &OutboundCall) -> bool {
        self.all
            .get(index)
            .is_some_and(|one| one.http.keeps_client_session(outbound))
    }

    /// Ends the upstream session of a client's session at this instance: its next call opens one at
    /// another.
    fn move_session(&self, session: SessionKey, index: usize) {
        self.affinity.unbind(session, index);
        if let Some(instance) = self.all.get(index) {
            let ended = HashSet::from([session]);
            let change = ClientSessionChange::Ended;
            instance.http.forward_session_change(&ended, change);
        }
    }

    fn choose_any(&self, route: &InstanceRoute, is_first: bool) -> Result<usize, FailedAttempt> {
        let now = self.context.clock.now();
        let untried = |index: usize| !route.has_tried(index);
        let mut candidates: Vec<_> = self
            .all
            .iter()
            .enumerate()
            .filter(|(index, one)| one.takes_call() && (is_first || untried(*index)))
            .map(|(index, one)| one.as_candidate(index, now))
            .collect();
        // A call that is repeated prefers another instance.
        if candidates.iter().any(|one| untried(one.index)) {
            candidates.retain(|one| untried(one.index));
        }
        match instance_choice::choose(&candidates, || self.random()) {
            Some(chosen) => Ok(chosen.index),
            None => self.choose_last_resort(route),
        }
    }

    /// Chooses among the instances that take no calls, if one of them may be tried.
    fn choose_last_resort(&self, route: &InstanceRoute) -> Result<usize, FailedAttempt> {
        let mut least_wait = None;
        let begin = (self.random() * self.all.len() as f64) as usize;
        for step in 0..self.all.len() {
            let index = (begin + step) % self.all.len();
            let instance = &self.all[index];
            if instance.weight == 0 || route.has_tried(index) {
                continue;
            }
            match instance.breaker.admit_anyway(self.context.clock.now()) {
                Ok(()) => return Ok(index),
                Err(wait) => {
                    least_wait = Some(least_wait.map_or(wait, |least: Duration| least.min(wait)));
                }
            }
        }
        Err(self.unavailable(least_wait))
    }

    fn admit(&self, index: usize) -> Result<(), FailedAttempt> {
        let instance = self.all.get(index);
        let admitted = instance.map_or(Ok(()), |one| {
            one.breaker.admit_anyway(self.context.clock.now())
        });
        admitted.map_err(|wait| self.unavailable(Some(wait)))
    }

    pub(super) fn unavailable(&self, wait: Option<Duration>) -> FailedAttempt {
        let text = "The upstream has not been reachable for a while: try again later";
        let failure = self.context.label.fail(FailureKind::Unavailable, text);
        FailedAttempt::new(match wait {
            Some(wait) => failure.retry_after(wait),
            None => failure,
        })
        .mark_not_attempted()
    }

    /// Returns a random number from 0 up to, but without, 1.
    fn random(&self) -> f64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        // SplitMix64.
        let mut mixed = self
            .random
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
