//! Times in messages and records: RFC 3339 in UTC, to the millisecond, or milliseconds of the Unix
//! epoch.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-08-01T12:00:00.123Z`. Times before 1970 are written as its beginning.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (since.as_secs(), since.subsec_millis());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Milliseconds since 1970; a time before that is its beginning.
#[must_use]
pub fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The date that is so many days after 1970-01-01, in the proleptic Gregorian calendar. Years are
/// counted from March, so that the leap day is a year's last one.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From 0000-03-01.
    let days = days + 719_468;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_dates() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_785_542_399_999, "2026-07-31T23:59:59.999Z"),
            (1_785_542_400_001, "2026-08-01T00:00:00.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(
                rfc3339(UNIX_EPOCH + Duration::from_millis(millis)),
                expected
            );
        }
    }
}
