//! The operator's settings for one upstream server. Already checked.

use std::time::Duration;

use http::{HeaderName, Uri};
use weir_core::CapabilityClass;
use weir_core::names::UpstreamId;
use weir_core::upstream::CallDeadlines;
use weir_http_client::CaFile;
use weir_oauth_client::UpstreamOAuth;
use weir_upstream_core::secret::SecretHeader;
use weir_upstream_core::secret_mask::SecretMask;
use weir_upstream_core::settings::{
    OwnDeadlines, SessionSharing, UpstreamBounds, UpstreamProtocol,
};
use weir_upstream_stdio::{ChildInstances, StdioUpstreamSettings};

/// One upstream. Two equal settings describe the same server, so a reload keeps the upstream that
/// was built from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The configured id.
    pub id: UpstreamId,
    /// The transport to the server.
    pub transport: TransportSettings,
    /// The server's protocol. Default: found out by a probe.
    pub protocol: UpstreamProtocol,
    /// The sharing of a session or a child process between clients.
    pub session: SessionSharing,
    /// The capabilities that the server may use of clients in the middle of their calls.
    pub client_capabilities: CapabilityClass,
    /// True if the server may send callers to web pages (elicitation by URL). A server that cannot
    /// tell callers apart would take one caller's visit for another's.
    pub allows_url_elicitation: bool,
    /// True if the `baggage` (W3C) of callers is forwarded. It has information that callers mean
    /// for their own side.
    pub baggage: bool,
    /// The bounds of the memory and connections that the server may use.
    pub bounds: UpstreamBounds,
    /// The timeout of a new connection, name lookup and TLS included.
    pub connect: Duration,
    /// The time limits of requests of weir's own.
    pub own_deadlines: OwnDeadlines,
}

/// The transport to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportSettings {
    /// Streamable HTTP.
    Http(HttpUpstreamSettings),
    /// A child process with MCP over its standard streams.
    Stdio(StdioUpstreamSettings),
}

/// A server behind a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUpstreamSettings {
    /// The server's URL: `http` or `https`, with a host. Of several instances it is the first.
    pub url: Uri,
    /// The instances of a server that has several URLs, in the order of the config; else empty.
    pub instances: Vec<InstanceSettings>,
    /// The operator's headers on every request; values are secrets.
    pub headers: Vec<(HeaderName, SecretHeader)>,
    /// The OAuth client for the tokens of every request. If absent, requests have no token.
    pub auth: Option<Box<UpstreamOAuth>>,
    /// Further root certificates for this server.
    pub ca_file: Option<CaFile>,
    /// HTTP/2 without TLS and without negotiation ("prior knowledge"); for `http` URLs.
    pub h2c: bool,
}

/// One instance of a server that has several URLs. All instances have the same lists, credentials
/// and settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSettings {
    /// Its URL: `http` or `https`, with a host.
    pub url: Uri,
    /// Its part of the calls, in relation to the weights of the others. With 0 it gets no new
    /// calls.
    pub weight: u32,
}

impl InstanceSettings {
    /// The weight of a URL that states none.
    pub const DEFAULT_WEIGHT: u32 = 100;
    /// The most instances of one server.
    pub const MAX_INSTANCES: usize = 64;
}

impl UpstreamSettings {
    /// Makes settings for a URL, with defaults for the rest.
    #[must_use]
    pub fn http(id: UpstreamId, url: Uri) -> Self {
        let http = HttpUpstreamSettings {
            url,
            instances: Vec::new(),
            headers: Vec::new(),
            auth: None,
            ca_file: None,
            h2c: false,
        };
        Self::with(id, TransportSettings::Http(http), SessionSharing::Principal)
    }

    /// Makes settings for a command, with defaults for the rest.
    #[must_use]
    pub fn stdio(id: UpstreamId, command: impl Into<String>, args: Vec<String>) -> Self {
        let stdio = StdioUpstreamSettings {
            command: command.into(),
            args,
            env: Vec::new(),
            cwd: None,
            instances: ChildInstances::default(),
            max_processes: Self::DEFAULT_MAX_PROCESSES,
            start: Duration::from_secs(60),
        };
        Self::with(id, TransportSettings::Stdio(stdio), SessionSharing::Shared)
    }

    /// The default of the most processes of one server at once: one each for as many callers as
    /// come in five minutes to a machine that starts its servers itself.
    pub const DEFAULT_MAX_PROCESSES: usize = 64;

    fn with(id: UpstreamId, transport: TransportSettings, session: SessionSharing) -> Self {
        Self {
            id,
            transport,
            protocol: UpstreamProtocol::Auto,
            session,
            client_capabilities: session.default_client_capabilities(),
            allows_url_elicitation: true,
            baggage: false,
            bounds: UpstreamBounds::default(),
            connect: CallDeadlines::CALL.connect,
            own_deadlines: OwnDeadlines::default(),
        }
    }
}

impl UpstreamSettings {
    /// True if one replica runs its child processes for all.
    #[must_use]
    pub fn is_singleton(&self) -> bool {
        match &self.transport {
            TransportSettings::Http(_) => false,
            TransportSettings::Stdio(stdio) => stdio.instances == ChildInstances::One,
        }
    }
}

impl TransportSettings {
    /// Collects the secrets of the config: the values of variables, and of headers without their
    /// authentication scheme.
    pub(crate) fn secret_mask(&self) -> SecretMask {
        match self {
            Self::Stdio(stdio) => SecretMask::of(stdio.env.iter().map(|(_, value)| value.expose())),
            Self::Http(http) => {
                let values = http
                    .headers
                    .iter()
                    .filter_map(|(_, value)| value.expose().to_str().ok());
                SecretMask::of(values.map(|value| value.rsplit(' ').next().unwrap_or(value)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use http::HeaderValue;
    use weir_upstream_core::secret::SecretText;

    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let mut settings = UpstreamSettings::http(
            UpstreamId::new("a").unwrap(),
            Uri::from_static("http://127.0.0.1/mcp"),
        );
        let TransportSettings::Http(http) = &mut settings.transport else {
            panic!("built as HTTP")
        };
        let header = SecretHeader::new(HeaderValue::from_static("canary-1"));
        http.headers
            .push((HeaderName::from_static("x-key"), header));
        assert!(!format!("{settings:?}").contains("canary"));
        assert!(!format!("{:?}", SecretText::new("canary-2")).contains("canary"));
    }

    #[test]
    fn values_of_variables_are_masked_the_longest_first() {
        let id = UpstreamId::new("u").expect("an id");
        let mut settings = UpstreamSettings::stdio(id, "server", Vec::new());
        let TransportSettings::Stdio(stdio) = &mut settings.transport else {
            panic!("it is a command")
        };
        stdio.env = [("A", "12345678"), ("B", "123456789"), ("MODE", "debug")]
            .map(|(name, value)| (name.to_owned(), SecretText::new(value)))
            .into();
        let mask = settings.transport.secret_mask();
        assert_eq!(
            mask.apply("debug: 123456789 and 12345678"),
            "debug: *** and ***"
        );
        assert_eq!(format!("{mask:?}"), "SecretMask(2)");
    }
}
