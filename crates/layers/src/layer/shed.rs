//! Sheds load: refuses a request under acute memory pressure, and one that finds no in-flight permit
//! in `limits.in_flight_wait`.
//!
//! It stands outside of authentication, because a refusal must cost little. A request that ends a
//! session passes, because it gives memory back, and a preflight, because it waits for nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{Method, Request};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_core::port::BoxFuture;

use crate::failure::RequestFailure;
use crate::failure::request_refusal::RequestRefusal;
use crate::in_flight::InFlightPermit;
use crate::memory_pressure::MemoryPressure;
use crate::outer_rules::OuterRules;
use crate::request::endpoint_request::facts_of;

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct ShedLayer;

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed(inner)
    }
}

/// A service that refuses requests beyond the limits.
#[derive(Debug, Clone)]
pub struct Shed<S>(S);

impl<S> Service<Request<Body>> for Shed<S>
where
    S: Service<Request<Body>, Error = RequestFailure> + Clone,
{
    type Response = S::Response;
    type Error = RequestFailure;
    type Future = ShedFuture<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> ShedFuture<S> {
        // A preflight is answered at once, and costs no more than a refusal. A page would not show
        // its user that one was refused.
        if *request.method() == Method::OPTIONS {
            return ShedFuture {
                waiting: None,
                serving: Some(self.0.call(request)),
            };
        }
        let facts = facts_of(request.extensions());
        let OuterRules {
            state, settings, ..
        } = &*facts.rules;
        let is_short = state.memory_pressure.get() == MemoryPressure::Acute;
        if is_short && *request.method() != Method::DELETE {
            return ShedFuture::refused();
        }
        let limits = &settings.limits;
        let wait = limits.in_flight_wait;
        match state.in_flight.try_acquire(limits.in_flight, wait) {
            Some(permit) => {
                facts.hold_permit(permit);
                ShedFuture {
                    waiting: None,
                    serving: Some(self.0.call(request)),
                }
            }
            None if wait.is_zero() => ShedFuture::refused(),
            None => {
                let rules = facts.rules.clone();
                let waiting = async move {
                    let limits = &rules.settings.limits;
                    let in_flight = &rules.state.in_flight;
                    in_flight
                        .acquire(limits.in_flight, limits.in_flight_wait)
                        .await
                };
                ShedFuture {
                    waiting: Some(Box::new(WaitingRequest {
                        request,
                        service: self.0.clone(),
                        permit: Box::pin(waiting),
                    })),
                    serving: None,
                }
            }
        }
    }
}

/// A request that waits for its permit.
struct WaitingRequest<S> {
    service: S,
    request: Request<Body>,
    permit: BoxFuture<'static, Option<InFlightPermit>>,
}

pin_project! {
    /// A request that waits for its permit, and then for its answer. A refused one has neither.
    pub struct ShedFuture<S: Service<Request<Body>>> {
        waiting: Option<Box<WaitingRequest<S>>>,
        #[pin]
        serving: Option<S::Future>,
    }
}

impl<S: Service<Request<Body>>> ShedFuture<S> {
    fn refused() -> Self {
        Self {
            waiting: None,
            serving: None,
        }
    }
}

impl<S> Future for ShedFuture<S>
where
    S: Service<Request<Body>, Error = RequestFailure>,
{
    type Output = Result<S::Response, RequestFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(waiting) = this.waiting {
            let permit = ready!(waiting.permit.as_mut().poll(cx));
            if let (Some(permit), Some(mut waiting)) = (permit, this.waiting.take()) {
                facts_of(waiting.request.extensions()).hold_permit(permit);
                this.serving
                    .set(Some(waiting.service.call(waiting.request)));
            } else {
                *this.waiting = None;
            }
        }
        match this.serving.as_pin_mut() {
            Some(serving) => serving.poll(cx),
            None => Poll::Ready(Err(RequestRefusal::Overloaded.into())),
        }
    }
}
