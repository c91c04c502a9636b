//! Advice for operators on errors of connections.

use std::error::Error;
use std::fmt;
use std::io;

use rustls::CertificateError;
use weir_core::{causes, chain};

use crate::forward_proxy::ProxyError;

/// An error with the advice that belongs to it, as one text.
#[derive(Debug)]
pub struct AdvisedError {
    error: Box<dyn Error + Send + Sync>,
    advice: Option<&'static str>,
}

/// Adds advice to an error of a known kind. Other errors stay as they are.
pub fn with_advice(error: impl Into<Box<dyn Error + Send + Sync>>) -> AdvisedError {
    let error = error.into();
    let advice = proxy_advice(&*error).or_else(|| causes(&*error).filter_map(advice_for).last());
    AdvisedError { error, advice }
}

/// Adds advice to the error of a server whose certificate only the authorities of this machine can
/// vouch for: its section of the config has no `ca_file`.
pub(crate) fn with_trust_advice(error: impl Into<Box<dyn Error + Send + Sync>>) -> AdvisedError {
    let error = error.into();
    let is_untrusted = causes(&*error).any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer
            ))
        )
    });
    let advice = is_untrusted.then_some(
        "the server's certificate is not from a trusted authority: add that authority to those of this machine, or name \
         a file with those and that one in SSL_CERT_FILE",
    );
    let advice = advice.or_else(|| proxy_advice(&*error));
    AdvisedError { error, advice }
}

/// Returns the error of the forward proxy among the causes of an error, with its own causes, as a
/// text without advice.
pub fn proxy_failure(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error)
        .find(|cause| cause.is::<ProxyError>())
        .map(chain)
}

/// Returns the advice for an error of the forward proxy. The errors behind it are those of a
/// connection to the proxy, whose advice would be about the server.
fn proxy_advice(error: &(dyn Error + 'static)) -> Option<&'static str> {
    causes(error)
        .find_map(|cause| cause.downcast_ref::<ProxyError>())
        .map(ProxyError::advice)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of the standard library are dozens, and more may come"
)]
fn advice_for(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return advice_for_tls(error);
    }
    let error = error.downcast_ref::<io::Error>()?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(
            "no server listens at that address: start the server, or correct the host and the port of its URL",
        ),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some(
            "there is no route to that address: check the network, or correct the host of its URL",
        ),
        // A server that ends the handshake has a kind of error that others have, too.
        io::ErrorKind::UnexpectedEof if error.to_string().contains("tls handshake") => Some(
            "the server ended the TLS handshake: write `http://` in the URL if the port speaks plain HTTP, or see the log of the server",
        ),
        // Errors of the system's resolver have no kind of their own.
        _ if error.to_string().contains("lookup address") => Some(
            "the host of its URL has no address: correct its name, or check the DNS of this machine",
        ),
        _ => None,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "rustls may add kinds of errors: the advice fits all without one of their own"
)]
fn advice_for_tls(error: &rustls::Error) -> Option<&'static str> {
    let rustls::Error::InvalidCertificate(error) = error else {
        return matches!(error, rustls::Error::InvalidMessage(_)).then_some(
            "the port does not speak TLS: write `http://` in the URL, or a port that does",
        );
    };
    Some(match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it at the server, and check the clock of this machine"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: check the clocks of both machines"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another name: use a name of the certificate in the URL"
        }
        _ => {
            "the server's certificate is not from a trusted authority: name the file of that authority, or of a self-signed \
             certificate, as `ca_file`"
        }
    })
}

impl fmt::Display for AdvisedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = chain(&*self.error);
        match self.advice {
            Some(advice) => write!(f, "{causes}; {advice}"),
            None => f.write_str(&causes),
        }
    }
}

impl Error for AdvisedError {}

#[cfg(test)]
mod tests {
    use hyper_rustls::HttpsConnectorBuilder;
    use hyper_util::client::legacy::connect::HttpConnector;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tower::Service as _;

    use super::*;

    #[test]
    fn innermost_known_error_gives_the_advice() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let text = with_advice(io::Error::other(refused)).to_string();
        assert!(text.contains("no server listens at that address"), "{text}");
        let issuer = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let text = with_advice(io::Error::other(io::Error::new(
            io::ErrorKind::InvalidData,
            issuer,
        )))
        .to_string();
        assert!(
            text.contains("UnknownIssuer") && text.ends_with("as `ca_file`"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn server_that_ends_the_handshake_may_speak_plain_http() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.shutdown().await.expect("it ends");
            // Unread bytes would make the end a reset.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let url: http::Uri = format!("https://{address}").parse().expect("a URL");
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        let mut connector = HttpsConnectorBuilder::new()
            .with_tls_config(crate::client_tls(None).expect("the machine's authorities"))
            .https_only()
            .enable_http1()
            .wrap_connector(http);
        let (connected, ()) = tokio::join!(connector.call(url), server);
        let text = with_advice(connected.expect_err("no handshake")).to_string();
        assert!(text.contains("write `http://` in the URL"), "{text}");
    }

    #[test]
    fn unknown_error_has_no_advice() {
        assert_eq!(
            with_advice("the stream broke").to_string(),
            "the stream broke"
        );
    }
}
