//! The begin and the end of a legacy client's session.

use http::HeaderValue;
use weir_core::{Authenticated, Failure, FailureKind};
use weir_era::capabilities::class_of;
use weir_era::session::{LegacySessionRecord, negotiate};
use weir_layers::failure;
use weir_layers::failure::message_refusal::MessageRefusal;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::{RequestFailure, RequestResult};
use weir_layers::http::answer::with_labels;
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{NoSession, load_session};
use weir_session::{ClientRequest, LoadedSession};
use weir_wire::params::Params;
use weir_wire::{Era, RequestId};

use crate::method::lists;

/// Answers `initialize`: opens a session of the revision that both sides know.
pub(super) async fn initialize(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    id: &RequestId,
    params: &Params,
) -> RequestResult {
    let bad = |text: String| RequestFailure::message(Some(id), MessageRefusal::InvalidParams(text));
    let wrong = |error: weir_wire::params::ParamsError| bad(error.to_string());
    let proposed = params.protocol_version().map_err(wrong)?;
    let proposed = proposed.ok_or_else(|| bad("`protocolVersion` is missing".to_owned()))?;
    let class = params.capabilities().map_err(wrong)?;
    let class = class.as_deref().map(class_of).unwrap_or_default();
    let revision = negotiate(Some(&proposed));
    // Before the session is opened: this waits for upstreams, and the client may leave meanwhile.
    let carried = LoadedSession::class_of_revision(revision, class);
    let result = lists::initialize_result(context, revision, carried, sender.principal()).await;
    let session = LegacySessionRecord {
        revision,
        class,
        level: None,
        initialized: false,
        began: context.ports().clock.wall(),
    };
    let peer = context.client_address;
    let opened = context
        .shared()
        .sessions
        .open(
            sender.principal(),
            peer,
            &session,
            &context.limits().session,
        )
        .await;
    let opened = opened.map_err(|failure| refusal_of_session(&failure))?;
    let info = params.client_info().ok().flatten();
    context.shared().known_clients.record(&ClientRequest {
        principal: sender.principal(),
        endpoint: context.endpoint(),
        revision,
        info: info.as_ref(),
        session: Some(opened.key),
        time: session.began,
    });
    let mut answer = failure::ok(weir_wire::write::response(id, &result));
    if let Ok(value) = HeaderValue::from_str(&opened.text) {
        answer.headers_mut().insert("mcp-session-id", value);
    }
    Ok(answer)
}

/// The refusal of a session that could not be opened. By status alone: a client that only probes
/// could read a JSON-RPC body as a server that is not weir.
fn refusal_of_session(failure: &Failure) -> RequestRefusal {
    if matches!(failure.kind(), FailureKind::Limit) {
        RequestRefusal::TooManySessions
    } else {
        RequestRefusal::NoRoomForSession
    }
}

const DELETE_LABELS: MessageLabels = MessageLabels::of(Era::Legacy, "DELETE");

/// Handles DELETE: ends the session.
pub(crate) async fn delete(head: RequestHead<'_>) -> RequestResult {
    let context = head.context;
    context.facts.leave_decoded(DELETE_LABELS);
    let session = load_session(head)
        .await
        .map_err(|none| match none {
            NoSession::Unknown => RequestRefusal::UnknownSession.into(),
            NoSession::Missing
            | NoSession::Repeated
            | NoSession::Version
            | NoSession::Elsewhere(_)
            | NoSession::Unreadable => none.failure(None),
        })
        .map_err(|failure| failure.labelled(DELETE_LABELS))?;
    let sessions = &context.shared().sessions;
    sessions.end(&session.record_key, &session.record).await;
    Ok(with_labels(failure::no_content(), DELETE_LABELS))
}
