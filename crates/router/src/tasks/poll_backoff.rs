//! The backoff of a task's polls: a server that cannot be reached for a while does not lose the
//! task, so a failed poll says nothing of the task.

use std::time::Duration;

use tokio::time::Instant;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::doubled;

/// The wait after the first failed poll; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The longest wait that a server may ask for.
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(30);

/// The failed polls of one task since the last one that was answered.
#[derive(Debug, Default)]
pub struct PollBackoff {
    failures: u32,
    failing_since: Option<Instant>,
}

impl PollBackoff {
    /// Notes a poll that was answered.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Notes a poll that failed now; returns the wait before the next one.
    pub fn note_failure(&mut self, failure: &Failure) -> Duration {
        self.failing_since.get_or_insert_with(Instant::now);
        let wait = doubled(FIRST_WAIT, self.failures, MAX_WAIT);
        self.failures = self.failures.saturating_add(1);
        let requested = failure.retry_delay().unwrap_or_default();
        wait.max(requested.min(MAX_REQUESTED_WAIT))
    }

    /// The time since the first of the failures; zero if the last poll was answered.
    pub(crate) fn outage(&self) -> Duration {
        self.failing_since
            .map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// True if a request about a task failed for a reason that may pass: the server was not reached, or
/// its answer was lost.
pub(crate) fn may_pass(failure: &Failure) -> bool {
    let may_pass = matches!(
        failure.kind(),
        FailureKind::Unavailable
            | FailureKind::Busy
            | FailureKind::TimedOut
            | FailureKind::ResultUnknown
    );
    may_pass || failure.is_connection_lost()
}
