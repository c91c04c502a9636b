//! Requests about tasks, in the words of the extension, to servers of either form. They go to a
//! modern server unchanged.
//!
//! For a server of 2025-11-25 a state is put together. Its result is fetched apart
//! (`tasks/result`). On that request's stream such a server asks its client, so the request is held
//! open while the task waits for input, from the first time that its client asks for more than the
//! status: a question that nobody reads would take room, and might expire at the server.

mod task_result_requests;

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::reply::{Payload, Reply, ReplyEnd};
use weir_core::upstream::{CallDeadlines, OutboundCall};
use weir_core::{Call, Failure, FailureKind, Principal};
use weir_era::tasks::{self, TaskStatus};
use weir_era::upstream_messages::RevisionDialect;
use weir_upstream_core::own_requests;
use weir_upstream_core::server_permissions::WithheldError;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::splice::ObjectEdits;
use weir_wire::{ErrorObject, error_code, scan};

use crate::in_flight::UpstreamInFlightLimit;
use crate::stack::CallStack;
use task_result_requests::TaskResultRequests;

/// The requests about tasks of one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamTaskRequests {
    context: Arc<UpstreamContext>,
    stack: Arc<CallStack>,
    /// The results of older servers' tasks, held open for their questions.
    results: TaskResultRequests,
}

impl UpstreamTaskRequests {
    /// Makes the requests that pass `stack`.
    pub(crate) fn new(context: Arc<UpstreamContext>, stack: Arc<CallStack>) -> Self {
        let results = TaskResultRequests::new(&context);
        Self {
            context,
            stack,
            results,
        }
    }
}

/// Gets a task's state, answers its questions, or cancels it. Dropping the future cancels the
/// request, never the task.
pub(crate) async fn call(server: Arc<UpstreamTaskRequests>, outbound: OutboundCall) -> Reply {
    let looking = UpstreamTaskRequest { server, outbound };
    let method = looking.outbound.call.method;
    let done = if method == Method::TasksUpdate {
        looking.answer().await
    } else if method == Method::TasksCancel {
        looking.cancel().await
    } else {
        looking.state().await
    };
    match done {
        Ok(result) => Reply::ended(ReplyEnd::Complete(Payload::Whole(result))),
        Err(failure) => Reply::ended(failure),
    }
}

/// One request about one task.
struct UpstreamTaskRequest {
    server: Arc<UpstreamTaskRequests>,
    outbound: OutboundCall,
}

impl UpstreamTaskRequest {
    async fn state(&self) -> Result<Bytes, Failure> {
        let state = self.request(Method::TasksGet).await?;
        // A state in the form of the extension is complete; another is lifted below.
        if let Some(dialect) = self
            .dialect()
            .filter(|dialect| dialect.has_task_extension())
        {
            let class = self
                .outbound
                .call
                .capabilities
                .class
                .cut(self.server.context.permissions.carries(dialect));
            if dialect.may_ask(class, &state) {
                if TaskStatus::of(&state).is_some_and(|status| self.needs_no_more(status)) {
                    self.release_hold();
                }
                return Ok(self.with_permitted_error(state));
            }
            let text = "The upstream's task asks for input that the client did not say it can give, or that `asks` of the upstream does not allow";
            return Err(self.server.context.label.fail(FailureKind::BadAnswer, text));
        }
        let bad = || {
            self.server.context.label.fail(
                FailureKind::BadAnswer,
                "The upstream's answer about the task has no status",
            )
        };
        let status = TaskStatus::of(&state).ok_or_else(bad)?;
        if status.is_final() {
            self.server.results.forget(&self.key());
            self.end_progress();
            let needs_outcome =
                status != TaskStatus::Cancelled && !self.outbound.call.wants_status_only;
            let state = if needs_outcome {
                self.outcome(&state).await?
            } else {
                tasks::lifted(&state, status)
            };
            if self.needs_no_more(status) {
                self.release_hold();
            }
            return Ok(state);
        }
        let is_asking = status == TaskStatus::InputRequired;
        let held = if is_asking && !self.outbound.call.wants_status_only {
            let begin = |bound| self.request_result(bound);
            Some(self.server.results.take(&self.key(), begin)?)
        } else {
            self.server.results.find(&self.key())
        };
        match held {
            Some(held) => self.questions(&state, held).await,
            None => Ok(tasks::lifted(&state, status)),
        }
    }

    /// True if the server needs the session or process of its task no more after this answer: the
    /// task is over, and its client gets the result, or the task has none.
    fn needs_no_more(&self, status: TaskStatus) -> bool {
        status == TaskStatus::Cancelled
            || (status.is_final() && !self.outbound.call.wants_status_only)
    }

    /// Returns the state of the extension with another error if the server may not make this one of
    /// a call.
    fn with_permitted_error(&self, state: Bytes) -> Bytes {
        let Some(error) = scan::find(&state, "error").map(|at| state.slice(at)) else {
            return state;
        };
        let failure = self.server.context.permissions.call_failure(&error);
        if !WithheldError::is_cause_of(&failure) {
            return state;
        }
        let edits = ObjectEdits::new().set("error", in_place_of_withheld(&failure).to_json());
        edits.apply_or_keep(&state)
    }

    /// Returns the state of a task that is over, with its result.
    async fn outcome(&self, state: &Bytes) -> Result<Bytes, Failure> {
        let failure = match self.request(Method::TasksResult).await {
            Ok(result) => return Ok(tasks::completed(state, &result)),
            Err(failure) => failure,
        };
        let error = if let FailureKind::Upstream(error) = failure.kind() {
            ErrorObject {
                code: error.code,
                message: error.message.clone(),
                data: error.data.clone(),
            }
        } else if WithheldError::is_cause_of(&failure) {
            in_place_of_withheld(&failure)
        } else {
            return Err(failure);
        };
        Ok(tasks::failed(state, &error))
    }

    /// Returns the state of a task that may wait for its client, with the questions that the server
    /// has sent so far.
    async fn questions(
        &self,
        state: &Bytes,
        held: Arc<task_result_requests::TaskResultRequest>,
    ) -> Result<Bytes, Failure> {
        if TaskStatus::of(state) == Some(TaskStatus::InputRequired) {
            held.wait_for_question().await;
        }
        let open = held.open_questions();
        // A task goes on as soon as its question is answered, and its server may say so later. It
        // does not if the server did not ask again after an earlier request was lost.
        if open.is_empty()
            && (TaskStatus::of(state) != Some(TaskStatus::InputRequired) || held.has_asked())
        {
            return Ok(tasks::lifted(state, TaskStatus::Working));
        }
        Ok(tasks::asking(state, &open))
    }

    async fn answer(&self) -> Result<Bytes, Failure> {
        let call = &self.outbound.call;
        if let Some(errors) = &call.input_refusals {
            return self.refuse(errors).await;
        }
        let given = call
            .params
            .input_responses()
            .map_err(|error| Failure::invalid_params(error.to_string()))?;
        let answers = call.input_responses.clone().or(given);
        let answers =
            answers.ok_or_else(|| Failure::invalid_params("`inputResponses` is missing"))?;
        // A request on which the server has not asked has no question of this answer.
        let held = self.server.results.find(&self.key());
        if let Some(held) = held.filter(|held| held.has_asked()) {
            held.answer(&answers)?;
            return Ok(ACKNOWLEDGED);
        }
        let has_extension = || self.dialect().map(RevisionDialect::has_task_extension);
        if has_extension() == Some(true) {
            return self.request(Method::TasksUpdate).await;
        }
        // A server without the extension has no such method. The request makes sure that the task
        // exists, and probes a server that is unknown yet.
        let state = self.request(Method::TasksGet).await?;
        if has_extension() == Some(true) {
            return self.request(Method::TasksUpdate).await;
        }
        if TaskStatus::of(&state) == Some(TaskStatus::InputRequired) {
            // The request that had the question has ended, or was made by an earlier process.
            return Err(Failure::invalid_params(QUESTION_GONE));
        }
        // The task went on without the answer.
        Ok(ACKNOWLEDGED)
    }

    /// Passes on the errors by which the client refuses questions.
    ///
    /// # Errors
    /// `MethodNotFound`: the server takes no refusals, since it has the extension.
    async fn refuse(&self, errors: &Bytes) -> Result<Bytes, Failure> {
        if let Some(held) = self.server.results.find(&self.key()) {
            held.refuse(errors);
            return Ok(ACKNOWLEDGED);
        }
        let has_extension = self.dialect().map(RevisionDialect::has_task_extension);
        if has_extension == Some(true) {
            let text = "The server of the task has no form for a refusal";
            return Err(self
                .server
                .context
                .label
                .fail(FailureKind::MethodNotFound, text));
        }
        Err(Failure::invalid_params(QUESTION_GONE))
    }

    async fn cancel(&self) -> Result<Bytes, Failure> {
        let refused = match self.request(Method::TasksCancel).await {
            Ok(done) => {
                self.server.results.forget(&self.key());
                // With the extension a task may go on after its cancellation.
                if TaskStatus::of(&done).is_some_and(TaskStatus::is_final) {
                    self.release_hold();
                }
                return Ok(done);
            }
            Err(failure) => failure,
        };
        // Servers without the extension refuse to cancel a task that is over. With it that is no
        // error, but some servers with the extension refuse as well.
        let is_refused = matches!(refused.kind(), FailureKind::Upstream(error) if error.code == error_code::INVALID_PARAMS);
        if is_refused {
            let state = self.request(Method::TasksGet).await?;
            if TaskStatus::of(&state).is_some_and(TaskStatus::is_final) {
                return Ok(ACKNOWLEDGED);
            }
        }
        Err(refused)
    }

    /// Makes one request about the task, and returns its whole result.
    async fn request(&self, method: Method) -> Result<Bytes, Failure> {
        let reply = self
            .server
            .stack
            .call(self.outbound_for(method, self.outbound.deadlines))
            .await;
        own_requests::read_result(&self.server.context.own_requests, reply).await
    }

    /// Makes the request for the result. The server asks on its stream.
    fn request_result(
        &self,
        bound: UpstreamInFlightLimit,
    ) -> weir_core::port::BoxFuture<'static, Reply> {
        let outbound = self.outbound_for(Method::TasksResult, CallDeadlines::CALL);
        Box::pin(self.server.stack.call_within(bound, outbound))
    }

    fn outbound_for(&self, method: Method, deadlines: CallDeadlines) -> OutboundCall {
        let OutboundCall {
            principal,
            token,
            call,
            native,
            ..
        } = &self.outbound;
        let call = if call.method == method {
            call.clone()
        } else {
            Arc::new(Call {
                method,
                ..Call::clone(call)
            })
        };
        OutboundCall {
            principal: principal.clone(),
            token: token.clone(),
            call,
            native: native.clone(),
            tool: None,
            begun: Instant::now(),
            deadlines,
            whole: self.outbound.whole,
            carried_revision: self.outbound.carried_revision.clone(),
            safe_to_repeat: false,
        }
    }

    /// The dialect in which the server has the task; absent if the server was not called yet.
    fn dialect(&self) -> Option<RevisionDialect> {
        // A task is in the era of its call: the name of the task carries the class.
        let class = self.outbound.call.capabilities.class;
        self.server
            .stack
            .attempts
            .server
            .revision_of_task(class, &self.outbound.native)
            .map(RevisionDialect::new)
    }

    /// Ends the reports of a task that is over.
    fn end_progress(&self) {
        let (context, native) = self.server.stack.attempts.of_task(&self.outbound.native);
        let key = (self.outbound.principal.clone(), native.into());
        context.task_progress.end_task(&key);
    }

    /// Ends the hold on the session or process of a task that is over.
    fn release_hold(&self) {
        let (context, native) = self.server.stack.attempts.of_task(&self.outbound.native);
        context.task_holds.release(&self.outbound.principal, native);
    }

    fn key(&self) -> (Principal, Arc<str>) {
        (
            self.outbound.principal.clone(),
            self.outbound.native.clone(),
        )
    }
}

/// The error of a task in place of one that no client may get.
fn in_place_of_withheld(failure: &Failure) -> ErrorObject {
    ErrorObject::new(error_code::BAD_ANSWER, failure.message().to_owned())
}

/// The text for answers to a question that the server did not ask this process.
const QUESTION_GONE: &str = "The task waits for input, but not for this answer, which did not reach it: get the task's state, \
     or ask for its result, and answer the question that it has then";

const ACKNOWLEDGED: Bytes = Bytes::from_static(b"{}");
