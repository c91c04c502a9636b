//! The checks of a request's head alone: Host and Origin (DNS rebinding), header names that proxies
//! confuse, methods, and media types. The body is not read yet.
//!
//! Source: basic/transports, "Security" of every revision; CVE-2025-66414 and similar ones.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, Uri, header};
use weir_core::fast::FastState;
use weir_wire::header::{EVENTS, JSON, JSON_OR_EVENTS, ReceivedHeader};

use crate::failure::request_refusal::RequestRefusal;
use crate::settings::FrontSettings;

/// The allowed hosts and origins.
#[derive(Debug)]
pub(crate) struct HeadGuard {
    /// Lower-case names, `name` for any port or `name:port`. If absent, any well-formed host is
    /// allowed.
    hosts: Option<HashSet<String, FastState>>,
    origins: HashSet<String>,
    body_bytes: usize,
}

impl HeadGuard {
    /// The checks for a listener at this address.
    pub(crate) fn new(settings: &FrontSettings, address: SocketAddr) -> Self {
        let mut hosts: HashSet<String, FastState> = settings
            .hosts
            .iter()
            .map(|host| host.to_ascii_lowercase())
            .collect();
        let mut origins: HashSet<String> = settings
            .origins
            .iter()
            .map(|origin| serialized_origin(origin))
            .collect();
        if let Some(url) = &settings.public_url {
            let url = url.to_ascii_lowercase();
            if let Some((scheme, rest)) = url.split_once("://") {
                let host = rest.split('/').next().unwrap_or_default();
                hosts.insert(host.to_owned());
                hosts.insert(
                    host.rsplit_once(':')
                        .map_or(host, |(name, _)| name)
                        .to_owned(),
                );
                origins.insert(serialized_origin(&format!("{scheme}://{host}")));
            }
        }
        let local = address.ip().is_loopback();
        if local {
            for name in ["localhost", "127.0.0.1", "[::1]"] {
                hosts.insert(name.to_owned());
                for scheme in ["http", "https"] {
                    let origin = format!("{scheme}://{name}:{}", address.port());
                    origins.insert(serialized_origin(&origin));
                }
            }
            hosts.insert(address.ip().to_string());
        }
        Self {
            hosts: (!hosts.is_empty()).then_some(hosts),
            origins,
            body_bytes: settings.limits.listener.body_bytes,
        }
    }

    /// Checks the sender, for any path: Host, Origin, and no tunnels. Stands before the paths and
    /// before CORS.
    pub(crate) fn check_sender<B>(&self, request: &Request<B>) -> Result<(), RequestRefusal> {
        self.check_host(request.uri(), request.headers())?;
        self.check_origin(request.headers())?;
        if request.method() == Method::CONNECT {
            Err(RequestRefusal::MethodNotAllowed)
        } else {
            Ok(())
        }
    }

    /// Checks a request to an endpoint. Order: malformed, method, size, media types.
    pub(crate) fn check_endpoint_request<B>(
        &self,
        request: &Request<B>,
    ) -> Result<(), RequestRefusal> {
        check_well_formed(request)?;
        match *request.method() {
            Method::POST => {
                declared_length(request.headers(), self.body_bytes)?;
                check_media_types(request.headers())
            }
            Method::GET | Method::DELETE => check_session_method(request),
            _ => Err(RequestRefusal::MethodNotAllowed),
        }
    }

    /// Checks a request of HTTP+SSE. The answer to a POST may have any media type.
    pub(crate) fn check_sse_request<B>(
        &self,
        request: &Request<B>,
        method: &Method,
    ) -> Result<(), RequestRefusal> {
        check_well_formed(request)?;
        let headers = request.headers();
        if request.method() != method {
            return Err(RequestRefusal::SseMethodNotAllowed);
        }
        if *method == Method::POST {
            declared_length(headers, self.body_bytes)?;
            return check_json_body(headers);
        }
        if !accepts(headers, EVENTS) {
            return Err(RequestRefusal::EventStreamNotAccepted);
        }
        check_no_body(headers)
    }

    /// Checks that the request names an allowed host.
    pub(crate) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let malformed = || RequestRefusal::MalformedHost;
        let named = match ReceivedHeader::of(headers.get_all(header::HOST)) {
            ReceivedHeader::Absent => None,
            ReceivedHeader::Once(value) => Some(value.to_str().map_err(|_| malformed())?),
            ReceivedHeader::Repeated => return Err(malformed()),
        };
        let authority = uri.authority().map(http::uri::Authority::as_str);
        let host = match (authority, named) {
            (Some(one), Some(two)) if !one.eq_ignore_ascii_case(two) => return Err(malformed()),
            (Some(host), _) | (None, Some(host)) => lower(host),
            (None, None) => return Err(malformed()),
        };
        let name = host_name(&host).ok_or_else(malformed)?;
        let allowed = self
            .hosts
            .as_ref()
            .is_none_or(|hosts| hosts.contains(name) || hosts.contains(&*host));
        if allowed {
            Ok(())
        } else {
            Err(RequestRefusal::UnknownHost)
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), RequestRefusal> {
        let origin = match ReceivedHeader::of(headers.get_all(header::ORIGIN)) {
            ReceivedHeader::Absent => return Ok(()),
            ReceivedHeader::Once(origin) => origin.to_str().ok(),
            ReceivedHeader::Repeated => None,
        };
        if origin.is_some_and(|origin| self.origins.contains(&serialized_origin(origin))) {
            Ok(())
        } else {
            Err(RequestRefusal::UnknownOrigin)
        }
    }
}

/// Returns an origin as browsers send it: in lower case, and without the port that the scheme
/// implies (RFC 6454, section 6.2).
pub(crate) fn serialized_origin(origin: &str) -> String {
    let mut origin = origin.to_ascii_lowercase();
    let implied = if origin.starts_with("https://") {
        ":443"
    } else {
        ":80"
    };
    if origin.ends_with(implied) {
        origin.truncate(origin.len() - implied.len());
    }
    origin
}

fn lower(host: &str) -> Cow<'_, str> {
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        host.to_ascii_lowercase().into()
    } else {
        host.into()
    }
}

/// The name part of `name[:port]`; `None` for any other text.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            let inside = &rest[..end];
            inside.parse::<std::net::Ipv6Addr>().ok()?;
            (
                &host[..end + 2],
                rest[end + 1..]
                    .strip_prefix(':')
                    .or(rest[end + 1..].is_empty().then_some("0"))?,
            )
        }
        None => host.split_once(':').unwrap_or((host, "0")),
    };
    let legal =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'[' | b']' | b':');
    let good = !name.is_empty() && name.bytes().all(legal) && is_port(port);
    good.then_some(name)
}

/// Digits alone: parsing as a number would also accept a sign.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn check_well_formed<B>(request: &Request<B>) -> Result<(), RequestRefusal> {
    if request
        .headers()
        .keys()
        .any(|name| memchr::memchr(b'_', name.as_str().as_bytes()).is_some())
    {
        return Err(RequestRefusal::UnderscoreInHeaderName);
    }
    Ok(())
}

fn check_media_types(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    check_json_body(headers)?;
    if accepts_common_value(headers) || accepts(headers, JSON) && accepts(headers, EVENTS) {
        return Ok(());
    }
    Err(RequestRefusal::NotAcceptable)
}

fn check_json_body(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    let is_json = |kind: &str| {
        let is = |kind: &str| kind.eq_ignore_ascii_case(JSON);
        is(kind) || is(kind.split(';').next().unwrap_or_default().trim())
    };
    let kind = ReceivedHeader::of(headers.get_all(header::CONTENT_TYPE)).once();
    if !kind
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(is_json)
    {
        return Err(RequestRefusal::NoJsonBody);
    }
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(RequestRefusal::CompressedBody);
    }
    Ok(())
}

/// Checks GET and DELETE, which exist for legacy sessions alone.
fn check_session_method<B>(request: &Request<B>) -> Result<(), RequestRefusal> {
    let headers = request.headers();
    if !headers.contains_key(&crate::http::header_names::SESSION) {
        return Err(RequestRefusal::MethodNotAllowed);
    }
    if request.method() != Method::GET {
        return Ok(());
    }
    if !accepts(headers, EVENTS) {
        return Err(RequestRefusal::EventStreamNotAccepted);
    }
    check_no_body(headers)
}

/// Refuses a body on a GET. It would stay unread while the stream is open, and hide the client's
/// disconnect.
fn check_no_body(headers: &HeaderMap) -> Result<(), RequestRefusal> {
    let is_announced = headers.contains_key(header::TRANSFER_ENCODING)
        || headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() != b"0");
    if is_announced {
        Err(RequestRefusal::BodyOfGet)
    } else {
        Ok(())
    }
}

/// Returns true if `Accept` is byte for byte the value that nearly every client sends.
fn accepts_common_value(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::ACCEPT).iter();
    lines
        .next()
        .is_some_and(|line| line.as_bytes() == JSON_OR_EVENTS.as_bytes())
        && lines.next().is_none()
}

/// Returns true if a media type is acceptable; without `Accept` any type is (RFC 9110, 12.5.1).
fn accepts(headers: &HeaderMap, wanted: &str) -> bool {
    let mut lines = headers.get_all(header::ACCEPT).iter().peekable();
    if lines.peek().is_none() {
        return true;
    }
    let family = wanted.split('/').next().unwrap_or_default();
    let is_wildcard = |kind: &str| kind.strip_suffix("/*") == Some(family);
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
            !refused && (kind.eq_ignore_ascii_case(wanted) || kind == "*/*" || is_wildcard(kind))
        })
}

/// Checks a body by the length in its head, and returns that length.
///
/// # Errors
/// 413 beyond the size. Closes the connection.
pub(crate) fn declared_length(
    headers: &HeaderMap,
    most: usize,
) -> Result<Option<usize>, RequestRefusal> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length.map(usize::try_from) {
        None => Ok(None),
        Some(Ok(length)) if length <= most => Ok(Some(length)),
        Some(_) => Err(RequestRefusal::BodyTooLarge),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_send_them() {
        let settings = FrontSettings {
            origins: vec![
                "https://App.Example.com".into(),
                "https://b.example.com:443".into(),
                "http://c.example.com:443".into(),
            ],
            public_url: Some("https://MCP.example.com:443".into()),
            ..FrontSettings::at(([127, 0, 0, 1], 80).into())
        };
        let guard = HeadGuard::new(&settings, settings.listen);
        let check = |origin: &str| {
            let request = Request::builder().header(header::ORIGIN, origin);
            guard.check_origin(request.body(()).unwrap().headers())
        };
        for own in [
            "https://app.example.com",
            "https://b.example.com",
            "http://c.example.com:443",
            "https://mcp.example.com",
            "http://localhost",
            "http://127.0.0.1",
            "http://[::1]",
        ] {
            check(own).unwrap();
        }
        for foreign in [
            "http://app.example.com",
            "https://b.example.com:80",
            "http://c.example.com",
            "https://localhost",
            "http://localhost:8080",
        ] {
            assert!(check(foreign).is_err(), "{foreign}");
        }
    }
}
