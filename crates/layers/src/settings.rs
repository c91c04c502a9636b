//! Settings of the client side: addresses, files, names and limits, already checked. The config
//! format is not known here; the gateway makes these values.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use weir_core::EndpointId;
use weir_core::instant::millis;
use weir_core::port::{Random, full_jitter};
use weir_core::toolset::NamePattern;

pub use weir_listen::{
    AddressRange, ClientCertificates, H2Limits, ListenerLimits, ListenerTlsFiles,
};
pub use weir_session::SessionLimits;

/// The settings of the client side. `listen` and `limits.listener.backlog` are read once, at bind; all
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
    /// Peers whose `X-Forwarded-For` counts. They have no limit of connections for one address.
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
    /// Limits of the listener and its connections.
    pub listener: ListenerLimits,
    /// Limits of sessions of legacy clients.
    pub session: SessionLimits,
    /// Time for a whole request body.
    pub body_time: Duration,
    /// Bytes a second that a body must keep up after `body_rate_grace`.
    pub body_rate: u64,
    /// The longest time that a body may be slower than `body_rate`.
    pub body_rate_grace: Duration,
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
    /// The least delay that a client is asked to keep before it reconnects.
    pub retry: Duration,
    /// Bytes of rendered list pages kept.
    pub page_cache_bytes: usize,
    /// The longest time that a `requestState` stays valid.
    pub state_time: Duration,
}

impl FrontLimits {
    /// Draws the delay, in milliseconds, that a listening stream states. Clients whose process ended
    /// at the same moment come back over the whole range.
    pub fn listening_retry(&self, random: &dyn Random) -> u64 {
        self.draw_retry(random, LISTENING_RETRY_SPREAD)
    }

    /// Draws the delay, in milliseconds, that the stream of a call states, and that of an HTTP+SSE
    /// client. It is short: the client waits for an answer, or cannot send a message until then.
    pub fn call_retry(&self, random: &dyn Random) -> u64 {
        self.draw_retry(random, CALL_RETRY_SPREAD)
    }

    /// Draws between [`Self::retry`] and `spread` times that.
    fn draw_retry(&self, random: &dyn Random, spread: u32) -> u64 {
        let most = self.retry.saturating_mul(spread);
        let drawn = self.retry + full_jitter(most - self.retry, random);
        millis(drawn)
    }
}

/// The longest delay of a listening stream, in units of [`FrontLimits::retry`].
const LISTENING_RETRY_SPREAD: u32 = 10;
/// The longest delay of a call's stream and of an HTTP+SSE client's, in units of [`FrontLimits::retry`].
const CALL_RETRY_SPREAD: u32 = 2;

impl Default for FrontLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            session: SessionLimits::default(),
            body_time: Duration::from_secs(20),
            body_rate: 1024,
            body_rate_grace: Duration::from_secs(5),
            in_flight: 10_000,
            in_flight_wait: Duration::from_secs(2),
            streams: 100_000,
            streams_per_principal: 32,
            subscriptions: 100_000,
            subscriptions_per_principal: 2000,
            subscriptions_per_client: 500,
            batch_items: 50,
            batch_bytes: 4 << 20,
            stream_after: Duration::from_secs(5),
            keep_alive: Duration::from_secs(15),
            progress_interval: Duration::from_millis(20),
            retry: Duration::from_secs(1),
            page_cache_bytes: 64 << 20,
            state_time: Duration::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_testkit::FixedRandom;

    use super::*;

    #[test]
    fn delays_before_reconnecting_are_drawn_from_a_range() {
        let mut limits = FrontLimits::default();
        let drawn = |limits: &FrontLimits, byte| {
            let random = FixedRandom(byte);
            [limits.listening_retry(&random), limits.call_retry(&random)]
        };
        assert_eq!(drawn(&limits, 0), [1000, 1000]);
        assert_eq!(drawn(&limits, 255), [10_000, 2000]);
        let [listening, call] = drawn(&limits, 128);
        assert!((5_000..6_000).contains(&listening) && (1500..1600).contains(&call));
        limits.retry = Duration::MAX;
        assert_eq!(drawn(&limits, 255), [u64::MAX, u64::MAX]);
        limits.retry = Duration::ZERO;
        assert_eq!(drawn(&limits, 255), [0, 0]);
    }
}
