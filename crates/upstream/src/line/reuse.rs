//! The unused connections to one server, and how far they can be relied on.
//!
//! A server may close a connection after any answer without saying so before. A request that is
//! written in that moment is lost, and may have run: it cannot be sent again. So the first
//! connection of a server is watched for a moment before it is used again, and once a request was
//! lost on a kept connection, for a while only those are used that have rested for longer.

use std::time::Duration;

use tokio::time::Instant;

use super::many::Many;
use super::turn::Line;
use super::{IDLE, MOST_IDLE};

/// How long an unused connection stays open before its server counts as one that keeps connections.
pub(super) const TRIAL: Duration = Duration::from_millis(20);
/// How long a connection rests before it is used again, after a request was lost on another.
const REST: Duration = Duration::from_secs(1);
/// How long that is so after each loss.
const CAUTION: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Idle {
    /// The least recently used first.
    pub(super) lines: Vec<(Line, Instant)>,
    pub(super) many: Option<(Many, Instant)>,
    pub(super) is_swept: bool,
    /// An unused connection of the server was found open after [`TRIAL`].
    is_proven: bool,
    /// A request was lost on a kept connection.
    lost_at: Option<Instant>,
}

/// An unused connection, and how long it has rested.
pub(super) struct Rested {
    pub(super) line: Line,
    pub(super) rest: Duration,
    /// How much longer it is to be watched before it is used.
    pub(super) watch: Option<Duration>,
}

impl Idle {
    /// Takes out the connection to use next.
    pub(super) fn take(&mut self, now: Instant) -> Option<Rested> {
        let is_cautious = self
            .lost_at
            .is_some_and(|lost| now.duration_since(lost) < CAUTION);
        let (line, since) = if is_cautious {
            let is_rested = self
                .lines
                .first()
                .is_some_and(|(_, since)| now.duration_since(*since) >= REST);
            is_rested.then(|| self.lines.remove(0))?
        } else {
            self.lines.pop()?
        };
        let rest = now.duration_since(since);
        let watch = if self.is_proven {
            None
        } else {
            TRIAL.checked_sub(rest).filter(|watch| !watch.is_zero())
        };
        Some(Rested { line, rest, watch })
    }

    /// Takes a connection back.
    pub(super) fn put(&mut self, line: Line) {
        if self.lines.len() < MOST_IDLE {
            self.lines.push((line, Instant::now()));
        }
    }

    /// Notes how an unused connection was found after `rest`.
    pub(super) fn found(&mut self, is_quiet: bool, rest: Duration) {
        if is_quiet {
            self.is_proven |= rest >= TRIAL;
        } else if rest < TRIAL {
            self.is_proven = false;
        }
    }

    /// Notes that a request was lost on a kept connection.
    pub(super) fn lost(&mut self) {
        self.is_proven = false;
        self.lost_at = Some(Instant::now());
    }

    /// Closes what was not used for long. True if nothing is left.
    pub(super) fn prune(&mut self, now: Instant) -> bool {
        self.lines
            .retain(|(_, since)| now.duration_since(*since) < IDLE);
        self.many
            .take_if(|(many, used)| !many.is_open() || now.duration_since(*used) >= IDLE);
        self.lines.is_empty() && self.many.is_none()
    }
}
