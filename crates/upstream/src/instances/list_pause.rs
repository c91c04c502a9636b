//! The pause of an instance that answered a request for its lists with 429 or 503. Sans-IO: the time
//! is an argument.

use std::time::Duration;

use crate::breaker::TimeMark;

/// The time in which the other instances are asked for the lists first, and the longest time in
/// which this one is not asked at all. If the others fail, the known lists must not expire because
/// one instance asked for a long pause.
const PAUSE: Duration = Duration::from_secs(60);

/// The pause of one instance.
#[derive(Debug, Default)]
pub(crate) struct ListPause {
    until: TimeMark,
    /// The end of the pause that the instance asked for itself.
    requested_until: TimeMark,
}

impl ListPause {
    /// Begins at `now`. The instance asked for this pause (`Retry-After`), if for any.
    pub(crate) fn begin(&self, now: Duration, requested: Option<Duration>) {
        self.until.set(now + PAUSE);
        self.requested_until
            .set(now + requested.unwrap_or_default().min(PAUSE));
    }

    /// Ends at `now`: the instance gives its lists again.
    pub(crate) fn end(&self, now: Duration) {
        self.until.set(now);
        self.requested_until.set(now);
    }

    /// Returns the time in which other instances are asked first.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        left(&self.until, now)
    }

    /// Returns the time in which the instance is not asked, unless all of them pause.
    pub(crate) fn requested_left(&self, now: Duration) -> Duration {
        left(&self.requested_until, now)
    }
}

fn left(until: &TimeMark, now: Duration) -> Duration {
    until.get().unwrap_or_default().saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn requested_pause_is_kept_within_the_time_for_other_instances() {
        let pause = ListPause::default();
        assert_eq!(
            (pause.left(S), pause.requested_left(S)),
            (Duration::ZERO, Duration::ZERO)
        );
        pause.begin(S, Some(10 * S));
        assert_eq!(
            (pause.left(2 * S), pause.requested_left(2 * S)),
            (59 * S, 9 * S)
        );
        pause.begin(S, None);
        assert_eq!(
            (pause.left(S), pause.requested_left(S)),
            (PAUSE, Duration::ZERO)
        );
        pause.begin(S, Some(Duration::MAX));
        assert_eq!(pause.requested_left(S), PAUSE);
        assert_eq!(pause.left(61 * S), Duration::ZERO);
        pause.end(2 * S);
        assert_eq!(
            (pause.left(2 * S), pause.requested_left(2 * S)),
            (Duration::ZERO, Duration::ZERO)
        );
    }
}
