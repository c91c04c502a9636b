//! CORS for pages of the configured origins: `tower-http`'s layer, on every path but those of
//! public documents, which have headers of their own.
//!
//! Preflights are answered before authentication: a browser sends them without credentials.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use tower::{Layer, Service};
use tower_http::cors::{AllowOrigin, Cors, CorsLayer};

use crate::http::head_guard::serialized_origin;
use crate::settings::FrontSettings;

/// The time for which a browser keeps the answer to a preflight, and so a change of the config may
/// be unknown to it.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

/// The layer.
#[derive(Clone)]
pub struct CorsPolicy {
    /// Absent without origins.
    cors: Option<Arc<CorsLayer>>,
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
            cors: cors_layer(settings).map(Arc::new),
            public_paths,
        }
    }
}

impl<S: Clone> Layer<S> for CorsPolicy {
    type Service = CorsService<S>;

    fn layer(&self, inner: S) -> CorsService<S> {
        CorsService {
            cors: self
                .cors
                .as_ref()
                .map(|cors| (cors.clone(), cors.layer(inner.clone()))),
            inner,
            public_paths: self.public_paths.clone(),
        }
    }
}

/// A service behind CORS.
#[derive(Clone)]
pub struct CorsService<S> {
    inner: S,
    cors: Option<(Arc<CorsLayer>, Cors<S>)>,
    public_paths: Arc<HashSet<String>>,
}

impl<S> std::fmt::Debug for CorsService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CorsService").finish_non_exhaustive()
    }
}

impl<S> Service<Request<Body>> for CorsService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<<Cors<S> as Service<Request<Body>>>::Future, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match &mut self.cors {
            Some((layer, cors)) if !self.public_paths.contains(request.uri().path()) => {
                let parameters = parameter_headers(&request);
                if parameters.is_empty() {
                    return Either::Left(cors.call(request));
                }
                let mut allowed = named(&ALLOWED_HEADERS);
                allowed.extend(parameters);
                // Answered without the inner service.
                let preflight = CorsLayer::clone(layer).allow_headers(allowed);
                Either::Left(preflight.layer(self.inner.clone()).call(request))
            }
            _ => Either::Right(self.inner.call(request)),
        }
    }
}

/// The headers that a page may send, beside those of a tool's parameters.
const ALLOWED_HEADERS: [&str; 9] = [
    "accept",
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "x-api-key",
];
/// The headers of answers that a page may read.
pub(crate) const EXPOSED_HEADERS: [&str; 7] = [
    "mcp-session-id",
    "mcp-protocol-version",
    "www-authenticate",
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "x-request-id",
];

fn named(names: &[&'static str]) -> Vec<HeaderName> {
    let name = |name: &&'static str| HeaderName::from_static(name);
    names.iter().map(name).collect()
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

/// Returns the origins of the config as browsers send them.
pub(crate) fn allowed_origins(settings: &FrontSettings) -> impl Iterator<Item = HeaderValue> {
    let origins = settings.origins.iter();
    origins.filter_map(|origin| serialized_origin(origin).parse().ok())
}

fn cors_layer(settings: &FrontSettings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = allowed_origins(settings).collect();
    if origins.is_empty() {
        return None;
    }
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers(named(&ALLOWED_HEADERS))
            .expose_headers(named(&EXPOSED_HEADERS))
            .max_age(PREFLIGHT_AGE),
    )
}
