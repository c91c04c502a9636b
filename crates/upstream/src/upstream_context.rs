//! The shared context of one upstream: its id, its bounds, the ports, and its records of events.

use std::borrow::Cow;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use opentelemetry::KeyValue;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::budget::BudgetOwner;
use weir_core::catalog::SessionListTable;
use weir_core::failure::UpstreamError;
use weir_core::hold::HoldShare;
use weir_core::names::UpstreamId;
use weir_core::port::{Clock, Random};
use weir_core::session_notifier::SessionNotifier;
use weir_core::telemetry::{UpstreamMeter, instruments};
use weir_core::upstream::ListKinds;
use weir_core::{Budgets, CapabilityClass, Failure, FailureKind};
use weir_era::upstream_messages::{self, RevisionDialect};
use weir_era::{capabilities, capability_forwarding};
use weir_wire::{error_code, scan};

use crate::failed_attempt::FailedAttempt;
use crate::list_changes::{ListChangeCounts, ListChangeReader};
use crate::ports::UpstreamPorts;
use crate::repeat_budget::RepeatBudget;
use crate::retry_backoff::LastAttemptFailure;
use crate::secret_mask::SecretMask;
use crate::settings::{OwnDeadlines, UpstreamBounds, UpstreamSettings};
use crate::task_progress::TaskProgress;

/// The longest time for which a connection or child is held open for a task.
const MAX_TASK_KEEP: Duration = Duration::from_secs(3600);

/// The most session deletions at one server at the same time, each on a connection.
const MAX_SESSION_ENDS: usize = 32;
/// The most responses of one server that are drained at the same time after their calls are over.
const MAX_DRAINING: usize = 64;

/// The most request ids that a process may use at one upstream after its successor took over.
const MOST_LATE_IDS: u64 = 1 << 20;

/// The shared context of one upstream.
pub(crate) struct UpstreamContext {
    pub(crate) id: UpstreamId,
    pub(crate) bounds: UpstreamBounds,
    /// The time limits of its own requests.
    pub(crate) own_deadlines: OwnDeadlines,
    /// The capabilities that the server may use of clients.
    asks: CapabilityClass,
    /// True if the server may send callers to web pages.
    allows_url_elicitation: bool,
    /// The secrets of its config.
    pub(crate) mask: SecretMask,
    /// The advice to a caller if the server refuses weir's credentials; absent if only the operator
    /// can mend it.
    pub(crate) credential_advice: Option<String>,
    /// Set once the log has reported a line of its processes that is no message.
    pub(crate) prints_other_lines: OnceLock<()>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) bells: Arc<SessionNotifier>,
    /// The known lists of its sessions.
    pub(crate) session_lists: Arc<SessionListTable>,
    /// weir's `Implementation` object.
    pub(crate) client_info: Bytes,
    ids: AtomicU64,
    list_changes: watch::Sender<ListChangeCounts>,
    tasks: TaskTracker,
    /// Ends tasks that have no end of their own.
    closing: CancellationToken,
    /// Ends all tasks.
    stop: CancellationToken,
    /// The last lines of the error stream of the process with the last failed start.
    last_lines: Mutex<Vec<String>>,
    /// The last failure's cause and its time.
    last_error: Mutex<Option<(String, SystemTime)>>,
    /// The metrics of this upstream.
    pub(crate) meter: Arc<UpstreamMeter>,
    /// The recipients of task progress.
    pub(crate) task_progress: Arc<TaskProgress>,
    /// The budgets of the whole process.
    pub(crate) budgets: Budgets,
    /// The permits of session deletions at the same time.
    pub(crate) session_end_permits: Semaphore,
    /// The permits of responses that are drained after the call is over.
    pub(crate) drain_permits: Arc<Semaphore>,
    /// The budget of repeated requests.
    pub(crate) repeat_budget: RepeatBudget,
    /// The upstream's share of the memory for held results.
    pub(crate) hold_share: Arc<HoldShare>,
}

impl UpstreamContext {
    pub(crate) fn new(
        settings: &UpstreamSettings,
        ports: &UpstreamPorts,
        client_info: Bytes,
    ) -> Self {
        let meter = UpstreamMeter::of(&settings.id);
        let no_visits = if settings.allows_url_elicitation {
            CapabilityClass::BASE
        } else {
            CapabilityClass::ELICITATION_URL
        };
        Self {
            id: settings.id.clone(),
            bounds: settings.bounds,
            own_deadlines: settings.own_deadlines,
            asks: settings.client_capabilities.without(no_visits),
            allows_url_elicitation: settings.allows_url_elicitation,
            mask: SecretMask::default(),
            credential_advice: None,
            prints_other_lines: OnceLock::new(),
            meter,
            clock: ports.clock.clone(),
            random: ports.random.clone(),
            bells: ports.bells.clone(),
            session_lists: ports.session_lists.clone(),
            client_info,
            ids: AtomicU64::new(0),
            list_changes: watch::Sender::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            last_lines: Mutex::default(),
            last_error: Mutex::new(None),
            task_progress: Arc::new(TaskProgress::new(ports.bells.clone())),
            budgets: ports.budgets.clone(),
            session_end_permits: Semaphore::new(MAX_SESSION_ENDS),
            drain_permits: Arc::new(Semaphore::new(MAX_DRAINING)),
            repeat_budget: RepeatBudget::default(),
            hold_share: Arc::new(HoldShare::new(ports.budgets.hold.clone())),
        }
    }

    /// Sets the secrets that are masked for operators.
    pub(crate) fn masking(mut self, mask: SecretMask) -> Self {
        self.mask = mask;
        self
    }

    /// Sets the advice to callers if the server refuses weir's credentials.
    pub(crate) fn advising(mut self, credential_advice: Option<String>) -> Self {
        self.credential_advice = credential_advice;
        self
    }

    /// Returns the part of a client's class that is carried to a server of this dialect.
    pub(crate) fn carries(&self, tongue: RevisionDialect) -> CapabilityClass {
        tongue
            .forwarded_class()
            .cut(self.asks.with(capability_forwarding::EXTENSIONS))
    }

    /// Returns the capabilities that the server may use of clients, in any dialect.
    pub(crate) fn asks(&self) -> CapabilityClass {
        self.asks
    }

    /// Returns a new request id: unique in every session of this server and among all requests in
    /// flight.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the last request id that this process may use. Its successor begins beyond it.
    pub(crate) fn last_id(&self) -> u64 {
        self.ids.load(Ordering::Relaxed) + MOST_LATE_IDS
    }

    /// Continues after the request ids of the previous process.
    pub(crate) fn continue_ids_after(&self, last: u64) {
        self.ids.fetch_max(last, Ordering::Relaxed);
    }

    /// Makes a failure of this upstream.
    pub(crate) fn fail(&self, kind: FailureKind, text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(kind, text).with_upstream(&self.id)
    }

    /// Makes a call's failure of a server's error. An error that demands more capabilities of a
    /// client, or a visit to a page, passes only if the config lets the server ask for that.
    pub(crate) fn call_failure(&self, error: &Bytes) -> Failure {
        let failure = upstream_messages::failure(error).with_upstream(&self.id);
        let FailureKind::Upstream(said) = failure.kind() else {
            return failure;
        };
        let text = match said.code {
            error_code::URL_ELICITATION_REQUIRED if !self.allows_url_elicitation => {
                "The upstream wants a URL visited first, which the config does not let it ask for"
            }
            error_code::MISSING_REQUIRED_CLIENT_CAPABILITY if !self.may_ask_for_all(said) => {
                "The upstream wants to ask what the config does not let it ask"
            }
            _ => return failure,
        };
        self.fail(FailureKind::BadAnswer, text)
    }

    /// True if the config lets the server ask for all capabilities that it misses.
    fn may_ask_for_all(&self, said: &UpstreamError) -> bool {
        let needed = said
            .data
            .as_ref()
            .and_then(|data| Some(&data[scan::find(data, "requiredCapabilities")?]));
        let needed = needed.map(capabilities::class_of).unwrap_or_default();
        self.asks
            .with(capability_forwarding::EXTENSIONS)
            .has(needed)
    }

    /// Makes the failure of an attempt that is not made before `wait` has passed. Clients get the
    /// message of the last failure, or `usual` if it was not kept; operators get its cause.
    pub(crate) fn too_early_failure(
        &self,
        last: Option<LastAttemptFailure>,
        usual: &'static str,
        wait: Duration,
    ) -> FailedAttempt {
        let failure = match last {
            Some(LastAttemptFailure { message, cause }) => self
                .fail(FailureKind::Unavailable, message)
                .with_cause(cause),
            None => self.fail(FailureKind::Unavailable, usual),
        };
        FailedAttempt::new(failure.retry_after(wait)).mark_not_attempted()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Returns the clock in whole milliseconds.
    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs a task that has to finish: a retired upstream waits for it, within limits.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_until(self.stop.clone(), task);
    }

    /// Runs a task without an end of its own: a retired upstream ends it at once.
    pub(crate) fn background(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        self.spawn_until(self.closing.clone(), task)
    }

    /// Keeps a value alive for a task that may still need it, for as long as the task is kept.
    pub(crate) fn keep_alive(&self, held: impl Send + 'static, ttl: Option<u64>) {
        let time = ttl
            .map_or(MAX_TASK_KEEP, Duration::from_millis)
            .min(MAX_TASK_KEEP);
        self.background(async move {
            tokio::time::sleep(time).await;
            drop(held);
        });
    }

    fn spawn_until(
        &self,
        until: CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Option<AbortHandle> {
        // A reply may be dropped after the end of the runtime, and then the task is not needed.
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let task = async move {
            tokio::select! {
                biased;
                () = until.cancelled() => {}
                () = task => {}
            }
        };
        Some(self.tasks.spawn_on(task, &runtime).abort_handle())
    }

    /// Ends the tasks: waits for them at most `grace`, then aborts the rest.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.tasks.close();
        self.closing.cancel();
        let _timed_out = tokio::time::timeout(grace, self.tasks.wait()).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }

    /// Ends the tasks without waiting.
    pub(crate) fn abort_tasks(&self) {
        self.tasks.close();
        self.closing.cancel();
        self.stop.cancel();
    }

    /// Counts a change notification.
    pub(crate) fn count_change(&self) {
        instruments().list_changed_in.add(1, &[self.label()]);
    }

    /// Notes a change of these lists that was seen outside a watch's own stream. An empty set means
    /// that weir itself wants the lists to be read again.
    pub(crate) fn record_list_change(&self, kinds: ListKinds) {
        self.count_change();
        self.list_changes.send_modify(|news| news.record(kinds));
    }

    /// Returns a reader of changes from now on.
    pub(crate) fn list_change_reader(&self) -> ListChangeReader {
        ListChangeReader::new(self.list_changes.subscribe())
    }

    /// Counts a message that was dropped as invalid.
    pub(crate) fn count_dropped(&self, why: &'static str) {
        tracing::debug!(upstream = %self.id, why, "upstream message dropped");
        instruments()
            .upstream_protocol_errors
            .add(1, &[self.label(), KeyValue::new("reason", why)]);
    }

    /// Counts a session or a child that is ended because the server does not read its messages.
    pub(crate) fn count_unread_session(&self) {
        tracing::warn!(upstream = %self.id, "session ended: upstream does not read its messages");
        let labels = [self.label(), KeyValue::new("reason", "posts_waiting")];
        instruments().upstream_sessions_ended.add(1, &labels);
    }

    /// Returns the owner of this server's messages within the budgets of the process.
    pub(crate) fn owner(&self) -> BudgetOwner {
        BudgetOwner::of_upstream(&self.id)
    }

    /// Counts open sessions and children.
    pub(crate) fn add_open_sessions(&self, change: i64) {
        instruments().upstream_sessions.add(change, &[self.label()]);
    }

    /// Keeps a failure's cause for operators.
    pub(crate) fn note_error(&self, failure: &Failure) {
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((failure.cause(), self.clock.wall()));
    }

    pub(crate) fn last_error(&self) -> Option<(String, SystemTime)> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps the last lines of a process whose start failed.
    pub(crate) fn note_lines(&self, lines: Vec<String>) {
        *self
            .last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = lines;
    }

    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn label(&self) -> KeyValue {
        KeyValue::new("upstream", self.id.to_string())
    }
}

impl std::fmt::Debug for UpstreamContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Site({})", self.id)
    }
}
