//! What front can be told: addresses, files, names and limits, already checked. No config format
//! here: the gateway makes these values.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use weir_core::EndpointId;
use weir_core::toolset::Pattern;

/// Everything about the client side. `listen` and `limits.backlog` are read once, at bind; all else
/// may change by a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// Certificate and key files; `None` is clear text.
    pub tls: Option<TlsFiles>,
    /// The `scheme://host[:port]` clients use; its host is allowed in `Host`, its origin in
    /// `Origin`.
    pub public_url: Option<String>,
    /// Further allowed hosts, each `name` (any port) or `name:port`. With none, a listener that is
    /// not on loopback takes any well-formed host.
    pub hosts: Vec<String>,
    /// Allowed origins beyond the listener's own; these get CORS headers. Each is
    /// `scheme://host[:port]`.
    pub origins: Vec<String>,
    /// Peers whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<Network>,
    /// Where clients get tokens; `None` where no authorization server issues any for here.
    pub oauth: Option<OAuth>,
    /// Whether verified tokens stay with their calls: true where some upstream is called in the
    /// name of its callers.
    pub keep_tokens: bool,
    /// Whether requests of legacy clients are served without a session, each by itself, where they
    /// name none.
    pub sessionless: bool,
    /// Whether HTTP+SSE, the transport of 2024-11-05, is served beside each endpoint.
    pub http_sse: bool,
    /// What weir calls itself in `serverInfo`.
    pub server: ServerIdentity,
    /// The page for a person who opens an endpoint in a browser; `None`: a refusal has its sentence
    /// there, too.
    pub help: Option<HelpPage>,
    /// Paths that have no endpoint only because the config of theirs has errors: they answer 503,
    /// not 404.
    pub unserved: Vec<Pattern>,
    /// Limits and times.
    pub limits: Limits,
}

/// A page in HTML about how to connect to an endpoint, with nothing of the request in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpPage {
    /// The text around each mention of the endpoint's path. Paths have letters, digits and `/-_.~`
    /// alone, which mean nothing in HTML.
    pub parts: Vec<String>,
    /// `Content-Security-Policy` of the page.
    pub policy: HeaderValue,
}

impl Settings {
    /// Defaults for a clear-text listener at `listen`.
    #[must_use]
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            public_url: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            trusted_proxies: Vec::new(),
            oauth: None,
            keep_tokens: false,
            sessionless: false,
            http_sse: true,
            server: ServerIdentity::default(),
            help: None,
            unserved: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// What clients are told about tokens for weir (RFC 9728).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// `scheme://host[:port]` of weir as clients see it, without a slash at the end. An endpoint's
    /// resource identifier is this and its path.
    pub base: String,
    /// Issuers of tokens, as they name themselves.
    pub servers: Vec<String>,
    /// The scopes that an endpoint takes at least.
    pub scopes: HashMap<EndpointId, Vec<Arc<str>>>,
}

impl OAuth {
    /// The scopes of an endpoint.
    #[must_use]
    pub fn scopes(&self, endpoint: &EndpointId) -> &[Arc<str>] {
        self.scopes
            .get(endpoint)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

/// PEM files, read at bind and again whenever they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// Whose certificates clients may show; `None`: they are not asked for any.
    pub clients: Option<ClientCertificates>,
}

/// Certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The authorities that they are issued by.
    pub ca: PathBuf,
    /// Whether a connection without one is refused.
    pub required: bool,
}

/// `serverInfo` of every answer. A client's behaviour must not depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// `name`.
    pub name: String,
    /// `title`, for people.
    pub title: Option<String>,
    /// `version`.
    pub version: String,
}

impl Default for ServerIdentity {
    fn default() -> Self {
        Self {
            name: "weir".to_owned(),
            title: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Limits of the client side. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections waiting to be accepted.
    pub backlog: u32,
    /// Open connections. The process has 20,000 files; upstreams, logs and the admin listener need
    /// the rest.
    pub connections: usize,
    /// Open connections of one address; loopback is exempt.
    pub connections_per_address: usize,
    /// TLS handshakes at the same time.
    pub handshakes: usize,
    /// Time for a TLS handshake.
    pub handshake_time: Duration,
    /// Time for a request head, from its first byte, or from the accept for the first one.
    pub head_time: Duration,
    /// Size of a request head.
    pub head_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// Size of a request body.
    pub body_bytes: usize,
    /// Time for a whole request body.
    pub body_time: Duration,
    /// Bytes a second that a body must keep up after `body_rate_grace`.
    pub body_rate: u64,
    /// How long a body may be slower than `body_rate`.
    pub body_rate_grace: Duration,
    /// How long a connection may stay without a request.
    pub idle_time: Duration,
    /// How long a client may take nothing of an answer that waits for it: of a stream of HTTP/2, by
    /// its window; of a connection, by its window or its socket.
    pub stall_time: Duration,
    /// Time between two TCP keep-alive probes, and to the first.
    pub tcp_keepalive: Duration,
    /// How long sent bytes may stay unacknowledged.
    pub tcp_user_timeout: Duration,
    /// HTTP/2 only.
    pub h2: H2Limits,
    /// Requests being answered at once; open listen and GET streams do not count.
    pub in_flight: usize,
    /// How long a request waits for its permit: one beyond `in_flight`, or one whose turn in the
    /// rounds has not come.
    pub in_flight_wait: Duration,
    /// Open listen and GET streams.
    pub streams: usize,
    /// Open listen and GET streams of one principal; the anonymous one is exempt.
    pub streams_per_principal: usize,
    /// Resources of whose updates clients are told, each client counted.
    pub subscriptions: usize,
    /// The same of one principal; the anonymous one is exempt.
    pub subscriptions_per_principal: usize,
    /// The same of one session or listen stream, whosever it is.
    pub subscriptions_per_client: usize,
    /// Sessions of older clients.
    pub sessions: usize,
    /// The same of one principal; of the anonymous one a network may have as many, and beyond that
    /// as many as are free, but no more than half of all.
    pub sessions_per_principal: usize,
    /// Messages of a batch.
    pub batch_items: usize,
    /// Bytes of a batch's answer.
    pub batch_bytes: usize,
    /// How long a call may be silent before its answer becomes a stream.
    pub stream_after: Duration,
    /// Time between keep-alive comments, give or take a fifth.
    pub keep_alive: Duration,
    /// Time between two progress notifications of a call; those between are coalesced.
    pub progress_interval: Duration,
    /// How long a client that loses its connection is asked to wait before it comes back.
    pub retry: Duration,
    /// How long a legacy session lives unused.
    pub session_idle: Duration,
    /// How long a legacy session lives at all.
    pub session_age: Duration,
    /// Calls that run on without their connection, in one session.
    pub detached_per_session: usize,
    /// Calls that run on without their connection, altogether.
    pub detached: usize,
    /// Bytes of rendered list pages kept.
    pub page_cache_bytes: usize,
    /// How long a `requestState` may be brought back.
    pub state_time: Duration,
    /// While draining: how long an idle connection stays open, so that a request under way on it is
    /// not lost.
    pub drain_idle: Duration,
}

impl Limits {
    /// [`Self::retry`] as streams say it: in milliseconds.
    pub(crate) fn retry_millis(&self) -> u64 {
        u64::try_from(self.retry.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            backlog: 4096,
            connections: 18_000,
            connections_per_address: 256,
            handshakes: 512,
            handshake_time: Duration::from_secs(5),
            head_time: Duration::from_secs(10),
            head_bytes: 32 << 10,
            headers: 100,
            body_bytes: 1 << 20,
            body_time: Duration::from_secs(20),
            body_rate: 1024,
            body_rate_grace: Duration::from_secs(5),
            idle_time: Duration::from_secs(120),
            stall_time: Duration::from_secs(30),
            tcp_keepalive: Duration::from_secs(15),
            tcp_user_timeout: Duration::from_secs(30),
            h2: H2Limits::default(),
            in_flight: 10_000,
            in_flight_wait: Duration::from_secs(2),
            streams: 100_000,
            streams_per_principal: 32,
            sessions: 200_000,
            sessions_per_principal: 100,
            subscriptions: 100_000,
            subscriptions_per_principal: 2000,
            subscriptions_per_client: 500,
            batch_items: 50,
            batch_bytes: 4 << 20,
            stream_after: Duration::from_secs(5),
            keep_alive: Duration::from_secs(15),
            progress_interval: Duration::from_millis(20),
            retry: Duration::from_secs(1),
            session_idle: Duration::from_secs(30 * 60),
            session_age: Duration::from_secs(24 * 3600),
            detached_per_session: 32,
            detached: 4096,
            page_cache_bytes: 64 << 20,
            state_time: Duration::from_secs(600),
            drain_idle: Duration::from_secs(5),
        }
    }
}

/// Limits of an HTTP/2 connection (faults A10 to A12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct H2Limits {
    /// Streams at once.
    pub streams: u32,
    /// Flow-control window of a stream.
    pub stream_window: u32,
    /// Flow-control window of the connection.
    pub connection_window: u32,
    /// Buffered answer bytes of a stream: what a slow reader can make weir hold.
    pub send_buffer: usize,
    /// Time between pings.
    pub ping: Duration,
    /// How long a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// Age at which a connection is told to go.
    pub age: Duration,
    /// How long its streams have then.
    pub last_streams: Duration,
}

impl Default for H2Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window: 64 << 10,
            connection_window: 1 << 20,
            send_buffer: 32 << 10,
            ping: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            age: Duration::from_secs(3600),
            last_streams: Duration::from_secs(60),
        }
    }
}

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is no address range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no address or network: write 10.1.2.3 or 10.0.0.0/8")]
pub struct BadNetwork(String);

impl Network {
    /// True if the address is in the range. An IPv4 address in IPv6 form counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(most), |prefix| prefix.parse().map_err(|_| bad()))?;
        if prefix > most {
            Err(bad())
        } else {
            Ok(Self { address, prefix })
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a19_networks_hold_exactly_their_addresses() {
        let ten: Network = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.1".parse().unwrap()));
        assert!(!ten.contains("::1".parse().unwrap()));
        let one: Network = "::1".parse().unwrap();
        assert!(one.contains("::1".parse().unwrap()) && !one.contains("::2".parse().unwrap()));
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "host",
            "::/129",
            "10.0.0.0/-1",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
