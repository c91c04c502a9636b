//! CORS headers on the refusals that the layers outside of the CORS layer make, such as 503 under
//! overload: without them a page sees a network error, and neither status nor `Retry-After`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use http::{HeaderValue, Request, Response, header};
use pin_project_lite::pin_project;
use tower::{Layer, Service};
use weir_wire::header::ReceivedHeader;

use crate::http::cors_headers::EXPOSED_HEADERS;
use crate::request::endpoint_request::facts_of;

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct CorsRefusalsLayer;

impl<S> Layer<S> for CorsRefusalsLayer {
    type Service = CorsRefusals<S>;

    fn layer(&self, inner: S) -> CorsRefusals<S> {
        CorsRefusals(inner)
    }
}

/// A service whose refusals a page of an allowed origin can read.
#[derive(Debug, Clone)]
pub struct CorsRefusals<S>(S);

impl<S> Service<Request<Body>> for CorsRefusals<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = CorsRefusalsFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let origins = &facts_of(request.extensions()).rules.origins;
        let origin = ReceivedHeader::of(request.headers().get_all(header::ORIGIN)).once();
        let origin = origin.filter(|origin| origins.contains(*origin));
        CorsRefusalsFuture {
            origin: origin.cloned(),
            answering: self.0.call(request),
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
