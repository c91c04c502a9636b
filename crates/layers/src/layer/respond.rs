//! Turns the failures of all layers below into responses, by the table in [`crate::failure`]. A
//! browser gets a refusal of an endpoint with the help page as its body.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_core::EndpointId;

use crate::failure::{self, RequestFailure};
use crate::http::body::{HttpAnswer, ResponseBody};
use crate::layer::help_page::{PageAnswer, is_browser_request};
use crate::request::endpoint_meters::EndpointMeters;
use crate::request::endpoint_request::facts_of;
use crate::request::outcome::ResponseOutcome;
use crate::request::request_facts::RequestFacts;
use crate::settings::HelpPage;

/// The layer.
#[derive(Clone, Default)]
pub struct RespondLayer {
    /// The metrics of the endpoint; absent for requests without an endpoint.
    meters: Option<Arc<EndpointMeters>>,
    /// The page for a person that opens the endpoint in a browser.
    page: Option<Arc<PageAnswer>>,
}

impl std::fmt::Debug for RespondLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RespondLayer").finish_non_exhaustive()
    }
}

impl RespondLayer {
    /// The layer of an endpoint, whose answers count in these metrics.
    pub fn of_endpoint(meters: Arc<EndpointMeters>) -> Self {
        Self {
            meters: Some(meters),
            page: None,
        }
    }

    /// Gives a browser that is refused this page of the endpoint, if there is one.
    #[must_use]
    pub fn with_help_page(self, page: Option<&HelpPage>, endpoint: &EndpointId) -> Self {
        let page = page.map(|page| Arc::new(PageAnswer::new(page, endpoint)));
        Self { page, ..self }
    }
}

impl<S> Layer<S> for RespondLayer {
    type Service = Respond<S>;

    fn layer(&self, inner: S) -> Respond<S> {
        Respond {
            inner,
            meters: self.meters.clone(),
            page: self.page.clone(),
        }
    }
}

/// A service without failures.
#[derive(Clone)]
pub struct Respond<S> {
    inner: S,
    meters: Option<Arc<EndpointMeters>>,
    page: Option<Arc<PageAnswer>>,
}

impl<S> std::fmt::Debug for Respond<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Respond").finish_non_exhaustive()
    }
}

impl<S, B> Service<Request<Body>> for Respond<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = RequestFailure>,
    B: AnswerBody,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = RespondFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The layers below are always ready: they refuse, and never wait before a call.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let facts = facts_of(request.extensions()).clone();
        let page = self
            .page
            .as_ref()
            .filter(|_| is_browser_request(request.method(), request.headers()))
            .cloned();
        RespondFuture {
            answering: self.inner.call(request),
            facts,
            meters: self.meters.clone(),
            page,
        }
    }
}

pin_project! {
    /// An answer in the making.
    pub struct RespondFuture<F> {
        #[pin]
        answering: F,
        facts: Arc<RequestFacts>,
        // Taken with the answer.
        meters: Option<Arc<EndpointMeters>>,
        // Present if a browser asks.
        page: Option<Arc<PageAnswer>>,
    }

    impl<F> PinnedDrop for RespondFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(meters) = this.meters.take() {
                this.facts.leave_meters(meters);
            }
        }
    }
}

impl<F, B> Future for RespondFuture<F>
where
    F: Future<Output = Result<Response<B>, RequestFailure>>,
    B: AnswerBody,
{
    type Output = Result<Response<Body>, std::convert::Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = ready!(this.answering.poll(cx));
        let meters = this.meters.take();
        let mut answer = match answered {
            Ok(answer) => B::finish(answer, this.facts, meters),
            Err(failure) => {
                let answer = failure::into_answer(failure, &this.facts.name);
                ResponseBody::finish(answer, this.facts, meters)
            }
        };
        if let Some(page) = this.page {
            page.replace_body(&mut answer);
        }
        Poll::Ready(Ok(answer))
    }
}

/// The body of an answer below this layer.
pub(crate) trait AnswerBody: Sized {
    /// The answer for the layers above, with its labels left to the metrics.
    fn finish(
        answer: Response<Self>,
        facts: &RequestFacts,
        meters: Option<Arc<EndpointMeters>>,
    ) -> Response<Body>;
}

impl AnswerBody for ResponseBody {
    fn finish(
        mut answer: HttpAnswer,
        facts: &RequestFacts,
        meters: Option<Arc<EndpointMeters>>,
    ) -> Response<Body> {
        let mut labels = answer.body_mut().take_labels();
        if meters.is_some() {
            labels.meters = meters;
        }
        let outcome = answer.extensions_mut().remove::<ResponseOutcome>();
        facts.leave_labels(labels, outcome);
        answer.map(Body::new)
    }
}

impl AnswerBody for Body {
    /// The answer is finished already.
    fn finish(
        answer: Response<Self>,
        _: &RequestFacts,
        _: Option<Arc<EndpointMeters>>,
    ) -> Response<Body> {
        answer
    }
}
