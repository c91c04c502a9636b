//! The form of a date with a time.

/// True for a date with a time and an offset (RFC 3339), without leap seconds: the form that clients
/// accept for `lastModified`.
pub(super) fn is_timestamp(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else {
        return false;
    };
    let Some(zone) = time.find(['Z', '+', '-']) else {
        return false;
    };
    let (time, zone) = time.split_at(zone);
    is_date(date) && is_time(time) && (zone == "Z" || is_clock(&zone[1..]))
}

fn is_date(date: &str) -> bool {
    let parts: Vec<&str> = date.split('-').collect();
    let &[year, month, day] = parts.as_slice() else {
        return false;
    };
    let (Some(year), Some(month), Some(day)) = (digits(year, 4), digits(month, 2), digits(day, 2))
    else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// True for a time of day, to the second or a part of it.
fn is_time(time: &str) -> bool {
    let (whole, fraction) = match time.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (time, None),
    };
    let is_fraction =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    whole.rsplit_once(':').is_some_and(|(clock, second)| {
        is_clock(clock) && digits(second, 2).is_some_and(|second| second < 60)
    }) && fraction.is_none_or(is_fraction)
}

/// True for hours and minutes.
fn is_clock(clock: &str) -> bool {
    let parts = clock.split_once(':');
    let parts = parts.and_then(|(hour, minute)| Some((digits(hour, 2)?, digits(minute, 2)?)));
    parts.is_some_and(|(hour, minute)| hour < 24 && minute < 60)
}

/// The number that this many digits write.
fn digits(text: &str, count: usize) -> Option<u32> {
    let is_digits = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dates_with_a_time_and_an_offset_are_timestamps() {
        for good in [
            "2025-01-12T15:00:58Z",
            "2024-02-29T23:59:59.123456+05:30",
            "2025-01-12T15:00:58-11:00",
        ] {
            assert!(is_timestamp(good), "{good}");
        }
        for bad in [
            "",
            "2025-01-12",
            "2025-01-12T15:00:58",
            "2025-01-12 15:00:58Z",
            "2025-02-29T15:00:58Z",
            "2025-13-01T15:00:58Z",
            "2025-01-00T15:00:58Z",
            "2025-01-12T24:00:00Z",
            "2025-01-12T15:00:60Z",
            "2025-01-12T15:00:58.Z",
            "2025-01-12T15:00Z",
            "2025-01-12T15:00.5Z",
            "2025-01-12T1:00:58Z",
            "2025-01-12T00:15:00:58Z",
            "2025-01-12T15:00:58+0530",
            "2025-01-12T15:00:58Zx",
            "2025-1-12T15:00:58Z",
            "2025-01-12Té5:00Z",
            "yesterday",
        ] {
            assert!(!is_timestamp(bad), "{bad}");
        }
    }
}
