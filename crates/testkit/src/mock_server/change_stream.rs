//! The long streams of a mock server: the legacy GET stream and the modern listen.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::{broadcast, watch};

use crate::mock_server::mock_response::MockBody;
use crate::mock_server::state::{MockChange, MockState};

/// Renders a change for one listener; no text if the listener does not want it.
pub(super) type RenderChange = Box<dyn Fn(&MockChange) -> Option<String> + Send>;

/// Sends `first`, then the rendered changes, until `alive` is gone or the client closes the stream.
/// The stream counts as a subscriber of `resources`.
pub(super) fn listen(
    shared: &Arc<MockState>,
    first: Option<String>,
    tell: RenderChange,
    alive: Option<watch::Receiver<()>>,
    resources: Vec<String>,
) -> Response<MockBody> {
    let count = ListenerCountGuard::new(Arc::clone(shared), resources);
    let listener = ChangeListener {
        changes: shared.changes.subscribe(),
        tell,
        alive,
        first,
        _count: count,
    };
    let frames = stream::unfold(listener, |mut listener| async move {
        let text = listener.next().await?;
        Some((
            Ok(Frame::data(Bytes::from(format!(
                "event: message\ndata: {text}\n\n"
            )))),
            listener,
        ))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

struct ChangeListener {
    changes: broadcast::Receiver<MockChange>,
    tell: RenderChange,
    alive: Option<watch::Receiver<()>>,
    first: Option<String>,
    _count: ListenerCountGuard,
}

impl ChangeListener {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let news = tokio::select! {
                news = self.changes.recv() => news,
                () = gone(&mut self.alive) => return None,
            };
            let news = match news {
                Ok(news) => news,
                // A listener that misses part of a storm gets one change in its place.
                Err(broadcast::error::RecvError::Lagged(_)) => MockChange::List,
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            if let Some(text) = (self.tell)(&news) {
                return Some(text);
            }
        }
    }
}

/// Ends with the session; never for a stream without one.
async fn gone(alive: &mut Option<watch::Receiver<()>>) {
    match alive {
        Some(alive) => while alive.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// Counts a listener while it listens.
struct ListenerCountGuard(Arc<MockState>, Vec<String>);

impl ListenerCountGuard {
    fn new(shared: Arc<MockState>, resources: Vec<String>) -> Self {
        shared.change(|inner| {
            inner.listeners += 1;
            inner.listened.extend(resources.iter().cloned());
        });
        Self(shared, resources)
    }
}

impl Drop for ListenerCountGuard {
    fn drop(&mut self) {
        self.0.change(|inner| {
            inner.listeners -= 1;
            for uri in &self.1 {
                let at = inner.listened.iter().position(|own| own == uri);
                at.map(|at| inner.listened.swap_remove(at));
            }
        });
    }
}
