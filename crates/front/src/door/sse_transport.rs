//! HTTP+SSE, the transport of 2024-11-05, beside each endpoint: a stream at `<path>/sse`, whose
//! first event names the path to post messages to, and on which all messages are answered.
//!
//! Its client belongs to a session like any other: its messages pass through the usual layers, and
//! the answers' own bodies are written to the one stream, an event at a time.

use parking_lot::Mutex;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body::Frame;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::port::{Fut, random_id};
use weir_core::{Authenticated, EndpointId};
use weir_layers::failure;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::{FailureCause, RequestResult};
use weir_layers::http::answer;
use weir_layers::http::body::ResponseBody;
use weir_layers::http::header_names;
use weir_layers::in_flight::InFlightPermit;
use weir_layers::layer::answer_authenticated::AnswerAuthenticated;
use weir_layers::layer::isolate_panics::isolate_panics;
use weir_layers::layer::observe;
use weir_layers::layer::read_body::read_body;
use weir_layers::request::endpoint_request::{AuthenticatedRequest, EndpointRequest};
use weir_layers::request::outcome::ResponseOutcome;
use weir_layers::request::request_context::HttpRequestContext;
use weir_session::{
    AnswerKind, NoPendingAnswer, SessionPlace, SseConnection, SseConnectionId, StreamPermit,
    session_headers,
};
use weir_wire::method::Method as Rpc;
use weir_wire::{IncomingMessage, Message, MessageError, RequestId};

use crate::door::forwarding;
use crate::door::{mcp_service, message_decoding};
use crate::keep_alive::{self, KeepAlive};
use crate::method::open_listening;

/// Chunks of answers that wait for a slow reader; beyond that the answers wait.
const QUEUED_CHUNKS: usize = 16;

/// An HTTP+SSE path beside an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SsePath {
    /// The stream.
    Stream,
    /// The path that messages are posted to.
    Messages,
}

/// The suffixes of an endpoint's path: the stream's, and the one that messages are posted to.
pub const SSE_PATHS: [&str; 2] = ["/sse", "/messages"];

impl SsePath {
    /// Both paths, in the order of [`SSE_PATHS`].
    pub(crate) const ALL: [Self; 2] = [Self::Stream, Self::Messages];

    /// The method that the path takes.
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Stream => Method::GET,
            Self::Messages => Method::POST,
        }
    }

    /// The path beside this endpoint.
    pub(crate) fn beside(self, endpoint: &EndpointId) -> String {
        let path = endpoint.as_str().trim_end_matches('/');
        format!("{path}{}", SSE_PATHS[self as usize])
    }

    /// The path of the endpoint that this path stands beside, if it has the form of one.
    pub(crate) fn endpoint_of(path: &str) -> Option<&str> {
        let endpoint = SSE_PATHS
            .into_iter()
            .find_map(|end| path.strip_suffix(end))?;
        Some(if endpoint.is_empty() { "/" } else { endpoint })
    }
}

/// The service of one of the paths, below its layers.
#[derive(Clone, Copy)]
pub(crate) struct SseService(pub(crate) SsePath);

impl AnswerAuthenticated for SseService {
    async fn answer(self, authenticated: AuthenticatedRequest) -> RequestResult {
        let (answered, label) = match self.0 {
            SsePath::Stream => (open_connection(&authenticated), "GET"),
            SsePath::Messages => (take_message(&authenticated).await, "POST"),
        };
        failure::with_labels(answered, label, "legacy")
    }
}

/// Takes a posted message. A connection of another principal or endpoint is not found.
async fn take_message(authenticated: &AuthenticatedRequest) -> RequestResult {
    let AuthenticatedRequest { request, sender } = authenticated;
    let EndpointRequest { head, context } = &**request;
    let query = head.uri.query().unwrap_or_default();
    let named = SseConnectionId::from_query(query).ok_or(RequestRefusal::UnknownStream)?;
    if let Some(owner) = named.replica
        && context.shared.ports.may_answer(&owner)
    {
        let body = read_body(authenticated).await?;
        let unknown = |_| -> Fut<'_, RequestResult> {
            Box::pin(std::future::ready(
                Err(RequestRefusal::UnknownStream.into()),
            ))
        };
        let elsewhere = FailureCause::Elsewhere(owner).into();
        let forwarded = forwarding::answer_elsewhere(authenticated, body, elsewhere, unknown);
        return Box::pin(forwarded).await;
    }
    let connection = context
        .shared
        .sse_connections
        .find(&named.id)
        .filter(|connection| {
            connection.principal == *sender.principal() && connection.endpoint == context.endpoint
        })
        .filter(|connection| !connection.closed.is_cancelled())
        .ok_or(RequestRefusal::UnknownStream)?;
    let body = read_body(authenticated).await?;
    let permit = context.facts.take_permit();
    post(&connection, context.clone(), sender, body, permit).await
}

fn open_connection(authenticated: &AuthenticatedRequest) -> RequestResult {
    let (context, known) = (&authenticated.request.context, &authenticated.sender);
    let place = open_listening::stream_permit(context, known)?;
    let id = random_id(&*context.shared.ports.random);
    let (out, told) = mpsc::channel(QUEUED_CHUNKS);
    let connection = Arc::new(SseConnection {
        principal: known.principal().clone(),
        endpoint: context.endpoint.clone(),
        out,
        writing: tokio::sync::Mutex::default(),
        session: Mutex::default(),
        pending: Arc::default(),
        closed: CancellationToken::new(),
    });
    context
        .shared
        .sse_connections
        .lock()
        .insert(id, connection.clone());
    answer::count_deprecated("http_sse");
    let path = context.endpoint.as_str().trim_end_matches('/');
    let ports = &context.shared.ports;
    let named = SseConnectionId {
        id,
        replica: ports.replicas.as_ref().map(|_| ports.replica.clone()),
    };
    let first = format!(
        "event: endpoint\nretry: {}\ndata: {path}/messages?{}\n\n",
        context.limits().listening_retry(&*ports.random),
        named.to_query()
    );
    let hold = SseConnectionGuard {
        context: context.clone(),
        id,
        connection,
    };
    let headers = &authenticated.request.head.headers;
    let keep_alive = KeepAlive::new(context, known.principal(), headers, "line");
    Ok(answer::events(ResponseBody::new(SseBody::new(
        first, told, hold, place, keep_alive,
    ))))
}

/// The answer that a message gets on the stream.
struct StreamAnswer {
    kind: AnswerKind,
    /// The id of the request. Absent for a batch, and a message that cannot be read.
    id: Option<RequestId>,
}

impl StreamAnswer {
    /// The answer to this message. A notification and a response have none.
    fn of(incoming: &Result<IncomingMessage, MessageError>) -> Option<Self> {
        let (kind, id) = match incoming {
            Ok(IncomingMessage::One(Message::Notification(_) | Message::Response(_))) => {
                return None;
            }
            Ok(IncomingMessage::One(Message::Request(request))) => {
                let is_ping = request.method.known() == Some(Rpc::Ping);
                let kind = if is_ping {
                    AnswerKind::Ping
                } else {
                    AnswerKind::Request
                };
                (kind, Some(request.id.clone()))
            }
            Ok(IncomingMessage::Batch(_)) => (AnswerKind::Request, None),
            Err(error) => (AnswerKind::Request, error.id.clone()),
        };
        Some(Self { kind, id })
    }
}

/// Takes a message; its answer is written to the stream. The message is in flight until its own
/// answer begins there.
///
/// A message without an answer has taken effect when its POST is answered: a client that waits
/// for that may rely on it in its next message, as with Streamable HTTP. Such a message is taken
/// however many answers are pending, because these may wait for it.
async fn post(
    connection: &Arc<SseConnection>,
    context: HttpRequestContext,
    known: &Authenticated<()>,
    body: Bytes,
    in_flight: Option<InFlightPermit>,
) -> RequestResult {
    let incoming = message_decoding::decode(&context, body);
    let expected = StreamAnswer::of(&incoming);
    let pending = expected.as_ref();
    let pending = pending.map(|expected| connection.pending.begin(expected.kind));
    let pending = pending.transpose().map_err(|none| match none {
        NoPendingAnswer::TooMany => RequestRefusal::TooManyMessages,
        NoPendingAnswer::Closed => RequestRefusal::UnknownStream,
    })?;
    let has_answer = pending.is_some();
    let (own, known, shared) = (
        connection.clone(),
        known.for_item(()),
        context.shared.clone(),
    );
    let answering = async move {
        let _pending = pending;
        // The request counts at its own answer, under its own method.
        let seen = observe::observe_message(&context);
        let headers = own.headers();
        let handling =
            async { mcp_service::handle_message(&context, &known, &headers, incoming).await };
        let answered = isolate_panics(handling).await;
        let mut answer = answered.unwrap_or_else(|failure| {
            let id = expected.and_then(|expected| expected.id);
            failure::into_message_answer(failure, id.as_ref(), &context.name)
        });
        answer.body_mut().labels.meters = Some(context.meters.clone());
        let opened = answer.headers().get(&header_names::SESSION).cloned();
        if let Some(session) = opened {
            begin_session(&own, &context, &known, session).await;
        }
        drop(in_flight);
        let answer = seen.finish_message(answer);
        if has_answer {
            own.write(answer).await;
        }
    };
    // The task ends with the connection at the latest; the drain waits for it.
    let answering = connection
        .closed
        .clone()
        .run_until_cancelled_owned(answering);
    let answering = shared.shutdown.spawn_detached(answering);
    if !has_answer {
        // A panic ends this message alone.
        let _ended = answering.await;
    }
    let mut taken = failure::accepted();
    taken.extensions_mut().insert(ResponseOutcome::Elsewhere);
    Ok(taken)
}

/// Makes the session that `initialize` opened that of the connection, and forwards the session's
/// own stream to it.
///
/// A connection has one session at a time: a client that sends `initialize` again, such as one whose
/// first attempt timed out, begins anew. The session before that ends.
async fn begin_session(
    connection: &Arc<SseConnection>,
    context: &HttpRequestContext,
    known: &Authenticated<()>,
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
        known.for_item(()),
        session,
    );
    let listening = connection
        .closed
        .clone()
        .run_until_cancelled_owned(listening);
    context.shared.shutdown.spawn_detached(listening);
}

/// Forwards the stream of a session to its connection. The connection ends with its session: the
/// client learns of the end in no other way, and connects again.
async fn forward_session_stream(
    connection: Arc<SseConnection>,
    context: HttpRequestContext,
    known: Authenticated<()>,
    session: HeaderValue,
) {
    let headers = session_headers(session.clone());
    // Without its session's stream the client would miss notifications: it connects again, too.
    if let Ok(stream) = open_listening::open_on_connection(&context, &known, &headers).await {
        connection.write(stream).await;
    }
    // A drain ends the session's stream first, and the connection once all messages are answered.
    if connection.has_session(&session) && !context.shared.shutdown.is_draining() {
        connection.closed.cancel();
    }
}

/// Ends a session of the connection.
async fn end_session(
    context: &HttpRequestContext,
    connection: &SseConnection,
    session: HeaderValue,
) {
    let sessions = &context.shared.sessions;
    let headers = session_headers(session);
    if let Ok(SessionPlace::Here(opened)) = sessions
        .load(&connection.principal, &headers, &context.limits().session)
        .await
    {
        sessions.end(&opened.record, &opened.session).await;
    }
}

/// Ends the connection and its session when its stream is dropped.
struct SseConnectionGuard {
    context: HttpRequestContext,
    id: [u8; 16],
    connection: Arc<SseConnection>,
}

impl Drop for SseConnectionGuard {
    fn drop(&mut self) {
        let shared = &self.context.shared;
        shared.sse_connections.lock().remove(&self.id);
        let Some(session) = self.connection.end() else {
            return;
        };
        let (context, connection) = (self.context.clone(), self.connection.clone());
        shared
            .shutdown
            .spawn_detached(async move { end_session(&context, &connection, session).await });
    }
}

/// The body of the connection's stream.
struct SseBody {
    first: Option<Bytes>,
    chunks: mpsc::Receiver<Bytes>,
    /// True between two events.
    between: bool,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the drain began and all messages are answered.
    drained: Fut<'static, ()>,
    keep_alive: KeepAlive,
    is_ending: bool,
    hold: SseConnectionGuard,
    _place: StreamPermit,
}

impl SseBody {
    fn new(
        first: String,
        told: mpsc::Receiver<Bytes>,
        hold: SseConnectionGuard,
        place: StreamPermit,
        keep_alive: KeepAlive,
    ) -> Self {
        let drain = hold.context.shared.shutdown.drain().clone();
        let pending = hold.connection.pending.clone();
        let drained = async move {
            drain.cancelled().await;
            pending.close_when_none().await;
        };
        Self {
            first: Some(first.into()),
            chunks: told,
            between: true,
            over: Box::pin(hold.connection.closed.clone().cancelled_owned()),
            drained: Box::pin(drained),
            keep_alive,
            is_ending: false,
            hold,
            _place: place,
        }
    }
}

impl http_body::Body for SseBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Poll::Ready(Some(piece)) = this.chunks.poll_recv(cx) {
            this.between = piece.ends_with(b"\n\n");
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        loop {
            if !this.is_ending {
                this.is_ending = this.keep_alive.is_expired()
                    || this.drained.as_mut().poll(cx).is_ready()
                    || this.over.as_mut().poll(cx).is_ready();
            }
            if this.is_ending {
                this.hold.connection.closed.cancel();
                // The last answer may have come since the look above.
                return Poll::Ready(match this.chunks.poll_recv(cx) {
                    Poll::Ready(Some(piece)) => Some(Ok(Frame::data(piece))),
                    Poll::Ready(None) | Poll::Pending => None,
                });
            }
            std::task::ready!(this.keep_alive.poll_due(cx));
            if this.between && !this.keep_alive.is_expired() {
                return Poll::Ready(Some(Ok(Frame::data(keep_alive::comment()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_sse_paths_stand_beside_their_endpoint() {
        let paths = |endpoint| SsePath::ALL.map(|end| end.beside(&EndpointId::new(endpoint)));
        assert_eq!(paths("/mcp"), ["/mcp/sse", "/mcp/messages"]);
        assert_eq!(paths("/"), ["/sse", "/messages"]);
        assert_eq!(SsePath::endpoint_of("/mcp/sse"), Some("/mcp"));
        assert_eq!(SsePath::endpoint_of("/mcp/one/messages"), Some("/mcp/one"));
        assert_eq!(SsePath::endpoint_of("/sse"), Some("/"));
        for other in ["/mcp", "/mcp/sse/", "/mcp/ssex", "/mcpsse"] {
            assert_eq!(SsePath::endpoint_of(other), None, "{other}");
        }
    }
}
