//! CORS headers on the refusals that the layers outside of the CORS layer make, such as 503 under
//! overload: without them a page sees a network error, and neither status nor `Retry-After`.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_wire::header::ReceivedHeader;

use super::cors::{EXPOSED_HEADERS, allowed_origins};
use crate::settings::FrontSettings;

/// The layer.
#[derive(Clone)]
pub struct CorsRefusalsLayer(Arc<HashSet<HeaderValue>>);

impl std::fmt::Debug for CorsRefusalsLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorsRefusalsLayer").finish_non_exhaustive()
    }
}

impl CorsRefusalsLayer {
    /// The layer for pages of the origins of these settings.
    pub fn new(settings: &FrontSettings) -> Self {
        Self(Arc::new(allowed_origins(settings).collect()))
    }
}

impl<S> Layer<S> for CorsRefusalsLayer {
    type Service = CorsRefusals<S>;

    fn layer(&self, inner: S) -> CorsRefusals<S> {
        CorsRefusals {
            inner,
            origins: self.0.clone(),
        }
    }
}

/// A service whose refusals a page of an allowed origin can read.
#[derive(Clone)]
pub struct CorsRefusals<S> {
    inner: S,
    origins: Arc<HashSet<HeaderValue>>,
}

impl<S> std::fmt::Debug for CorsRefusals<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorsRefusals").finish_non_exhaustive()
    }
}

impl<S> Service<Request<Body>> for CorsRefusals<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = CorsRefusalsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let origin = ReceivedHeader::of(request.headers().get_all(header::ORIGIN)).once();
        let origin = origin.filter(|origin| self.origins.contains(*origin));
        CorsRefusalsFuture {
            origin: origin.cloned(),
            answering: self.inner.call(request),
        }
    }
}

pin_project! {
    /// An answer in the making.
    pub struct CorsRefusalsFuture<F> {
        #[pin]
        answering: F,
        // Present if it is allowed.
        origin: Option<HeaderValue>,
    }
}

impl<F, E> Future for CorsRefusalsFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut answer = ready!(this.answering.poll(cx))?;
        let headers = answer.headers_mut();
        if let Some(origin) = this.origin.take()
            && !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)
        {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            if let Ok(exposed) = HeaderValue::try_from(EXPOSED_HEADERS.join(",")) {
                headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
            }
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
        Poll::Ready(Ok(answer))
    }
}
