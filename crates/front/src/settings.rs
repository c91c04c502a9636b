//! Settings of the client side: addresses, files, names and limits, already checked. The config
//! format is not known here; the gateway makes these values.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use weir_core::EndpointId;
use weir_core::toolset::NamePattern;

/// The settings of the client side. `listen` and `limits.backlog` are read once, at bind; all
/// others may change by a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontSettings {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// Certificate and key files; clear text if absent.
    pub tls: Option<ListenerTlsFiles>,
    /// The `scheme://host[:port]` that clients use; its host is allowed in `Host`, its origin
    /// in `Origin`.
    pub public_url: Option<String>,
    /// Further allowed hosts, each `name` (any port) or `name:port`. If the list is empty, a
    /// listener that is not on loopback takes any well-formed host.
    pub hosts: Vec<String>,
    /// Allowed origins beyond the listener's own; these get CORS headers. Each is
    /// `scheme://host[:port]`.
    pub origins: Vec<String>,
    /// Peers whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<AddressRange>,
    /// The authorization servers that issue clients' tokens; absent if there are no such servers.
    pub oauth: Option<ResourceMetadata>,
    /// True if verified tokens stay with their calls, because some upstream is called in the name
    /// of its callers.
    pub keep_tokens: bool,
    /// True if requests of legacy clients without a session id are served one by one, without a
    /// session.
    pub sessionless: bool,
    /// True if HTTP+SSE, the transport of 2024-11-05, is served beside each endpoint.
    pub http_sse: bool,
    /// weir's own name and version in `serverInfo`.
    pub server: ServerIdentity,
    /// The page for a person who opens an endpoint in a browser; if absent, a browser gets the
    /// plain refusal, too.
    pub help: Option<HelpPage>,
    /// Paths without an endpoint because their config has errors: they answer 503, not 404.
    pub unserved: Vec<NamePattern>,
    /// Limits and times.
    pub limits: FrontLimits,
}

/// An HTML page about how to connect to an endpoint. It holds no part of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpPage {
    /// The text around each mention of the endpoint's path. Paths have letters, digits and `/-_.~`
    /// alone, so they need no escape in HTML.
    pub parts: Vec<String>,
    /// `Content-Security-Policy` of the page.
    pub policy: HeaderValue,
}

impl FrontSettings {
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
            limits: FrontLimits::default(),
        }
    }
}

/// The metadata about tokens for weir that clients read (RFC 9728).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// `scheme://host[:port]` of weir as clients see it, without a slash at the end. An endpoint's
    /// resource identifier is this and its path.
    pub base: String,
    /// Issuers of tokens, by their own issuer identifiers.
    pub servers: Vec<String>,
    /// The minimum scopes of each endpoint.
    pub scopes: HashMap<EndpointId, Vec<Arc<str>>>,
}

impl ResourceMetadata {
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
pub struct ListenerTlsFiles {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authority of client certificates; if absent, clients are not asked for any.
    pub clients: Option<ClientCertificates>,
}

/// Certificates of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificates {
    /// The file of the authorities that issue them.
    pub ca: PathBuf,
    /// True if a connection without one is refused.
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
pub struct FrontLimits {
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
    /// The longest time that a body may be slower than `body_rate`.
    pub body_rate_grace: Duration,
    /// The longest time that a connection may stay without a request.
    pub idle_time: Duration,
    /// The longest time that a client may read no byte of a pending answer: measured for an HTTP/2
    /// stream by its window, for a connection by its window or its socket.
    pub stall_time: Duration,
    /// Time between two TCP keep-alive probes, and to the first.
    pub tcp_keepalive: Duration,
    /// The longest time that sent bytes may stay unacknowledged.
    pub tcp_user_timeout: Duration,
    /// Limits of HTTP/2 alone.
    pub h2: H2Limits,
    /// Requests being answered at once; open listen and GET streams do not count.
    pub in_flight: usize,
    /// The longest time that a request waits for its permit: beyond `in_flight`, or until its turn
    /// in the rounds comes.
    pub in_flight_wait: Duration,
    /// Open listen and GET streams.
    pub streams: usize,
    /// Open listen and GET streams of one principal; the anonymous one is exempt.
    pub streams_per_principal: usize,
    /// Subscribed resources, counted for each client.
    pub subscriptions: usize,
    /// Subscribed resources of one principal; the anonymous one is exempt.
    pub subscriptions_per_principal: usize,
    /// Subscribed resources of one session or listen stream of any principal.
    pub subscriptions_per_client: usize,
    /// Sessions of older clients.
    pub sessions: usize,
    /// Sessions of one principal. Of the anonymous principal, a network may have as many as are
    /// free, and at least this number, or half of all sessions if that is less.
    pub sessions_per_principal: usize,
    /// Messages of a batch.
    pub batch_items: usize,
    /// Bytes of a batch's answer.
    pub batch_bytes: usize,
    /// The longest silence of a call before its answer becomes a stream.
    pub stream_after: Duration,
    /// Time between keep-alive comments, give or take a fifth.
    pub keep_alive: Duration,
    /// Time between two progress notifications of a call; those in between are coalesced.
    pub progress_interval: Duration,
    /// The delay that a client is asked to keep before it reconnects.
    pub retry: Duration,
    /// The longest time that a legacy session lives unused.
    pub session_idle: Duration,
    /// The longest life of a legacy session.
    pub session_age: Duration,
    /// Calls that run on without their connection, in one session.
    pub detached_per_session: usize,
    /// Calls that run on without their connection, overall.
    pub detached: usize,
    /// Bytes of rendered list pages kept.
    pub page_cache_bytes: usize,
    /// The longest time that a `requestState` stays valid.
    pub state_time: Duration,
    /// During a drain: the time that an idle connection stays open, so that a request in flight to
    /// it is not lost.
    pub drain_idle: Duration,
}

impl FrontLimits {
    /// [`Self::retry`] in milliseconds, as streams state it.
    pub(crate) fn retry_millis(&self) -> u64 {
        u64::try_from(self.retry.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Default for FrontLimits {
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

/// Limits of an HTTP/2 connection (A10 to A12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct H2Limits {
    /// Streams at once.
    pub streams: u32,
    /// Flow-control window of a stream.
    pub stream_window: u32,
    /// Flow-control window of the connection.
    pub connection_window: u32,
    /// Buffered answer bytes of a stream: the most that a slow reader makes weir hold.
    pub send_buffer: usize,
    /// Time between pings.
    pub ping: Duration,
    /// The longest time that a ping may stay unanswered.
    pub ping_timeout: Duration,
    /// The age at which a connection gets GOAWAY.
    pub age: Duration,
    /// The time that its streams have after that.
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
pub struct AddressRange {
    address: IpAddr,
    prefix: u8,
}

/// The error for a text that is no address range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an address or network: write 10.1.2.3 or 10.0.0.0/8")]
pub struct BadAddressRange(String);

impl AddressRange {
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

impl FromStr for AddressRange {
    type Err = BadAddressRange;

    fn from_str(text: &str) -> Result<Self, BadAddressRange> {
        let bad = || BadAddressRange(text.to_owned());
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

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    // Proves A19.
    #[test]
    fn networks_hold_exactly_their_addresses() {
        let ten: AddressRange = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.1".parse().unwrap()));
        assert!(!ten.contains("::1".parse().unwrap()));
        let one: AddressRange = "::1".parse().unwrap();
        assert!(one.contains("::1".parse().unwrap()) && !one.contains("::2".parse().unwrap()));
        let all: AddressRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("203.0.113.9".parse().unwrap()));
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "host",
            "::/129",
            "10.0.0.0/-1",
        ] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }
}
