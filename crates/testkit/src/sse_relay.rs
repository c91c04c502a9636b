//! A server of HTTP+SSE, the transport of 2024-11-05, in front of a Streamable HTTP server such as
//! a [`crate::MockServer`]. A GET opens a stream; its first event names the path for the client's
//! messages, and every message of the server is an event of that stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
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
    _server: OwnedTask,
}

impl SseRelay {
    /// Starts it on a free port of loopback, in front of the Streamable HTTP server at this URL.
    pub async fn start(url: &str) -> Self {
        let (listener, address) = listen_on_loopback().await;
        let shared = Arc::new(SseRelayState {
            url: url.to_owned(),
            inner: Mutex::default(),
        });
        let server = OwnedTask::spawn(async move {
            accept(listener, |connection| serve(connection, shared.clone())).await;
        });
        Self {
            address,
            _server: server,
        }
    }

    /// The URL of its stream.
    pub fn url(&self) -> String {
        format!("http://{}{STREAM}", self.address)
    }
}

#[derive(Debug)]
struct SseRelayState {
    url: String,
    inner: Mutex<SseRelayStreams>,
}

#[derive(Debug, Default)]
struct SseRelayStreams {
    /// Senders of the client's messages, by the number of the stream. A relay ends when its sender
    /// is dropped.
    streams: HashMap<u64, mpsc::Sender<String>>,
    relays: JoinSet<()>,
    /// The number of the last stream.
    last: u64,
}

impl SseRelayState {
    fn lock(&self) -> MutexGuard<'_, SseRelayStreams> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
        (Method::POST, Some(number)) => {
            let Some(stream) = shared.lock().streams.get(&number).cloned() else {
                return empty(StatusCode::NOT_FOUND);
            };
            let Ok(body) = body.collect().await else {
                return empty(StatusCode::BAD_REQUEST);
            };
            let message = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            // An error means that the stream was closed in between.
            let is_open = stream.send(message).await.is_ok();
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
        let mut inner = shared.lock();
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
        _guard: StreamGuard {
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

/// The events of one stream.
struct SseRelayEvents {
    messages: RelayMessages,
    first: Option<String>,
    _guard: StreamGuard,
}

impl SseRelayEvents {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let event = |message: String| format!("event: message\ndata: {message}\n\n");
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
        self.shared.lock().streams.remove(&self.number);
    }
}
