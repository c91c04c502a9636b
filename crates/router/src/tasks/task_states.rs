//! The states of tasks that requests about them return, and the failures of these requests.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use weir_core::failure::{Failure, FailureKind};
use weir_core::reply::{Payload, Reply, ReplyEnd, ReplyEvent, ReplySource};
use weir_wire::splice::ObjectEdits;
use weir_wire::write::ObjectWriter;
use weir_wire::{error_code, scan};

use crate::reply_cleaning;
use crate::reply_transform::ReplyTransform;
use crate::tasks::task_naming::named;

/// The largest state of a task, its result included: it is read whole.
const MAX_STATE_BYTES: usize = 16 << 20;

/// The form of a task's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateForm {
    /// Under the client's name of the task, and changed as the result of a call is.
    OfClient,
    /// As its server has it, for a reply that is changed later.
    OfServer,
}

/// True if a server refused the parameters of a request.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    matches!(
        failure.kind(),
        FailureKind::Upstream(error) if error.code == error_code::INVALID_PARAMS
    )
}

/// The failure of a request about a task, changed as that of a call is.
pub(super) fn failure_for_client(failure: Failure, transform: &ReplyTransform) -> Failure {
    match transform.clean(failure.into()).0 {
        ReplyEnd::Failed(failure) => *failure,
        ReplyEnd::Complete(_)
        | ReplyEnd::InputRequired(_)
        | ReplyEnd::Parked { .. }
        | ReplyEnd::Task(_) => Failure::internal("a failure became a result when it was cleaned"),
    }
}

/// The failure without the server's own id of the task, which no client may see.
pub(super) fn without_id(failure: Failure, native: &str) -> Failure {
    failure.with_upstream_error(|error| {
        if has_id(error.message.as_bytes(), native) {
            "The server refused the request about the task".clone_into(&mut error.message);
        }
        error.data = error.data.take().filter(|data| !has_id(data, native));
    })
}

/// True if a text has this id, and not as a part of a longer word.
fn has_id(text: &[u8], id: &str) -> bool {
    let is_of_word = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_whole = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !is_of_word(before) && !is_of_word(text.get(at + id.len()))
    };
    let windows = text.windows(id.len().max(1)).enumerate();
    windows
        .filter(|(_, window)| *window == id.as_bytes())
        .any(|(at, _)| is_whole(at))
}

/// A state under the client's name, with its questions and its result changed as those of a call
/// are.
pub(super) fn state_for_client(
    state: &Bytes,
    name: &str,
    transform: &ReplyTransform,
) -> Result<Bytes, Failure> {
    let bad = || {
        Failure::new(
            FailureKind::BadAnswer,
            "The server's answer about the task is malformed",
        )
    };
    let state = named(&transform.task_state(state.clone()), name).ok_or_else(bad)?;
    let Some(at) = scan::find(&state, "result") else {
        return Ok(state);
    };
    let (cleaned, changed) = transform.clean(ReplyEnd::Complete(Payload::Whole(state.slice(at))));
    let removed = changed.removed.of_whole();
    let edits = match transform.apply(cleaned, removed) {
        ReplyEnd::Complete(Payload::Whole(result)) => ObjectEdits::new().replace(
            "result",
            reply_cleaning::strip_hop_members(&result, removed)?,
        ),
        ReplyEnd::Failed(failure) => {
            let failed = failed(&failure);
            ObjectEdits::new()
                .remove("result")
                .set("status", &b"\"failed\""[..])
                .set("error", failed)
        }
        ReplyEnd::Complete(_)
        | ReplyEnd::InputRequired(_)
        | ReplyEnd::Parked { .. }
        | ReplyEnd::Task(_) => return Err(bad()),
    };
    edits
        .apply_checked(&state)
        .map(|(state, _)| state)
        .map_err(|error| bad().because(error))
}

/// The error of a task with a result that cannot be passed on.
fn failed(failure: &Failure) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    ObjectWriter::new(&mut out)
        .integer("code", error_code::BAD_ANSWER)
        .string("message", &failure.to_string())
        .end();
    out.freeze()
}

/// True if a state is final.
pub(super) fn is_over(state: &[u8]) -> bool {
    let status = scan::find(state, "status").and_then(|at| scan::string(&state[at]));
    matches!(
        status.as_deref(),
        Some("completed" | "failed" | "cancelled")
    )
}

/// The whole result that a reply ends with.
pub(super) async fn whole_result(mut reply: Reply) -> Result<Bytes, Failure> {
    let too_large = || {
        Failure::new(
            FailureKind::BadAnswer,
            "The task's result is larger than can be passed on",
        )
    };
    loop {
        match poll_fn(|cx| reply.poll_event(cx)).await {
            ReplyEvent::Note(_) | ReplyEvent::Ask(_) => {}
            ReplyEvent::End(ReplyEnd::Complete(
                Payload::Whole(result) | Payload::Cleaned { result, .. },
            )) => {
                return Ok(result);
            }
            ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(mut source))) => {
                let mut held = BytesMut::new();
                while let Some(chunk) = poll_fn(|cx| source.poll_chunk(cx)).await {
                    held.extend_from_slice(&chunk?);
                    if held.len() > MAX_STATE_BYTES {
                        return Err(too_large());
                    }
                }
                return Ok(held.freeze());
            }
            ReplyEvent::End(ReplyEnd::Failed(failure)) => return Err(*failure),
            ReplyEvent::End(
                ReplyEnd::InputRequired(_) | ReplyEnd::Parked { .. } | ReplyEnd::Task(_),
            ) => {
                return Err(Failure::new(
                    FailureKind::BadAnswer,
                    "The server's answer about the task is none",
                ));
            }
        }
    }
}
