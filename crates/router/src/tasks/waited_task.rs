//! The task that a request waits for, and the requests about it: repeated while its server cannot be
//! reached, and shared with the other waits for the same task.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep};
use weir_core::Authenticated;
use weir_core::call::{Call, LogMessages};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::UpstreamId;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::scan;
use weir_wire::write::ObjectWriter;

use super::poll_backoff::{self, PollBackoff};
use super::shared_polls::PollShare;
use super::{StateForm, TaskRequests};

/// The shortest interval between polls; the task's own interval is clamped to it.
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval for a task without one.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest time without an answer of the task's server after which the wait ends.
const MAX_OUTAGE: Duration = Duration::from_secs(60);

/// The form of returning a task's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskResultForm {
    /// To a client that knows of the task.
    AsTask,
    /// To a client that knows no tasks: as the result of its call.
    AsCall,
}

/// The answers of a client to a task's questions, an object by their keys.
#[derive(Clone)]
pub(super) enum TaskAnswers {
    /// Results.
    Given(Bytes),
    /// The JSON-RPC errors by which the client refuses.
    Refused(Bytes),
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
        let asked = call.inner();
        let polls = match (form, asked.params.task_id()) {
            (TaskResultForm::AsTask, Ok(Some(name))) => requests.polls.join((
                call.principal().clone(),
                asked.endpoint.clone(),
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

    /// The client's name of the task.
    pub(super) fn name(&self) -> Option<Cow<'_, str>> {
        self.call.inner().params.task_id().ok().flatten()
    }

    /// A state of the task that is younger than its poll interval, and the time of its poll.
    ///
    /// # Errors
    ///
    /// As [`Self::request`].
    pub(super) async fn state(&self) -> Result<(Instant, Bytes), Failure> {
        let mut record = self.polls.poll().lock().await;
        if let Some((polled, state)) = &record.last
            && polled.elapsed() < poll_interval(state)
        {
            return Ok((*polled, state.clone()));
        }
        let state = self
            .request_with(&mut record.backoff, Method::TasksGet, None)
            .await?;
        let polled = Instant::now();
        record.last = Some((polled, state.clone()));
        Ok((polled, state))
    }

    /// Makes a request about the task, again and again while the server cannot be reached.
    ///
    /// # Errors
    ///
    /// `ResultUnknown` after a long outage, or if the task of a call is lost; else the failure of
    /// the request.
    pub(super) async fn request(
        &self,
        method: Method,
        answers: Option<TaskAnswers>,
    ) -> Result<Bytes, Failure> {
        self.request_with(&mut PollBackoff::default(), method, answers)
            .await
    }

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
                Err(failure) => failure,
            };
            let is_disabled = || {
                let upstream = self.upstream.as_ref();
                upstream.is_some_and(|upstream| self.requests.is_disabled(upstream))
            };
            if !poll_backoff::may_pass(&failure) || is_disabled() {
                return Err(self.lost_task(failure));
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
        match self.request(Method::TasksUpdate, Some(refused)).await {
            Ok(_) => Ok(true),
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

    /// The failure if the server does not answer for so long that the wait ends. The task runs on,
    /// as far as weir knows.
    fn unreachable(&self, last: Failure) -> Failure {
        let text = match self.form {
            TaskResultForm::AsTask => {
                "The server of the task cannot be reached: ask for the task's result again later"
            }
            TaskResultForm::AsCall => {
                "The server cannot be reached while it makes this call: the tool may have run. \
                 Check before calling again"
            }
        };
        self.result_unknown(text, last)
    }

    /// The failure of a client without tasks, if the task of its call does not exist any more.
    fn lost_task(&self, failure: Failure) -> Failure {
        if self.form == TaskResultForm::AsTask || *failure.kind() != FailureKind::InvalidParams {
            return failure;
        }
        let text =
            "The server has lost this call: the tool may have run. Check before calling again";
        self.result_unknown(text, failure)
    }

    fn result_unknown(&self, text: &'static str, cause: Failure) -> Failure {
        let failure = Failure::new(FailureKind::ResultUnknown, text).because(cause);
        match &self.upstream {
            Some(upstream) => failure.with_upstream(upstream),
            None => failure,
        }
    }

    fn about(&self, method: Method, answers: Option<TaskAnswers>) -> Authenticated<Arc<Call>> {
        let call = self.call.inner();
        let params = Params::of_task(&self.name().unwrap_or_default());
        let (input_responses, input_refusals) = match answers {
            None => (None, None),
            Some(TaskAnswers::Given(answers)) => (Some(answers), None),
            Some(TaskAnswers::Refused(errors)) => (None, Some(errors)),
        };
        self.call.for_item(Arc::new(Call {
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
