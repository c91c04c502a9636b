//! Sheds load: refuses a request under acute memory pressure, and one that finds no in-flight permit
//! in `limits.in_flight_wait`.
//!
//! It stands outside of authentication, because a refusal must cost little. A request that ends a
//! session passes, because it gives memory back, and a preflight, because it waits for nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{Method, Request};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_core::port::Fut;

use crate::failure::RequestFailure;
use crate::failure::request_refusal::RequestRefusal;
use crate::in_flight::InFlightPermit;
use crate::memory_pressure::MemoryPressure;
use crate::outer_state::OuterState;
use crate::request::endpoint_request::facts_of;
use crate::settings::FrontSettings;

/// The layer.
#[derive(Clone)]
pub struct ShedLayer(Arc<ShedLimits>);

impl std::fmt::Debug for ShedLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShedLayer").finish_non_exhaustive()
    }
}

struct ShedLimits {
    state: Arc<OuterState>,
    settings: Arc<FrontSettings>,
}

impl ShedLayer {
    /// The layer with the permits of this state and the limits of these settings.
    pub fn new(state: Arc<OuterState>, settings: Arc<FrontSettings>) -> Self {
        Self(Arc::new(ShedLimits { state, settings }))
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed {
            inner,
            limits: self.0.clone(),
        }
    }
}

/// A service that refuses requests beyond the limits.
#[derive(Clone)]
pub struct Shed<S> {
    inner: S,
    limits: Arc<ShedLimits>,
}

impl<S> std::fmt::Debug for Shed<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shed").finish_non_exhaustive()
    }
}

impl<S> Service<Request<Body>> for Shed<S>
where
    S: Service<Request<Body>, Error = RequestFailure> + Clone,
{
    type Response = S::Response;
    type Error = RequestFailure;
    type Future = ShedFuture<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> ShedFuture<S> {
        let ShedLimits { state, settings } = &*self.limits;
        // A preflight is answered at once, and costs no more than a refusal. A page would not show
        // its user that one was refused.
        if *request.method() == Method::OPTIONS {
            return ShedFuture {
                waiting: None,
                serving: Some(self.inner.call(request)),
            };
        }
        let is_short = state.memory_pressure.get() == MemoryPressure::Acute;
        if is_short && *request.method() != Method::DELETE {
            return ShedFuture::refused();
        }
        let limits = &settings.limits;
        let wait = limits.in_flight_wait;
        match state.in_flight.try_acquire(limits.in_flight, wait) {
            Some(permit) => {
                facts_of(request.extensions()).hold_permit(permit);
                ShedFuture {
                    waiting: None,
                    serving: Some(self.inner.call(request)),
                }
            }
            None if wait.is_zero() => ShedFuture::refused(),
            None => {
                let (state, limits) = (state.clone(), self.limits.clone());
                let waiting = async move {
                    let limits = &limits.settings.limits;
                    state
                        .in_flight
                        .acquire(limits.in_flight, limits.in_flight_wait)
                        .await
                };
                ShedFuture {
                    waiting: Some(Box::new(WaitingRequest {
                        request,
                        service: self.inner.clone(),
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
    permit: Fut<'static, Option<InFlightPermit>>,
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
