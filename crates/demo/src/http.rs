//! The HTTP parts of both servers: the checks before a body is read, bounded bodies, answers, and
//! SSE streams.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Incoming;
use serde_json::Value;

/// The body of every answer.
pub(crate) type DemoBody = UnsyncBoxBody<Bytes, Infallible>;

/// The largest request a demo server reads, in bytes.
const MAX_BODY: usize = 256 * 1024;
/// The interval of keep-alive comments on a quiet stream.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Checks a request before its body is read; an `Err` is the refusal to send. Order and statuses:
/// 404 path, 403 origin and host, 405 method, 406 and 415 content.
pub(crate) fn check_head<B>(
    request: &Request<B>,
    methods: &'static [Method],
) -> Result<(), Box<Response<DemoBody>>> {
    let headers = request.headers();
    if request.uri().path() != "/mcp" {
        return Err(refuse(
            StatusCode::NOT_FOUND,
            "the MCP endpoint of this server is /mcp",
        ));
    }
    if !loopback(headers, &header::HOST) || !loopback(headers, &header::ORIGIN) {
        return Err(refuse(
            StatusCode::FORBIDDEN,
            "this server answers only to loopback hosts and origins",
        ));
    }
    if !methods.contains(request.method()) {
        let mut refusal = refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "this server does not offer that HTTP method",
        );
        let allow = methods
            .iter()
            .map(Method::as_str)
            .collect::<Vec<_>>()
            .join(", ");
        if let Ok(allow) = HeaderValue::from_str(&allow) {
            refusal.headers_mut().insert(header::ALLOW, allow);
        }
        return Err(refusal);
    }
    match *request.method() {
        Method::POST if !(accepts(headers, JSON) && accepts(headers, EVENTS)) => Err(refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must list application/json and text/event-stream",
        )),
        Method::POST if !is_json(headers) => Err(refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Content-Type must be application/json",
        )),
        Method::GET if !accepts(headers, EVENTS) => Err(refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must list text/event-stream",
        )),
        _ => Ok(()),
    }
}

/// Reads a request body of at most 256 KiB; more is answered by 413, a broken one by 400.
pub(crate) async fn read(body: Incoming) -> Result<Bytes, Box<Response<DemoBody>>> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is larger than 256 KiB",
        )),
        Err(_) => Err(refuse(
            StatusCode::BAD_REQUEST,
            "the request body broke off",
        )),
    }
}

/// A header's text, trimmed; absent when missing or not text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// A refusal below JSON-RPC: status and a sentence.
pub(crate) fn refuse(status: StatusCode, why: &'static str) -> Box<Response<DemoBody>> {
    let mut response = Response::new(Full::from(why).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    Box::new(response)
}

/// A status with no body at all.
pub(crate) fn empty(status: StatusCode) -> Response<DemoBody> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = status;
    response
}

/// One JSON document.
pub(crate) fn json(status: StatusCode, message: &Value) -> Response<DemoBody> {
    let mut response = Response::new(Full::from(message.to_string()).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// A stream of messages as server-sent events, with a comment after each quiet
/// [`KEEP_ALIVE_INTERVAL`]. The stream is dropped as soon as the client goes away.
pub(crate) fn events(messages: impl Stream<Item = Value> + Send + 'static) -> Response<DemoBody> {
    let frames = futures_util::stream::unfold(Box::pin(messages), |mut messages| async move {
        let text = match tokio::time::timeout(KEEP_ALIVE_INTERVAL, messages.next()).await {
            Ok(Some(message)) => format!("event: message\ndata: {message}\n\n"),
            Ok(None) => return None,
            Err(_) => ": still here\n\n".to_owned(),
        };
        Some((Ok(Frame::data(Bytes::from(text))), messages))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let (class, _) = media.split_once('/').unwrap_or((media, ""));
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| {
            let range = item.split(';').next().unwrap_or_default().trim();
            range == "*/*"
                || range.eq_ignore_ascii_case(media)
                || range
                    .strip_suffix("/*")
                    .is_some_and(|wild| wild.eq_ignore_ascii_case(class))
        })
}

fn is_json(headers: &HeaderMap) -> bool {
    text(headers, header::CONTENT_TYPE.as_str())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON))
}

/// Reports if a `Host` or `Origin` names this machine; a request without the header is not a
/// browser's and passes.
fn loopback(headers: &HeaderMap, name: &header::HeaderName) -> bool {
    let Some(value) = headers.get(name) else {
        return true;
    };
    let Ok(value) = value.to_str() else {
        return false;
    };
    let authority = value.split_once("://").map_or(value, |(_, rest)| rest);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}
