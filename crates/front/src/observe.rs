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

use crate::body::{BodyError, RequestLabels, ResponseBody};
use crate::endpoint_meters::{EndpointMeters, HttpLabels};
use crate::listen::RequestGuard;
use crate::outcome::{RequestOutcome, ResponseOutcome};
use crate::request_span::RequestSpan;

/// The answer to a request.
pub(crate) type HttpAnswer = Response<ResponseBody>;

/// The answer with its body observed, on its way to the client.
pub(crate) type ObservedAnswer = Response<ObservedBody>;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request that has begun.
pub(crate) struct ObservedRequest {
    ending: RequestEnd,
}

/// Observes a request. Dropping the returned value records that the client disconnected before the
/// answer.
pub(crate) fn observe_request(
    name: RequestName,
    beat: RequestGuard,
    http: HttpLabels,
) -> ObservedRequest {
    http.add_active(1);
    ObservedRequest::new(name, Some((beat, http)))
}

/// Observes a message that is answered elsewhere than in the response to its own POST.
pub(crate) fn observe_message(name: RequestName) -> ObservedRequest {
    ObservedRequest::new(name, None)
}

impl ObservedRequest {
    fn new(name: RequestName, of: Option<(RequestGuard, HttpLabels)>) -> Self {
        let (labels, counted) = (
            RequestLabels::NONE,
            Some(ResponseOutcome::Now(RequestOutcome::Cancelled)),
        );
        let (status, began) = (StatusCode::OK, Instant::now());
        let (beat, http) = of.unzip();
        Self {
            ending: RequestEnd {
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
    pub(crate) fn finish(self, mut answer: HttpAnswer) -> ObservedAnswer {
        let mut ending = self.ending;
        if let Ok(value) = HeaderValue::from_str(ending.name.as_str()) {
            answer.headers_mut().insert(REQUEST_ID, value);
        }
        ending.labels = std::mem::replace(&mut answer.body_mut().labels, RequestLabels::NONE);
        ending.counted = answer.extensions_mut().remove::<ResponseOutcome>();
        ending.status = answer.status();
        answer.map(|body| ObservedBody { body, ending })
    }
}

/// Runs when the answer ends, in any way.
struct RequestEnd {
    labels: RequestLabels,
    /// Absent if the status implies the outcome.
    counted: Option<ResponseOutcome>,
    status: StatusCode,
    began: Instant,
    name: RequestName,
    /// Absent for a message whose HTTP request is counted apart.
    http: Option<HttpLabels>,
    /// Bytes of the answer's body so far.
    sent: u64,
    _beat: Option<RequestGuard>,
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let tally = self.counted.as_ref().map_or_else(
            || RequestOutcome::of_status(self.status),
            ResponseOutcome::outcome,
        );
        let meters = self
            .labels
            .meters
            .as_deref()
            .unwrap_or(EndpointMeters::without_endpoint());
        let span = self.labels.span.as_ref();
        let _entered = span.map(|span| span.log_span().enter());
        if !matches!(self.counted, Some(ResponseOutcome::Elsewhere)) {
            meters.count_request(
                (self.labels.method, self.labels.era, tally),
                took,
                span.map(RequestSpan::span_context),
            );
        }
        if let Some(http) = &self.http {
            http.add_active(-1);
            meters.count_http(http, self.status, took, self.sent);
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
            "request completed"
        );
    }
}

/// The error of an answer that ended by a panic in weir.
#[derive(Debug, thiserror::Error)]
#[error("the answer ended by a panic")]
struct BodyPanicked;

/// An answer's body, observed to its end.
pub(crate) struct ObservedBody {
    body: ResponseBody,
    ending: RequestEnd,
}

impl ObservedBody {
    /// The latest end of the call, if it is known.
    pub(crate) fn until(&self) -> Option<tokio::time::Instant> {
        self.ending.labels.until
    }
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // A panic here would end the connection, and with it its other requests.
        let this = &mut *self;
        let entered = this
            .ending
            .labels
            .span
            .as_ref()
            .map(|span| span.log_span().enter());
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.body).poll_frame(cx)));
        drop(entered);
        if let Ok(Poll::Ready(Some(Ok(frame)))) = &polled {
            this.ending.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled.unwrap_or_else(|_| {
            instruments().panics.add(1, &[]);
            tracing::error!(
                request = self.ending.name.as_str(),
                "internal error: panic while sending a response body"
            );
            self.body = ResponseBody::empty();
            self.ending.counted = Some(ResponseOutcome::Now(RequestOutcome::Failed));
            Poll::Ready(Some(Err(BodyPanicked.into())))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
