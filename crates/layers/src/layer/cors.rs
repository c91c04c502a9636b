//! CORS for pages of the configured origins: `tower-http`'s layer, on every path but those of
//! public documents, which have headers of their own.
//!
//! Preflights are answered before authentication: a browser sends them without credentials.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::Either;
use http::{HeaderName, Method, Request, Response, header};
use tower::{Layer, Service};
use tower_http::cors::Cors;

use crate::http::cors_headers::allowing;
use crate::request::endpoint_request::facts_of;

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct CorsPolicy;

impl<S> Layer<S> for CorsPolicy {
    type Service = CorsService<S>;

    fn layer(&self, inner: S) -> CorsService<S> {
        CorsService(inner)
    }
}

/// A service behind CORS.
#[derive(Debug, Clone)]
pub struct CorsService<S>(S);

impl<S> Service<Request<Body>> for CorsService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<<Cors<S> as Service<Request<Body>>>::Future, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let rules = &facts_of(request.extensions()).rules;
        let is_public = || rules.public_paths.contains(request.uri().path());
        let Some(cors) = rules.cors.as_ref().filter(|_| !is_public()) else {
            return Either::Right(self.0.call(request));
        };
        let parameters = parameter_headers(&request);
        let mut cors = if parameters.is_empty() {
            cors.layer(self.0.clone())
        } else {
            allowing(cors, parameters).layer(self.0.clone())
        };
        Either::Left(cors.call(request))
    }
}

/// Returns the headers of parameters that a preflight asks for. Each tool has its own
/// (`x-mcp-header`, specification 2026-07-28, Transports), so no fixed list can name them.
fn parameter_headers(request: &Request<Body>) -> Vec<HeaderName> {
    if request.method() != Method::OPTIONS {
        return Vec::new();
    }
    let requested = request
        .headers()
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS);
    requested
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .filter(|name| name.as_str().starts_with("mcp-param-"))
        .collect()
}
