//! The time limits of a call.

use std::time::Duration;

/// The time limits of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDeadlines {
    /// To get a connection.
    pub connect: Duration,
    /// Between two signs of life: bytes of an answer, progress, log messages. Comments of SSE do
    /// not count.
    pub idle: Duration,
    /// Altogether, even with progress.
    pub hard: Duration,
    /// The silence that the upstream's own limits allow, if the limits of an endpoint are shorter;
    /// else absent.
    pub own_silence: Option<Duration>,
}

impl CallDeadlines {
    /// For `tools/call`: tools may be slow as long as they show life.
    pub const CALL: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(300),
        hard: Duration::from_secs(3600),
        own_silence: None,
    };
    /// For requests about tasks and, unless the operator configures others, for lists and probes.
    pub const LIST: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(10),
        hard: Duration::from_secs(10),
        own_silence: None,
    };
}

impl CallDeadlines {
    /// The silence that shows that the server hangs. The limits of an endpoint end its calls earlier
    /// and do not change it: they are a wish of its clients, and say nothing of the server.
    #[must_use]
    pub fn silence(self) -> Duration {
        self.own_silence.unwrap_or(self.idle.min(self.hard))
    }

    /// The upstream's limits, cut by those of an endpoint: each limit the shorter of both.
    #[must_use]
    pub fn cut(self, other: Self) -> Self {
        Self {
            own_silence: Some(self.silence()),
            connect: self.connect.min(other.connect),
            idle: self.idle.min(other.idle),
            hard: self.hard.min(other.hard),
        }
    }
}
