//! `limits:` as written in the file. Each default's comment names the attack that it bounds.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::raw::{Size, Time};

macro_rules! limits {
    ($($(#[doc = $about:literal])+ $name:ident: $kind:ty),* $(,)?) => {
        /// Limits on the resources that clients may use.
        #[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct RawLimits {
            $($(#[doc = $about])+ pub $name: Option<$kind>,)*
        }
    };
}

limits! {
    /// Memory of the process. From 92% of it connections are not kept, from 95% new requests get
    /// 503. Default: nine tenths of the limit of the process's control group, if it has one.
    memory: Size,
    /// Connections waiting to be accepted. Default 4096.
    backlog: u32,
    /// Open connections. Default 18000.
    connections: usize,
    /// Open connections of one address (of a /64 network with IPv6); loopback and
    /// `trusted_proxies` are exempt. Default 256.
    connections_per_address: usize,
    /// TLS handshakes at the same time. Default 512.
    handshakes: usize,
    /// Time for a TLS handshake. Default `5s`.
    handshake_time: Time,
    /// Time for a request head. Default `10s`.
    head_time: Time,
    /// Size of a request head. Default `32KiB`.
    head_bytes: Size,
    /// Header lines of a request. Default 100, at most 10000.
    headers: usize,
    /// Size of a request body. Default `1MiB`, at most `4MiB`.
    body_bytes: Size,
    /// Time for a request body. Default `20s`.
    body_time: Time,
    /// Bytes a second a slow body must keep up. Default `1KiB`.
    body_rate: Size,
    /// The time that a body may be slower than `body_rate`. Default `5s`.
    body_rate_grace: Time,
    /// The time that a connection may stay open without a request. Default `2m`.
    idle_time: Time,
    /// Time between TCP keep-alive probes. Default `15s`.
    tcp_keepalive: Time,
    /// The time that sent bytes may stay unacknowledged. Default `30s`.
    tcp_user_timeout: Time,
    /// HTTP/2 streams of a connection. Default 100.
    h2_streams: u32,
    /// HTTP/2 window of a stream. Default `64KiB`.
    h2_stream_window: Size,
    /// HTTP/2 window of a connection. Default `1MiB`.
    h2_connection_window: Size,
    /// Buffered response bytes of an HTTP/2 stream. Default `32KiB`, at most `1GiB`.
    h2_send_buffer: Size,
    /// Time between HTTP/2 pings. Default `20s`.
    h2_ping: Time,
    /// The time that an HTTP/2 ping may stay unanswered. Default `10s`.
    h2_ping_timeout: Time,
    /// Age at which an HTTP/2 connection gets GOAWAY; it is closed once its calls have ended. Default `1h`.
    h2_age: Time,
    /// Memory for results that are held before they are forwarded. Two kinds are held: results of
    /// more than 64KiB whose request id or type the upstream has not sent yet, and structured
    /// content that the client's revision cannot carry until the text content is known. If the
    /// memory is used up, weir stops reading from upstreams, and leaves out such content with a
    /// text in its place. One upstream has at most half of it. Default `64MiB`.
    hold: Size,
    /// The same for one call. A larger result is forwarded unchecked only as the response to its
    /// own POST, and is aborted before its last byte if it belongs to another request or is no
    /// result. A result that is checked (`validation.output: enforce`) is refused. Larger
    /// structured content is not repeated as text. Default `4MiB`.
    hold_per_call: Size,
    /// Requests at the same time whose response has not begun. More wait, and then get 503. A
    /// response that the client is still reading does not count. Default 10000.
    in_flight: usize,
    /// The time that a request waits for admission, beyond `in_flight` or while the processor is
    /// overloaded. With `0s` a request beyond `in_flight` is refused at once, and the others do not
    /// wait. Default `2s`.
    in_flight_wait: Time,
    /// Open subscription streams. Default 100000.
    streams: usize,
    /// The same for one principal. An HTTP+SSE connection is one stream. Default 32.
    streams_per_principal: usize,
    /// Resource subscriptions, counted for each client. Default 100000.
    subscriptions: usize,
    /// The same for one principal. Default 2000.
    subscriptions_per_principal: usize,
    /// The same for one session or stream. Default 500.
    subscriptions_per_client: usize,
    /// Messages of a batch. Default 50.
    batch_items: usize,
    /// Size of the response to a batch. Default `4MiB`.
    batch_bytes: Size,
    /// The time that a call may be silent before its response becomes a stream. Default `5s`.
    stream_after: Time,
    /// Time between keep-alive comments on a stream. Default `15s`.
    keep_alive: Time,
    /// Time between two progress notifications of a call. Default `20ms`.
    progress_interval: Time,
    /// Sessions of legacy clients. Default 200000.
    sessions: usize,
    /// The same for one principal. Default 100.
    sessions_per_principal: usize,
    /// The time that an unused session lives. A session is in use while it has an open GET stream or
    /// HTTP+SSE connection, or its client waits for a call. Default `30m`.
    session_idle: Time,
    /// The longest life of a session, also with an open stream. Default `24h`.
    session_age: Time,
    /// Stream events that are kept for sessions whose client loses its connection. Default
    /// `128MiB`.
    replay_bytes: Size,
    /// The same for one session. With 0 no events are kept, and no stream can be resumed. Default
    /// `1MiB`.
    replay_bytes_per_session: Size,
    /// The time that such an event is kept. Default `5m`.
    replay_age: Time,
    /// The least time that a client waits before it reconnects, as SSE `retry`. Each listening stream states a random time
    /// between this and ten times this, each stream of a call or of an HTTP+SSE client up to twice this. Default `1s`.
    retry: Time,
    /// Calls of one session that run on after their connection is lost. A further one is cancelled,
    /// and a client that resumes its stream gets the error that it may have run. Default 32.
    detached_per_session: usize,
    /// The same for all sessions. Default 4096.
    detached: usize,
    /// Rendered list pages kept in memory. Default `64MiB`.
    page_cache_bytes: Size,
    /// The time that a client has to return a `requestState`, or to answer a request of an
    /// upstream. Default `10m`.
    state_time: Time,
    /// Calls of clients of 2026-07-28 that wait for input at an upstream of an older revision.
    /// Default 1000.
    parked: usize,
    /// The same for one principal. Default 16.
    parked_per_principal: usize,
    /// The time that an idle connection stays open during a drain, at most half of `drain`. Default
    /// `5s`.
    drain_idle: Time,
}
