//! The observation of every request: its id, duration and status, and the resources that it holds
//! until its answer ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use weir_core::call::RequestName;
use weir_core::telemetry::instruments;

use crate::body::{Body, Broken, Labels};
use crate::listen::Beat;
use crate::meters::{Http, Meters};
use crate::tally::{Counted, Tally};
use crate::told::Told;

/// The answer to a request.
pub(crate) type Answer = Response<Body>;

/// The answer with its body observed, on its way to the client.
pub(crate) type Served = Response<Followed>;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request that has begun.
pub(crate) struct Seen {
    ending: Ending,
}

/// Observes a request. Dropping the returned value records that the client disconnected before the
/// answer.
pub(crate) fn begin(name: RequestName, beat: Beat, http: Http) -> Seen {
    http.active(1);
    Seen::new(name, Some((beat, http)))
}

/// Observes a message that is answered elsewhere than in the response to its own POST.
pub(crate) fn begin_elsewhere(name: RequestName) -> Seen {
    Seen::new(name, None)
}

impl Seen {
    fn new(name: RequestName, of: Option<(Beat, Http)>) -> Self {
        let (labels, counted) = (Labels::NONE, Some(Counted::Now(Tally::Cancelled)));
        let (status, began) = (StatusCode::OK, Instant::now());
        let (beat, http) = of.unzip();
        Self {
            ending: Ending {
                labels,
                counted,
                status,
                began,
                name,
                http,
                sent: 0,
                _beat: beat,
            },
        }
    }

    /// Records the head of the answer; its body is observed to its end.
    pub(crate) fn finish(self, mut answer: Answer) -> Served {
        let mut ending = self.ending;
        if let Ok(value) = HeaderValue::from_str(ending.name.as_str()) {
            answer.headers_mut().insert(REQUEST_ID, value);
        }
        ending.labels = std::mem::replace(&mut answer.body_mut().labels, Labels::NONE);
        ending.counted = answer.extensions_mut().remove::<Counted>();
        ending.status = answer.status();
        answer.map(|body| Followed { body, ending })
    }
}

/// Runs when the answer ends, in any way.
struct Ending {
    labels: Labels,
    /// Absent if the status implies the outcome.
    counted: Option<Counted>,
    status: StatusCode,
    began: Instant,
    name: RequestName,
    /// Absent for a message whose HTTP request is counted apart.
    http: Option<Http>,
    /// Bytes of the answer's body so far.
    sent: u64,
    _beat: Option<Beat>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let tally = self
            .counted
            .as_ref()
            .map_or_else(|| Tally::of_status(self.status), Counted::tally);
        let meters = self.labels.meters.as_deref().unwrap_or(Meters::nowhere());
        let span = self.labels.span.as_ref();
        let _entered = span.map(|span| span.log().enter());
        if !matches!(self.counted, Some(Counted::Elsewhere)) {
            meters.request(
                (self.labels.method, self.labels.era, tally),
                took,
                span.map(Told::context),
            );
        }
        if let Some(http) = &self.http {
            http.active(-1);
            meters.http(http, self.status, took, self.sent);
        }
        if let Some(span) = span {
            span.end(tally, self.status.as_u16());
        }
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

/// The error of an answer that ended by a panic in weir.
#[derive(Debug, thiserror::Error)]
#[error("the answer ended by a panic")]
struct Panicked;

/// An answer's body, observed to its end.
pub(crate) struct Followed {
    body: Body,
    ending: Ending,
}

impl Followed {
    /// The latest end of the call, if it is known.
    pub(crate) fn until(&self) -> Option<tokio::time::Instant> {
        self.ending.labels.until
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        // A panic here would end the connection, and with it its other requests.
        let this = &mut *self;
        let entered = this
            .ending
            .labels
            .span
            .as_ref()
            .map(|span| span.log().enter());
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.body).poll_frame(cx)));
        drop(entered);
        if let Ok(Poll::Ready(Some(Ok(frame)))) = &polled {
            this.ending.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled.unwrap_or_else(|_| {
            instruments().panics.add(1, &[]);
            tracing::error!(
                request = self.ending.name.as_str(),
                "an answer ended by a panic"
            );
            self.body = Body::empty();
            self.ending.counted = Some(Counted::Now(Tally::Failed));
            Poll::Ready(Some(Err(Panicked.into())))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
