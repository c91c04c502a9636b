//! The protection of the operators' listener: against web pages, and for operators alone.
//!
//! Every page, probes and metrics included, accepts as `Host` only IP addresses, `localhost` and
//! the names of the config. So a page in a browser cannot read this listener by DNS rebinding.
//! Probes over HTTP/1.0 need no `Host`: every browser sends it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::uri::{Authority, Uri};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use weir_config::{LIVENESS_PATH, READINESS_PATH};
use weir_wire::header::ReceivedHeader;

use crate::admin_error::AdminError;
use crate::operator_auth::off;
use crate::state::AdminState;

/// The content security policy of responses that are not pages: a browser may only show them.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The paths of probes. They need no operator, and their responses have no secrets.
const PROBE_PATHS: [&str; 3] = [LIVENESS_PATH, READINESS_PATH, "/openapi.yaml"];

/// Refuses every request that names another host than this listener's, probes and scrapes included.
/// This prevents DNS rebinding.
pub(super) async fn check_host(
    State(state): State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    let plan = state.operator_auth.plan();
    let hosts = plan
        .as_ref()
        .as_ref()
        .map(|plan| plan.hosts.as_slice())
        .unwrap_or_default();
    if is_own(request.uri(), request.headers(), hosts) || is_nameless_probe(&request) {
        return next.run(request).await;
    }
    let text = "wrong `Host` or `Origin`: connect by address, `localhost` or one of `admin.allowed_hosts`, and send no `Origin`";
    refuse(
        has_unread_body(&request),
        AdminError::new(StatusCode::FORBIDDEN, text),
    )
}

/// Authenticates the operator and passes the identity on to the handler.
pub(super) async fn authenticate(
    State(state): State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    let is_last = has_unread_body(&request);
    let (head, body) = request.into_parts();
    let changes = !matches!(head.method, Method::GET | Method::HEAD);
    match state.operator_auth.admit(&head).await {
        Ok(_) if changes && state.is_handing_over() => {
            let text = "a graceful restart is in progress, and the change would be lost: try again in a moment";
            refuse(
                is_last,
                AdminError::new(StatusCode::SERVICE_UNAVAILABLE, text),
            )
        }
        Ok(operator) => {
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(operator);
            next.run(request).await
        }
        Err(refused) => refuse(is_last, refused),
    }
}

/// Reports if a refusal leaves a body unread on the connection.
fn has_unread_body(request: &Request) -> bool {
    request.version() <= Version::HTTP_11 && !request.body().is_end_stream()
}

/// Writes a refusal. After an unread body the connection must end, and the header tells the client
/// not to reuse it.
fn refuse(is_last: bool, refused: AdminError) -> Response {
    let mut response = refused.into_response();
    if is_last {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Admits a scrape of the metrics: without a token, unless the config requires one.
pub(super) async fn authenticate_scrape(
    State(state): State<Arc<AdminState>>,
    request: Request,
    next: Next,
) -> Response {
    let plan = state.operator_auth.plan();
    let Some(plan) = &*plan else {
        return off().into_response();
    };
    if plan.open_metrics {
        return next.run(request).await;
    }
    authenticate(State(state), request, next).await
}

/// Adds the security and cache headers to every response of this listener.
pub(super) async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(POLICY),
        );
    }
    response
}

/// Reports if a request is no web page's: it has no origin, and names this listener by a host that
/// DNS cannot point elsewhere. A URL in the request line counts like `Host`.
fn is_own(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> bool {
    let host = ReceivedHeader::of(headers.get_all(header::HOST)).once();
    let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let own = |authority: &Authority| {
        let host = authority.host();
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        let whole = authority.as_str().to_ascii_lowercase();
        host.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok()
            || hosts
                .iter()
                .any(|known| *known == whole || known.eq_ignore_ascii_case(host))
    };
    host.is_some_and(|host| own(&host))
        && uri.authority().is_none_or(own)
        && !headers.contains_key(header::ORIGIN)
}

/// Reports if a request is a load balancer's probe, in the version of HTTP that has no `Host`.
fn is_nameless_probe(request: &Request) -> bool {
    let headers = request.headers();
    request.version() < Version::HTTP_11
        && PROBE_PATHS.contains(&request.uri().path())
        && request.uri().authority().is_none()
        && !headers.contains_key(header::HOST)
        && !headers.contains_key(header::ORIGIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use axum::body::Body;

    use super::*;

    // Proves A17.
    #[test]
    fn probe_over_http_10_needs_no_host() {
        let http10 = |path: &str| Request::get(path).version(Version::HTTP_10);
        let probe = |request: axum::http::request::Builder| {
            is_nameless_probe(&request.body(Body::empty()).unwrap())
        };
        assert!(probe(http10("/readyz")) && probe(http10("/healthz?x")));
        for refused in [
            http10("/metrics"),
            http10("/admin/upstreams"),
            http10("http://rebound.example/readyz"),
            http10("/readyz").header("host", "rebound.example"),
            http10("/readyz").header("origin", "http://rebound.example"),
            Request::get("/readyz"),
        ] {
            assert!(!probe(refused));
        }
    }

    // Proves A17.
    #[test]
    fn foreign_hosts_and_origins_are_refused() {
        let hosts = ["ops.example.com".to_owned(), "weir:9000".to_owned()];
        for (host, origin, fits) in [
            (Some("127.0.0.1:8081"), None, true),
            (Some("[::1]:8081"), None, true),
            (Some("localhost:8081"), None, true),
            (Some("10.0.0.7"), None, true),
            (Some("ops.example.com:8081"), None, true),
            (Some("OPS.example.com"), None, true),
            (Some("weir:9000"), None, true),
            (Some("weir:9001"), None, false),
            (Some("rebound.example:8081"), None, false),
            (Some("localhost.example"), None, false),
            (Some("127.0.0.1:8081"), Some("http://evil.example"), false),
            (Some("not a host"), None, false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(host.map(|host| (header::HOST, HeaderValue::from_static(host))));
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            assert_eq!(
                is_own(&Uri::from_static("/"), &headers, &hosts),
                fits,
                "{host:?} {origin:?}"
            );
            let elsewhere = Uri::from_static("http://rebound.example/metrics");
            assert!(!is_own(&elsewhere, &headers, &hosts), "{host:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(header::HOST, HeaderValue::from_static("127.0.0.1"));
        twice.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(!is_own(&Uri::from_static("/"), &twice, &hosts));
    }
}
