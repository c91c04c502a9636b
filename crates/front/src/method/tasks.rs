//! Methods about tasks, in both forms: the tasks extension, and 2025-11-25.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use weir_core::call::{InputMode, TaskMode};
use weir_core::port::ReplicaId;
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::lift::{self, LiftedRequest};
use weir_era::tasks;
use weir_layers::failure::{self, FailureCause, RequestFailure, RequestResult};
use weir_layers::request::forwarded_tasks::task_holders;
use weir_layers::request::request_context::HttpRequestContext;
use weir_listen::KeptTaskPart;
use weir_router::TaskHolders;
use weir_session::LoadedSession;
use weir_wire::method::Method;
use weir_wire::params::Params;
use weir_wire::{RequestId, Revision};

use crate::method::canonical_call::canonical_call;
use crate::method::offered_methods::{check_offered, check_offered_to};

/// Returns true if calls of a modern client may become tasks.
pub(crate) fn task_mode_of_modern(class: CapabilityClass) -> TaskMode {
    if class.has(CapabilityClass::TASKS) {
        TaskMode::Allowed
    } else {
        TaskMode::Never
    }
}

/// Checks that a client of this class declared the tasks extension (SEP-2663).
///
/// # Errors
/// `MissingCapability`.
pub(crate) fn require_tasks_extension(class: CapabilityClass) -> Result<(), Failure> {
    if class.has(CapabilityClass::TASKS) {
        return Ok(());
    }
    let needed = Bytes::from(format!(
        r#"{{"extensions":{{"{}":{{}}}}}}"#,
        tasks::EXTENSION
    ));
    let text = "Declare the tasks extension with each request about a task";
    Err(Failure::new(FailureKind::MissingCapability(needed), text))
}

/// True if a legacy client asks that its call becomes a task.
pub(crate) fn asks_for_task(revision: Revision, method: Method, params: &Params) -> bool {
    method == Method::ToolsCall
        && revision.has_task_param()
        && tasks::requested_ttl(params).is_some()
}

/// Decides if a call of a legacy client of this class becomes a task. A client of a revision without
/// tasks must never see one.
pub(crate) fn task_mode_of_legacy(
    context: &HttpRequestContext,
    revision: Revision,
    class: CapabilityClass,
    method: Method,
    lifted: &LiftedRequest,
) -> TaskMode {
    if method != Method::ToolsCall {
        return TaskMode::Never;
    }
    if !revision.has_task_param() {
        return TaskMode::AwaitedByWeir;
    }
    let has_tasks = || {
        let catalog = context.shared().catalog();
        catalog.has_tasks(context.endpoint(), class)
    };
    match tasks::requested_ttl(&lifted.params) {
        Some(ttl_ms) if has_tasks() => TaskMode::Wanted { ttl_ms },
        // An endpoint without tasks ignores a request for one (tasks, "Task Support and Handling").
        Some(_) => TaskMode::AwaitedByWeir,
        None => TaskMode::Never,
    }
}

/// The call with this task mode. A modern server sees that the client takes a task.
pub(crate) fn with_task_mode(task_mode: TaskMode, mut call: Call) -> Call {
    if matches!(task_mode, TaskMode::Wanted { .. }) {
        call.capabilities.class = call.capabilities.class.with(CapabilityClass::TASKS);
    }
    Call { task_mode, ..call }
}

/// The task of a `tasks/result` request.
pub(crate) fn task_of_result_request(method: Method, params: &Params) -> Option<String> {
    let name = params.task_id().ok().flatten()?;
    (method == Method::TasksResult).then(|| name.into_owned())
}

/// A request about a task in a session.
pub(crate) struct LegacyTaskRequest<'a> {
    pub(crate) session: &'a LoadedSession,
    pub(crate) method: Method,
    /// The other processes that may have the task.
    pub(crate) holders: Option<Arc<dyn TaskHolders>>,
}

/// Serves a method of 2025-11-25 that is answered at once; returns the result.
///
/// # Errors
/// Those of the router.
pub(crate) async fn serve_legacy(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    request: LegacyTaskRequest<'_>,
    params: Params,
) -> Result<Bytes, Failure> {
    let LegacyTaskRequest {
        session,
        method,
        holders,
    } = request;
    check_offered_to(context, method, session.class())?;
    let wrong = |error: weir_wire::params::ParamsError| Failure::invalid_params(error.to_string());
    let lifted = lift::legacy(params, Some(&session.record), session.class()).map_err(wrong)?;
    let call = Call {
        session: session.is_stored.then_some(session.key),
        wants_status_only: true,
        ..canonical_call(context, method, lifted)
    };
    let (requests, call) = (
        context.shared().router.tasks().with_holders(holders),
        sender.for_payload(Arc::new(call)),
    );
    if method == Method::TasksList {
        let (states, next) = requests.list_tasks(call).await?;
        return Ok(tasks::listed(&states, next.as_deref()));
    }
    let state = if method == Method::TasksCancel {
        requests.cancel_task(call).await?
    } else {
        requests.request_task(call).await?
    };
    Ok(tasks::lowered(&state))
}

/// A request of the tasks extension.
pub(crate) struct ModernTaskRequest<'a> {
    pub(crate) id: &'a RequestId,
    pub(crate) method: Method,
    pub(crate) headers: &'a HeaderMap,
}

/// Serves a method of the tasks extension.
pub(crate) async fn serve_modern(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    request: ModernTaskRequest<'_>,
    lifted: LiftedRequest,
) -> RequestResult {
    let id = request.id;
    if let Some(owner) = replica_of_task(context, sender, &lifted.params) {
        return Err(FailureCause::Elsewhere(owner).into());
    }
    let served = serve_task_method(context, sender, request, lifted).await;
    let message = served.map_err(|failure| RequestFailure::call(id, Revision::MODERN, failure))?;
    Ok(failure::ok(weir_wire::write::response(id, &message)))
}

/// The other replica that has the task of a request, if it can be reached. Without it, this replica
/// asks the task's server itself.
fn replica_of_task(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    params: &Params,
) -> Option<ReplicaId> {
    if !context.has_replicas() {
        return None;
    }
    let name = params.task_id().ok().flatten()?;
    let tasks = context.shared().router.tasks();
    tasks
        .replica_of_task(sender.principal(), context.endpoint(), &name)
        .filter(|replica| context.ports().may_answer(replica))
}

async fn serve_task_method(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    ModernTaskRequest {
        method, headers, ..
    }: ModernTaskRequest<'_>,
    lifted: LiftedRequest,
) -> Result<Bytes, Failure> {
    check_offered(context, method)?;
    require_tasks_extension(lifted.capabilities.class)?;
    let part = context.kept_task_part();
    let call = Call {
        input_mode: InputMode::Rounds,
        wants_status_only: part == Some(KeptTaskPart::Status),
        ..canonical_call(context, method, lifted)
    };
    let holders = task_holders(context, headers);
    let (tasks, call) = (
        context.shared().router.tasks().with_holders(holders),
        sender.for_payload(Arc::new(call)),
    );
    let state = tasks
        .request_task(call.for_payload(call.inner().clone()))
        .await?;
    let is_read = method == Method::TasksGet;
    if is_read && part != Some(KeptTaskPart::Status) {
        tasks.note_fetched(&call, &state);
    }
    let (state, edits) = match part {
        _ if !is_read => (state, tasks::acknowledged(&context.route.identity)),
        None => {
            let state = failure::task_state_for_modern(&state)?;
            (state, tasks::rendered(&context.route.identity))
        }
        // The other replica renders it for its client.
        Some(KeptTaskPart::Whole) => (state, tasks::rendered(&context.route.identity)),
        Some(KeptTaskPart::Status) => {
            let edits = tasks::rendered(&context.route.identity);
            (state, edits.remove("result").remove("error"))
        }
    };
    let malformed = |error| Failure::internal("a state of a task is malformed").because(error);
    edits
        .apply_checked(&state)
        .map(|(state, _)| state)
        .map_err(malformed)
}
