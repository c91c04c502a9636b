//! The load of one instance. The latency estimate is a peak-sensitive, exponentially weighted moving average
//! (PeakEwma), as in Finagle, linkerd and tower. Sans-IO: the time is an argument.
//!
//! A slower answer counts at once and in full; faster ones lower the estimate gradually. An
//! estimate without new answers fades, so that a slow instance is tried again.

use std::time::Duration;

/// The time in which an old value loses 63 % of its weight.
const DECAY: Duration = Duration::from_secs(10);

/// The estimate of one instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakEwma {
    /// In seconds, as of `updated_at`; absent before the first answer.
    seconds: Option<f64>,
    updated_at: Duration,
}

/// The number of the recent calls of one instance: each call counts less the older it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentCalls {
    count: f64,
    updated_at: Duration,
}

impl RecentCalls {
    /// Counts a call that began at `now`.
    pub(crate) fn count_call(&mut self, now: Duration) {
        self.count = self.at(now) + 1.0;
        self.updated_at = now;
    }

    /// Returns the number at `now`.
    pub(crate) fn at(&self, now: Duration) -> f64 {
        self.count * decay_factor(self.updated_at, now)
    }
}

impl PeakEwma {
    /// Adds the latency of an answer that came at `now`.
    pub(crate) fn record(&mut self, latency: Duration, now: Duration) {
        let latency = latency.as_secs_f64();
        self.seconds = Some(match self.seconds {
            Some(before) if before > latency => {
                let kept = decay_factor(self.updated_at, now);
                before * kept + latency * (1.0 - kept)
            }
            _ => latency,
        });
        self.updated_at = now;
    }

    /// Adds a call that was given up at `now` without an answer: its latency is at least `waited`.
    pub(crate) fn record_at_least(&mut self, waited: Duration, now: Duration) {
        if self.estimate(now).is_some_and(|known| waited > known) {
            self.record(waited, now);
        }
    }

    /// Returns the estimate at `now`; absent before the first answer.
    pub(crate) fn estimate(&self, now: Duration) -> Option<Duration> {
        let seconds = self.seconds? * decay_factor(self.updated_at, now);
        Some(Duration::from_secs_f64(seconds))
    }
}

/// Returns the part of an old value that is left at `now`.
fn decay_factor(updated_at: Duration, now: Duration) -> f64 {
    let age = now.saturating_sub(updated_at);
    (-age.as_secs_f64() / DECAY.as_secs_f64()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

    fn estimate(latency: &PeakEwma, now: Duration) -> u128 {
        latency
            .estimate(now)
            .map_or(0, |known| known.as_micros().div_ceil(1000))
    }

    #[test]
    fn peaks_count_at_once_and_fade() {
        let mut latency = PeakEwma::default();
        assert!(latency.estimate(S).is_none());
        latency.record(10 * MS, S);
        latency.record(200 * MS, S);
        assert_eq!(estimate(&latency, S), 200, "a peak counts in full");
        latency.record(10 * MS, S + 100 * MS);
        assert!((195..=200).contains(&estimate(&latency, S + 100 * MS)));
        assert!((70..=74).contains(&estimate(&latency, 11 * S)), "e^-1");
        assert!(estimate(&latency, 61 * S) < 2, "it is forgotten");
    }

    #[test]
    fn recent_calls_are_forgotten() {
        let mut recent = RecentCalls::default();
        (0..100).for_each(|_| recent.count_call(S));
        assert!((99.0..=100.0).contains(&recent.at(S)));
        assert!((36.0..37.0).contains(&recent.at(11 * S)));
        recent.count_call(101 * S);
        assert!((1.0..1.1).contains(&recent.at(101 * S)));
    }

    #[test]
    fn call_without_an_answer_only_raises_the_estimate() {
        let mut latency = PeakEwma::default();
        latency.record_at_least(S, S);
        assert!(latency.estimate(S).is_none(), "nothing is known yet");
        latency.record(100 * MS, S);
        latency.record_at_least(10 * MS, S);
        assert_eq!(estimate(&latency, S), 100);
        latency.record_at_least(3 * S, S);
        assert_eq!(estimate(&latency, S), 3000);
    }
}
