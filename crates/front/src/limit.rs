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
pub(crate) struct LimitLayer<T>(T);

impl<T> LimitLayer<T> {
    /// A layer that refuses the requests that `toll` refuses.
    pub(crate) fn new(toll: T) -> Self {
        Self(toll)
    }
}

impl<S, T: Clone> Layer<S> for LimitLayer<T> {
    type Service = Limit<S, T>;

    fn layer(&self, inner: S) -> Limit<S, T> {
        Limit {
            inner,
            toll: self.0.clone(),
        }
    }
}

/// A service behind a check.
#[derive(Clone, Copy)]
pub(crate) struct Limit<S, T> {
    inner: S,
    toll: T,
}

impl<R, S, T> Service<R> for Limit<S, T>
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
    async fn what_the_toll_refuses_is_never_seen_inside() {
        let seen = Cell::new(0);
        let inside = service_fn(|number: u32| {
            seen.set(seen.get() + 1);
            ready(Ok::<u32, &str>(number))
        });
        let column =
            LimitLayer::new(|number: &u32| if *number < 2 { Ok(()) } else { Err("too many") })
                .layer(inside);
        assert_eq!(column.oneshot(1).await, Ok(1));
        assert_eq!(column.oneshot(2).await, Err("too many"));
        assert_eq!(seen.get(), 1);
    }
}
