//! One instance of a server that has several URLs: its transport, circuit breaker and load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use weir_core::upstream::{InstanceHealth, ListKind};
use weir_core::{CapabilityClass, Failure, FailureKind};
use weir_upstream_core::failed_attempt::{FailedAttempt, Reach};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_http::HttpUpstream;

use crate::breaker::AttemptStart;
use crate::instances::instance_breaker::InstanceBreaker;
use crate::instances::instance_choice::Candidate;
use crate::instances::instance_load::{PeakEwma, RecentCalls};
use crate::instances::instance_name::InstanceName;
use crate::instances::list_pause::ListPause;
use crate::repeated_checks::{CheckedServer, RepeatedChecks, check_until_it_answers};
use crate::settings::InstanceSettings;

/// One instance.
#[derive(Debug)]
pub(crate) struct ServerInstance {
    /// Its own handles; its background tasks end with the upstream.
    pub(crate) context: Arc<UpstreamContext>,
    pub(crate) http: Box<HttpUpstream>,
    pub(crate) name: InstanceName,
    pub(crate) weight: u32,
    pub(crate) breaker: InstanceBreaker,
    pub(crate) list_pause: ListPause,
    /// Its URL for operators, without user and query.
    url: Arc<str>,
    in_flight: AtomicUsize,
    load: Mutex<InstanceLoad>,
    checks: RepeatedChecks,
}

impl ServerInstance {
    pub(crate) fn new(
        context: Arc<UpstreamContext>,
        http: Box<HttpUpstream>,
        settings: &InstanceSettings,
    ) -> Self {
        Self {
            context,
            http,
            name: InstanceName::of(&settings.url),
            weight: settings.weight,
            breaker: InstanceBreaker::default(),
            list_pause: ListPause::default(),
            url: without_secrets(&settings.url).into(),
            in_flight: AtomicUsize::new(0),
            load: Mutex::default(),
            checks: RepeatedChecks::default(),
        }
    }

    /// Returns the number of its calls in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// True if it may get a further call that is not bound to an instance.
    pub(crate) fn takes_call(&self) -> bool {
        self.weight > 0 && self.breaker.takes_call(self.in_flight())
    }

    /// Describes it for the choice at `now`.
    pub(crate) fn as_candidate(&self, index: usize, now: Duration) -> Candidate {
        let load = *self.load.lock();
        Candidate {
            index,
            weight: self.weight.max(1),
            latency: load.latency.estimate(now),
            in_flight: self.in_flight(),
            recent: load.recent.at(now),
        }
    }

    /// Begins a call: it counts as in flight until the returned value is dropped.
    pub(crate) fn begin_call(self: &Arc<Self>) -> InstanceCall {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let began = self.context.clock.now();
        self.load.lock().recent.count_call(began);
        InstanceCall {
            began,
            start: self.begin_attempt(),
            instance: self.clone(),
            is_measured: false,
        }
    }

    /// Begins a pause of its lists if it does not give them now.
    pub(crate) fn pause_lists_after(&self, failure: &Failure) {
        if is_not_now(failure) {
            self.list_pause
                .begin(self.context.clock.now(), failure.retry_delay());
        }
    }

    /// Asks it for a list that another instance does not give: true if it gives the list. A server
    /// that limits requests for one list may open watches all the same.
    pub(crate) async fn gives_list(
        self: &Arc<Self>,
        kind: ListKind,
        class: CapabilityClass,
    ) -> bool {
        let start = self.begin_attempt();
        let mut watch = match self.http.watch(class).await {
            Ok(watch) => watch,
            Err(refusal) => {
                self.record_refusal(start, &refusal);
                self.pause_lists_after(&refusal.failure);
                return false;
            }
        };
        self.record_success();
        match watch.list(kind, None).await {
            Ok(_) => {
                self.list_pause.end(self.context.clock.now());
                true
            }
            Err(failure) => {
                self.pause_lists_after(&failure);
                false
            }
        }
    }

    /// Returns the rest of the pause that it asked for, before it may be asked for the lists in place
    /// of another instance that does not give them; absent if it gets no calls.
    pub(crate) fn list_wait(&self) -> Option<Duration> {
        let gets_calls = self.weight > 0 && !self.breaker.is_open();
        gets_calls.then(|| self.list_pause.requested_left(self.context.clock.now()))
    }

    /// Records an answer.
    pub(crate) fn record_success(&self) {
        if self.breaker.record_success(self.context.clock.now()) {
            self.log_half_open();
        }
    }

    /// Records a sign of life that is no answer to a further call.
    pub(crate) fn record_life(&self) {
        self.breaker.record_life(self.context.clock.now());
    }

    /// Begins an attempt.
    pub(crate) fn begin_attempt(&self) -> AttemptStart {
        self.breaker.begin()
    }

    /// Records an attempt without a reply.
    pub(crate) fn record_refusal(self: &Arc<Self>, start: AttemptStart, refusal: &FailedAttempt) {
        if refusal.era_in_doubt {
            self.http.doubt_era();
        }
        self.context.record.note_error(&refusal.failure);
        match refusal.reach {
            Reach::NotReached => {
                self.record_failure(&refusal.failure, refusal.may_run_elsewhere());
            }
            Reach::Reached if refusal.failure.is_connection_lost() => {
                self.record_loss(start, &refusal.failure);
            }
            Reach::Reached => self.record_success(),
            Reach::NotAttempted | Reach::TooEarly => {}
        }
    }

    /// Records an attempt that did not reach the instance. `unreachable` means that no connection
    /// could be opened.
    fn record_failure(self: &Arc<Self>, failure: &Failure, unreachable: bool) {
        let now = self.context.clock.now();
        if self.breaker.record_failure(now, unreachable) {
            self.look_after_opening(failure);
        }
    }

    /// Records that the connection of an attempt was lost before the answer.
    fn record_loss(self: &Arc<Self>, start: AttemptStart, failure: &Failure) {
        let now = self.context.clock.now();
        if self.breaker.record_lost(now, start) {
            self.look_after_opening(failure);
        }
    }

    /// Records a call that passed its deadline after this `silence`. It counts if the instance
    /// showed no life at all for the time `limit`.
    pub(crate) fn record_silence(
        self: &Arc<Self>,
        failure: &Failure,
        silence: Duration,
        limit: Duration,
    ) {
        self.context.record.note_error(failure);
        let now = self.context.clock.now();
        if self.breaker.record_silence(now, silence, limit) {
            self.look_after_opening(failure);
        }
    }

    fn look_after_opening(self: &Arc<Self>, failure: &Failure) {
        tracing::warn!(
            upstream = %self.context.label.id,
            url = %self.url,
            error = %failure.cause(),
            "circuit breaker opened for a URL of an upstream"
        );
        check_until_it_answers(self);
    }

    fn log_half_open(&self) {
        tracing::info!(
            upstream = %self.context.label.id,
            url = %self.url,
            "URL of an upstream answers again"
        );
    }

    /// Describes it for operators. `watched` means that the upstream's lists are read here.
    pub(crate) fn health(&self, watched: bool) -> InstanceHealth {
        InstanceHealth {
            url: self.url.clone(),
            weight: self.weight,
            breaker: self.breaker.state(),
            watched,
            in_flight: self.in_flight(),
            sessions: self.http.sessions(),
            latency: self.load.lock().latency.estimate(self.context.clock.now()),
            last_error: self.context.record.last_error().map(|(cause, _)| cause),
        }
    }
}

impl CheckedServer for ServerInstance {
    fn context(&self) -> &UpstreamContext {
        &self.context
    }

    fn checks(&self) -> &RepeatedChecks {
        &self.checks
    }

    fn is_awaited(&self) -> bool {
        self.breaker.is_open()
    }

    fn first_step(&self) -> u32 {
        self.breaker.openings()
    }

    async fn check(&self) {
        match self.http.check().await {
            Ok(()) if self.breaker.half_open(self.context.clock.now()) => self.log_half_open(),
            Ok(()) => {}
            Err(refusal) => self.context.record.note_error(&refusal.failure),
        }
    }
}

/// The load of an instance beside its calls in flight.
#[derive(Clone, Copy, Debug, Default)]
struct InstanceLoad {
    latency: PeakEwma,
    recent: RecentCalls,
}

/// A call in flight at an instance.
#[derive(Debug)]
pub(crate) struct InstanceCall {
    instance: Arc<ServerInstance>,
    began: Duration,
    start: AttemptStart,
    /// True once its latency was recorded, or it turned out to have none.
    is_measured: bool,
}

impl InstanceCall {
    /// Records the first sign of life.
    pub(crate) fn record_answer(&mut self) {
        if std::mem::replace(&mut self.is_measured, true) {
            return;
        }
        let now = self.instance.context.clock.now();
        let latency = now.saturating_sub(self.began);
        self.instance.load.lock().latency.record(latency, now);
        self.instance.record_success();
    }

    /// Records a connection that was lost before the answer.
    pub(crate) fn record_loss(&mut self, failure: &Failure) {
        self.is_measured = true;
        self.instance.record_loss(self.start, failure);
    }

    /// Records an attempt without a reply.
    pub(crate) fn record_refusal(mut self, refusal: &FailedAttempt) {
        self.is_measured = true;
        self.instance.record_refusal(self.start, refusal);
    }
}

impl Drop for InstanceCall {
    fn drop(&mut self) {
        self.instance.in_flight.fetch_sub(1, Ordering::AcqRel);
        if !self.is_measured {
            let now = self.instance.context.clock.now();
            let waited = now.saturating_sub(self.began);
            self.instance
                .load
                .lock()
                .latency
                .record_at_least(waited, now);
        }
    }
}

/// True if the server does not answer the request now: it limits the rate of requests (429), or is
/// busy or in maintenance (503).
pub(crate) fn is_not_now(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::Limit | FailureKind::Busy)
}

/// Returns a URL without user and query, for operators.
fn without_secrets(url: &Uri) -> String {
    let authority = url.authority().map_or("", http::uri::Authority::as_str);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let scheme = url.scheme_str().unwrap_or("http");
    format!("{scheme}://{host}{}", url.path())
}
