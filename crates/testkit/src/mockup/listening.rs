//! The long streams of a mock server: the legacy GET stream and the modern listen.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::{broadcast, watch};

use super::play::Body;
use super::state::Shared;

/// Sends `first`, then `change` for every change, until `alive` is gone or nobody reads.
pub(super) fn listen(
    shared: &Arc<Shared>,
    first: Option<String>,
    change: Option<String>,
    alive: Option<watch::Receiver<()>>,
) -> Response<Body> {
    let listener =
        Listener { changes: shared.changes.subscribe(), change, alive, first, _count: Count::new(Arc::clone(shared)) };
    let frames = stream::unfold(listener, |mut listener| async move {
        let text = listener.next().await?;
        Some((Ok(Frame::data(Bytes::from(format!("event: message\ndata: {text}\n\n")))), listener))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

struct Listener {
    changes: broadcast::Receiver<()>,
    change: Option<String>,
    alive: Option<watch::Receiver<()>>,
    first: Option<String>,
    _count: Count,
}

impl Listener {
    async fn next(&mut self) -> Option<String> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let Some(change) = &self.change else {
            gone(&mut self.alive).await;
            return None;
        };
        tokio::select! {
            // Missing some of a storm is as good as hearing of one of them.
            news = self.changes.recv() => match news {
                Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Some(change.clone()),
                Err(broadcast::error::RecvError::Closed) => None,
            },
            () = gone(&mut self.alive) => None,
        }
    }
}

/// Ends with the session; never, where there is none.
async fn gone(alive: &mut Option<watch::Receiver<()>>) {
    match alive {
        Some(alive) => while alive.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// Counts a listener while it listens.
struct Count(Arc<Shared>);

impl Count {
    fn new(shared: Arc<Shared>) -> Self {
        shared.change(|inner| inner.listeners += 1);
        Self(shared)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.0.change(|inner| inner.listeners -= 1);
    }
}
