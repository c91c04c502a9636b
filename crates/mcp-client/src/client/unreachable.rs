//! The sentence about a failed HTTP exchange, with the next step.

use std::error::Error;
use std::io::{self, ErrorKind};

use http::Uri;
use rustls::CertificateError;
use weir_core::{causes, chain};
use weir_http_client::proxy_failure;
use weir_text::url_without_credentials;

/// The cause of a failed exchange. An unknown cause keeps its own words.
pub fn explain(url: &Uri, error: &(dyn Error + 'static)) -> String {
    // The causes behind it are those of the connection to the proxy, not to the server.
    if let Some(failure) = proxy_failure(error) {
        return format!(
            "{failure}: correct HTTPS_PROXY or ALL_PROXY, or add the server to NO_PROXY"
        );
    }
    let place = url.authority().map(ToString::to_string).unwrap_or_default();
    let (host, https) = (
        url.host().unwrap_or_default(),
        url.scheme_str() == Some("https"),
    );
    let known = |cause: &(dyn Error + 'static)| {
        system(cause, &place, host)
            .or_else(|| handshake_end(cause, https, url))
            .or_else(|| tls(cause, url))
            .or_else(|| http(cause, https, url))
    };
    causes(error)
        .find_map(known)
        .unwrap_or_else(|| chain(error))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "`io::ErrorKind` is non-exhaustive, with dozens of variants"
)]
fn system(cause: &(dyn Error + 'static), place: &str, host: &str) -> Option<String> {
    if cause.to_string().contains("failed to lookup address") {
        return Some(format!(
            "the name `{host}` has no address (DNS): correct it, or use an address"
        ));
    }
    let kind = cause.downcast_ref::<io::Error>()?.kind();
    Some(match kind {
        ErrorKind::ConnectionRefused => {
            format!("connection refused by {place}: start the server there, or correct the URL")
        }
        ErrorKind::TimedOut => {
            format!("{place} does not answer: correct the URL, or check the firewalls")
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            format!("no route to {place}: check the network of this machine, or correct the URL")
        }
        ErrorKind::ConnectionReset => {
            format!("{place} closed the connection: see the server's log")
        }
        _ => return None,
    })
}

/// The sentence about a connection that ended during its TLS handshake. A later end is a cause of
/// hyper's.
fn handshake_end(cause: &(dyn Error + 'static), https: bool, url: &Uri) -> Option<String> {
    let error = cause.downcast_ref::<io::Error>()?;
    (https && error.kind() == ErrorKind::UnexpectedEof).then(|| {
        let plain = with_scheme(url, "http");
        format!("it ended the TLS handshake: write {plain} if the port speaks plain HTTP, or see the server's log")
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "`rustls::Error` is non-exhaustive, with dozens of variants"
)]
fn tls(cause: &(dyn Error + 'static), url: &Uri) -> Option<String> {
    let error = cause.downcast_ref::<rustls::Error>();
    Some(match error? {
        rustls::Error::InvalidMessage(_) => {
            format!("the port does not speak TLS: write {} for plain HTTP", with_scheme(url, "http"))
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is of an issuer that this machine does not trust: add that CA to the system's, or name a file with the system's and that one in SSL_CERT_FILE"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "no CA that this machine trusts signed its certificate, although one of them has the issuer's name: add the CA that signed it to the system's, or name a file with the system's and that one in SSL_CERT_FILE"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired: renew it, or correct this machine's clock".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is for another name: use a name of the certificate".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) if is_of_a_ca(other) => {
            "its certificate is a CA's own, as `openssl req -x509` makes by default: make one with -addext basicConstraints=CA:FALSE, or one that a CA signs"
                .to_owned()
        }
        other => format!("TLS failed: {other}"),
    })
}

/// The verifier has a type of its own for this, and it reaches no further than its name.
fn is_of_a_ca(error: &rustls::OtherError) -> bool {
    format!("{error:?}").contains("CaUsedAsEndEntity")
}

fn http(cause: &(dyn Error + 'static), https: bool, url: &Uri) -> Option<String> {
    let error = cause.downcast_ref::<hyper::Error>()?;
    // The end of a new connection cancels the request that is about to be sent. Its reason follows,
    // unless the connection had ended before it got the request.
    let reason = error.source().filter(|_| error.is_canceled());
    if reason.is_some_and(|reason| reason.is::<hyper::Error>()) {
        return None;
    }
    let ended_early = reason.is_some();
    // Bytes before any request have no predicate of their own.
    let foreign = error.is_parse() || error.to_string().contains("unexpected message");
    if foreign || ended_early {
        let or_closes = if ended_early {
            ", or closes new connections"
        } else {
            ""
        };
        let advice = if https {
            "correct the URL".to_owned()
        } else {
            let other = with_scheme(url, "https");
            format!("correct it, or write {other} if it speaks TLS")
        };
        return Some(format!(
            "the port speaks another protocol than HTTP{or_closes}: {advice}"
        ));
    }
    (error.is_incomplete_message() || error.is_closed() || error.is_canceled()).then(|| {
        "it closed the connection without an answer: check that the port speaks HTTP".to_owned()
    })
}

fn with_scheme(url: &Uri, scheme: &str) -> String {
    let rest = url_without_credentials(&url.to_string());
    format!(
        "{scheme}://{}",
        rest.split_once("://")
            .map_or(rest.as_str(), |(_, rest)| rest)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use http::Request;
    use http_body_util::Empty;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn greeting_that_ends_a_connection_before_its_request_is_another_protocol() {
        let (mut server, client) = tokio::io::duplex(1024);
        let (mut sender, connection) = http1::handshake(TokioIo::new(client)).await.unwrap();
        server.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
        assert!(connection.await.is_err());
        let request = Request::new(Empty::<bytes::Bytes>::new());
        let error = sender.send_request(request).await.unwrap_err();
        let url = Uri::from_static("http://127.0.0.1:22/mcp");
        assert_eq!(
            explain(&url, &error),
            "the port speaks another protocol than HTTP, or closes new connections: correct it, or write https://127.0.0.1:22/mcp if it speaks TLS"
        );
    }
}
