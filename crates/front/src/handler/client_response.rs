//! Responses of clients to requests of servers, which belong to calls that run: here, or at the
//! replica that asked.

use weir_core::telemetry::instruments;
use weir_layers::failure;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::{FailureCause, RequestFailure, RequestResult};
use weir_layers::request::question_id::{asking_replica, reachable_asker};
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{NoSession, load_session};
use weir_session::LoadedSession;
use weir_wire::message::Response;

/// Handles a client's response to a server's request within a call. A response that no call waits
/// for is late, and is accepted.
///
/// # Errors
/// The session is unknown, or the response belongs to another replica.
pub(crate) async fn response(head: RequestHead<'_>, response: Response) -> RequestResult {
    if deliver_to_asker(head, &response)? {
        return Ok(failure::accepted());
    }
    let session = load_session(head).await.map_err(|none| match none {
        NoSession::Missing => RequestFailure::message(None, MessageRefusal::ResponseWithoutSession),
        NoSession::Unknown
        | NoSession::Repeated
        | NoSession::Version
        | NoSession::Elsewhere(_)
        | NoSession::Unreadable => none.failure(None),
    })?;
    deliver_response(head.context, &session, response);
    Ok(failure::accepted())
}

/// Delivers a response to the replica that its id names: the session may have another owner since
/// the question. True if it is settled.
///
/// # Errors
/// The response is to be forwarded.
fn deliver_to_asker(head: RequestHead<'_>, response: &Response) -> Result<bool, RequestFailure> {
    let context = head.context;
    let (sessions, ports) = (&context.shared().sessions, context.ports());
    let key = sessions.sealed_key(head.sender.principal(), head.headers);
    let (Some(key), Some(id)) = (key, &response.id) else {
        return Ok(false);
    };
    let outcome = &response.outcome;
    if sessions.answer_here(&key, id.as_json(), outcome.clone()) {
        return Ok(true);
    }
    if context.may_go_to_replica() {
        return match reachable_asker(ports, id) {
            Some(asker) => Err(FailureCause::Elsewhere(asker).into()),
            None => Ok(false),
        };
    }
    // Before a graceful restart, the question was asked by another process of this name.
    let is_own = asking_replica(id).as_ref() == Some(&ports.replica);
    if is_own {
        sessions.answer(&key, id.as_json(), outcome.clone());
    }
    Ok(is_own)
}

/// Delivers a response within its session.
pub(crate) fn deliver_response(
    context: &HttpRequestContext,
    session: &LoadedSession,
    response: Response,
) {
    match response.id {
        Some(id) => context
            .shared()
            .sessions
            .answer(&session.key, id.as_json(), response.outcome),
        None => instruments().unexpected_responses.add(1, &[]),
    }
}
