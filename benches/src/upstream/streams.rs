//! The state that the servers of an upstream process share, and the streams that announce a change.

use super::upstream_shape::UpstreamShape;
use crate::protocol::TOOLS_CHANGED;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full, StreamBody};
use std::convert::Infallible;
use tokio::sync::watch;

/// A whole answer, or a stream of events.
pub(super) type UpstreamBody = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// All servers; both eras of an index share it.
pub(super) struct UpstreamState {
    shape: UpstreamShape,
    servers: Vec<UpstreamServer>,
}

/// One server: the count of changes of its list, and a switch that makes it hang.
struct UpstreamServer {
    changes: watch::Sender<u64>,
    hanging: watch::Sender<bool>,
}

impl UpstreamState {
    /// Servers that have not changed and do not hang.
    pub(super) fn new(shape: UpstreamShape) -> Self {
        let server = || UpstreamServer {
            changes: watch::Sender::new(0),
            hanging: watch::Sender::new(false),
        };
        Self {
            shape,
            servers: (0..shape.servers).map(|_| server()).collect(),
        }
    }

    /// The count of servers.
    pub(super) const fn servers(&self) -> usize {
        self.servers.len()
    }

    /// The shape of the servers.
    pub(super) const fn shape(&self) -> UpstreamShape {
        self.shape
    }

    /// The count of changes of this server's list.
    pub(super) fn changes(&self, index: usize) -> u64 {
        *self.servers[index].changes.borrow()
    }

    /// Changes the list of a server and wakes its listeners.
    pub(super) fn change(&self, index: usize) {
        self.servers[index]
            .changes
            .send_modify(|changes| *changes += 1);
    }

    /// Stops or resumes a server. Open streams stay open.
    pub(super) fn hang(&self, index: usize, hanging: bool) {
        self.servers[index].hanging.send_replace(hanging);
    }

    /// Waits while the server hangs. A client that gives up drops the future.
    pub(super) async fn until_not_hanging(&self, index: usize) {
        let mut hanging = self.servers[index].hanging.subscribe();
        // The sender lives in `self`, so this cannot fail while it is borrowed.
        let _ = hanging.wait_for(|hanging| !hanging).await;
    }

    fn subscribe(&self, index: usize) -> watch::Receiver<u64> {
        self.servers[index].changes.subscribe()
    }
}

/// The stream of a legacy client's GET: silent until the list changes.
pub(super) fn legacy(state: &UpstreamState, index: usize) -> Response<UpstreamBody> {
    let note = format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"{TOOLS_CHANGED}\"}}\n\n");
    events(
        Bytes::from_static(b": open\n\n"),
        note.into(),
        state.subscribe(index),
    )
}

/// The stream of a modern `subscriptions/listen` with this (raw JSON) id: the acknowledgement, then
/// one event a change.
pub(super) fn modern(state: &UpstreamState, index: usize, id: &str) -> Response<UpstreamBody> {
    let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    let acknowledged = format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\"notifications\":{{\"toolsListChanged\":true}},{meta}}}}}\n\n"
    );
    let note = format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"{TOOLS_CHANGED}\",\"params\":{{{meta}}}}}\n\n"
    );
    events(acknowledged.into(), note.into(), state.subscribe(index))
}

fn events(first: Bytes, note: Bytes, changes: watch::Receiver<u64>) -> Response<UpstreamBody> {
    let frames = stream::unfold(
        (Some(first), note, changes),
        |(first, note, mut changes)| async move {
            let frame = match first {
                Some(first) => first,
                None => {
                    changes.changed().await.ok()?;
                    note.clone()
                }
            };
            Some((
                Ok::<_, Infallible>(Frame::data(frame)),
                (None, note, changes),
            ))
        },
    );
    let mut response = Response::new(Either::Right(UnsyncBoxBody::new(StreamBody::new(frames))));
    response.headers_mut().insert(
        CONTENT_TYPE,
        http::HeaderValue::from_static("text/event-stream"),
    );
    response
        .headers_mut()
        .insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
    response
}

/// A complete body.
pub(super) fn full(bytes: Bytes) -> UpstreamBody {
    Either::Left(Full::new(bytes))
}

/// An answer of a status without a body.
pub(super) fn status(code: StatusCode) -> Response<UpstreamBody> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    response
}

/// A JSON answer.
pub(super) fn json(text: String) -> Response<UpstreamBody> {
    let mut response = text_body(text);
    response.headers_mut().insert(
        CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

/// A plain answer, for the control path.
pub(super) fn text(text: String) -> Response<UpstreamBody> {
    text_body(text)
}

fn text_body(text: String) -> Response<UpstreamBody> {
    Response::new(full(text.into()))
}
