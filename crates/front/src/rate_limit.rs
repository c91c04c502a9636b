//! Rate limits as tower middleware: a layer checks a request before the inner service sees it, or
//! refuses it.
//!
//! The creator of the layer chooses the limit; the limits themselves stand behind core's `Limiter`
//! port. No future is boxed: the layer costs no more than its check.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tower::{Layer, Service};

/// A layer that puts a check before a service.
#[derive(Clone, Copy)]
pub(crate) struct RateLimitLayer<T>(T);

impl<T> RateLimitLayer<T> {
    /// A layer that refuses the requests that `toll` refuses.
    pub(crate) fn new(toll: T) -> Self {
        Self(toll)
    }
}

impl<S, T: Clone> Layer<S> for RateLimitLayer<T> {
    type Service = RateLimitService<S, T>;

    fn layer(&self, inner: S) -> RateLimitService<S, T> {
        RateLimitService {
            inner,
            toll: self.0.clone(),
        }
    }
}

/// A service behind a check.
#[derive(Clone, Copy)]
pub(crate) struct RateLimitService<S, T> {
    inner: S,
    toll: T,
}

impl<R, S, T> Service<R> for RateLimitService<S, T>
where
    S: Service<R>,
    T: Fn(&R) -> Result<(), S::Error>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match (self.toll)(&request) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(refusal) => Either::Left(ready(Err(refusal))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn refused_request_never_reaches_the_inner_service() {
        let seen = Cell::new(0);
        let inside = service_fn(|number: u32| {
            seen.set(seen.get() + 1);
            ready(Ok::<u32, &str>(number))
        });
        let column =
            RateLimitLayer::new(|number: &u32| if *number < 2 { Ok(()) } else { Err("too many") })
                .layer(inside);
        assert_eq!(column.oneshot(1).await, Ok(1));
        assert_eq!(column.oneshot(2).await, Err("too many"));
        assert_eq!(seen.get(), 1);
    }
}
