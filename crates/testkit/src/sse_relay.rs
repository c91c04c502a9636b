//! A server of HTTP+SSE, the transport of 2024-11-05, in front of a Streamable HTTP server such as
//! a [`crate::MockServer`]. A GET opens a stream; its first event names the path for the client's
//! messages, and every message of the server is an event of that stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::accept::{accept, listen_on_loopback};
use crate::owned_task::OwnedTask;
use crate::relay::{self, RelayMessages};

/// The path of the stream.
const STREAM: &str = "/sse";
/// The path for messages of the client, before the number of their stream.
const POSTS: &str = "/messages/";

type SseRelayBody = UnsyncBoxBody<Bytes, Infallible>;

/// A running server. Dropping it closes every connection.
#[derive(Debug)]
pub struct SseRelay {
    address: SocketAddr,
    shared: Arc<SseRelayState>,
    _server: OwnedTask,
}

impl SseRelay {
    /// Starts it on a free port of loopback, in front of the Streamable HTTP server at this URL.
    pub async fn start(url: &str) -> Self {
        Self::start_with(url, SseRelayKind::Usual).await
    }

    /// As [`Self::start`]; a POST to the URL of the stream opens one, too.
    pub async fn start_for_any_method(url: &str) -> Self {
        Self::start_with(url, SseRelayKind::OpensForPosts).await
    }

    /// As [`Self::start`]; the POST of a request gets its response once the request is answered, as
    /// by the servlet transports of the Java SDK.
    pub async fn start_responding_late(url: &str) -> Self {
        Self::start_with(url, SseRelayKind::RespondsLate).await
    }

    async fn start_with(url: &str, kind: SseRelayKind) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let shared = Arc::new(SseRelayState {
            url: url.to_owned(),
            kind,
            inner: Mutex::default(),
        });
        let serving = shared.clone();
        let server = OwnedTask::spawn(async move {
            accept(listener, |connection| serve(connection, serving.clone())).await;
        });
        Self {
            address,
            shared,
            _server: server,
        }
    }

    /// The URL of its stream.
    pub fn url(&self) -> String {
        format!("http://{}{STREAM}", self.address)
    }

    /// Refuses the messages with this method, or the calls of this tool, with this status from now
    /// on.
    pub fn refuse(&self, name: &str, status: u16) {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        self.shared
            .inner
            .lock()
            .refused
            .insert(name.to_owned(), status);
    }

    /// The number of streams so far.
    pub fn streams(&self) -> u64 {
        self.shared.inner.lock().last
    }
}

#[derive(Debug)]
struct SseRelayState {
    url: String,
    kind: SseRelayKind,
    inner: Mutex<SseRelayStreams>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SseRelayKind {
    Usual,
    OpensForPosts,
    RespondsLate,
}

#[derive(Debug, Default)]
struct SseRelayStreams {
    /// Senders of the client's messages, by the number of the stream. A relay ends when its sender
    /// is dropped.
    streams: HashMap<u64, mpsc::Sender<String>>,
    relays: JoinSet<()>,
    /// The number of the last stream.
    last: u64,
    /// The statuses of refusals, by the name of a method or a tool.
    refused: HashMap<String, StatusCode>,
    /// The POSTs that wait for the answer to their request, by stream and id.
    unanswered: HashMap<(u64, String), oneshot::Sender<()>>,
}

impl SseRelayStreams {
    fn refusal_of(&self, message: &Value) -> Option<StatusCode> {
        [&message["method"], &message["params"]["name"]]
            .into_iter()
            .find_map(|name| self.refused.get(name.as_str()?).copied())
    }

    /// Returns the end of the wait for the answer to this request; absent without an id.
    fn wait_for_answer(&mut self, number: u64, id: &Value) -> Option<oneshot::Receiver<()>> {
        let (sender, answered) = oneshot::channel();
        let id = id.as_u64()?.to_string();
        self.unanswered.insert((number, id), sender);
        Some(answered)
    }

    /// Ends the wait for the answer in this message, if it is one.
    fn end_wait(&mut self, number: u64, message: &str) {
        let message: Value = serde_json::from_str(message).unwrap_or_default();
        if message["method"].is_null() {
            let key = (number, message["id"].to_string());
            if let Some(answered) = self.unanswered.remove(&key) {
                // The client may have closed the connection.
                let _ = answered.send(());
            }
        }
    }
}

async fn serve(connection: TcpStream, shared: Arc<SseRelayState>) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    // Tests inspect the messages, not the end of a connection.
    let connection = TokioIo::new(connection);
    drop(
        hyper::server::conn::http1::Builder::new()
            .half_close(false)
            .serve_connection(connection, service)
            .await,
    );
}

async fn answer(shared: &Arc<SseRelayState>, request: Request<Incoming>) -> Response<SseRelayBody> {
    let (head, body) = request.into_parts();
    let number = head
        .uri
        .path()
        .strip_prefix(POSTS)
        .and_then(|number| number.parse::<u64>().ok());
    match (head.method, number) {
        (Method::GET, None) if head.uri.path() == STREAM => open(shared),
        (Method::POST, None) if shared.kind == SseRelayKind::OpensForPosts => open(shared),
        (Method::POST, Some(number)) => {
            let Some(stream) = shared.inner.lock().streams.get(&number).cloned() else {
                return empty(StatusCode::NOT_FOUND);
            };
            let Ok(body) = body.collect().await else {
                return empty(StatusCode::BAD_REQUEST);
            };
            let message = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            let parsed: Value = serde_json::from_str(&message).unwrap_or_default();
            if let Some(status) = shared.inner.lock().refusal_of(&parsed) {
                return refusal(status);
            }
            let answered = (shared.kind == SseRelayKind::RespondsLate
                && parsed["method"].is_string())
            .then(|| shared.inner.lock().wait_for_answer(number, &parsed["id"]))
            .flatten();
            // An error means that the stream was closed in between.
            let is_open = stream.send(message).await.is_ok();
            if let Some(answered) = answered {
                // An error means that the stream was closed.
                let _ = answered.await;
            }
            empty(if is_open {
                StatusCode::ACCEPTED
            } else {
                StatusCode::NOT_FOUND
            })
        }
        _ => empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn open(shared: &Arc<SseRelayState>) -> Response<SseRelayBody> {
    let (sender, relayed, messages) = relay::connect(&shared.url);
    let number = {
        let mut inner = shared.inner.lock();
        inner.last += 1;
        let number = inner.last;
        inner.streams.insert(number, sender);
        inner.relays.spawn(relayed);
        number
    };
    let first = format!("event: endpoint\ndata: {POSTS}{number}\n\n");
    let events = SseRelayEvents {
        messages,
        first: Some(first),
        guard: StreamGuard {
            shared: shared.clone(),
            number,
        },
    };
    let frames = stream::unfold(events, |mut events| async move {
        let text = events.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), events))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

fn empty(status: StatusCode) -> Response<SseRelayBody> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

fn refusal(status: StatusCode) -> Response<SseRelayBody> {
    let mut response = empty(status);
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
    response
}

/// The events of one stream.
struct SseRelayEvents {
    messages: RelayMessages,
    first: Option<String>,
    guard: StreamGuard,
}

impl SseRelayEvents {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let guard = &self.guard;
        let event = |message: String| {
            guard.shared.inner.lock().end_wait(guard.number, &message);
            format!("event: message\ndata: {message}\n\n")
        };
        let mut events = event(self.messages.recv().await?);
        // Messages that wait are sent together.
        while let Ok(next) = self.messages.try_recv() {
            events.push_str(&event(next));
        }
        Some(events)
    }
}

/// Removes the stream when the client closes it, which ends the relay and the session at the
/// server.
struct StreamGuard {
    shared: Arc<SseRelayState>,
    number: u64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut inner = self.shared.inner.lock();
        inner.streams.remove(&self.number);
        inner
            .unanswered
            .retain(|(number, _), _| *number != self.number);
    }
}
