//! The operator's settings for one upstream server. Already checked.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};
use weir_core::CapabilityClass;
use weir_core::names::UpstreamId;
use weir_core::upstream::CallDeadlines;

use crate::credential::settings::UpstreamOAuth;
use crate::secret::{SecretHeader, SecretText};

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

/// The time limits of the requests that weir makes in its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnDeadlines {
    /// The limit of a page of a list, and of every other request than a probe.
    pub list: Duration,
    /// The limit of a probe: of each request that finds out the server's protocol or opens a
    /// session, and of the greeting of a server of HTTP+SSE. The limit for a process is
    /// [`StdioUpstreamSettings::start`].
    pub probe: Duration,
}

impl Default for OwnDeadlines {
    fn default() -> Self {
        Self {
            list: CallDeadlines::LIST.hard,
            probe: CallDeadlines::LIST.hard,
        }
    }
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
    /// The server's URL: `http` or `https`, with a host.
    pub url: Uri,
    /// The operator's headers on every request; values are secrets.
    pub headers: Vec<(HeaderName, SecretHeader)>,
    /// The OAuth client for the tokens of every request. If absent, requests have no token.
    pub auth: Option<Box<UpstreamOAuth>>,
    /// A PEM file with further root certificates for this server.
    pub ca_file: Option<PathBuf>,
    /// HTTP/2 without TLS and without negotiation ("prior knowledge"); for `http` URLs.
    pub h2c: bool,
}

/// A server that weir starts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioUpstreamSettings {
    /// The program, looked up in `PATH` of the child's environment.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The environment variables beside the minimal set; values are secrets.
    pub env: Vec<(String, SecretText)>,
    /// The working directory. Default: weir's own.
    pub cwd: Option<PathBuf>,
    /// The most processes at once if each principal has its own. One more is refused as busy,
    /// unless one was idle for [`UpstreamBounds::session_idle`].
    pub max_processes: usize,
    /// The time limit from the start to the answer to the first message. Package runners download
    /// on their first start.
    pub start: Duration,
}

/// The protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UpstreamProtocol {
    /// Found out by a probe, remembered, and probed again after failures.
    #[default]
    Auto,
    /// 2026-07-28 and later, without a probe.
    Modern,
    /// `initialize`, without a probe.
    Legacy,
    /// HTTP+SSE, the transport of 2024-11-05, without a probe. A child process has no such
    /// transport: it is greeted as a legacy one.
    Sse,
}

/// The sharing of an upstream session or a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSharing {
    /// All clients share it: the operator vouches that the server shows no data of one client to
    /// another.
    Shared,
    /// One for each principal and capability class, and over HTTP for each session of a legacy
    /// client.
    Principal,
}

impl SessionSharing {
    /// Returns the default of the capabilities that a server may use of clients. A session that all
    /// clients share belongs to no client that could be asked: asking would need further sessions
    /// beside it.
    #[must_use]
    pub fn default_client_capabilities(self) -> CapabilityClass {
        match self {
            Self::Shared => CapabilityClass::BASE,
            Self::Principal => weir_era::capability_forwarding::TO_MODERN,
        }
    }
}

/// The bounds of one upstream's use of weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamBounds {
    /// The most calls in flight; one more is refused as busy.
    pub in_flight: usize,
    /// The most bytes of one reply, notes included.
    pub max_reply: usize,
    /// The most open legacy sessions.
    pub sessions: usize,
    /// The idle timeout of a session or child process.
    pub session_idle: Duration,
    /// The most sessions over Streamable HTTP with an open stream for changes of their own lists.
    pub standing: usize,
}

impl Default for UpstreamBounds {
    fn default() -> Self {
        Self {
            in_flight: 256,
            max_reply: 64 << 20,
            sessions: 1000,
            session_idle: Duration::from_secs(300),
            standing: 256,
        }
    }
}

impl UpstreamSettings {
    /// Makes settings for a URL, with defaults for the rest.
    #[must_use]
    pub fn http(id: UpstreamId, url: Uri) -> Self {
        let http = HttpUpstreamSettings {
            url,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use http::HeaderValue;

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
}
