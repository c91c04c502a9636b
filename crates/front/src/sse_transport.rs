//! HTTP+SSE, the transport of 2024-11-05, beside each endpoint: a stream at `<path>/sse`, whose
//! first event names the path to post messages to, and on which all messages are answered.
//!
//! Its client belongs to a session like any other: its messages pass through the usual layers, and
//! the answers' own bodies are written to the one stream, an event at a time.

use std::collections::HashMap;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Task, Poll};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use weir_core::port::{Fut, random_id};
use weir_core::{Authenticated, EndpointId, Principal};

use weir_wire::sse::StreamEncoder;
use weir_wire::{IncomingMessage, Message};

use crate::answer::{self, RequestRefusal, with_labels};
use crate::body::{BodyError, ResponseBody};
use crate::head_guard::HeadGuard;
use crate::in_flight::InFlightPermit;
use crate::keep_alive::{self, KeepAlive};
use crate::observe::{self, HttpAnswer};
use crate::outcome::ResponseOutcome;
use crate::permits::StreamPermit;
use crate::stack::{FrontState, HttpRequestContext, IncomingRequest};
use crate::{authenticate, listening_stream, request_body, request_checks};

/// Chunks of answers that wait for a slow reader; beyond that the answers wait.
const QUEUED_CHUNKS: usize = 16;
/// Messages of one client that are answered at the same time.
const MESSAGES_AT_ONCE: usize = 64;

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

/// Splits a path into the endpoint's path and its HTTP+SSE part, if it has one.
pub(crate) fn split_sse_path(path: &str) -> Option<(&str, SsePath)> {
    let mut ends = SSE_PATHS
        .into_iter()
        .zip([SsePath::Stream, SsePath::Messages]);
    let (endpoint, end) = ends.find_map(|(name, end)| Some((path.strip_suffix(name)?, end)))?;
    Some((if endpoint.is_empty() { "/" } else { endpoint }, end))
}

/// The open connections, by an unguessable id. Each holds a stream permit, which bounds them.
#[derive(Default)]
pub(crate) struct SseConnections(Mutex<HashMap<[u8; 16], Arc<SseConnection>>>);

/// The connection of one client.
struct SseConnection {
    principal: Principal,
    endpoint: EndpointId,
    out: mpsc::Sender<Bytes>,
    /// Held while an event is written: others must not write into it.
    writing: tokio::sync::Mutex<()>,
    /// The id of the session that `initialize` opened.
    session: Mutex<Option<HeaderValue>>,
    message_permits: Arc<Semaphore>,
    closed: CancellationToken,
}

/// Serves a request of HTTP+SSE.
pub(crate) async fn serve_http_sse(
    context: &HttpRequestContext,
    keeper: &HeadGuard,
    IncomingRequest {
        head, body, permit, ..
    }: &mut IncomingRequest,
    end: SsePath,
) -> HttpAnswer {
    let method = if end == SsePath::Stream {
        Method::GET
    } else {
        Method::POST
    };
    if let Err(refusal) = keeper.check_sse_request(head, &method) {
        return refusal.into_answer();
    }
    let known = match authenticate::admit(context, head).await {
        Ok(known) => known,
        Err(refusal) => return refusal.into_answer(),
    };
    let answer = match end {
        SsePath::Stream => open_connection(context, &known),
        SsePath::Messages => {
            let line = head
                .uri
                .query()
                .and_then(|query| context.shared.sse_connections.find(query));
            let own = |line: &Arc<SseConnection>| {
                line.principal == *known.principal() && line.endpoint == context.endpoint
            };
            // A connection of another principal or endpoint is not found.
            let Some(line) = line.filter(own) else {
                return RequestRefusal::new(
                    StatusCode::NOT_FOUND,
                    "session",
                    "no such stream: get one first",
                )
                .into_answer();
            };
            match request_body::read_body(
                &head.headers,
                body,
                context.limits(),
                context.bodies(&known),
            )
            .await
            {
                Ok(body) => {
                    context.meters.count_received(body.len());
                    line.post(context.clone(), &known, body, permit.take())
                        .await
                }
                Err(refusal) => refusal.into_answer(),
            }
        }
    };
    with_labels(
        answer,
        if end == SsePath::Stream {
            "GET"
        } else {
            "POST"
        },
        "legacy",
    )
}

fn open_connection(context: &HttpRequestContext, known: &Authenticated<()>) -> HttpAnswer {
    let place = match listening_stream::stream_permit(context, known) {
        Ok(place) => place,
        Err(none) => return none.into_answer(),
    };
    let id = random_id(&*context.shared.ports.random);
    let (out, told) = mpsc::channel(QUEUED_CHUNKS);
    let line = Arc::new(SseConnection {
        principal: known.principal().clone(),
        endpoint: context.endpoint.clone(),
        out,
        writing: tokio::sync::Mutex::default(),
        session: Mutex::default(),
        message_permits: Arc::new(Semaphore::new(MESSAGES_AT_ONCE)),
        closed: CancellationToken::new(),
    });
    context
        .shared
        .sse_connections
        .lock()
        .insert(id, line.clone());
    answer::count_deprecated("http_sse");
    let path = context.endpoint.as_str().trim_end_matches('/');
    let first = format!(
        "event: endpoint\ndata: {path}/messages?sessionId={}\n\n",
        BASE64URL_NOPAD.encode(&id)
    );
    let hold = SseConnectionGuard {
        shared: context.shared.clone(),
        context: context.clone(),
        id,
        line,
    };
    let keep_alive = KeepAlive::new(context, known.principal(), "line");
    answer::events(ResponseBody::new(SseBody::new(
        first, told, hold, place, keep_alive,
    )))
}

impl SseConnections {
    /// The connection with the id that a query names.
    fn find(&self, query: &str) -> Option<Arc<SseConnection>> {
        let text = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("sessionId="))?;
        let id: [u8; 16] = BASE64URL_NOPAD
            .decode(text.as_bytes())
            .ok()?
            .try_into()
            .ok()?;
        self.lock().get(&id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], Arc<SseConnection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SseConnection {
    /// Takes a message; its answer is written to the stream. The message is in flight until its own
    /// answer begins there.
    ///
    /// A message without a response has taken effect when its POST is answered: a client that waits
    /// for that may rely on it in its next message, as with Streamable HTTP.
    async fn post(
        self: &Arc<Self>,
        context: HttpRequestContext,
        known: &Authenticated<()>,
        body: Bytes,
        in_flight: Option<InFlightPermit>,
    ) -> HttpAnswer {
        let Ok(place) = self.message_permits.clone().try_acquire_owned() else {
            let text =
                "too many messages of this client are being answered: wait for an answer first";
            let refusal = RequestRefusal::new(StatusCode::TOO_MANY_REQUESTS, "in_flight", text);
            return refusal.with(header::RETRY_AFTER, "1").into_answer();
        };
        let incoming = request_checks::decode(&context, body);
        let wants_no_answer = matches!(
            incoming,
            Ok(IncomingMessage::One(
                Message::Notification(_) | Message::Response(_)
            ))
        );
        let (line, known, shared) = (self.clone(), known.for_item(()), context.shared.clone());
        let answering = async move {
            let _place = place;
            // The request counts at its own answer, under its own method.
            let seen = observe::observe_message(context.name.clone());
            let mut answer =
                request_checks::handle_message(&context, &known, &line.headers(), incoming).await;
            answer.body_mut().labels.meters = Some(context.meters.clone());
            line.attach_session_stream(&context, &known, &answer);
            drop(in_flight);
            line.write(seen.finish(answer)).await;
        };
        // The task ends with the connection at the latest; the drain waits for it.
        let answering = shared
            .detached_tasks
            .spawn(self.closed.clone().run_until_cancelled_owned(answering));
        if wants_no_answer {
            // A panic ends this message alone.
            let _ended = answering.await;
        }
        let mut taken = answer::empty(StatusCode::ACCEPTED);
        taken.extensions_mut().insert(ResponseOutcome::Elsewhere);
        taken
    }

    /// The headers that a client of Streamable HTTP would send.
    fn headers(&self) -> HeaderMap {
        let session = self.lock().clone();
        session
            .map(|session| (crate::header_names::SESSION.clone(), session))
            .into_iter()
            .collect()
    }

    /// Forwards the session's own stream to this connection after `initialize`.
    fn attach_session_stream(
        self: &Arc<Self>,
        context: &HttpRequestContext,
        known: &Authenticated<()>,
        answer: &HttpAnswer,
    ) {
        let Some(session) = answer.headers().get(&crate::header_names::SESSION) else {
            return;
        };
        *self.lock() = Some(session.clone());
        let (line, context, known) = (self.clone(), context.clone(), known.for_item(()));
        let shared = context.shared.clone();
        let telling = async move {
            let answer = listening_stream::open_get(&context, &known, &line.headers()).await;
            line.write(answer).await;
        };
        shared
            .detached_tasks
            .spawn(self.closed.clone().run_until_cancelled_owned(telling));
    }

    /// Writes an answer's messages to the stream. A body that breaks off in the middle ends the
    /// stream.
    async fn write<B>(&self, answer: Response<B>)
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let kind = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .map(|value| value.as_bytes().to_vec());
        let body = answer.into_body();
        let written = match kind.as_deref() {
            Some(b"application/json") => self.write_json(body).await,
            Some(b"text/event-stream") => self.write_events(body).await,
            // An empty answer, or a refusal without a message: the client's request times out.
            _ => Ok(()),
        };
        if written.is_err() {
            self.closed.cancel();
        }
    }

    async fn write_json<B>(&self, mut body: B) -> Result<(), BodyError>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let _writing = self.writing.lock().await;
        let mut encoder = StreamEncoder::default();
        self.send(Bytes::from_static(b"event: message\n")).await?;
        self.send(encoder.begin(None)).await?;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let mut pieces = Vec::new();
            encoder.data(data, &mut pieces);
            for piece in pieces {
                self.send(piece).await?;
            }
        }
        self.send(encoder.end()).await
    }

    async fn write_events<B>(&self, mut body: B) -> Result<(), BodyError>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
    {
        let mut writing = None;
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame?.into_data() else {
                continue;
            };
            // The connection has comments of its own.
            if writing.is_none() && piece.starts_with(b":") {
                continue;
            }
            if writing.is_none() {
                writing = Some(self.writing.lock().await);
                self.send(Bytes::from_static(b"event: message\n")).await?;
            }
            let ends = piece.ends_with(b"\n\n");
            self.send(piece).await?;
            if ends {
                writing = None;
            }
        }
        Ok(())
    }

    async fn send(&self, piece: Bytes) -> Result<(), BodyError> {
        Ok(self.out.send(piece).await?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SseConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lines({})", self.lock().len())
    }
}

/// Ends the connection and its session when its stream is dropped.
struct SseConnectionGuard {
    shared: Arc<FrontState>,
    context: HttpRequestContext,
    id: [u8; 16],
    line: Arc<SseConnection>,
}

impl Drop for SseConnectionGuard {
    fn drop(&mut self) {
        self.shared.sse_connections.lock().remove(&self.id);
        self.line.closed.cancel();
        let (shared, context, line) =
            (self.shared.clone(), self.context.clone(), self.line.clone());
        let headers = line.headers();
        if headers.is_empty() {
            return;
        }
        self.shared.detached_tasks.spawn(async move {
            if let Ok(Some(opened)) = shared
                .sessions
                .load(&line.principal, &headers, context.limits())
                .await
            {
                shared.sessions.end(&opened.record, &opened.session).await;
            }
        });
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
    _hold: SseConnectionGuard,
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
        let (drain, places) = (hold.shared.drain.clone(), hold.line.message_permits.clone());
        let drained = async move {
            drain.cancelled().await;
            // The semaphore is never closed.
            let _all = places.acquire_many(MESSAGES_AT_ONCE as u32).await;
        };
        Self {
            first: Some(first.into()),
            chunks: told,
            between: true,
            over: Box::pin(hold.line.closed.clone().cancelled_owned()),
            drained: Box::pin(drained),
            keep_alive,
            _hold: hold,
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
        let expired = this.keep_alive.is_expired();
        let drained = this.drained.as_mut().poll(cx).is_ready();
        if expired || drained || this.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        while this.keep_alive.poll_due(cx).is_ready() {
            if this.between {
                return Poll::Ready(Some(Ok(Frame::data(keep_alive::comment()))));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_sse_paths_stand_beside_their_endpoint() {
        assert_eq!(split_sse_path("/mcp/sse"), Some(("/mcp", SsePath::Stream)));
        assert_eq!(
            split_sse_path("/mcp/one/messages"),
            Some(("/mcp/one", SsePath::Messages))
        );
        assert_eq!(split_sse_path("/sse"), Some(("/", SsePath::Stream)));
        for other in ["/mcp", "/mcp/sse/", "/mcp/ssex", "/mcpsse"] {
            assert_eq!(split_sse_path(other), None, "{other}");
        }
    }
}
