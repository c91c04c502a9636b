//! URLs of HTTP servers. The parser of `http` takes any text as a port, and a client would then use
//! the default port: so credentials could be sent to another server than the one that was meant.

use std::fmt;

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::local_host::is_local_host;
use http::Uri;
use http::uri::Authority;

/// The example for the URL of an authorization server.
const AUTHORITY_HINT: &str = "write https://id.example.com";

/// The reason why a text is not the URL of an HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpUrlError {
    /// It is no URL, one of another scheme, or one without a host.
    NoHttp,
    /// It has a user or a password.
    UserInfo,
    /// Its port is empty or no number from 1 to 65535.
    Port,
}

impl fmt::Display for HttpUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may hold a secret from the environment, so it is not repeated.
        f.write_str(match self {
            Self::NoHttp => "is not an http or https URL",
            Self::UserInfo => "has a user or password in it",
            Self::Port => "has a port that is not a number from 1 to 65535",
        })
    }
}

/// Parses the URL of an HTTP server.
///
/// # Errors
/// It is none, has a user, or a port that does not exist.
pub fn http_url(text: &str) -> Result<Uri, HttpUrlError> {
    let url: Uri = text.parse().map_err(|_| HttpUrlError::NoHttp)?;
    let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(HttpUrlError::NoHttp);
    };
    if authority.as_str().contains('@') {
        return Err(HttpUrlError::UserInfo);
    }
    if authority.host().is_empty() {
        return Err(HttpUrlError::NoHttp);
    }
    match has_valid_port(authority) {
        true => Ok(url),
        false => Err(HttpUrlError::Port),
    }
}

/// Reports if the port of an authority without a user is absent, or from 1 to 65535.
pub fn has_valid_port(authority: &Authority) -> bool {
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    };
    let behind = authority.as_str().strip_prefix(authority.host());
    behind.is_some_and(|behind| behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port))
}

/// Checks the URL of an authorization server: https, or http on this machine or with `allow_http`
/// (R272), because secrets are sent there.
pub fn check_authority_url(
    text: &str,
    allow_http: bool,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> bool {
    let message = match http_url(text) {
        Err(error) => error.to_string(),
        Ok(_) if text.contains('#') => "has a fragment".to_owned(),
        Ok(url) if url.scheme_str() == Some("https") || allow_http || is_local_url(&url) => {
            return true;
        }
        Ok(_) => {
            let message =
                "is http on another machine: the connection could be intercepted".to_owned();
            let problem = ConfigProblem::error(path.clone(), message);
            report.add(problem.hint("use https, or write allow_http: true"));
            return false;
        }
    };
    report.add(ConfigProblem::error(path.clone(), message).hint(AUTHORITY_HINT));
    false
}

/// Checks the URL that names an authorization server. It has no query (RFC 8414, section 2): the
/// URL of its metadata is made of it.
pub fn check_issuer_url(
    text: &str,
    allow_http: bool,
    path: &ConfigPath,
    report: &mut ConfigReport,
) -> bool {
    if http_url(text).is_ok_and(|url| url.query().is_some()) {
        let problem = ConfigProblem::error(path.clone(), "has a query");
        report.add(problem.hint(AUTHORITY_HINT));
        return false;
    }
    check_authority_url(text, allow_http, path, report)
}

/// Reports if a URL is on this machine.
pub fn is_local_url(url: &Uri) -> bool {
    url.host().is_some_and(is_local_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_http_and_a_host_and_a_port_that_exists() {
        for good in [
            "http://h",
            "https://h/p?q=1",
            "http://h:1/",
            "http://127.0.0.1:65535",
            "http://[::1]:80/x",
            "HTTP://h",
        ] {
            assert!(http_url(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", HttpUrlError::NoHttp),
            ("h:1", HttpUrlError::NoHttp),
            ("ftp://h", HttpUrlError::NoHttp),
            ("http://", HttpUrlError::NoHttp),
            ("http://u@h", HttpUrlError::UserInfo),
            ("http://u:p@h:x", HttpUrlError::UserInfo),
            ("http://h:", HttpUrlError::Port),
            ("http://h:0/", HttpUrlError::Port),
            ("http://h:abc/", HttpUrlError::Port),
            ("http://h:65536/", HttpUrlError::Port),
            ("https://h:99999", HttpUrlError::Port),
            ("https://[::1]:99999", HttpUrlError::Port),
        ] {
            let found = http_url(bad);
            // Some of these are no URLs for the parser either.
            assert!(
                matches!(found, Err(error) if error == why || error == HttpUrlError::NoHttp),
                "{bad}: {found:?}"
            );
        }
    }
}
