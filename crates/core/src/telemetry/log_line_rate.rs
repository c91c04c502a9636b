//! The bound of one kind of log line.

use std::time::Duration;

use parking_lot::Mutex;

/// The bound of one kind of log line: [`LogLineRate::LINES`] a second. Further lines of the same
/// second are counted, for one line with the number left out.
#[derive(Debug, Default)]
pub struct LogLineRate(Mutex<RateWindow>);

#[derive(Debug, Default)]
struct RateWindow {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl LogLineRate {
    /// Lines of one kind in a second.
    pub const LINES: u32 = 100;

    /// Returns `true` if a line may be written at `now`, a time on any clock that does not go back;
    /// counts it otherwise.
    pub fn admit(&self, now: Duration) -> bool {
        let mut window = self.0.lock();
        if window.second != now.as_secs() {
            (window.second, window.lines) = (now.as_secs(), 0);
        }
        let admitted = window.lines < Self::LINES;
        if admitted {
            window.lines += 1;
        } else {
            window.left_out += 1;
        }
        admitted
    }

    /// Returns the lines left out, once the second of the last of them is over; they are counted
    /// from zero again then.
    pub fn take_left_out(&self, now: Duration) -> Option<u64> {
        let mut window = self.0.lock();
        let is_full = window.second == now.as_secs() && window.lines >= Self::LINES;
        if is_full || window.left_out == 0 {
            return None;
        }
        Some(std::mem::take(&mut window.left_out))
    }

    /// Returns `true` if lines were left out that are still to be taken.
    #[must_use]
    pub fn has_left_out(&self) -> bool {
        self.0.lock().left_out > 0
    }

    /// Returns the lines left out so far; they are counted from zero again.
    pub fn take_all_left_out(&self) -> u64 {
        std::mem::take(&mut self.0.lock().left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves E22.
    #[test]
    fn a_hundred_lines_a_second_pass_and_the_others_are_counted_once() {
        let rate = LogLineRate::default();
        let at = |millis| Duration::from_millis(millis);
        assert_eq!(
            (0..1000).filter(|n| rate.admit(at(5000 + n / 2))).count(),
            100
        );
        assert_eq!(rate.take_left_out(at(5999)), None, "the second is not over");
        assert_eq!(rate.take_left_out(at(6000)), Some(900));
        assert_eq!(rate.take_left_out(at(6000)), None);
        assert_eq!((0..150).filter(|_| rate.admit(at(6001))).count(), 100);
        assert!(rate.admit(at(9000)), "a later second");
        assert_eq!(rate.take_left_out(at(9000)), Some(50));
        assert_eq!(rate.take_all_left_out(), 0);
    }
}
