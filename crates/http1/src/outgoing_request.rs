//! A request as a connection writes it.

use std::fmt;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Uri, header};

/// A header field of a request.
pub type HeaderField = (HeaderName, HeaderValue);

/// The destination of requests, with the parts of their heads that are always the same.
pub struct Destination {
    uri: Uri,
    /// The URL without its user, which must not be in `:authority` (RFC 9113, 8.3.1).
    http2_uri: Uri,
    /// The usual fields of requests.
    usual: Vec<HeaderField>,
    /// The usual fields as HTTP/1.1 has them.
    usual_lines: Vec<u8>,
    /// The `Host` of HTTP/1.1; empty if a usual field has that name.
    host_line: Vec<u8>,
}

/// One request. Its own fields replace the usual ones of the same name.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its destination, with the usual fields.
    pub to: &'a Destination,
    /// Its own fields.
    pub own: &'a [HeaderField],
    /// Its body.
    pub body: &'a Bytes,
}

impl Destination {
    /// Makes the destination of a URL, with the usual fields of its requests.
    pub fn new(uri: Uri, usual: Vec<HeaderField>) -> Self {
        let uri = with_path(uri);
        let mut usual_lines = Vec::new();
        for (name, value) in &usual {
            write_field(&mut usual_lines, name, value);
        }
        let host_line = if usual.iter().any(|(name, _)| name == header::HOST) {
            Vec::new()
        } else {
            host_line(&uri)
        };
        Self {
            http2_uri: without_user(&uri),
            uri,
            usual,
            usual_lines,
            host_line,
        }
    }

    /// Returns the destination of another URL, with the same usual fields.
    pub fn with_uri(&self, uri: Uri) -> Self {
        Self::new(uri, self.usual.clone())
    }

    /// Returns the URL.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the URL of HTTP/2 requests.
    pub fn http2_uri(&self) -> &Uri {
        &self.http2_uri
    }
}

/// Without the lines, which may have credentials.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination")
            .field("uri", &self.uri)
            .field("usual", &self.usual)
            .finish_non_exhaustive()
    }
}

impl<'a> OutgoingRequest<'a> {
    /// Returns the fields to send.
    pub fn fields(self) -> impl Iterator<Item = &'a HeaderField> {
        let usual = self
            .to
            .usual
            .iter()
            .filter(move |(name, _)| !self.has_own(name));
        usual.chain(self.own)
    }

    /// Writes the fields as HTTP/1.1 has them, with a `Host`.
    pub(crate) fn write_fields(self, out: &mut Vec<u8>) {
        let Destination {
            usual,
            usual_lines,
            host_line,
            ..
        } = self.to;
        if usual.iter().any(|(name, _)| self.has_own(name)) {
            for (name, value) in self.fields() {
                write_field(out, name, value);
            }
        } else {
            out.extend_from_slice(usual_lines);
            for (name, value) in self.own {
                write_field(out, name, value);
            }
        }
        if !self.has_own(&header::HOST) {
            out.extend_from_slice(host_line);
        }
    }

    fn has_own(self, name: &HeaderName) -> bool {
        self.own.iter().any(|(own, _)| own == name)
    }
}

fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Makes the `Host` without user and without the port that the scheme implies (RFC 9110, 7.2).
fn host_line(uri: &Uri) -> Vec<u8> {
    let host = uri.host().unwrap_or_default();
    let implied = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    match uri.port_u16().filter(|port| *port != implied) {
        Some(port) => format!("host: {host}:{port}\r\n").into_bytes(),
        None => format!("host: {host}\r\n").into_bytes(),
    }
}

/// Gives a URL with a query and without a path the path `/`: a request target begins with it
/// (RFC 9112, 3.2.1; RFC 9113, 8.3.1).
fn with_path(uri: Uri) -> Uri {
    let query = uri.path_and_query().map_or("", PathAndQuery::as_str);
    if !query.starts_with('?') {
        return uri;
    }
    let target = format!("/{query}").parse().ok();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target;
    Uri::from_parts(parts).unwrap_or(uri)
}

fn without_user(uri: &Uri) -> Uri {
    let Some((_, host)) = uri
        .authority()
        .and_then(|authority| authority.as_str().rsplit_once('@'))
    else {
        return uri.clone();
    };
    let mut parts = uri.clone().into_parts();
    parts.authority = host.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::write_request_head;

    #[test]
    fn a_url_with_a_query_and_no_path_has_the_path_of_the_root() {
        for (url, target) in [
            ("http://me:secret@host:1?key=1", "/?key=1"),
            ("http://host?", "/?"),
            ("http://host", "/"),
            ("http://host/a?key=1", "/a?key=1"),
        ] {
            let first = Destination::new(url.parse().unwrap(), Vec::new());
            let other = Destination::new("http://other/x".parse().unwrap(), Vec::new());
            for to in [&first, &other.with_uri(url.parse().unwrap())] {
                let head = write_request_head(OutgoingRequest {
                    method: &Method::GET,
                    to,
                    own: &[],
                    body: &Bytes::new(),
                });
                let line = format!("GET {target} HTTP/1.1\r\n");
                assert!(head.starts_with(line.as_bytes()), "{url}");
                assert_eq!(to.http2_uri().path_and_query().unwrap(), target, "{url}");
            }
        }
    }
}
