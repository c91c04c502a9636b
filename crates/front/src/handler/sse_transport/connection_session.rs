//! The session of an HTTP+SSE connection: it begins with `initialize` or a new connection, and ends
//! with the stream.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use weir_core::Authenticated;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::session_lookup::{plain_session, version};
use weir_session::{LoadedSession, SessionPlace, SseConnection, session_headers};

use crate::method::open_listening;

/// Opens a session for a client that connects again, such as a browser's `EventSource`: its program
/// takes the new path for messages, and does not send `initialize` again. The id of an event has the
/// settings of its session. A client that names only the revision of its session, as the TypeScript
/// SDK does, goes on without capabilities.
///
/// Without a session, the client gets its stream all the same: an `EventSource` does not connect
/// again after another status than 200, and a later `initialize` on the stream may get a session.
pub(super) async fn reopen_session(
    SseConnectionGuard {
        context,
        connection,
        ..
    }: &SseConnectionGuard,
    sender: &Authenticated<()>,
    headers: &HeaderMap,
) {
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let earlier = last_event
        .and_then(|id| connection.open_session(&context.shared().sealer, id))
        .or_else(|| Some(plain_session(context, version(headers).ok()??)));
    let Some(earlier) = earlier else { return };
    let (sessions, peer) = (&context.shared().sessions, context.client_address);
    let limits = &context.limits().session;
    let opened = sessions.reopen(sender.principal(), peer, earlier, limits);
    match opened.await {
        Ok(opened) => {
            if let Ok(session) = HeaderValue::try_from(opened.text) {
                begin_session(connection, context, sender, session).await;
            }
        }
        Err(failure) => tracing::debug!(
            endpoint = %context.endpoint(), error = failure.cause(),
            "HTTP+SSE stream without a session: none could be opened"
        ),
    }
}

/// Makes the session that `initialize` opened that of the connection, and forwards the session's
/// own stream to it.
///
/// A connection has one session at a time: a client that sends `initialize` again, such as one whose
/// first attempt timed out, begins anew. The session before that ends.
pub(super) async fn begin_session(
    connection: &Arc<SseConnection>,
    context: &HttpRequestContext,
    sender: &Authenticated<()>,
    session: HeaderValue,
) {
    let former = match connection.set_session(session.clone()) {
        Ok(former) => former,
        Err(unused) => Some(unused),
    };
    if let Some(former) = former {
        end_session(context, connection, former).await;
    }
    let listening = forward_session_stream(
        connection.clone(),
        context.clone(),
        sender.for_payload(()),
        session,
    );
    let listening = connection
        .closed
        .clone()
        .run_until_cancelled_owned(listening);
    context.shared().shutdown.spawn_detached(listening);
}

/// Forwards the stream of a session to its connection. The connection ends with its session: the
/// client learns of the end in no other way, and connects again.
async fn forward_session_stream(
    connection: Arc<SseConnection>,
    context: HttpRequestContext,
    sender: Authenticated<()>,
    session: HeaderValue,
) {
    let head = RequestHead {
        context: &context,
        sender: &sender,
        headers: &session_headers(session.clone()),
    };
    // Without its session's stream the client would miss notifications: it connects again, too.
    if let Ok(stream) = open_listening::open_on_connection(head).await {
        let between_events = async {
            connection.expired.cancelled().await;
            connection.writing.lock().await
        };
        tokio::select! {
            () = connection.write(stream, None) => {}
            // The answers that the client waits for are all that is left.
            _writing = between_events => return,
        }
    }
    // A drain ends the session's stream first, and the connection once all messages are answered.
    if connection.has_session(&session) && !context.shared().shutdown.is_draining() {
        connection.closed.cancel();
    }
}

/// Ends a session of the connection.
async fn end_session(
    context: &HttpRequestContext,
    connection: &SseConnection,
    session: HeaderValue,
) {
    if let Some(own) = load_own(context, connection, &session).await {
        let sessions = &context.shared().sessions;
        sessions.end(&own.record_key, &own.record).await;
    }
}

/// The settings of the connection's session as the id of an event, if it has a session.
pub(super) async fn sealed_session(
    connection: &SseConnection,
    context: &HttpRequestContext,
) -> Option<String> {
    let session = load_own(context, connection, &connection.session()?).await?;
    let (sealer, random) = (&context.shared().sealer, &*context.ports().random);
    Some(connection.seal_session(sealer, random, &session.record))
}

async fn load_own(
    context: &HttpRequestContext,
    connection: &SseConnection,
    session: &HeaderValue,
) -> Option<LoadedSession> {
    let (sessions, limits) = (&context.shared().sessions, &context.limits().session);
    match sessions.load(&connection.principal, session, limits).await {
        Ok(SessionPlace::Here(session)) => Some(session),
        Ok(SessionPlace::Elsewhere(_) | SessionPlace::Gone) | Err(_) => None,
    }
}

/// Ends the connection and its session when its stream is dropped.
pub(super) struct SseConnectionGuard {
    pub(super) context: HttpRequestContext,
    pub(super) id: [u8; 16],
    pub(super) connection: Arc<SseConnection>,
}

impl Drop for SseConnectionGuard {
    fn drop(&mut self) {
        let shared = self.context.shared();
        shared.sse_connections.remove(&self.id);
        let Some(session) = self.connection.end() else {
            return;
        };
        let (context, connection) = (self.context.clone(), self.connection.clone());
        shared
            .shutdown
            .spawn_detached(async move { end_session(&context, &connection, session).await });
    }
}
