//! A check as a tower layer: of a request's head, or of a rate limit.
//!
//! The check sees a request before the inner service does, or refuses it. No future is boxed: the
//! layer costs no more than its check.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::failure::{RequestFailure, RequestResult};
use crate::layer::answer_request::AnswerRequest;
use crate::request::endpoint_request::AuthenticatedRequest;

/// A check of requests.
pub(crate) trait Check<R> {
    /// Lets a request pass, or refuses it.
    fn check(&self, request: &R) -> Result<(), RequestFailure>;
}

impl<R, F> Check<R> for F
where
    F: Fn(&R) -> Result<(), RequestFailure>,
{
    fn check(&self, request: &R) -> Result<(), RequestFailure> {
        self(request)
    }
}

/// A layer that puts a check before a service.
#[derive(Debug, Clone, Copy)]
pub struct CheckLayer<C>(C);

impl<C> CheckLayer<C> {
    /// A layer that refuses the requests that `check` refuses.
    pub fn new(check: C) -> Self {
        Self(check)
    }
}

impl<S, C: Clone> Layer<S> for CheckLayer<C> {
    type Service = CheckService<S, C>;

    fn layer(&self, inner: S) -> CheckService<S, C> {
        CheckService {
            inner,
            check: self.0.clone(),
        }
    }
}

/// A service behind a check.
#[derive(Debug, Clone, Copy)]
pub struct CheckService<S, C> {
    inner: S,
    check: C,
}

impl<R, S, C> Service<R> for CheckService<S, C>
where
    S: Service<R>,
    S::Error: Into<RequestFailure>,
    C: Check<R>,
{
    type Response = S::Response;
    type Error = RequestFailure;
    type Future = CheckFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let checked = match self.check.check(&request) {
            Ok(()) => Checked::Passed {
                future: self.inner.call(request),
            },
            Err(failure) => Checked::Refused {
                failure: Some(failure),
            },
        };
        CheckFuture { checked }
    }
}

impl<S, C> AnswerRequest<AuthenticatedRequest> for CheckService<S, C>
where
    S: AnswerRequest<AuthenticatedRequest>,
    C: Check<AuthenticatedRequest> + Clone + Send + Sync + 'static,
{
    async fn answer(self, request: AuthenticatedRequest) -> RequestResult {
        self.check.check(&request)?;
        self.inner.answer(request).await
    }
}

pin_project! {
    /// The future of a checked request.
    #[derive(Debug)]
    pub struct CheckFuture<F> {
        #[pin]
        checked: Checked<F>,
    }
}

pin_project! {
    /// The outcome of the check. A refusal is as small as its error, so the whole takes no more room
    /// than the future of the inner service.
    #[derive(Debug)]
    #[project = CheckedProjection]
    enum Checked<F> {
        // Until it is taken.
        Refused { failure: Option<RequestFailure> },
        Passed { #[pin] future: F },
    }
}

impl<F, T, E> Future for CheckFuture<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<RequestFailure>,
{
    type Output = Result<T, RequestFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().checked.project() {
            CheckedProjection::Passed { future } => future.poll(cx).map_err(Into::into),
            // Nothing is left after the refusal.
            CheckedProjection::Refused { failure } => failure
                .take()
                .map_or(Poll::Pending, |failure| Poll::Ready(Err(failure))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::failure::RequestRefusal;

    #[tokio::test]
    async fn refused_request_never_reaches_the_inner_service() {
        let seen = Cell::new(0);
        let inside = service_fn(|number: u32| {
            seen.set(seen.get() + 1);
            ready(Ok::<u32, RequestFailure>(number))
        });
        let check = |number: &u32| match number {
            0 | 1 => Ok(()),
            _ => Err(RequestRefusal::RateLimited.into()),
        };
        let checked = CheckLayer::new(check).layer(inside);
        assert!(checked.oneshot(1).await.is_ok_and(|number| number == 1));
        assert!(checked.oneshot(2).await.is_err());
        assert_eq!(seen.get(), 1);
    }
}
