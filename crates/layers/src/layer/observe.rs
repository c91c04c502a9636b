//! The outermost layer: names a request, counts its duration and outcome, and keeps what it holds
//! until its answer ends.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::{Body as _, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_core::call::RequestName;
use weir_core::instant::millis;
use weir_core::log_text::sanitize_text;
use weir_core::port::BoxFuture;
use weir_core::telemetry::instruments;
use weir_listen::{BodyError, ClientPeer, IncomingRequest, RequestGuard, ServedBody};

use crate::http::body::{HttpAnswer, RequestLabels, ResponseBody};
use crate::layer::read_body::discard_body;
use crate::outer_rules::OuterRules;
use crate::request::endpoint_meters::{EndpointMeters, HttpLabels};
use crate::request::outcome::{RequestOutcome, ResponseOutcome};
use crate::request::request_context::HttpRequestContext;
use crate::request::request_facts::RequestFacts;
use crate::request::request_span::RequestSpan;

/// The answer with its body observed, on its way to the client.
pub(crate) type ObservedAnswer<B = Body> = Response<ObservedBody<B>>;

/// The longest part of a path in the log, in characters.
const MAX_PATH_CHARS: usize = 256;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The layer, with the rules that it gives to the layers below.
#[derive(Debug, Clone)]
pub struct ObserveLayer(Arc<OuterRules>);

impl ObserveLayer {
    /// The layer of requests that follow these rules.
    pub fn new(rules: Arc<OuterRules>) -> Self {
        Self(rules)
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        Observe {
            inner,
            rules: self.0.clone(),
        }
    }
}

/// A service whose requests are observed. Dropping its future records that the client disconnected
/// before the answer.
#[derive(Debug, Clone)]
pub struct Observe<S> {
    inner: S,
    rules: Arc<OuterRules>,
}

impl<S> Service<IncomingRequest> for Observe<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = ObservedAnswer;
    type Error = Infallible;
    type Future = ObserveFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, IncomingRequest { request, peer }: IncomingRequest) -> Self::Future {
        let forwarded = peer.forwarded_by.as_ref();
        let name = forwarded
            .and_then(|forwarded| forwarded.request)
            .unwrap_or_else(|| self.rules.state.request_name());
        let guard = peer.activity.begin_request();
        let version = request.version();
        let http = HttpLabels::of(request.method(), version, peer.secure);
        http.add_active(1);
        let logged = LoggedHead::of(&request, &peer);
        let (head, body) = request.into_parts();
        let facts = Arc::new(RequestFacts::new(name, peer, body, self.rules.clone()));
        let mut request = Request::from_parts(head, Body::empty());
        request.extensions_mut().insert(facts.clone());
        let mut observed = ObservedRequest::new(name, facts, Some((guard, http)));
        observed.ending.logged = logged;
        ObserveFuture {
            answering: self.inner.call(request),
            answer: None,
            discarding: None,
            observed: Some(observed),
            version,
        }
    }
}

pin_project! {
    /// An answer in the making.
    pub struct ObserveFuture<F> {
        #[pin]
        answering: F,
        // The answer, once it is known.
        answer: Option<Response<Body>>,
        // Discards the rest of the request's body, if there is one.
        discarding: Option<BoxFuture<'static, bool>>,
        // Dropped after `answering`, which leaves the labels of a request without an answer.
        observed: Option<ObservedRequest>,
        version: Version,
    }
}

impl<F> Future for ObserveFuture<F>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    type Output = Result<ObservedAnswer, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(facts) = this.observed.as_ref().and_then(ObservedRequest::facts) else {
            // It has answered before.
            return Poll::Pending;
        };
        if this.answer.is_none() {
            let Ok(answer) = ready!(this.answering.poll(cx));
            *this.answer = Some(answer);
            // The answer is encoded, or its stream begins. The rest of it waits for the client, and
            // must not keep other requests out.
            let (permit, body) = facts.take_unused();
            drop(permit);
            // A request refused by its head has an unread body. The connection must not end without
            // a response while the client's next request is on it. The body of a stream of HTTP/2
            // goes back to the listener, which discards it after the answer.
            let unread = body.filter(|body| !body.is_end_stream());
            *this.discarding = unread
                .filter(|_| *this.version <= Version::HTTP_11)
                .map(|body| Box::pin(discard_body(body)) as BoxFuture<'static, bool>);
        }
        let in_step = match this.discarding {
            Some(discarding) => ready!(discarding.as_mut().poll(cx)),
            None => true,
        };
        let (labels, outcome) = facts.take_labels();
        let is_last = facts.rules.state.closes_connections() || !in_step;
        let (Some(mut answer), Some(observed)) = (this.answer.take(), this.observed.take()) else {
            return Poll::Pending;
        };
        if *this.version <= Version::HTTP_11 && is_last {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
        // The listener knows the length of each answer, and which statuses have none.
        answer.headers_mut().remove(header::CONTENT_LENGTH);
        Poll::Ready(Ok(observed.finish(answer, labels, outcome)))
    }
}

/// A request that has begun.
pub struct ObservedRequest {
    ending: RequestEnd,
}

impl std::fmt::Debug for ObservedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedRequest").finish_non_exhaustive()
    }
}

/// Observes a message that is answered elsewhere than in the response to its own POST.
pub fn observe_message(context: &HttpRequestContext) -> ObservedRequest {
    let mut observed = ObservedRequest::new(*context.name(), context.facts.clone(), None);
    observed.ending.labels.meters = Some(context.route.meters.clone());
    observed
}

impl ObservedRequest {
    fn new(
        name: RequestName,
        facts: Arc<RequestFacts>,
        of: Option<(RequestGuard, HttpLabels)>,
    ) -> Self {
        let (labels, counted) = (
            RequestLabels::NONE,
            Some(ResponseOutcome::Now(RequestOutcome::Cancelled)),
        );
        let (status, began) = (None, Instant::now());
        let (guard, http) = of.unzip();
        Self {
            ending: RequestEnd {
                unanswered: Some(facts),
                labels,
                counted,
                status,
                began,
                name,
                http,
                sent: 0,
                logged: None,
                _guard: guard,
            },
        }
    }

    /// What the layers share about the request.
    fn facts(&self) -> Option<&RequestFacts> {
        self.ending.unanswered.as_deref()
    }

    /// Records the head of the answer; its body is observed to its end.
    fn finish<B>(
        self,
        mut answer: Response<B>,
        labels: RequestLabels,
        outcome: Option<ResponseOutcome>,
    ) -> ObservedAnswer<B> {
        let mut ending = self.ending;
        if let Ok(value) = HeaderValue::from_str(ending.name.as_str()) {
            answer.headers_mut().insert(REQUEST_ID, value);
        }
        ending.unanswered = None;
        ending.labels = labels;
        ending.counted = outcome;
        ending.status = Some(answer.status());
        answer.map(|body| ObservedBody {
            body: Some(body),
            ending,
        })
    }

    /// Records the answer to a message that is not the response to its own POST.
    pub fn finish_message(self, mut answer: HttpAnswer) -> ObservedAnswer<ResponseBody> {
        let labels = answer.body_mut().take_labels();
        let outcome = answer.extensions_mut().remove::<ResponseOutcome>();
        self.finish(answer, labels, outcome)
    }
}

/// Runs when the answer ends, in any way.
struct RequestEnd {
    /// Present before the answer: the layers leave there the labels that are known by then.
    unanswered: Option<Arc<RequestFacts>>,
    labels: RequestLabels,
    /// Absent if the status implies the outcome.
    counted: Option<ResponseOutcome>,
    /// Absent before the head of the answer.
    status: Option<StatusCode>,
    began: Instant,
    name: RequestName,
    /// Absent for a message whose HTTP request is counted apart.
    http: Option<HttpLabels>,
    /// Bytes of the answer's body so far.
    sent: u64,
    /// The head of the request; present only while requests are logged.
    logged: Option<Box<LoggedHead>>,
    _guard: Option<RequestGuard>,
}

/// The parts of a request's head that its log line shows.
struct LoggedHead {
    method: Method,
    /// Without the query, which may have credentials.
    path: String,
    /// The other end of the connection: a client or a proxy.
    peer: IpAddr,
}

impl LoggedHead {
    /// Returns the head for the log, if requests are logged.
    fn of<B>(request: &Request<B>, peer: &ClientPeer) -> Option<Box<Self>> {
        tracing::enabled!(tracing::Level::DEBUG).then(|| {
            Box::new(Self {
                method: request.method().clone(),
                path: sanitize_text(request.uri().path(), MAX_PATH_CHARS),
                peer: peer.address,
            })
        })
    }
}

impl RequestEnd {
    /// Takes the labels of a request that ends before its answer begins.
    fn take_early_labels(&mut self) {
        let Some(facts) = self.unanswered.take() else {
            return;
        };
        if self.http.is_some() {
            // For a message these would be the labels of its POST, which has another answer.
            (self.labels, _) = facts.take_labels();
        }
        if let Some(message) = facts.decoded() {
            self.labels.message = message;
        }
    }
}

impl Drop for RequestEnd {
    fn drop(&mut self) {
        self.take_early_labels();
        let took = self.began.elapsed();
        let outcome = match &self.counted {
            None | Some(ResponseOutcome::Elsewhere) => self
                .status
                .map_or(RequestOutcome::Cancelled, RequestOutcome::of_status),
            Some(known) => known.outcome(),
        };
        let meters = self
            .labels
            .meters
            .as_deref()
            .unwrap_or(EndpointMeters::without_endpoint());
        let span = self.labels.span.as_ref();
        let _entered = span.map(|span| span.log_span().enter());
        if !matches!(self.counted, Some(ResponseOutcome::Elsewhere)) {
            meters.count_request(
                self.labels.message,
                outcome,
                took,
                span.map(RequestSpan::span_context),
            );
        }
        if let Some(http) = &self.http {
            http.add_active(-1);
            meters.count_http(http, self.status, took, self.sent);
        }
        let status = self.status.map(|status| status.as_u16());
        let logged = self.logged.as_deref();
        if let Some(span) = span {
            span.end(outcome, status);
        }
        tracing::debug!(
            request = self.name.as_str(),
            peer = logged.map(|head| tracing::field::display(head.peer)),
            http_method = logged.map(|head| head.method.as_str()),
            path = logged.map(|head| head.path.as_str()),
            method = self.labels.message.method,
            era = self.labels.message.era_label(),
            status,
            outcome = outcome.as_str(),
            reason = self.labels.reason,
            ms = millis(took),
            "request completed"
        );
    }
}

/// The error of an answer that ended by a panic in weir.
#[derive(Debug, thiserror::Error)]
#[error("the answer ended by a panic")]
struct BodyPanicked;

/// An answer's body, observed to its end.
pub struct ObservedBody<B = Body> {
    /// Absent after a panic.
    body: Option<B>,
    ending: RequestEnd,
}

impl<B> std::fmt::Debug for ObservedBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedBody").finish_non_exhaustive()
    }
}

impl ServedBody for ObservedBody {
    fn until(&self) -> Option<tokio::time::Instant> {
        self.ending.labels.until
    }
}

impl<B> http_body::Body for ObservedBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
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
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let polled = catch_unwind(AssertUnwindSafe(|| {
            Pin::new(body).poll_frame(cx).map_err(Into::into)
        }));
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
            self.body = None;
            self.ending.counted = Some(ResponseOutcome::Now(RequestOutcome::Failed));
            Poll::Ready(Some(Err(BodyPanicked.into())))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, B::size_hint)
    }
}
