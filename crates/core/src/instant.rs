//! Times in messages and records: RFC 3339 in UTC, to the millisecond, or a number of milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// `2026-08-01T12:00:00.123Z`. Times before 1970 are written as its beginning, times after the year
/// 9999 as its end.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let time = Timestamp::try_from(time.max(UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// Milliseconds since 1970; a time before that is its beginning.
#[must_use]
pub fn unix_millis(time: SystemTime) -> u64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Whole milliseconds.
#[must_use]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_785_542_399_999, "2026-07-31T23:59:59.999Z"),
            (1_785_542_400_001, "2026-08-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_207_199_000, "9999-12-30T21:59:59.000Z"),
        ] {
            assert_eq!(
                rfc3339(UNIX_EPOCH + Duration::from_millis(millis)),
                expected
            );
        }
    }
}
