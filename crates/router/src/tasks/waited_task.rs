//! The task that a request waits for, and the requests about it: repeated while its server cannot be
//! reached, and shared with the other waits for the same task.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use weir_core::Authenticated;
use weir_core::call::{Call, LogMessages};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;
use weir_wire::write::ObjectWriter;

use crate::tasks::TaskRequests;
use crate::tasks::poll_backoff::{self, PollBackoff};
use crate::tasks::shared_polls::{LastPoll, PollShare};
use crate::tasks::task_states::StateForm;

/// The shortest interval between polls; the task's own interval is clamped to it.
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval for a task without one.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time without an answer of the task's server after which the wait ends.
const MAX_OUTAGE: Duration = Duration::from_secs(60);

/// The answers of a client to a task's questions, an object by their keys.
#[derive(Clone)]
pub(super) enum TaskAnswers {
    /// Results.
    Given(Bytes),
    /// The JSON-RPC errors by which the client refuses.
    Refused(Bytes),
}

/// The form of returning a task's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskResultForm {
    /// To a client that knows of the task.
    AsTask,
    /// To a client that knows no tasks: as the result of its call.
    AsCall,
}

/// The task of one wait.
pub(super) struct WaitedTask {
    requests: TaskRequests,
    call: Authenticated<Arc<Call>>,
    pub(super) form: TaskResultForm,
    pub(super) upstream: Option<UpstreamId>,
    polls: PollShare,
}

impl WaitedTask {
    /// The task that `call` names, at this upstream.
    pub(super) fn new(
        requests: TaskRequests,
        call: Authenticated<Arc<Call>>,
        form: TaskResultForm,
        upstream: Option<UpstreamId>,
    ) -> Self {
        let inner = call.inner();
        let polls = match (form, inner.params.task_id()) {
            (TaskResultForm::AsTask, Ok(Some(name))) => requests.polls.join((
                call.principal().clone(),
                inner.endpoint.clone(),
                (*name).into(),
            )),
            // No other wait knows the name, or the task does not exist.
            (TaskResultForm::AsTask | TaskResultForm::AsCall, _) => PollShare::alone(),
        };
        Self {
            requests,
            call,
            form,
            upstream,
            polls,
        }
    }

    /// Announcements of answers to the task and of its cancellation, by any request.
    pub(super) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.polls.poll().watch_changes()
    }

    /// The client's name of the task.
    pub(super) fn name(&self) -> Option<Cow<'_, str>> {
        self.call.inner().params.task_id().ok().flatten()
    }

    /// A state of the task that is younger than its poll interval, and the time of its poll.
    ///
    /// # Errors
    ///
    /// As [`Self::cancel`].
    pub(super) async fn state(&self) -> Result<(Instant, Bytes), Failure> {
        let poll = self.polls.poll();
        let mut record = poll.record.lock().await;
        let changes = poll.changes();
        if let Some(last) = &record.last
            && last.changes == changes
            && last.polled.elapsed() < poll_interval(&last.state)
            // Another wait may have polled by credentials that see more.
            && !self.is_hidden()
        {
            return Ok((last.polled, last.state.clone()));
        }
        let state = self
            .request_with(&mut record.backoff, Method::TasksGet, None)
            .await?;
        let polled = Instant::now();
        poll.note_state(&state);
        record.last = Some(LastPoll {
            polled,
            state: state.clone(),
            changes,
        });
        Ok((polled, state))
    }

    fn is_hidden(&self) -> bool {
        let (call, requests) = (&self.call, &self.requests);
        let locate = |name: Cow<'_, str>| {
            let names = requests.names.as_ref()?;
            names.locate(call.principal(), &call.inner().endpoint, &name)
        };
        let home = self.name().and_then(locate);
        home.is_some_and(|home| requests.is_hidden(call, &home))
    }

    /// Cancels the task.
    ///
    /// # Errors
    ///
    /// `ResultUnknown` after a long outage, or if the task of a call is lost; else the failure of
    /// the request.
    pub(super) async fn cancel(&self) -> Result<(), Failure> {
        self.change(Method::TasksCancel, None).await
    }

    /// Answers a question of the task.
    ///
    /// # Errors
    ///
    /// As [`Self::cancel`]. The question may be asked again then.
    pub(super) async fn answer(&self, key: &str, answers: TaskAnswers) -> Result<(), Failure> {
        // Marked before: a poll of another wait may be answered in the meantime.
        let mark = self.polls.poll().mark_answered(key);
        self.change(Method::TasksUpdate, Some(answers)).await?;
        mark.keep();
        Ok(())
    }

    /// True if a wait for this task has passed on an answer to the question of this key.
    pub(super) fn is_answered(&self, key: &str) -> bool {
        self.polls.poll().is_answered(key)
    }

    /// Makes a request that changes the task, again and again while the server cannot be reached.
    async fn change(&self, method: Method, answers: Option<TaskAnswers>) -> Result<(), Failure> {
        let mut backoff = PollBackoff::default();
        let changed = self.request_with(&mut backoff, method, answers).await;
        self.polls.poll().note_change();
        changed.map(drop)
    }

    /// Makes a request about the task, again and again while the server cannot be reached.
    async fn request_with(
        &self,
        backoff: &mut PollBackoff,
        method: Method,
        answers: Option<TaskAnswers>,
    ) -> Result<Bytes, Failure> {
        let form = match self.form {
            TaskResultForm::AsTask => StateForm::OfClient,
            TaskResultForm::AsCall => StateForm::OfServer,
        };
        loop {
            let about = self.about(method, answers.clone());
            let failure = match self.requests.request_state(about, form).await {
                Ok(state) => {
                    backoff.reset();
                    return Ok(state);
                }
                Err(failure) if *failure.kind() == FailureKind::UnknownTask => {
                    return Err(self.lost_task(failure));
                }
                Err(failure) => failure,
            };
            let is_disabled = || {
                let upstream = self.upstream.as_ref();
                upstream.is_some_and(|upstream| self.requests.is_disabled(upstream))
            };
            if !poll_backoff::may_pass(&failure) || is_disabled() {
                return Err(self.refused_request(failure));
            }
            let wait = backoff.note_failure(&failure);
            if backoff.outage() + wait > MAX_OUTAGE {
                return Err(self.unreachable(failure));
            }
            sleep(wait).await;
        }
    }

    /// Passes on the JSON-RPC error by which the client refuses a question. Returns false if the
    /// task's server has no form for a refusal.
    ///
    /// # Errors
    ///
    /// The server cannot be reached.
    pub(super) async fn refuse(&self, key: &str, error: &Bytes) -> Result<bool, Failure> {
        let refused = TaskAnswers::Refused(of_key(key, error));
        match self.answer(key, refused).await {
            Ok(()) => Ok(true),
            Err(failure) if *failure.kind() == FailureKind::MethodNotFound => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Notes that the client gets the result of this state.
    pub(super) fn note_fetched(&self, state: &Bytes) {
        self.requests.note_fetched(&self.call, state);
    }

    /// Cancels the task in the background.
    pub(super) fn cancel_unawaited(&self) {
        self.requests.cancel_unawaited(&self.call);
    }

    fn about(&self, method: Method, answers: Option<TaskAnswers>) -> Authenticated<Arc<Call>> {
        let call = self.call.inner();
        let params = Params::of_task(&self.name().unwrap_or_default());
        let (input_responses, input_refusals) = match answers {
            None => (None, None),
            Some(TaskAnswers::Given(answers)) => (Some(answers), None),
            Some(TaskAnswers::Refused(errors)) => (None, Some(errors)),
        };
        self.call.for_payload(Arc::new(Call {
            method,
            params,
            input_responses,
            input_refusals,
            wants_progress: false,
            log_messages: LogMessages::None,
            ..Call::clone(call)
        }))
    }
}

/// The interval between polls of the task of this state.
pub(super) fn poll_interval(state: &Bytes) -> Duration {
    let interval = scan::find(state, "pollIntervalMs").and_then(|at| scan::integer(&state[at]));
    interval
        .and_then(|millis| u64::try_from(millis).ok())
        .map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis)
        .clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// An object with one value by its key.
pub(super) fn of_key(key: &str, value: &Bytes) -> Bytes {
    let mut object = BytesMut::with_capacity(value.len() + key.len() + 8);
    ObjectWriter::new(&mut object).raw(key, value).end();
    object.freeze()
}
