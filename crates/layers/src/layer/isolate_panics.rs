//! Ends a request alone that panics in a layer below.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_core::telemetry::instruments;

use crate::failure::{FailureCause, RequestFailure};

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct IsolatePanicsLayer;

impl<S> Layer<S> for IsolatePanicsLayer {
    type Service = IsolatePanics<S>;

    fn layer(&self, inner: S) -> IsolatePanics<S> {
        IsolatePanics(inner)
    }
}

/// A service whose panics are failures of their requests.
#[derive(Debug, Clone)]
pub struct IsolatePanics<S>(S);

impl<R, S> Service<R> for IsolatePanics<S>
where
    S: Service<R, Error = RequestFailure>,
{
    type Response = S::Response;
    type Error = RequestFailure;
    type Future = IsolatedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        IsolatedFuture {
            serving: catch_unwind(AssertUnwindSafe(|| self.0.call(request))).ok(),
        }
    }
}

pin_project! {
    /// The answer of a service that may panic.
    pub struct IsolatedFuture<F> {
        // Absent if the call itself panicked.
        #[pin]
        serving: Option<F>,
    }
}

impl<F, T> Future for IsolatedFuture<F>
where
    F: Future<Output = Result<T, RequestFailure>>,
{
    type Output = Result<T, RequestFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(serving) = self.project().serving.as_pin_mut() else {
            return Poll::Ready(Err(panicked()));
        };
        catch_unwind(AssertUnwindSafe(|| serving.poll(cx)))
            .unwrap_or_else(|_: Box<dyn Any + Send>| Poll::Ready(Err(panicked())))
    }
}

/// The answer to a message, whose panic is a failure of it alone.
pub fn isolate_panics<F>(serving: F) -> IsolatedFuture<F> {
    IsolatedFuture {
        serving: Some(serving),
    }
}

fn panicked() -> RequestFailure {
    instruments().panics.add(1, &[]);
    FailureCause::Panicked.into()
}
