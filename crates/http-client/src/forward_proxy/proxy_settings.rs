//! The settings of the forward proxy, from a URL or from the environment.

use std::fmt;

use data_encoding::BASE64;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::forward_proxy::proxy_bypass::{ProxyBypass, literal_address};

/// The variables that name a proxy for `https` servers or for all, the first that is set first.
const PROXY_VARIABLES: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// The variables that name the servers without a proxy.
const BYPASS_VARIABLES: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// The reason for which a URL is not one of a forward proxy. No text repeats the URL, which may
/// have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyUrlError {
    /// The scheme is not `http`.
    #[error("is not an http URL: weir speaks to a proxy over HTTP without TLS alone")]
    Scheme,
    /// The text is no URL, or has no host.
    #[error("is not a valid URL")]
    Malformed,
    /// There is no valid port. Programs differ in the port that they take then.
    #[error("has no valid port")]
    Port,
    /// There is more than the address of the proxy.
    #[error("has a path or a query")]
    Path,
    /// The URL has a user, and is none or has more than the address: by a character of the password
    /// that separates parts of a URL.
    #[error("has a path or a query, or is not valid: its password is probably not percent-encoded")]
    Unencoded,
    /// The user or the password cannot be sent.
    #[error("has a user or a password that cannot be sent")]
    Credentials,
}

/// The forward proxy that connections to servers go through.
#[derive(Clone, PartialEq, Eq)]
pub struct ForwardProxy {
    /// `http://host:port`.
    uri: Uri,
    /// The value of `Proxy-Authorization`, if the URL has a user.
    authorization: Option<HeaderValue>,
    bypass: ProxyBypass,
}

/// The forward proxy of an environment.
#[derive(Debug, PartialEq, Eq)]
pub struct EnvironmentProxy {
    /// The proxy.
    pub proxy: ForwardProxy,
    /// The entries of `NO_PROXY` that are ignored, because they are in no known form. Without the
    /// user and the password of a URL.
    pub ignored: Vec<String>,
}

impl ForwardProxy {
    /// Makes a proxy of the URL `http://[user:password@]host:port`.
    ///
    /// # Errors
    /// The URL is not that of a proxy.
    pub fn new(url: &str, bypass: ProxyBypass) -> Result<Self, ProxyUrlError> {
        Self::parse(url, bypass).map_err(|error| {
            if is_by_password(error, url) {
                ProxyUrlError::Unencoded
            } else {
                error
            }
        })
    }

    fn parse(url: &str, bypass: ProxyBypass) -> Result<Self, ProxyUrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(ProxyUrlError::Scheme)?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(ProxyUrlError::Scheme);
        }
        if rest.contains(['?', '#']) {
            return Err(ProxyUrlError::Path);
        }
        let parsed: Uri = url.parse().map_err(|_| ProxyUrlError::Malformed)?;
        let authority = parsed.authority().ok_or(ProxyUrlError::Malformed)?.as_str();
        if !matches!(parsed.path(), "" | "/") {
            return Err(ProxyUrlError::Path);
        }
        let (credentials, address) = match authority.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, authority),
        };
        if parsed.host().is_none_or(str::is_empty) {
            return Err(ProxyUrlError::Malformed);
        }
        if parsed.port_u16().is_none_or(|port| port == 0) {
            return Err(ProxyUrlError::Port);
        }
        let uri = format!("http://{address}").parse();
        Ok(Self {
            uri: uri.map_err(|_| ProxyUrlError::Malformed)?,
            authorization: credentials.map(basic_authorization).transpose()?,
            bypass,
        })
    }

    /// Reads the proxy of an environment; absent if no variable names one. A value without a scheme
    /// means `http`, as for most programs.
    ///
    /// # Errors
    /// The URL in a variable, whose name is returned, is not that of a proxy.
    pub fn from_environment(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<EnvironmentProxy>, (&'static str, ProxyUrlError)> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let text = variable(name)?.trim().to_owned();
                (!text.is_empty()).then_some((*name, text))
            })
        };
        let Some((name, mut url)) = first(&PROXY_VARIABLES) else {
            return Ok(None);
        };
        if !url.contains("://") {
            url.insert_str(0, "http://");
        }
        let (mut bypass, mut ignored) = (ProxyBypass::default(), Vec::new());
        let (_, entries) = first(&BYPASS_VARIABLES).unwrap_or_default();
        let entries = entries.split([',', ' ']).filter(|entry| !entry.is_empty());
        for entry in entries {
            if let Err(error) = bypass.add(entry) {
                ignored.push(error.entry);
            }
        }
        let proxy = Self::new(&url, bypass).map_err(|error| (name, error))?;
        Ok(Some(EnvironmentProxy { proxy, ignored }))
    }

    /// Returns the URL of the proxy without its credentials.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the value of `Proxy-Authorization`.
    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// True if a connection to the server goes through the proxy. Servers on this machine are
    /// reached directly: the proxy would look for them on its own machine.
    pub(crate) fn takes(&self, server: &Uri) -> bool {
        let host = server.host().unwrap_or_default();
        !is_this_machine(host) && !self.bypass.covers(host, port_of(server))
    }
}

/// True if a character of a password that is not percent-encoded explains the error: the address
/// stands behind the last `@`.
fn is_by_password(error: ProxyUrlError, url: &str) -> bool {
    let before_address = url.rsplit_once('@').map_or("", |(before, _)| before);
    let rest = before_address
        .split_once("://")
        .map_or("", |(_, rest)| rest);
    match error {
        ProxyUrlError::Path => rest.contains(['/', '?', '#']),
        ProxyUrlError::Malformed => !rest.is_empty(),
        ProxyUrlError::Scheme | ProxyUrlError::Port | ProxyUrlError::Credentials => false,
        ProxyUrlError::Unencoded => true,
    }
}

/// Returns the port of a server's URL.
pub(crate) fn port_of(server: &Uri) -> u16 {
    let by_scheme = if server.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    server.port_u16().unwrap_or(by_scheme)
}

fn is_this_machine(host: &str) -> bool {
    match literal_address(host) {
        Some(address) => address.to_canonical().is_loopback(),
        None => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Makes the value of `Proxy-Authorization` (RFC 7617) of a URL's `user:password`.
fn basic_authorization(credentials: &str) -> Result<HeaderValue, ProxyUrlError> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let (user, password) = (decode(user), decode(password));
    let is_control = |byte: &u8| byte.is_ascii_control();
    if user.is_empty() || user.contains(&b':') || user.iter().chain(&password).any(is_control) {
        return Err(ProxyUrlError::Credentials);
    }
    let pair = [&user[..], b":", &password].concat();
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64.encode(&pair)))
        .map_err(|_| ProxyUrlError::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

impl fmt::Display for ForwardProxy {
    /// Writes `host:port`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri.authority().map_or("", |address| address.as_str()))
    }
}

impl fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForwardProxy({self})")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn proxy(url: &str) -> Result<ForwardProxy, ProxyUrlError> {
        ForwardProxy::new(url, ProxyBypass::default())
    }

    #[test]
    fn credentials_are_decoded_for_the_proxy_and_never_printed() {
        let with = proxy("http://me:s%40cret%2F@proxy.example:3128/").unwrap();
        let header = with.authorization().unwrap().to_str().unwrap();
        assert_eq!(header, "Basic bWU6c0BjcmV0Lw==");
        let shown = format!("{with} {with:?} {}", with.uri());
        assert_eq!(
            shown,
            "proxy.example:3128 ForwardProxy(proxy.example:3128) http://proxy.example:3128/"
        );
        let without = proxy("HTTP://[::1]:3128").unwrap();
        assert_eq!(
            (without.to_string().as_str(), without.authorization()),
            ("[::1]:3128", None)
        );
        assert_ne!(with, proxy("http://me@proxy.example:3128/").unwrap());
        let plain = proxy("http://me:s@cret/@proxy.example:3128");
        assert_eq!(plain, Err(ProxyUrlError::Unencoded));
        let plain = proxy("http://me:s@cret%2F@proxy.example:3128").unwrap();
        assert_eq!(plain, with, "the last `@` ends the password");
    }

    #[test]
    fn url_that_is_not_of_a_proxy_is_an_error() {
        use ProxyUrlError::{Credentials, Malformed, Path, Port, Scheme, Unencoded};
        for (url, expected) in [
            ("https://proxy:3128", Scheme),
            ("socks5://proxy:1080", Scheme),
            ("proxy:3128", Scheme),
            ("", Scheme),
            ("http://", Malformed),
            ("http://:3128", Malformed),
            ("http://proxy:x", Port),
            ("http://proxy:65536", Port),
            ("http://a b:3128", Malformed),
            ("http://proxy", Port),
            ("http://proxy:", Port),
            ("http://proxy:0", Port),
            ("http://proxy:3128/path", Path),
            ("http://proxy:3128?a=b", Path),
            ("http://me:se#cret@proxy:3128", Unencoded),
            ("http://me:se?cret@proxy:3128", Unencoded),
            ("http://me:se/cret@proxy:3128", Unencoded),
            ("http://me:se cret@proxy:3128", Unencoded),
            ("http://me:secret@proxy:3128/path", Path),
            ("http://@proxy:3128", Credentials),
            ("http://:secret@proxy:3128", Credentials),
            ("http://a%3Ab:secret@proxy:3128", Credentials),
            ("http://me:se%0Acret@proxy:3128", Credentials),
        ] {
            assert_eq!(proxy(url), Err(expected), "{url}");
        }
    }

    #[test]
    fn servers_on_this_machine_and_in_the_bypass_are_reached_directly() {
        let mut bypass = ProxyBypass::default();
        bypass.add("inner.example:80").unwrap();
        let proxy = ForwardProxy::new("http://proxy:3128", bypass).unwrap();
        for (server, taken) in [
            ("https://example.com/mcp", true),
            ("http://192.0.2.1/", true),
            ("http://localhost.example.com/", true),
            ("https://inner.example/", true),
            ("http://inner.example/", false),
            ("http://inner.example:80/", false),
            ("http://127.0.0.1:8080/", false),
            ("http://127.9.9.9/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://LOCALHOST./", false),
            ("http://a.localhost/", false),
        ] {
            assert_eq!(proxy.takes(&server.parse().unwrap()), taken, "{server}");
        }
    }

    #[test]
    fn environment_names_the_proxy_and_its_exceptions() {
        let read = |variables: &[(&str, &str)]| {
            ForwardProxy::from_environment(&|name| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(read(&[("HTTP_PROXY", "http://proxy:1")]), Ok(None));
        assert_eq!(read(&[("HTTPS_PROXY", " ")]), Ok(None));
        let found = read(&[
            ("https_proxy", ""),
            ("ALL_PROXY", "http://other:2"),
            ("HTTPS_PROXY", "proxy:3128"),
            (
                "NO_PROXY",
                "localhost, .corp.example,<local> 10.0.0.0/8,http://me:canary@host",
            ),
        ]);
        let EnvironmentProxy { proxy, ignored } = found.unwrap().unwrap();
        assert_eq!(
            (proxy.to_string().as_str(), &ignored[..]),
            (
                "proxy:3128",
                &["<local>".to_owned(), "http://***@host".to_owned()][..]
            )
        );
        assert!(!proxy.takes(&"http://10.1.1.1/".parse().unwrap()));
        assert!(!proxy.takes(&"http://a.corp.example/".parse().unwrap()));
        assert!(proxy.takes(&"http://a.example/".parse().unwrap()));
        let found = read(&[("all_proxy", "socks5://proxy:1080")]);
        assert_eq!(found, Err(("all_proxy", ProxyUrlError::Scheme)));
    }
}
