//! The page for a person that opens an endpoint in a browser. The status and the headers of the
//! refusal stay the same for every other client; only the body differs.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use weir_core::EndpointId;
use weir_wire::header::{EVENTS, JSON};

use crate::settings::HelpPage;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");

/// Returns true for a request of a browser: a GET that accepts HTML, prefers it to JSON, and does
/// not accept an event stream.
pub(super) fn is_browser_request(method: &Method, headers: &HeaderMap) -> bool {
    if *method != Method::GET {
        return false;
    }
    let Some(html) = weight(headers, "text/html").filter(|weight| *weight > 0.0) else {
        return false;
    };
    weight(headers, EVENTS).is_none() && weight(headers, JSON).is_none_or(|json| html > json)
}

/// The page of an endpoint, as it replaces the body of a refusal.
pub(super) struct PageAnswer {
    page: Bytes,
    policy: HeaderValue,
}

impl PageAnswer {
    pub(super) fn new(page: &HelpPage, endpoint: &EndpointId) -> Self {
        Self {
            page: page.at(endpoint),
            policy: page.policy.clone(),
        }
    }

    /// Puts the page into a refusal (4xx). The metrics see the same answer.
    pub(super) fn replace_body(&self, answer: &mut Response<Body>) {
        if !answer.status().is_client_error() {
            return;
        }
        *answer.body_mut() = Body::from(self.page.clone());
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HTML);
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
        headers.insert(header::REFERRER_POLICY, NO_REFERRER);
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept"));
    }
}

impl HelpPage {
    /// The page of an endpoint.
    fn at(&self, endpoint: &EndpointId) -> Bytes {
        self.parts.join(endpoint.as_str()).into()
    }
}

/// The weight of a media type that `Accept` names; `None` if no line names it itself.
fn weight(headers: &HeaderMap, wanted: &str) -> Option<f32> {
    let lines = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts
            .next()
            .is_some_and(|kind| kind.eq_ignore_ascii_case(wanted));
        let weight =
            parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_named.then(|| weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn browsers_alone_get_the_page() {
        let wanted = |accept: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(line));
            }
            is_browser_request(&Method::GET, &headers)
        };
        for accept in [
            &[
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            ][..],
            &["application/json;q=0.5", "TEXT/HTML"],
            &["text/html; charset=utf-8"],
        ] {
            assert!(wanted(accept), "{accept:?}");
        }
        for accept in [
            &[][..],
            &["*/*"],
            &["text/*"],
            &["application/json, text/event-stream"],
            &["text/html, text/event-stream"],
            &["text/html, application/json"],
            &["text/html;q=0.1, application/json;q=0.2"],
            &["text/html;q=0"],
            &["text/html2"],
        ] {
            assert!(!wanted(accept), "{accept:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
        assert!(
            !is_browser_request(&Method::POST, &headers)
                && !is_browser_request(&Method::DELETE, &headers)
        );
    }
}
