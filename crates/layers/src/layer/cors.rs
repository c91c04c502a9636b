//! CORS for pages of the configured origins: `tower-http`'s layer, on every path but those of public
//! documents, which have headers of their own.
//!
//! Preflights are answered before authentication: a browser sends them without credentials.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::Either;
use http::{HeaderValue, Request, Response};
use tower::{Layer, Service};
use tower_http::cors::{AllowOrigin, Cors, CorsLayer};

use crate::settings::FrontSettings;

/// The layer.
#[derive(Clone)]
pub struct CorsPolicy {
    /// Absent without origins.
    cors: Option<CorsLayer>,
    public_paths: Arc<HashSet<String>>,
}

impl std::fmt::Debug for CorsPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorsPolicy").finish_non_exhaustive()
    }
}

impl CorsPolicy {
    /// The policy of these settings. Any origin may read the public paths.
    pub fn new(settings: &FrontSettings, public_paths: Arc<HashSet<String>>) -> Self {
        Self {
            cors: cors_layer(settings),
            public_paths,
        }
    }
}

impl<S: Clone> Layer<S> for CorsPolicy {
    type Service = CorsService<S>;

    fn layer(&self, inner: S) -> CorsService<S> {
        CorsService {
            cors: self.cors.as_ref().map(|cors| cors.layer(inner.clone())),
            inner,
            public_paths: self.public_paths.clone(),
        }
    }
}

/// A service behind CORS.
#[derive(Clone)]
pub struct CorsService<S> {
    inner: S,
    cors: Option<Cors<S>>,
    public_paths: Arc<HashSet<String>>,
}

impl<S> std::fmt::Debug for CorsService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorsService").finish_non_exhaustive()
    }
}

impl<S> Service<Request<Body>> for CorsService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<<Cors<S> as Service<Request<Body>>>::Future, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match &mut self.cors {
            Some(cors) if !self.public_paths.contains(request.uri().path()) => {
                Either::Left(cors.call(request))
            }
            _ => Either::Right(self.inner.call(request)),
        }
    }
}

fn cors_layer(settings: &FrontSettings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = settings
        .origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    if origins.is_empty() {
        return None;
    }
    let named = |names: &[&'static str]| {
        names
            .iter()
            .map(|name| http::HeaderName::from_static(name))
            .collect::<Vec<_>>()
    };
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([http::Method::GET, http::Method::POST, http::Method::DELETE])
            .allow_headers(named(&[
                "accept",
                "authorization",
                "content-type",
                "last-event-id",
                "mcp-method",
                "mcp-name",
                "mcp-protocol-version",
                "mcp-session-id",
                "x-api-key",
            ]))
            .expose_headers(named(&[
                "mcp-session-id",
                "mcp-protocol-version",
                "www-authenticate",
                "retry-after",
                "ratelimit",
                "ratelimit-policy",
            ])),
    )
}
