//! The settings of one upstream that its transports share. Already checked.

use std::time::Duration;

use weir_core::CapabilityClass;
use weir_core::upstream::CallDeadlines;

/// The failures in a row that open the breaker of an upstream. As many unanswered calls of one child
/// are the reason to ask it for a sign of life.
pub const FAILURES_TO_OPEN: u32 = 5;

/// The time limits of the requests that weir makes in its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnDeadlines {
    /// The limit of a page of a list, and of every other request than a probe.
    pub list: Duration,
    /// The limit of a probe: of each request that finds out the server's protocol or opens a
    /// session, and of the greeting of a server of HTTP+SSE. The limit for a process is
    /// `start` in its settings.
    pub probe: Duration,
    /// The longest wait for the head of a session's GET stream before the session is used without
    /// it.
    pub stream_head: Duration,
}

impl Default for OwnDeadlines {
    fn default() -> Self {
        Self {
            list: CallDeadlines::LIST.hard,
            probe: CallDeadlines::LIST.hard,
            stream_head: Duration::from_secs(1),
        }
    }
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
