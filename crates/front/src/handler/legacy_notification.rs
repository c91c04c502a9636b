//! Notifications of a legacy client.

use std::collections::HashSet;
use std::sync::Arc;

use weir_core::Authenticated;
use weir_core::upstream::ClientSessionChange;
use weir_layers::failure;
use weir_layers::failure::RequestResult;
use weir_layers::http::answer::with_labels;
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::moved_sessions::check_session_is_here;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{load_session, names_session};
use weir_session::LoadedSession;
use weir_wire::message::Notification;
use weir_wire::method::Method;
use weir_wire::{Era, RequestId, scan};

use crate::method::canonical_call::call_without_item;

/// Handles a notification of a session. A modern client has no notifications over HTTP that have an
/// effect.
pub(crate) async fn notification(
    head: RequestHead<'_>,
    notification: &Notification,
) -> RequestResult {
    let (context, headers) = (head.context, head.headers);
    let method = notification.method.known().map_or("other", Method::as_str);
    if !names_session(headers) {
        let labels = MessageLabels { method, era: None };
        return Ok(with_labels(failure::accepted(), labels));
    }
    let labels = MessageLabels::of(Era::Legacy, method);
    context.facts.leave_decoded(labels);
    check_session_is_here(context, headers, notification.method.known())
        .map_err(|failure| failure.labelled(labels))?;
    let session = load_session(head)
        .await
        .map_err(|none| none.failure(None).labelled(labels))?;
    handle_notification(context, head.sender, &session, notification).await;
    Ok(with_labels(failure::accepted(), labels))
}

/// Carries out a notification of a session, of a batch too.
pub(super) async fn handle_notification(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
    notification: &Notification,
) {
    let params = notification.params.clone().unwrap_or_default();
    let named = |member: &str| {
        scan::find(&params, member).and_then(|range| RequestId::from_json(&params[range]).ok())
    };
    // Unknown and finished ids are ignored (cancellation, progress, every revision).
    match notification.method.known() {
        Some(Method::Cancelled) => {
            if let Some(id) = named("requestId") {
                context.shared().sessions.cancel(&session.key, &id);
            }
        }
        Some(Method::Progress) => {
            if let Some(token) = named("progressToken") {
                context.shared().sessions.report_progress(
                    &session.key,
                    token.as_json(),
                    params.clone(),
                );
            }
        }
        Some(Method::Initialized) => {
            context
                .shared()
                .sessions
                .mark_initialized(session, &context.limits().session)
                .await;
            announce_session(context, sender, session);
        }
        Some(Method::RootsListChanged) => {
            context.shared().router.notify_sessions(
                &HashSet::from([session.key]),
                ClientSessionChange::RootsChanged,
            );
        }
        _ => {}
    }
}

/// Reports a new session to the upstream of a transparent endpoint, so that it may open one of its
/// own.
fn announce_session(
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: &LoadedSession,
) {
    if !session.is_stored {
        return;
    }
    let call = call_without_item(
        context,
        Some(&session.record),
        Some(session.key),
        session.class_of_lists(),
    );
    if let Some(call) = call {
        context
            .shared()
            .router
            .open_session(&sender.for_payload(Arc::new(call)));
    }
}
