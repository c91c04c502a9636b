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
use crate::tally::{Counted, Tally};

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
    ending: Ending,
}

/// Follows a request. Dropping what this gives is the client's going away before there was an answer.
pub(crate) fn begin(name: RequestName, beat: Beat) -> Seen {
    let (labels, counted) = (Labels { method: "none", era: "none" }, Some(Counted::Now(Tally::Cancelled)));
    let status = StatusCode::OK;
    Seen { ending: Ending { labels, counted, status, began: Instant::now(), name, _beat: beat, _permit: None } }
}

impl Seen {
    /// The answer's head is there; its body is followed to its end.
    pub(crate) fn finish(self, mut answer: Answer, permit: Option<OwnedSemaphorePermit>) -> Answer {
        let mut ending = self.ending;
        if let Ok(value) = HeaderValue::from_str(ending.name.as_str()) {
            answer.headers_mut().insert(REQUEST_ID, value);
        }
        // A waiting stream has a place of its own kind.
        ending._permit = permit.filter(|_| answer.extensions_mut().remove::<Waits>().is_none());
        ending.labels = answer.extensions_mut().remove::<Labels>().unwrap_or(ending.labels);
        ending.counted = answer.extensions_mut().remove::<Counted>();
        ending.status = answer.status();
        answer.map(|body| Body::new(Followed { body, ending }))
    }
}

/// Runs when the answer is over, however it ends.
struct Ending {
    labels: Labels,
    /// `None` where the status says it.
    counted: Option<Counted>,
    status: StatusCode,
    began: Instant,
    name: RequestName,
    _beat: Beat,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let tally = self.counted.as_ref().map_or_else(|| Tally::of_status(self.status), Counted::tally);
        let (method, era) = (KeyValue::new("method", self.labels.method), KeyValue::new("era", self.labels.era));
        instruments().request_duration.record(took.as_secs_f64(), &[method.clone(), era.clone()]);
        instruments().requests.add(1, &[method, era, KeyValue::new("outcome", tally.as_str())]);
        tracing::debug!(
            request = self.name.as_str(),
            method = self.labels.method,
            era = self.labels.era,
            status = self.status.as_u16(),
            outcome = tally.as_str(),
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
            self.ending.counted = Some(Counted::Now(Tally::Failed));
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
