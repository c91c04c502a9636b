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
}

impl CallDeadlines {
    /// For `tools/call`: tools may be slow as long as they show life.
    pub const CALL: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(300),
        hard: Duration::from_secs(3600),
    };
    /// For requests about tasks and, unless the operator configures others, for lists and probes.
    pub const LIST: Self = Self {
        connect: Duration::from_secs(2),
        idle: Duration::from_secs(10),
        hard: Duration::from_secs(10),
    };
}

impl CallDeadlines {
    /// Each limit the shorter of both.
    #[must_use]
    pub fn cut(self, other: Self) -> Self {
        Self {
            connect: self.connect.min(other.connect),
            idle: self.idle.min(other.idle),
            hard: self.hard.min(other.hard),
        }
    }
}
