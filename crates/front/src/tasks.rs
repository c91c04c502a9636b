//! Methods about tasks, in both forms: those of the tasks extension, and those of 2025-11-25.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::call::{AsTask, AskedBy};
use weir_core::{Authenticated, Call, CapabilityClass, Failure, FailureKind};
use weir_era::lift::Lifted;
use weir_era::tasks;
use weir_wire::method::Method;
use weir_wire::{RequestId, Revision};

use crate::answer::Said;
use crate::modern::{canonical, offered};
use crate::observe::Answer;
use crate::rescue::{Told, rescue};
use crate::stack::Context;

/// Whether a method of the tasks extension is about a task.
pub(crate) fn is_about_task(method: Method) -> bool {
    matches!(method, Method::TasksGet | Method::TasksUpdate | Method::TasksCancel)
}

/// Whether calls of a modern client may become tasks.
pub(crate) fn taken(class: CapabilityClass) -> AsTask {
    if class.has(CapabilityClass::TASKS) { AsTask::Taken } else { AsTask::Never }
}

/// What a client of this class lacks to be told of tasks (SEP-2663).
///
/// # Errors
/// `MissingCapability`.
pub(crate) fn declared(class: CapabilityClass) -> Result<(), Failure> {
    if class.has(CapabilityClass::TASKS) {
        return Ok(());
    }
    let needed = Bytes::from(format!(r#"{{"extensions":{{"{}":{{}}}}}}"#, tasks::EXTENSION));
    let text = "Declare the tasks extension with each request about a task";
    Err(Failure::new(FailureKind::MissingCapability(needed), text))
}

/// Serves a method of the extension.
pub(crate) async fn modern(
    context: &Context,
    known: &Authenticated<()>,
    id: &RequestId,
    (method, lifted): (Method, Lifted),
) -> Answer {
    let told = Told { revision: Revision::MODERN, tool_call: false, request: &context.name };
    match about(context, known, method, lifted).await {
        Ok(message) => Said::ok(weir_wire::write::response(id, &message)).answer(),
        Err(failure) => rescue(&failure, told).answer(id),
    }
}

async fn about(context: &Context, known: &Authenticated<()>, method: Method, lifted: Lifted) -> Result<Bytes, Failure> {
    offered(context, method)?;
    declared(lifted.capabilities.class)?;
    let call = Call { asked: AskedBy::Rounds, ..canonical(context, method, lifted) };
    let state = context.shared.router.task(known.with(Arc::new(call))).await?;
    let edits = match method {
        Method::TasksGet => tasks::rendered(&context.about),
        _ => tasks::acknowledged(&context.about),
    };
    let malformed = |error| Failure::internal("a state of a task is malformed").because(error);
    edits.apply_checked(&state).map(|(state, _)| state).map_err(malformed)
}
