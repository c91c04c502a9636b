//! The canonical call of a request of either era.

use weir_core::call::{InputMode, LogMessages, TaskMode};
use weir_core::{Call, CapabilityClass, SessionKey};
use weir_era::lift::{self, LiftedRequest};
use weir_era::session::LegacySessionRecord;
use weir_layers::http::answer;
use weir_layers::request::request_context::HttpRequestContext;
use weir_wire::method::Method;
use weir_wire::params::Params;

/// The canonical call of a request of either era.
pub(crate) fn canonical_call(
    context: &HttpRequestContext,
    method: Method,
    lifted: LiftedRequest,
) -> Call {
    if matches!(lifted.log_messages, LogMessages::From(_)) {
        answer::count_deprecated("logging");
    }
    Call {
        endpoint: context.endpoint().clone(),
        method,
        params: lifted.params,
        capabilities: lifted.capabilities,
        wants_progress: lifted.progress_token.is_some(),
        log_messages: lifted.log_messages,
        session: None,
        input_mode: InputMode::Requests,
        resume: None,
        input_responses: None,
        input_refusals: None,
        wants_status_only: false,
        is_continuation: false,
        task_mode: TaskMode::Never,
        extension: None,
        request: *context.name(),
        trace: lifted
            .trace
            .or(&context.trace)
            .next_hop(&*context.ports().random),
    }
}

/// A call without an item, for the session that the calls of a legacy client of this class will
/// have. The record is that of its own session, if it has one.
pub(crate) fn call_without_item(
    context: &HttpRequestContext,
    record: Option<&LegacySessionRecord>,
    session: Option<SessionKey>,
    class: CapabilityClass,
) -> Option<Call> {
    let lifted = Params::parse(None).and_then(|none| lift::legacy(none, record, class));
    Some(Call {
        session,
        ..canonical_call(context, Method::Ping, lifted.ok()?)
    })
}
