//! `limits:` as they are written. What each defends against stands at its default.

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::{Size, Time};

macro_rules! limits {
    ($($(#[doc = $about:literal])+ $name:ident: $kind:ty),* $(,)?) => {
        /// What clients may cost.
        #[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct RawLimits {
            $($(#[doc = $about])+ pub(crate) $name: Option<$kind>,)*
        }
    };
}

limits! {
    /// Memory of the process. From 92% of it connections are not kept, from 95% new requests get
    /// 503. Default: what the process's control group may use, if that is bounded.
    memory: Size,
    /// Connections waiting to be accepted. Default 4096.
    backlog: u32,
    /// Open connections. Default 18000.
    connections: usize,
    /// Open connections of one address (of a /64 network with IPv6); loopback is exempt. Default
    /// 256.
    connections_per_address: usize,
    /// TLS handshakes at the same time. Default 512.
    handshakes: usize,
    /// Time for a TLS handshake. Default `5s`.
    handshake_time: Time,
    /// Time for a request head. Default `10s`.
    head_time: Time,
    /// Size of a request head. Default `32KiB`.
    head_bytes: Size,
    /// Header lines of a request. Default 100.
    headers: usize,
    /// Size of a request body. Default `1MiB`, at most `4MiB`.
    body_bytes: Size,
    /// Time for a request body. Default `20s`.
    body_time: Time,
    /// Bytes a second a slow body must keep up. Default `1KiB`.
    body_rate: Size,
    /// How long a body may be slower than that. Default `5s`.
    body_rate_grace: Time,
    /// How long a connection may stay without a request. Default `2m`.
    idle_time: Time,
    /// Time between TCP keep-alive probes. Default `15s`.
    tcp_keepalive: Time,
    /// How long sent bytes may stay unacknowledged. Default `30s`.
    tcp_user_timeout: Time,
    /// HTTP/2 streams of a connection. Default 100.
    h2_streams: u32,
    /// HTTP/2 window of a stream. Default `64KiB`.
    h2_stream_window: Size,
    /// HTTP/2 window of a connection. Default `1MiB`.
    h2_connection_window: Size,
    /// Buffered answer of an HTTP/2 stream. Default `32KiB`.
    h2_send_buffer: Size,
    /// Time between HTTP/2 pings. Default `20s`.
    h2_ping: Time,
    /// How long an HTTP/2 ping may stay unanswered. Default `10s`.
    h2_ping_timeout: Time,
    /// Age at which an HTTP/2 connection is told to go; 60 seconds later it is closed. Default
    /// `1h`.
    h2_age: Time,
    /// Memory for results of more than 64KiB that are held because their server has not said yet
    /// whose answer they are or of which type, and for structured content that a client's revision
    /// cannot carry until it is known what is said of it in words. Where it is used up servers are
    /// not read on, and such content is left out, with a text that says so; one server has at most
    /// half of it. Default `64MiB`.
    hold: Size,
    /// The same of one call. What is larger goes on unjudged only as the answer to its own POST,
    /// and is broken off before its last byte where it turns out to be another's or no result; a
    /// result that is checked (`validation.output: enforce`) is refused. Structured content that is
    /// larger is not repeated as text. Default `4MiB`.
    hold_per_call: Size,
    /// Requests at the same time whose answer has not begun; more wait, and then get 503. What a
    /// client has still to read does not count. Default 10000.
    in_flight: usize,
    /// How long a request waits for its turn: one beyond `in_flight`, or one that the processor has
    /// no time for. `0s` refuses one beyond `in_flight` at once, and has the others wait for
    /// nothing. Default `2s`.
    in_flight_wait: Time,
    /// Open streams for changes. Default 100000.
    streams: usize,
    /// The same of one principal. Default 32.
    streams_per_principal: usize,
    /// Resources of whose updates clients are told, each client counted. Default 100000.
    subscriptions: usize,
    /// The same of one principal. Default 2000.
    subscriptions_per_principal: usize,
    /// The same of one session or stream. Default 500.
    subscriptions_per_client: usize,
    /// Messages of a batch. Default 50.
    batch_items: usize,
    /// Size of a batch's answer. Default `4MiB`.
    batch_bytes: Size,
    /// How long a call is silent before its answer becomes a stream. Default `5s`.
    stream_after: Time,
    /// Time between keep-alive comments on a stream. Default `15s`.
    keep_alive: Time,
    /// Time between two progress notifications of a call. Default `20ms`.
    progress_interval: Time,
    /// Sessions of older clients. Default 200000.
    sessions: usize,
    /// The same of one principal. Default 100.
    sessions_per_principal: usize,
    /// How long a session lives unused. Default `30m`.
    session_idle: Time,
    /// How long a session lives at all. Default `24h`.
    session_age: Time,
    /// Events of streams kept for clients of sessions that lose their connection. Default `128MiB`.
    replay_bytes: Size,
    /// The same of one session. 0 keeps none: then no stream can be taken up again. Default `1MiB`.
    replay_bytes_per_session: Size,
    /// How long such an event is kept. Default `5m`.
    replay_age: Time,
    /// How long a client that loses its connection is asked to wait before it comes back. Default
    /// `1s`.
    retry: Time,
    /// Calls of a session that run on without their connection. Default 32.
    detached_per_session: usize,
    /// The same altogether. Default 4096.
    detached: usize,
    /// Rendered list pages kept in memory. Default `64MiB`.
    page_cache_bytes: Size,
    /// How long a client may take to bring back a `requestState`, or to answer what it is asked.
    /// Default `10m`.
    state_time: Time,
    /// Calls that wait for input of a client of 2026-07-28 at an upstream of an older revision.
    /// Default 1000.
    parked: usize,
    /// The same of one principal. Default 16.
    parked_per_principal: usize,
    /// How long an idle connection stays open while weir drains. Default `5s`.
    drain_idle: Time,
}
