//! The sentence about an answer that is no MCP, with the next step.

use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::Value;

use crate::client::error::words;

/// The text of weir's own answer at a path without an endpoint.
const NO_ENDPOINT_OF_WEIR: &str = "no such endpoint";
/// The default port of the operators' listener, which has no endpoint.
const OPERATORS: u16 = 8081;

/// An answer that is no JSON-RPC, by its head and the beginning of its body.
pub(super) fn explain(url: &Uri, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let explained = explanation(kind, body)
        .map(|explained| format!(" ({explained})"))
        .unwrap_or_default();
    let code = status.as_u16();
    if is_busy(status) {
        let wait = headers.get(header::RETRY_AFTER);
        let seconds = wait.and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
        let next = seconds.map_or_else(|| "later".to_owned(), |wait| format!("in {wait} s"));
        return format!("HTTP {code}{explained}: try again {next}");
    }
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let is_weir = body.trim_ascii() == NO_ENDPOINT_OF_WEIR.as_bytes();
            format!("HTTP {code}{explained}: {}", other_path(url, is_weir))
        }
        StatusCode::METHOD_NOT_ALLOWED => format!(
            "HTTP {code}{explained}: it does not accept POST, so it is not a Streamable HTTP endpoint; connect to a server of HTTP+SSE through weir"
        ),
        _ if status.is_redirection() => {
            let location = headers
                .get(header::LOCATION)
                .and_then(|place| place.to_str().ok())
                .map(words);
            let location = location
                .map(|place| format!(" to {place}"))
                .unwrap_or_default();
            format!(
                "HTTP {code}, a redirect{location}, which is not followed: give the URL that it leads to"
            )
        }
        _ if status.is_server_error() => format!("HTTP {code}{explained}: see the server's log"),
        _ if status.is_client_error() => {
            format!("HTTP {code}{explained}: correct the URL, or ask the server's operator")
        }
        _ if is_html(kind, body) => {
            format!("HTTP {code} with a web page: give the URL of an MCP endpoint")
        }
        _ => format!("HTTP {code} without JSON-RPC{explained}: give the URL of an MCP endpoint"),
    }
}

/// True for the statuses of a server that may accept the request later.
pub(super) fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// A server's own explanation in the body of a refusal: its text, or the message in its JSON.
pub(super) fn explanation(kind: &str, body: &[u8]) -> Option<String> {
    if is_html(kind, body) {
        return Some("a web page".to_owned());
    }
    let text = String::from_utf8_lossy(body);
    let message = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|answer| {
            let places = [
                "/error/message",
                "/error_description",
                "/message",
                "/detail",
                "/error",
            ];
            places
                .into_iter()
                .find_map(|place| answer.pointer(place)?.as_str().map(words))
        });
    message
        .or_else(|| Some(words(&text)))
        .filter(|said| !said.is_empty())
}

fn is_html(kind: &str, body: &[u8]) -> bool {
    let start = body.trim_ascii_start();
    let begins = |tag: &str| {
        start
            .get(..tag.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(tag.as_bytes()))
    };
    kind.to_ascii_lowercase().starts_with("text/html")
        || begins("<!doctype html")
        || begins("<html")
}

fn other_path(url: &Uri, is_weir: bool) -> String {
    if url.port_u16() == Some(OPERATORS) {
        return format!(
            "no MCP endpoint has this path, and {OPERATORS} is the port of weir's operators; clients connect to `listen` of its config, port 8080 by default"
        );
    }
    let root = format!(
        "{}://{}",
        url.scheme_str().unwrap_or("http"),
        url.authority().map_or("", |place| place.as_str())
    );
    match url.path() {
        "" | "/" => format!("no MCP endpoint has this path; try {root}/mcp"),
        "/mcp" => "no MCP endpoint is there: check that the server is weir, and that the port is the one of `listen` in its config".to_owned(),
        _ if !is_weir => "no endpoint of Streamable HTTP has this path: correct the URL; connect to a server of HTTP+SSE through weir".to_owned(),
        _ => format!(
            "no MCP endpoint has this path; weir's are {root}/mcp and those that `endpoints` of its config names"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(
        url: &str,
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &str,
    ) -> String {
        let headers = headers.iter().map(|(name, value)| {
            (
                header::HeaderName::from_static(name),
                header::HeaderValue::from_static(value),
            )
        });
        let (url, status) = (
            url.parse().expect("a URL"),
            StatusCode::from_u16(status).expect("a status"),
        );
        explain(&url, status, &headers.collect(), body.as_bytes())
    }

    #[test]
    fn every_kind_of_answer_has_a_next_step() {
        let at = "http://127.0.0.1:1/x";
        for (url, status, headers, body, words) in [
            (
                at,
                404,
                &[][..],
                "no such endpoint\n",
                "HTTP 404 (no such endpoint): no MCP endpoint has this path; weir's are http://127.0.0.1:1/mcp",
            ),
            (
                "http://127.0.0.1:1/sse",
                404,
                &[],
                "Cannot POST /sse",
                "HTTP 404 (Cannot POST /sse): no endpoint of Streamable HTTP has this path: correct the URL; connect to a server of HTTP+SSE through weir",
            ),
            (
                "http://host/",
                404,
                &[],
                "",
                "HTTP 404: no MCP endpoint has this path; try http://host/mcp",
            ),
            (
                at,
                429,
                &[("retry-after", "9")],
                "too many requests\n",
                "HTTP 429 (too many requests): try again in 9 s",
            ),
            (
                at.trim_end_matches('x'),
                404,
                &[],
                "",
                "try http://127.0.0.1:1/mcp",
            ),
            (
                "http://h/mcp",
                404,
                &[],
                "",
                "check that the server is weir",
            ),
            (
                "http://h:8081/mcp",
                404,
                &[],
                "",
                "8081 is the port of weir's operators",
            ),
            (at, 405, &[], "", "it does not accept POST"),
            (
                at,
                302,
                &[("location", "https://h/login")],
                "",
                "a redirect to https://h/login, which is not followed",
            ),
            (at, 503, &[], "busy", "HTTP 503 (busy): try again later"),
            (
                at,
                500,
                &[("content-type", "text/html")],
                "<p>no",
                "HTTP 500 (a web page): see the server's log",
            ),
            (
                at,
                400,
                &[],
                r#"{"error":"bad \u001b[2J thing"}"#,
                "HTTP 400 (bad [2J thing): correct the URL",
            ),
            (
                at,
                200,
                &[],
                "<!DOCTYPE html><p>",
                "HTTP 200 with a web page: give the URL of an MCP endpoint",
            ),
            (
                at,
                200,
                &[("content-type", "text/plain")],
                "hello",
                "HTTP 200 without JSON-RPC (hello)",
            ),
        ] {
            let said = said(url, status, headers, body);
            assert!(said.contains(words), "{said}");
            assert!(!said.chars().any(char::is_control), "{said:?}");
        }
    }

    #[test]
    fn an_explanation_is_found_in_text_and_in_json() {
        for (body, words) in [
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"not allowed here"}}"#,
                Some("not allowed here"),
            ),
            (
                r#"{"error":"invalid_token","error_description":"expired"}"#,
                Some("expired"),
            ),
            (r#"{"error":"invalid_token"}"#, Some("invalid_token")),
            (
                "this host is not served here",
                Some("this host is not served here"),
            ),
            ("", None),
        ] {
            assert_eq!(explanation("", body.as_bytes()).as_deref(), words);
        }
    }
}
