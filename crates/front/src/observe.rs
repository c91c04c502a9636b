//! What is seen of every request from outside: its id, its time, its status; and what is held until its answer ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use opentelemetry::KeyValue;
use tokio::sync::OwnedSemaphorePermit;
use weir_core::call::RequestName;
use weir_core::telemetry::instruments;

use crate::listen::Beat;

/// What a request is answered with.
pub(crate) type Answer = Response<Body>;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a request turned out to be; put among the extensions of its answer by the door.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    pub(crate) method: &'static str,
    pub(crate) era: &'static str,
}

/// Among the extensions of an answer: it waits for changes, and is no longer in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits;

/// A request that has begun.
pub(crate) struct Seen {
    name: RequestName,
    began: Instant,
    beat: Beat,
}

pub(crate) fn begin(name: RequestName, beat: Beat) -> Seen {
    Seen { name, began: Instant::now(), beat }
}

impl Seen {
    /// The answer's head is there; its body is followed to its end.
    pub(crate) fn finish(self, mut answer: Answer, permit: Option<OwnedSemaphorePermit>) -> Answer {
        if let Ok(value) = HeaderValue::from_str(self.name.as_str()) {
            answer.headers_mut().insert(REQUEST_ID, value);
        }
        // A waiting stream has a place of its own kind.
        let permit = permit.filter(|_| answer.extensions_mut().remove::<Waits>().is_none());
        let labels = answer.extensions_mut().remove::<Labels>().unwrap_or(Labels { method: "none", era: "none" });
        let ending = Ending {
            labels,
            status: answer.status(),
            began: self.began,
            name: self.name,
            _beat: self.beat,
            _permit: permit,
        };
        answer.map(|body| Body::new(Followed { body, ending }))
    }
}

/// Runs when the answer is over, however it ends.
struct Ending {
    labels: Labels,
    status: StatusCode,
    began: Instant,
    name: RequestName,
    _beat: Beat,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let outcome = if self.status.is_success() {
            "ok"
        } else if self.status.is_client_error() {
            "refused"
        } else {
            "failed"
        };
        let (method, era) = (KeyValue::new("method", self.labels.method), KeyValue::new("era", self.labels.era));
        instruments().request_duration.record(took.as_secs_f64(), &[method.clone(), era.clone()]);
        instruments().requests.add(1, &[method, era, KeyValue::new("outcome", outcome)]);
        tracing::debug!(
            request = self.name.as_str(),
            method = self.labels.method,
            era = self.labels.era,
            status = self.status.as_u16(),
            ms = took.as_millis(),
            "request"
        );
    }
}

/// An answer that a bug of weir's broke off.
#[derive(Debug, thiserror::Error)]
#[error("the answer ended by a panic")]
struct Broken;

struct Followed {
    body: Body,
    ending: Ending,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // A panic here would end the connection, and with it the other requests on it.
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.body).poll_frame(cx)));
        polled.unwrap_or_else(|_| {
            instruments().panics.add(1, &[]);
            tracing::error!(request = self.ending.name.as_str(), "an answer ended by a panic");
            self.body = Body::empty();
            Poll::Ready(Some(Err(axum::Error::new(Broken))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
