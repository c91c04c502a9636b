//! The instances of a server that has several URLs: the choice of one for each call, watch and
//! session.
//!
//! A call goes to the instance that has what it continues: a task, a `requestState`, the session of
//! its client. Any other call goes to one of the instances with a closed circuit breaker, by power
//! of two choices. It goes on to another instance only if it certainly did not run.

mod call_route;
mod instance_breaker;
mod instance_choice;
mod instance_load;
pub(crate) mod instance_name;
mod instance_reply;
mod instance_watch;
mod server_instance;
mod session_affinity;
mod session_transfer;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::{ClientSessionChange, InstanceHealth, OutboundCall, TaskNotifications};
use weir_core::{FailureKind, SessionKey};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

pub(crate) use call_route::{CallRoute, RequiredInstance};
use instance_watch::WatchedInstance;
pub(crate) use server_instance::ServerInstance;
use session_affinity::SessionAffinity;

/// The instances of one server, in the order of the config.
#[derive(Debug)]
pub(crate) struct ServerInstances {
    site: Arc<UpstreamContext>,
    all: Box<[Arc<ServerInstance>]>,
    affinity: SessionAffinity,
    watched: WatchedInstance,
    /// The state of the random numbers for the choice, which need not be unguessable.
    random: AtomicU64,
}

/// An instance that was chosen for a call.
#[derive(Clone, Copy)]
struct ChosenInstance {
    index: usize,
    /// The client's session that is bound to the instance.
    session: Option<SessionKey>,
    /// False if the call may go to this instance only.
    may_move: bool,
}

impl ServerInstances {
    /// Puts instances together; at least one.
    pub(crate) fn new(site: Arc<UpstreamContext>, all: Vec<Arc<ServerInstance>>) -> Self {
        let mut seed = [0; 8];
        site.clock.random().fill(&mut seed);
        Self {
            affinity: SessionAffinity::new(site.bounds.sessions.saturating_mul(all.len())),
            watched: WatchedInstance::of(&all),
            random: AtomicU64::new(u64::from_be_bytes(seed)),
            all: all.into(),
            site,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ServerInstance>> {
        self.all.iter()
    }

    /// Returns the position of the instance with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|one| one.name.is(name))
    }

    /// Returns the instance of a route: that of its last attempt, or the required one.
    pub(crate) fn of_route(&self, route: &CallRoute) -> Option<&Arc<ServerInstance>> {
        let required = match route.required() {
            RequiredInstance::At(index) => Some(index),
            RequiredInstance::Any | RequiredInstance::Removed => None,
        };
        self.all.get(route.current().or(required)?)
    }

    /// Returns the instance with the lists of the upstream.
    pub(crate) fn watched(&self) -> Option<&Arc<ServerInstance>> {
        self.all.get(self.watched.index())
    }

    /// Makes attempts at a call, at one instance after another, until one of them may have run.
    /// `again` is the proof of the attempt before.
    pub(crate) async fn call(
        &self,
        outbound: &OutboundCall,
        again: Option<ResendProof>,
        route: &CallRoute,
    ) -> Result<Reply, FailedAttempt> {
        let stays = matches!(
            again,
            Some(ResendProof::HeaderMismatch | ResendProof::Version)
        );
        let mut chosen = match route.current().filter(|_| stays) {
            Some(index) => self.stay_at(index)?,
            None => self.choose(outbound, route, true)?,
        };
        loop {
            let Some(instance) = self.all.get(chosen.index) else {
                return Err(self.unavailable(None));
            };
            route.enter(chosen.index);
            let call = instance.begin_call();
            let refusal = match instance.http.call(outbound, again).await {
                Ok(reply) => {
                    return Ok(instance_reply::wrap(reply, call, instance.name.clone()).await);
                }
                Err(refusal) => refusal,
            };
            call.record_refusal(&refusal);
            if !self.goes_on(&refusal, chosen) {
                return Err(refusal);
            }
            let Ok(next) = self.choose(outbound, route, false) else {
                return Err(refusal);
            };
            let labels = [
                self.site.label.attribute(),
                KeyValue::new("reason", "other_url"),
            ];
            instruments().upstream_retries.add(1, &labels);
            chosen = next;
        }
    }

    /// Chooses the instance for a call that comes back to the one it was at.
    fn stay_at(&self, index: usize) -> Result<ChosenInstance, FailedAttempt> {
        self.admit(index)?;
        Ok(ChosenInstance {
            index,
            session: None,
            may_move: false,
        })
    }

    /// Reports if another instance may get the call after this refusal, because it did not run.
    fn goes_on(&self, refusal: &FailedAttempt, chosen: ChosenInstance) -> bool {
        if !chosen.may_move {
            return false;
        }
        let Some(session) = chosen.session else {
            let proof = refusal.proof;
            return refusal.did_not_run
                || matches!(proof, Some(ResendProof::NotSent | ResendProof::Unread));
        };
        // A session ends with its instance. A connection that was closed is no sign of that.
        if refusal.did_not_run {
            self.move_session(session, chosen.index);
        }
        refusal.did_not_run
    }

    /// Chooses an instance for a call. `is_first` allows one that was tried before.
    ///
    /// # Errors
    /// No instance may get the call.
    fn choose(
        &self,
        outbound: &OutboundCall,
        route: &CallRoute,
        is_first: bool,
    ) -> Result<ChosenInstance, FailedAttempt> {
        match route.required() {
            RequiredInstance::At(index) => return self.stay_at(index),
            RequiredInstance::Removed => {
                let text =
                    "The instance of the upstream that began this is not configured any more";
                let failure = self.site.label.fail(FailureKind::Unavailable, text);
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
            let news = ClientSessionChange::Ended;
            instance.http.forward_session_news(&ended, news);
        }
    }

    fn choose_any(&self, route: &CallRoute, is_first: bool) -> Result<usize, FailedAttempt> {
        let now = self.site.clock.now();
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
    fn choose_last_resort(&self, route: &CallRoute) -> Result<usize, FailedAttempt> {
        let mut least_wait = None;
        let begin = (self.random() * self.all.len() as f64) as usize;
        for step in 0..self.all.len() {
            let index = (begin + step) % self.all.len();
            let instance = &self.all[index];
            if instance.weight == 0 || route.has_tried(index) {
                continue;
            }
            match instance.breaker.admit_anyway(self.site.clock.now()) {
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
            one.breaker.admit_anyway(self.site.clock.now())
        });
        admitted.map_err(|wait| self.unavailable(Some(wait)))
    }

    fn unavailable(&self, wait: Option<Duration>) -> FailedAttempt {
        let text = "The upstream has not been reachable for a while: try again later";
        let failure = self.site.label.fail(FailureKind::Unavailable, text);
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

    /// Opens the session for the calls of a client's session at the instance that gets them.
    pub(crate) async fn welcome(&self, outbound: &OutboundCall, route: &CallRoute) {
        let Ok(chosen) = self.choose(outbound, route, true) else {
            return;
        };
        if let Some(instance) = self.all.get(chosen.index) {
            instance.http.welcome(outbound).await;
        }
    }

    /// Subscribes to a task's status at the instance that has the task.
    pub(crate) async fn follow(
        &self,
        outbound: &OutboundCall,
        route: &CallRoute,
    ) -> Option<TaskNotifications> {
        self.of_route(route)?.http.follow(outbound).await
    }

    /// Forwards news of client sessions.
    pub(crate) fn forward_session_news(
        &self,
        sessions: &HashSet<SessionKey>,
        news: ClientSessionChange,
    ) {
        if news == ClientSessionChange::Ended {
            self.affinity.forget(sessions);
        }
        for instance in &self.all {
            instance.http.forward_session_news(sessions, news);
        }
    }

    /// True while calls can go to no instance: they fail at once.
    pub(crate) fn fail_at_once(&self) -> bool {
        self.with_weight().all(|one| one.breaker.fails_at_once())
    }

    /// True while no instance takes calls.
    pub(crate) fn are_down(&self) -> bool {
        self.with_weight().all(|one| one.breaker.is_open())
    }

    /// Returns the instances that may get new calls.
    fn with_weight(&self) -> impl Iterator<Item = &Arc<ServerInstance>> {
        self.all.iter().filter(|one| one.weight > 0)
    }

    /// Describes the instances for operators.
    pub(crate) fn health(&self) -> Vec<InstanceHealth> {
        let watched = self.watched.index();
        let all = self.all.iter().enumerate();
        all.map(|(index, one)| one.health(index == watched))
            .collect()
    }

    /// Ends all sessions.
    pub(crate) async fn close(&self) {
        futures_util::future::join_all(self.all.iter().map(|one| one.http.close())).await;
    }
}
