//! The local time of day, for people at a terminal: in the time zone of `TZ`, or of the machine.

use std::time::SystemTime;

use jiff::{Timestamp, tz};

/// A time zone.
#[derive(Clone, Debug)]
pub struct TimeZone(tz::TimeZone);

impl TimeZone {
    /// Returns the zone of this process; UTC if it is unknown.
    pub fn own() -> Self {
        Self(tz::TimeZone::try_system().unwrap_or(tz::TimeZone::UTC))
    }

    /// Returns the time of day, such as `09:05:00`.
    pub fn time_of_day(&self, time: SystemTime) -> String {
        let time = Timestamp::try_from(time).unwrap_or_default();
        let local = time.to_zoned_datetime(self.0.clone());
        local.strftime("%H:%M:%S").to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_time_of_day_follows_the_rule_of_the_zone() {
        let zone = TimeZone(tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        // 2026-07-01 and 2026-12-01.
        for (unix, text) in [
            (0, "01:00:00"),
            (1_782_864_000, "02:00:00"),
            (1_796_083_205, "01:00:05"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(unix);
            assert_eq!(zone.time_of_day(time), text);
        }
    }
}
