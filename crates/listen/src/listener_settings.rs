//! Settings of the listener: its limits and the files of its certificates, already checked.

use std::path::PathBuf;
use std::time::Duration;

/// Connections of other replicas at once.
const REPLICA_CONNECTIONS: usize = 4096;
/// Requests of clients at once over the connection of one replica.
const REPLICA_STREAMS: u32 = 10_000;
/// Bytes of answers that wait for the clients of one replica. The memory budgets bound them: a bound
/// here would let the clients that read slowly stop the calls of all others.
const REPLICA_WAITING_BYTES: usize = u32::MAX as usize;
/// The age of a connection of a replica: in effect without end. Pings find a dead one.
const REPLICA_CONNECTION_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

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

/// Limits of the listener, its connections and the heads of requests. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections waiting to be accepted.
    pub backlog: u32,
    /// Open connections. The process has 20,000 files; upstreams, logs and the admin listener need
    /// the rest.
    pub connections: usize,
    /// Open connections of one address; loopback and trusted proxies are exempt.
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
    /// During a drain: the time that an idle connection stays open, so that a request in flight to
    /// it is not lost.
    pub drain_idle: Duration,
}

impl Default for ListenerLimits {
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
            idle_time: Duration::from_secs(120),
            stall_time: Duration::from_secs(30),
            tcp_keepalive: Duration::from_secs(15),
            tcp_user_timeout: Duration::from_secs(30),
            h2: H2Limits::default(),
            drain_idle: Duration::from_secs(5),
        }
    }
}

impl ListenerLimits {
    /// The limits of the cluster listener, beside the public listener with the limits `public`. Its
    /// peers are replicas: a connection has the requests of many clients, and one of them must not
    /// end or block it for the others.
    #[must_use]
    pub fn for_replicas(public: &Self) -> Self {
        Self {
            connections: REPLICA_CONNECTIONS,
            connections_per_address: REPLICA_CONNECTIONS,
            // Room for the client's certificate beside its own headers.
            head_bytes: public.head_bytes * 2 + (64 << 10),
            idle_time: REPLICA_CONNECTION_AGE,
            // The replica that has the client's connection is the first to notice a stalled client.
            stall_time: public.stall_time * 2,
            tcp_keepalive: Duration::from_secs(5),
            tcp_user_timeout: Duration::from_secs(10),
            h2: H2Limits {
                streams: REPLICA_STREAMS,
                stream_window: 1 << 20,
                connection_window: 16 << 20,
                ping: Duration::from_secs(5),
                ping_timeout: Duration::from_secs(5),
                age: REPLICA_CONNECTION_AGE,
                waiting_bytes: REPLICA_WAITING_BYTES,
                pause_bytes: REPLICA_WAITING_BYTES,
                is_flood_limited: false,
                ..public.h2.clone()
            },
            ..public.clone()
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
    /// The time that its streams have after that. Listening streams end at once. Calls run on: their
    /// own time limits are shorter, and an answer that its client does not read ends earlier.
    pub last_streams: Duration,
    /// The most bytes of answers that wait for the peer of one connection.
    pub waiting_bytes: usize,
    /// The waiting bytes from which on no further request begins and no further result is read.
    pub pause_bytes: usize,
    /// True if a peer that sends too many frames without data, or resets too many streams, gets
    /// GOAWAY.
    pub is_flood_limited: bool,
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
            last_streams: Duration::from_secs(24 * 3600),
            waiting_bytes: 4 << 20,
            pause_bytes: 1 << 20,
            is_flood_limited: true,
        }
    }
}
