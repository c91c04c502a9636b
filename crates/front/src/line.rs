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

use crate::answer::{self, Refusal, labelled};
use crate::body::{Body, Broken};
use crate::guard::Gatekeeper;
use crate::in_flight::InFlightPermit;
use crate::keep_alive::{self, KeepAlive};
use crate::observe::{self, Answer};
use crate::places::Place;
use crate::stack::{Arrival, Context, Shared};
use crate::tally::Counted;
use crate::{admission, doorway, intake, streams};

/// Chunks of answers that wait for a slow reader; beyond that the answers wait.
const WAITING: usize = 16;
/// Messages of one client that are answered at the same time.
const AT_ONCE: usize = 64;

/// An HTTP+SSE path beside an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The stream.
    Stream,
    /// The path that messages are posted to.
    Messages,
}

/// The suffixes of an endpoint's path: the stream's, and the one that messages are posted to.
pub const LINE_PATHS: [&str; 2] = ["/sse", "/messages"];

/// Splits a path into the endpoint's path and its HTTP+SSE part, if it has one.
pub(crate) fn beside(path: &str) -> Option<(&str, End)> {
    let mut ends = LINE_PATHS.into_iter().zip([End::Stream, End::Messages]);
    let (endpoint, end) = ends.find_map(|(name, end)| Some((path.strip_suffix(name)?, end)))?;
    Some((if endpoint.is_empty() { "/" } else { endpoint }, end))
}

/// The open connections, by an unguessable id. Each holds a stream permit, which bounds them.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<[u8; 16], Arc<Line>>>);

/// The connection of one client.
struct Line {
    principal: Principal,
    endpoint: EndpointId,
    out: mpsc::Sender<Bytes>,
    /// Held while an event is written: others must not write into it.
    writing: tokio::sync::Mutex<()>,
    /// The id of the session that `initialize` opened.
    session: Mutex<Option<HeaderValue>>,
    places: Arc<Semaphore>,
    over: CancellationToken,
}

/// Serves a request of HTTP+SSE.
pub(crate) async fn enter(
    context: &Context,
    keeper: &Gatekeeper,
    Arrival {
        head, body, permit, ..
    }: &mut Arrival,
    end: End,
) -> Answer {
    let method = if end == End::Stream {
        Method::GET
    } else {
        Method::POST
    };
    if let Err(refusal) = keeper.check_line(head, &method) {
        return refusal.answer();
    }
    let known = match admission::enter(context, head).await {
        Ok(known) => known,
        Err(refusal) => return refusal.answer(),
    };
    let answer = match end {
        End::Stream => open(context, &known),
        End::Messages => {
            let line = head
                .uri
                .query()
                .and_then(|query| context.shared.lines.find(query));
            let own = |line: &Arc<Line>| {
                line.principal == *known.principal() && line.endpoint == context.endpoint
            };
            // A connection of another principal or endpoint is not found.
            let Some(line) = line.filter(own) else {
                return Refusal::new(
                    StatusCode::NOT_FOUND,
                    "session",
                    "no such stream: get one first",
                )
                .answer();
            };
            match intake::read(
                &head.headers,
                body,
                context.limits(),
                context.bodies(&known),
            )
            .await
            {
                Ok(body) => {
                    context.meters.received(body.len());
                    line.post(context.clone(), &known, body, permit.take())
                        .await
                }
                Err(refusal) => refusal.answer(),
            }
        }
    };
    labelled(
        answer,
        if end == End::Stream { "GET" } else { "POST" },
        "legacy",
    )
}

fn open(context: &Context, known: &Authenticated<()>) -> Answer {
    let place = match streams::place(context, known) {
        Ok(place) => place,
        Err(none) => return none.answer(),
    };
    let id = random_id(&*context.shared.ports.random);
    let (out, told) = mpsc::channel(WAITING);
    let line = Arc::new(Line {
        principal: known.principal().clone(),
        endpoint: context.endpoint.clone(),
        out,
        writing: tokio::sync::Mutex::default(),
        session: Mutex::default(),
        places: Arc::new(Semaphore::new(AT_ONCE)),
        over: CancellationToken::new(),
    });
    context.shared.lines.lock().insert(id, line.clone());
    answer::deprecated("http_sse");
    let path = context.endpoint.as_str().trim_end_matches('/');
    let first = format!(
        "event: endpoint\ndata: {path}/messages?sessionId={}\n\n",
        BASE64URL_NOPAD.encode(&id)
    );
    let hold = Hold {
        shared: context.shared.clone(),
        context: context.clone(),
        id,
        line,
    };
    let keep_alive = KeepAlive::new(context, known.principal(), "line");
    answer::events(Body::new(Told::new(first, told, (hold, place), keep_alive)))
}

impl Lines {
    /// The connection with the id that a query names.
    fn find(&self, query: &str) -> Option<Arc<Line>> {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 16], Arc<Line>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Takes a message; its answer is written to the stream. The message is in flight until its own
    /// answer begins there.
    ///
    /// A message without a response has taken effect when its POST is answered: a client that waits
    /// for that may rely on it in its next message, as with Streamable HTTP.
    async fn post(
        self: &Arc<Self>,
        context: Context,
        known: &Authenticated<()>,
        body: Bytes,
        in_flight: Option<InFlightPermit>,
    ) -> Answer {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            let text =
                "too many messages of this client are being answered: wait for an answer first";
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "in_flight", text);
            return refusal.with(header::RETRY_AFTER, "1").answer();
        };
        let incoming = doorway::decode(&context, body);
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
            let seen = observe::begin_elsewhere(context.name.clone());
            let mut answer = doorway::post(&context, &known, &line.headers(), incoming).await;
            answer.body_mut().labels.meters = Some(context.meters.clone());
            line.opened(&context, &known, &answer);
            drop(in_flight);
            line.write(seen.finish(answer)).await;
        };
        // The task ends with the connection at the latest; the drain waits for it.
        let answering = shared
            .detached
            .spawn(self.over.clone().run_until_cancelled_owned(answering));
        if wants_no_answer {
            // A panic ends this message alone.
            let _ended = answering.await;
        }
        let mut taken = answer::empty(StatusCode::ACCEPTED);
        taken.extensions_mut().insert(Counted::Elsewhere);
        taken
    }

    /// The headers that a client of Streamable HTTP would send.
    fn headers(&self) -> HeaderMap {
        let session = self.lock().clone();
        session
            .map(|session| (crate::head::SESSION.clone(), session))
            .into_iter()
            .collect()
    }

    /// Forwards the session's own stream to this connection after `initialize`.
    fn opened(self: &Arc<Self>, context: &Context, known: &Authenticated<()>, answer: &Answer) {
        let Some(session) = answer.headers().get(&crate::head::SESSION) else {
            return;
        };
        *self.lock() = Some(session.clone());
        let (line, context, known) = (self.clone(), context.clone(), known.for_item(()));
        let shared = context.shared.clone();
        let telling = async move {
            let answer = streams::open_get(&context, &known, &line.headers()).await;
            line.write(answer).await;
        };
        shared
            .detached
            .spawn(self.over.clone().run_until_cancelled_owned(telling));
    }

    /// Writes an answer's messages to the stream. A body that breaks off in the middle ends the
    /// stream.
    async fn write<B>(&self, answer: Response<B>)
    where
        B: http_body::Body<Data = Bytes, Error = Broken> + Unpin,
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
            self.over.cancel();
        }
    }

    async fn write_json<B>(&self, mut body: B) -> Result<(), Broken>
    where
        B: http_body::Body<Data = Bytes, Error = Broken> + Unpin,
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

    async fn write_events<B>(&self, mut body: B) -> Result<(), Broken>
    where
        B: http_body::Body<Data = Bytes, Error = Broken> + Unpin,
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

    async fn send(&self, piece: Bytes) -> Result<(), Broken> {
        Ok(self.out.send(piece).await?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lines({})", self.lock().len())
    }
}

/// Ends the connection and its session when its stream is dropped.
struct Hold {
    shared: Arc<Shared>,
    context: Context,
    id: [u8; 16],
    line: Arc<Line>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.lines.lock().remove(&self.id);
        self.line.over.cancel();
        let (shared, context, line) =
            (self.shared.clone(), self.context.clone(), self.line.clone());
        let headers = line.headers();
        if headers.is_empty() {
            return;
        }
        self.shared.detached.spawn(async move {
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
struct Told {
    first: Option<Bytes>,
    told: mpsc::Receiver<Bytes>,
    /// True between two events.
    between: bool,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires when the drain began and all messages are answered.
    drained: Fut<'static, ()>,
    keep_alive: KeepAlive,
    _hold: Hold,
    _place: Place,
}

impl Told {
    fn new(
        first: String,
        told: mpsc::Receiver<Bytes>,
        (hold, place): (Hold, Place),
        keep_alive: KeepAlive,
    ) -> Self {
        let (drain, places) = (hold.shared.drain.clone(), hold.line.places.clone());
        let drained = async move {
            drain.cancelled().await;
            // The semaphore is never closed.
            let _all = places.acquire_many(AT_ONCE as u32).await;
        };
        Self {
            first: Some(first.into()),
            told,
            between: true,
            over: Box::pin(hold.line.over.clone().cancelled_owned()),
            drained: Box::pin(drained),
            keep_alive,
            _hold: hold,
            _place: place,
        }
    }
}

impl http_body::Body for Told {
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
        if let Poll::Ready(Some(piece)) = this.told.poll_recv(cx) {
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
    fn the_ends_of_a_line_stand_beside_their_endpoint() {
        assert_eq!(beside("/mcp/sse"), Some(("/mcp", End::Stream)));
        assert_eq!(
            beside("/mcp/one/messages"),
            Some(("/mcp/one", End::Messages))
        );
        assert_eq!(beside("/sse"), Some(("/", End::Stream)));
        for other in ["/mcp", "/mcp/sse/", "/mcp/ssex", "/mcpsse"] {
            assert_eq!(beside(other), None, "{other}");
        }
    }
}
