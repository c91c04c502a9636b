//! HTTP+SSE, the transport of 2024-11-05, beside each endpoint: a stream at `<path>/sse`, whose
//! first event names the path to post messages to, and on which all messages are answered.
//!
//! Its client belongs to a session like any other: its messages pass through the usual layers, and
//! the answers' own bodies are written to the one stream, an event at a time.

mod connection_session;
mod sse_body;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::port::{BoxFuture, ReplicaId, random_id};
use weir_layers::failure;
use weir_layers::failure::request_refusal::RequestRefusal;
use weir_layers::failure::{FailureCause, RequestFailure, RequestResult};
use weir_layers::http::answer;
use weir_layers::http::body::{HttpAnswer, ResponseBody};
use weir_layers::http::header_names;
use weir_layers::http::sse_path::SsePath;
use weir_layers::in_flight::InFlightPermit;
use weir_layers::layer::answer_request::AnswerRequest;
use weir_layers::layer::isolate_panics::isolate_panics;
use weir_layers::layer::observe;
use weir_layers::layer::read_body::read_body;
use weir_layers::request::endpoint_request::{AuthenticatedRequest, EndpointRequest};
use weir_layers::request::message_labels::MessageLabels;
use weir_layers::request::outcome::ResponseOutcome;
use weir_layers::request::request_context::HttpRequestContext;
use weir_layers::request::request_head::RequestHead;
use weir_layers::request::stream_credentials::stream_credentials;
use weir_listen::OtherProcess;
use weir_session::{AnswerKind, NoPendingAnswer, SseConnection, SseConnectionId, StreamKind};
use weir_wire::method::Method as Rpc;
use weir_wire::{Era, IncomingMessage, Message, MessageError, RequestId};

use crate::handler::forwarding;
use crate::handler::sse_transport::connection_session::{
    SseConnectionGuard, begin_session, reopen_session, sealed_session,
};
use crate::handler::sse_transport::sse_body::{SUCCESSOR_RETRY_MS, SseBody};
use crate::handler::{mcp_service, message_decoding};
use crate::keep_alive::KeepAlive;

/// Chunks of answers that wait for a slow reader; beyond that the answers wait.
const QUEUED_CHUNKS: usize = 16;

/// The service of one of the paths, below its layers.
#[derive(Clone, Copy)]
pub(crate) struct SseService(pub(crate) SsePath);

impl AnswerRequest<AuthenticatedRequest> for SseService {
    async fn answer(self, authenticated: AuthenticatedRequest) -> RequestResult {
        let (answered, method) = match self.0 {
            SsePath::Stream => (open_connection(&authenticated).await, "GET"),
            SsePath::Messages => (take_message(&authenticated).await, "POST"),
        };
        failure::with_labels(answered, MessageLabels::of(Era::Legacy, method))
    }
}

/// Takes a posted message. A connection of another principal or endpoint is not found.
async fn take_message(authenticated: &AuthenticatedRequest) -> RequestResult {
    let AuthenticatedRequest { request, sender } = authenticated;
    let EndpointRequest { head, context } = &**request;
    let query = head.uri.query().unwrap_or_default();
    let named = SseConnectionId::from_query(query).ok_or(RequestRefusal::UnknownStream)?;
    let own = &context.ports().replica;
    if let Some(owner) = named.replica.filter(|owner| owner != own) {
        return Box::pin(post_elsewhere(authenticated, owner)).await;
    }
    let found = context
        .shared()
        .sse_connections
        .find(&named.id)
        .filter(|connection| {
            connection.principal == *sender.principal()
                && connection.endpoint == *context.endpoint()
        })
        .filter(|connection| !connection.closed.is_cancelled());
    let Some(connection) = found else {
        return Box::pin(post_to_process(authenticated)).await;
    };
    let body = read_body(authenticated).await?;
    let permit = context.facts.take_permit();
    post(&connection, authenticated, body, permit).await
}

/// Sends a message to the replica that has the connection. As long as that replica may run, its
/// clients must not take the connection for ended.
async fn post_elsewhere(authenticated: &AuthenticatedRequest, owner: ReplicaId) -> RequestResult {
    let ports = authenticated.request.context.ports();
    let refused = || {
        if ports.may_run(&owner) {
            RequestRefusal::OwnerUnreachable
        } else {
            RequestRefusal::UnknownStream
        }
    };
    if !ports.may_answer(&owner) {
        return Err(refused().into());
    }
    let body = read_body(authenticated).await?;
    let again =
        |_| -> BoxFuture<'_, RequestResult> { Box::pin(std::future::ready(Err(refused().into()))) };
    let elsewhere = FailureCause::Elsewhere(owner.clone()).into();
    forwarding::answer_elsewhere(authenticated, body, elsewhere, again).await
}

/// Sends a message to another process of a graceful restart, if there is one: the connections that
/// were open at the restart stay in the process before, and new ones are in the process after.
async fn post_to_process(authenticated: &AuthenticatedRequest) -> RequestResult {
    let context = &authenticated.request.context;
    let unknown = || -> RequestFailure {
        match context.from_process() {
            // It may have another process to ask.
            Some(_) => {
                let own = context.ports().replica.clone();
                forwarding::not_owner(context, FailureCause::Elsewhere(own).into())
            }
            None => RequestRefusal::UnknownStream.into(),
        }
    };
    let before = context.other_process(OtherProcess::Predecessor);
    let after = context.other_process(OtherProcess::Successor);
    if before.is_none() && after.is_none() {
        return Err(unknown());
    }
    let body = read_body(authenticated).await?;
    let mut answered = Err(unknown());
    if before.is_some() {
        answered = forwarding::answer_in_predecessor(authenticated, body.clone(), &unknown()).await;
    }
    if answered.is_err() && after.is_some() {
        let again =
            |_| -> BoxFuture<'_, RequestResult> { Box::pin(std::future::ready(Err(unknown()))) };
        let there = FailureCause::InProcess(OtherProcess::Successor).into();
        answered = forwarding::answer_elsewhere(authenticated, body, there, again).await;
    }
    answered
}

async fn open_connection(authenticated: &AuthenticatedRequest) -> RequestResult {
    let (context, sender) = (&authenticated.request.context, &authenticated.sender);
    if context.shared().shutdown.is_draining() {
        return Ok(connect_again(context));
    }
    let permit = context.take_stream_permit(sender)?;
    let id = random_id(&*context.ports().random);
    let (out, chunks) = mpsc::channel(QUEUED_CHUNKS);
    let closed = CancellationToken::new();
    let connection = Arc::new(SseConnection {
        principal: sender.principal().clone(),
        endpoint: context.endpoint().clone(),
        out,
        writing: tokio::sync::Mutex::default(),
        session: Mutex::default(),
        pending: Arc::default(),
        posted: Mutex::default(),
        expired: closed.child_token(),
        closed,
    });
    context
        .shared()
        .sse_connections
        .insert(id, connection.clone());
    answer::count_deprecated("http_sse");
    let path = context.endpoint().as_str().trim_end_matches('/');
    let ports = context.ports();
    let named = SseConnectionId {
        id,
        replica: ports.replicas.as_ref().map(|_| ports.replica.clone()),
    };
    // Short: until the client connects again, its messages have no stream to be answered on.
    let first = format!(
        "event: endpoint\nretry: {}\ndata: {path}/messages?{}\n\n",
        context.limits().call_retry(&*ports.random),
        named.to_query()
    );
    let hold = SseConnectionGuard {
        context: context.clone(),
        id,
        connection,
    };
    let headers = &authenticated.request.head.headers;
    Box::pin(reopen_session(&hold, sender, headers)).await;
    let keep_alive = KeepAlive::new(context, sender.principal(), headers, StreamKind::HttpSse);
    Ok(answer::events(ResponseBody::new(SseBody::new(
        first, chunks, hold, permit, keep_alive,
    ))))
}

/// The stream of a client that comes while this process drains: it ends at once, and the client
/// connects again. It names no path for messages: these would have no stream to be answered on.
fn connect_again(context: &HttpRequestContext) -> HttpAnswer {
    let retry = match context.other_process(OtherProcess::Successor) {
        Some(_) => SUCCESSOR_RETRY_MS,
        None => context.limits().call_retry(&*context.ports().random),
    };
    answer::events(Bytes::from(format!("retry: {retry}\n\n")).into())
}

/// The answer that a message gets on the stream.
struct StreamAnswer {
    kind: AnswerKind,
    /// True if the message sets what a client that connects again goes on with.
    sets_session: bool,
    /// The id of the request. Absent for a batch, and a message that cannot be read.
    id: Option<RequestId>,
}

impl StreamAnswer {
    /// The answer to this message. A notification and a response have none.
    fn of(incoming: &Result<IncomingMessage, MessageError>) -> Option<Self> {
        let (kind, method, id) = match incoming {
            Ok(IncomingMessage::One(Message::Notification(_) | Message::Response(_))) => {
                return None;
            }
            Ok(IncomingMessage::One(Message::Request(request))) => {
                let method = request.method.known();
                let kind = if method == Some(Rpc::Ping) {
                    AnswerKind::Ping
                } else {
                    AnswerKind::Request
                };
                (kind, method, Some(request.id.clone()))
            }
            Ok(IncomingMessage::Batch(_)) => (AnswerKind::Request, None, None),
            Err(error) => (AnswerKind::Request, None, error.id.clone()),
        };
        let sets_session = matches!(method, Some(Rpc::Initialize | Rpc::LoggingSetLevel));
        Some(Self {
            kind,
            sets_session,
            id,
        })
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
    AuthenticatedRequest { request, sender }: &AuthenticatedRequest,
    body: Bytes,
    in_flight: Option<InFlightPermit>,
) -> RequestResult {
    let EndpointRequest { head, context } = &**request;
    let (context, posted) = (context.clone(), head.headers.clone());
    connection.keep_credentials(stream_credentials(&context, sender.principal(), &posted));
    let incoming = message_decoding::decode(&context, body);
    let expected = StreamAnswer::of(&incoming);
    let pending = expected.as_ref();
    let pending = pending.map(|expected| connection.pending.begin(expected.kind));
    let pending = pending.transpose().map_err(|none| match none {
        NoPendingAnswer::TooMany => RequestRefusal::TooManyMessages,
        NoPendingAnswer::Closed => RequestRefusal::UnknownStream,
    })?;
    let has_answer = pending.is_some();
    let sets_session = expected.as_ref().is_some_and(|answer| answer.sets_session);
    let (own, sender, shared) = (
        connection.clone(),
        sender.for_payload(()),
        context.shared().clone(),
    );
    let answering = async move {
        let _pending = pending;
        // The request counts at its own answer, under its own method.
        let seen = observe::observe_message(&context);
        let headers = own.message_headers(posted);
        let head = RequestHead {
            context: &context,
            sender: &sender,
            headers: &headers,
        };
        let handling = async { mcp_service::handle_message(head, incoming).await };
        let answered = isolate_panics(handling).await;
        let mut answer = answered.unwrap_or_else(|failure| {
            let id = expected.and_then(|expected| expected.id);
            failure::into_message_answer(failure, id.as_ref(), context.name())
        });
        answer.body_mut().labels.meters = Some(context.route.meters.clone());
        let opened = answer.headers().get(&header_names::SESSION).cloned();
        if let Some(session) = opened {
            begin_session(&own, &context, &sender, session).await;
        }
        drop(in_flight);
        let answer = seen.finish_message(answer);
        if has_answer {
            let event_id = if sets_session {
                sealed_session(&own, &context).await
            } else {
                None
            };
            own.write(answer, event_id.as_deref()).await;
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
