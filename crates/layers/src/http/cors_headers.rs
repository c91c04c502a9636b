//! The CORS headers for pages of the configured origins.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::http::head_guard::serialized_origin;
use crate::settings::FrontSettings;

/// The time for which a browser keeps the answer to a preflight, and so a change of the config may
/// be unknown to it.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

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

fn names_of(names: &[&'static str]) -> Vec<HeaderName> {
    let name = |name: &&'static str| HeaderName::from_static(name);
    names.iter().map(name).collect()
}

/// Returns the origins of the config as browsers send them.
pub(crate) fn allowed_origins(settings: &FrontSettings) -> impl Iterator<Item = HeaderValue> {
    let origins = settings.origins.iter();
    origins.filter_map(|origin| serialized_origin(origin).parse().ok())
}

/// The layer that writes these headers; absent without origins.
pub(crate) fn cors_layer(settings: &FrontSettings) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = allowed_origins(settings).collect();
    if origins.is_empty() {
        return None;
    }
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers(names_of(&ALLOWED_HEADERS))
            .expose_headers(names_of(&EXPOSED_HEADERS))
            .max_age(PREFLIGHT_AGE),
    )
}

/// Lets a page send these headers, too.
pub(crate) fn allowing(layer: &CorsLayer, headers: Vec<HeaderName>) -> CorsLayer {
    let mut allowed = names_of(&ALLOWED_HEADERS);
    allowed.extend(headers);
    layer.clone().allow_headers(allowed)
}
