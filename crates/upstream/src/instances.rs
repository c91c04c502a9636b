//! The instances of a server that has several URLs: the choice of one for each call, watch and
//! session.
//!
//! A call goes to the instance that has what it continues: a task, a `requestState`, the session of
//! its client. Any other call goes to one of the instances with a closed circuit breaker, by power
//! of two choices. It goes on to another instance only if it certainly did not run.

mod call_choice;
mod instance_breaker;
mod instance_choice;
mod instance_load;
pub(crate) mod instance_name;
mod instance_reply;
mod instance_route;
mod instance_watch;
mod list_pause;
mod server_instance;
mod session_affinity;
mod session_transfer;
mod watched_instance;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use opentelemetry::KeyValue;
use weir_core::SessionKey;
use weir_core::reply::Reply;
use weir_core::telemetry::instruments;
use weir_core::upstream::{ClientSessionChange, InstanceHealth, OutboundCall, TaskNotifications};
use weir_era::upstream_messages::ResendProof;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;

pub(crate) use instance_route::{InstanceRoute, RequiredInstance};
pub(crate) use server_instance::ServerInstance;
use session_affinity::SessionAffinity;
use watched_instance::WatchedInstance;

/// The instances of one server, in the order of the config.
#[derive(Debug)]
pub(crate) struct ServerInstances {
    pub(crate) context: Arc<UpstreamContext>,
    all: Arc<[Arc<ServerInstance>]>,
    affinity: SessionAffinity,
    watched: WatchedInstance,
    /// The state of the random numbers for the choice, which need not be unguessable.
    random: AtomicU64,
}

impl ServerInstances {
    /// Puts instances together; at least one.
    pub(crate) fn new(context: Arc<UpstreamContext>, all: Vec<Arc<ServerInstance>>) -> Self {
        let mut seed = [0; 8];
        context.clock.random().fill(&mut seed);
        Self {
            affinity: SessionAffinity::new(context.bounds.sessions.saturating_mul(all.len())),
            watched: WatchedInstance::of(&all),
            random: AtomicU64::new(u64::from_be_bytes(seed)),
            all: all.into(),
            context,
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
    pub(crate) fn of_route(&self, route: &InstanceRoute) -> Option<&Arc<ServerInstance>> {
        let index = route.current().or(route.required().position());
        self.all.get(index?)
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
        route: &InstanceRoute,
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
            if !self.goes_on(&refusal, outbound, chosen) {
                return Err(refusal);
            }
            let Ok(next) = self.choose(outbound, route, false) else {
                return Err(refusal);
            };
            let labels = [
                self.context.label.attribute(),
                KeyValue::new("reason", "other_url"),
            ];
            instruments().upstream_retries.add(1, &labels);
            chosen = next;
        }
    }

    /// Opens the session for the calls of a client's session at the instance that gets them.
    pub(crate) async fn open_client_session(&self, outbound: &OutboundCall, route: &InstanceRoute) {
        let Ok(chosen) = self.choose(outbound, route, true) else {
            return;
        };
        if let Some(instance) = self.all.get(chosen.index) {
            instance.http.open_client_session(outbound).await;
        }
    }

    /// Subscribes to a task's status at the instance that has the task.
    pub(crate) async fn follow(
        &self,
        outbound: &OutboundCall,
        route: &InstanceRoute,
    ) -> Option<TaskNotifications> {
        self.of_route(route)?.http.follow(outbound).await
    }

    /// Forwards a change of client sessions.
    pub(crate) fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        if change.is_end() {
            self.affinity.forget(sessions);
        }
        for instance in self.all.iter() {
            instance.http.forward_session_change(sessions, change);
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

    /// Returns the time at which [`Self::are_down`] changed last: with the last instance that
    /// opened, or with the first one that takes calls again.
    pub(crate) fn down_changed(&self) -> Option<Duration> {
        let changed = |one: &Arc<ServerInstance>| one.breaker.changed();
        if self.are_down() {
            return self.with_weight().filter_map(changed).max();
        }
        // None sorts first: an instance that never opened was always up.
        let closed = self.with_weight().filter(|one| !one.breaker.is_open());
        closed.map(changed).min().flatten()
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
