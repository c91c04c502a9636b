//! What the operator says about one upstream server. Already checked: nothing here can be wrong,
//! only unreachable.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use weir_core::CapabilityClass;
use weir_core::names::UpstreamId;
use weir_core::upstream::Deadlines;

use crate::credential::OAuth;

/// One upstream. Two equal settings describe the same server, so a reload keeps what was built from
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its configured id.
    pub id: UpstreamId,
    /// How it is reached.
    pub transport: Transport,
    /// Which protocol it speaks, where the operator knows better than a probe.
    pub protocol: Protocol,
    /// Who shares a session or a child process.
    pub session: Sharing,
    /// What the server may ask of clients in the middle of their calls.
    pub asks: CapabilityClass,
    /// Whether it may send callers to pages of the web (elicitation by URL). A server that cannot
    /// tell callers apart would take one caller's visit for another's.
    pub visits: bool,
    /// Whether the `baggage` (W3C) of its callers goes on to it. It says of them what they want
    /// their own side to know.
    pub baggage: bool,
    /// Bounds of what it may make weir hold.
    pub bounds: Bounds,
    /// How long a connection may take to stand, name lookup and TLS included.
    pub connect: Duration,
    /// How long requests of weir's own may take.
    pub own: OwnDeadlines,
}

/// The time limits of the requests that weir makes in its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnDeadlines {
    /// Of a page of a list, and of every other request than a probe.
    pub list: Duration,
    /// Of a probe: of each request that finds out what the server speaks or opens a session, and of
    /// the greeting of a server of HTTP+SSE. How long a process may take is
    /// [`StdioSettings::start`].
    pub probe: Duration,
}

impl Default for OwnDeadlines {
    fn default() -> Self {
        Self {
            list: Deadlines::LIST.hard,
            probe: Deadlines::LIST.hard,
        }
    }
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Http(HttpSettings),
    /// A child process that speaks over its standard streams.
    Stdio(StdioSettings),
}

/// A server behind a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Where it is: `http` or `https`, with a host.
    pub url: Uri,
    /// Headers of the operator's own on every request; values are secrets.
    pub headers: Vec<(HeaderName, SecretHeader)>,
    /// The OAuth client whose tokens go with every request; `None`: none do.
    pub auth: Option<Box<OAuth>>,
    /// A PEM file with further root certificates for this server.
    pub ca_file: Option<PathBuf>,
    /// HTTP/2 without TLS and without asking first ("prior knowledge"); for `http` URLs.
    pub h2c: bool,
}

/// A server that weir starts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioSettings {
    /// The program, looked up in `PATH` of the child's environment.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables beside the minimal set; values are secrets.
    pub env: Vec<(String, SecretText)>,
    /// Where it runs; weir's own directory where not given.
    pub cwd: Option<PathBuf>,
    /// How many processes may run at once where each principal has its own. One more is refused as
    /// busy, unless one was idle for [`Bounds::session_idle`].
    pub max_processes: usize,
    /// How long it may take until it has answered the first message. Package runners download on
    /// their first start.
    pub start: Duration,
}

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Find out by a probe, remember, and probe again after failures.
    #[default]
    Auto,
    /// 2026-07-28 and later, without a probe.
    Modern,
    /// `initialize`, without a probe.
    Legacy,
    /// HTTP+SSE, the transport of 2024-11-05, without a probe. A child process has no such thing:
    /// it is greeted as a legacy one.
    Sse,
}

/// Who shares an upstream session or a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Everybody: the operator says that nothing of one client shows to another.
    Shared,
    /// One for each principal and class of what it can be asked, and over HTTP for each session of
    /// a legacy client.
    Principal,
}

impl Sharing {
    /// What a server may ask of clients where nothing else is said: a session that everybody shares
    /// has nobody to ask, and its server would have to have others beside it.
    #[must_use]
    pub fn asks(self) -> CapabilityClass {
        match self {
            Self::Shared => CapabilityClass::BASE,
            Self::Principal => weir_era::carry::TO_MODERN,
        }
    }
}

/// Bounds of what one upstream may make weir hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Calls in flight; one more is refused as busy.
    pub in_flight: usize,
    /// Bytes of one reply, notes included.
    pub max_reply: usize,
    /// Legacy sessions held open.
    pub sessions: usize,
    /// How long an unused session or child process stays.
    pub session_idle: Duration,
    /// Sessions over Streamable HTTP in which a stream stays open so that changes of their own
    /// lists are heard.
    pub standing: usize,
}

impl Default for Bounds {
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

impl Settings {
    /// Settings for a URL, everything else by default.
    #[must_use]
    pub fn http(id: UpstreamId, url: Uri) -> Self {
        let http = HttpSettings {
            url,
            headers: Vec::new(),
            auth: None,
            ca_file: None,
            h2c: false,
        };
        Self::with(id, Transport::Http(http), Sharing::Principal)
    }

    /// Settings for a command, everything else by default.
    #[must_use]
    pub fn stdio(id: UpstreamId, command: impl Into<String>, args: Vec<String>) -> Self {
        let stdio = StdioSettings {
            command: command.into(),
            args,
            env: Vec::new(),
            cwd: None,
            max_processes: Self::MOST_PROCESSES,
            start: Duration::from_secs(60),
        };
        Self::with(id, Transport::Stdio(stdio), Sharing::Shared)
    }

    /// Processes of one server at once where nothing else is said: one each for as many callers as
    /// come in five minutes to a machine that starts its servers itself.
    pub const MOST_PROCESSES: usize = 64;

    fn with(id: UpstreamId, transport: Transport, session: Sharing) -> Self {
        Self {
            id,
            transport,
            protocol: Protocol::Auto,
            session,
            asks: session.asks(),
            visits: true,
            baggage: false,
            bounds: Bounds::default(),
            connect: Deadlines::CALL.connect,
            own: OwnDeadlines::default(),
        }
    }
}

/// A header value that cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHeader(HeaderValue);

impl SecretHeader {
    /// Takes a value out of sight.
    #[must_use]
    pub fn new(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self(value)
    }

    /// The value, for the request that carries it. It stays marked sensitive.
    pub(crate) fn expose(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Debug for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A text that cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<str>);

impl SecretText {
    /// Takes a text out of sight.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one that gets it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        let mut settings = Settings::http(
            UpstreamId::new("a").unwrap(),
            Uri::from_static("http://127.0.0.1/mcp"),
        );
        let Transport::Http(http) = &mut settings.transport else {
            panic!("built as HTTP")
        };
        let header = SecretHeader::new(HeaderValue::from_static("canary-1"));
        http.headers
            .push((HeaderName::from_static("x-key"), header));
        assert!(!format!("{settings:?}").contains("canary"));
        assert!(!format!("{:?}", SecretText::new("canary-2")).contains("canary"));
    }
}
