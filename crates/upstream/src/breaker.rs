//! The circuit breaker of one upstream. After some failures in a row to reach the server, calls
//! fail at once, and one call a second goes through as a probe. Sans-IO: the time is an argument.
//!
//! It counts failed connections, and connections that were lost and calls that passed their deadline
//! while the server was silent. A server that answered anything meanwhile does not hang: it is slow
//! with one call, or breaks at it. Every answer, errors of tools included, is a sign of life.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weir_upstream_core::settings::FAILURES_TO_OPEN;

/// The time between two probes while the breaker is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time without an answer in which a lost connection counts.
const SILENCE_BEFORE_LOSS: Duration = Duration::from_secs(1);

/// The breaker. A call to a healthy upstream costs it six loads, and a store at most once in a
/// millisecond.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    failures: AtomicU32,
    /// True from an attempt that did not reach the server to one that does.
    is_unreached: AtomicBool,
    /// The times that [`Self::is_unreached`] was set.
    unreached_times: AtomicU32,
    /// The lost connections that counted.
    counted_losses: AtomicU32,
    last_life: TimeMark,
    /// The time at which [`Self::is_down`] changed last.
    changed: TimeMark,
    /// The time of the next probe, while the breaker is open. Its lock is held by changes.
    next_probe: Mutex<Duration>,
}

/// What the breaker knew when an attempt began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptStart {
    unreached_times: u32,
    counted_losses: u32,
}

/// A point of time, in whole milliseconds, that threads share.
#[derive(Debug, Default)]
pub(crate) struct TimeMark(AtomicU64);

impl TimeMark {
    /// Sets the time.
    pub(crate) fn set(&self, now: Duration) {
        // Zero means that it was never set.
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1;
        if self.0.load(Ordering::Relaxed) != millis {
            self.0.store(millis, Ordering::Release);
        }
    }

    /// Returns the time; absent if it was never set.
    pub(crate) fn get(&self) -> Option<Duration> {
        let millis = self.0.load(Ordering::Acquire).checked_sub(1)?;
        Some(Duration::from_millis(millis))
    }
}

impl Breaker {
    /// Admits a call. `clock` returns the time, which only an open breaker needs.
    ///
    /// # Errors
    /// The time until the next call is let through.
    pub(crate) fn admit(&self, clock: impl FnOnce() -> Duration) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        let now = clock();
        let mut next_probe = self.next_probe.lock();
        if now < *next_probe {
            return Err(*next_probe - now);
        }
        *next_probe = now + PROBE_INTERVAL;
        Ok(())
    }

    /// Begins an attempt.
    pub(crate) fn begin(&self) -> AttemptStart {
        AttemptStart {
            unreached_times: self.unreached_times.load(Ordering::Acquire),
            counted_losses: self.counted_losses.load(Ordering::Acquire),
        }
    }

    /// Records the answer to an attempt. If it began before the server was not reached, it is
    /// answered on a connection that was open before.
    pub(crate) fn record_answer(&self, now: Duration, start: AttemptStart) {
        if self.unreached_times.load(Ordering::Acquire) == start.unreached_times {
            self.record_success(now);
        } else {
            self.record_life(now);
        }
    }

    /// Records an answer of the server.
    pub(crate) fn record_success(&self, now: Duration) {
        self.last_life.set(now);
        if self.failures.load(Ordering::Acquire) > 0 {
            self.change(now, |_| {
                self.failures.store(0, Ordering::Release);
                self.is_unreached.store(false, Ordering::Release);
            });
        }
    }

    /// Records a sign of life on a connection that was open before: of a call that runs, or of a
    /// watch. It does not show that a further connection can be opened.
    pub(crate) fn record_life(&self, now: Duration) {
        if self.is_unreached() {
            self.last_life.set(now);
        } else {
            self.record_success(now);
        }
    }

    /// Records that the server was not reached.
    pub(crate) fn record_unreached(&self, now: Duration) {
        self.change(now, |next_probe| {
            self.count_failure(now, next_probe);
            if !self.is_unreached.swap(true, Ordering::AcqRel) {
                self.unreached_times.fetch_add(1, Ordering::AcqRel);
            }
        });
    }

    /// Records that the connection of an attempt was lost before the answer, and returns if that
    /// counts. It does not while others get answers: then the server breaks at certain calls. A
    /// connection counts once, however many attempts it ends. The server was reached, so that it is
    /// not down by one of these.
    pub(crate) fn record_lost(&self, now: Duration, start: AttemptStart) -> bool {
        let last_life = self.last_life.get();
        if last_life.is_some_and(|last| now.saturating_sub(last) < SILENCE_BEFORE_LOSS) {
            return false;
        }
        let mut counts = false;
        self.change(now, |next_probe| {
            counts = self.counted_losses.load(Ordering::Acquire) == start.counted_losses;
            if counts {
                self.counted_losses.fetch_add(1, Ordering::AcqRel);
                self.count_failure(now, next_probe);
            }
        });
        counts
    }

    /// Records that a call passed its deadline after this `silence`, and returns if that counts: if
    /// the server showed no life at all for the time `limit`.
    pub(crate) fn record_silence(&self, now: Duration, silence: Duration, limit: Duration) -> bool {
        let of_server = self.last_life.get().map(|last| now.saturating_sub(last));
        let counts = of_server.map_or(silence, |own| own.min(silence)) >= limit;
        if counts {
            self.change(now, |next_probe| self.count_failure(now, next_probe));
        }
        counts
    }

    fn count_failure(&self, now: Duration, next_probe: &mut Duration) {
        *next_probe = now + PROBE_INTERVAL;
        self.failures.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes a change, and notes its time if the server is down or up by it.
    fn change(&self, now: Duration, change: impl FnOnce(&mut Duration)) {
        let mut next_probe = self.next_probe.lock();
        let was_down = self.is_down();
        change(&mut next_probe);
        if self.is_down() != was_down {
            self.changed.set(now);
        }
    }

    /// True while the breaker is open and calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.failures.load(Ordering::Acquire) >= FAILURES_TO_OPEN
    }

    /// True while the breaker is open, or the server was not reached.
    pub(crate) fn is_down(&self) -> bool {
        self.is_open() || self.is_unreached()
    }

    /// True if an attempt did not reach the server, and none did since.
    pub(crate) fn is_unreached(&self) -> bool {
        self.is_unreached.load(Ordering::Acquire)
    }

    /// Returns the time at which [`Self::is_down`] changed last.
    pub(crate) fn changed(&self) -> Option<Duration> {
        self.changed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(60);

    // Proves E03.
    #[test]
    fn opens_after_five_failures_in_a_row_and_probes_once_a_second() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            breaker.record_unreached(S);
        }
        assert_eq!(breaker.admit(|| S), Ok(()));
        breaker.record_success(S);
        for _ in 0..5 {
            assert!(!breaker.is_open());
            breaker.record_unreached(S);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(|| S), Err(S));
        assert_eq!(breaker.admit(|| S + S / 2), Err(S / 2));
        assert_eq!(breaker.admit(|| 2 * S), Ok(()), "one goes through");
        assert_eq!(breaker.admit(|| 2 * S), Err(S), "and no second one");
        breaker.record_success(2 * S);
        assert_eq!(breaker.admit(|| 2 * S), Ok(()));
    }

    // Proves E03.
    #[test]
    fn opens_after_five_calls_that_a_silent_server_left_unanswered() {
        let breaker = Breaker::default();
        breaker.record_success(S);
        for nth in 0..5 {
            assert!(!breaker.is_down(), "{nth}: it may be slow");
            assert!(breaker.record_silence(S + LIMIT, LIMIT, LIMIT));
        }
        assert!(breaker.is_open() && breaker.is_down());
        assert_eq!(breaker.changed(), Some(S + LIMIT));
        breaker.record_life(2 * LIMIT);
        assert!(!breaker.is_down(), "it shows life");
        assert_eq!(breaker.changed(), Some(2 * LIMIT));
    }

    // Proves E03.
    #[test]
    fn opens_after_five_lost_connections_in_a_row() {
        let breaker = Breaker::default();
        for nth in 0..5 {
            assert!(!breaker.is_down(), "{nth}: it was reached");
            assert!(breaker.record_lost(S, breaker.begin()));
        }
        assert!(breaker.is_open());
    }

    #[test]
    fn lost_connection_counts_once_and_not_while_the_server_answers() {
        let breaker = Breaker::default();
        let beside = breaker.begin();
        assert!(breaker.record_lost(S, beside));
        for _ in 0..10 {
            assert!(!breaker.record_lost(S, beside), "of the same connection");
        }
        breaker.record_success(2 * S);
        for _ in 0..10 {
            assert!(!breaker.record_lost(2 * S, breaker.begin()), "others live");
        }
        assert!(breaker.record_lost(3 * S, breaker.begin()));
        assert!(!breaker.is_down());
    }

    #[test]
    fn no_failure_on_an_old_connection_makes_an_unreached_server_up() {
        let breaker = Breaker::default();
        let early = breaker.begin();
        breaker.record_unreached(S);
        assert!(breaker.record_lost(2 * S, early));
        assert!(breaker.record_silence(2 * LIMIT, LIMIT, LIMIT));
        assert!(breaker.is_down() && !breaker.is_open());
    }

    #[test]
    fn answer_to_an_attempt_from_before_the_loss_does_not_make_the_server_up() {
        let breaker = Breaker::default();
        let early = breaker.begin();
        breaker.record_answer(S, early);
        breaker.record_unreached(S);
        breaker.record_unreached(2 * S);
        let probe = breaker.begin();
        breaker.record_answer(3 * S, early);
        assert!(breaker.is_down(), "on a connection that was open before");
        breaker.record_answer(4 * S, probe);
        assert!(!breaker.is_down());
        breaker.record_answer(5 * S, early);
        breaker.record_unreached(6 * S);
        breaker.record_answer(7 * S, probe);
        assert!(breaker.is_down());
    }

    #[test]
    fn passed_deadline_counts_only_if_the_server_was_silent_for_its_own_limit() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            // The deadline of an endpoint is shorter than that of the upstream.
            assert!(!breaker.record_silence(LIMIT, LIMIT - S, LIMIT));
        }
        breaker.record_life(S);
        for _ in 0..10 {
            assert!(!breaker.record_silence(LIMIT, LIMIT, LIMIT), "it answered");
        }
        for _ in 0..4 {
            assert!(breaker.record_silence(S + LIMIT, LIMIT, LIMIT));
        }
        breaker.record_life(S + LIMIT);
        assert!(breaker.record_silence(S + 2 * LIMIT, LIMIT, LIMIT));
        assert!(!breaker.is_down(), "not in a row");
    }

    #[test]
    fn server_is_down_from_the_attempt_that_did_not_reach_it_to_the_next_answer() {
        let breaker = Breaker::default();
        assert_eq!((breaker.is_down(), breaker.changed()), (false, None));
        breaker.record_unreached(S);
        breaker.record_unreached(2 * S);
        breaker.record_life(3 * S);
        assert!(breaker.is_down(), "an open stream lives on");
        assert_eq!(breaker.changed(), Some(S));
        breaker.record_success(4 * S);
        breaker.record_success(5 * S);
        assert_eq!((breaker.is_down(), breaker.changed()), (false, Some(4 * S)));
    }
}
