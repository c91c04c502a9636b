//! Parses `Retry-After`: seconds or a date (RFC 9110, 10.2.3).
//!
//! Only the parts of a date that a wait needs are read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

/// The longest wait.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Returns the wait that a response asks for; absent if it has no readable one. A date is compared
/// with the server's own `Date`, so that the two clocks need not agree, or with `now` if there is
/// no `Date`.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is longer than the longest wait, too.
        return Some(
            text.parse()
                .map_or(MAX_RETRY_AFTER, Duration::from_secs)
                .min(MAX_RETRY_AFTER),
        );
    }
    let then = since_epoch(text)?;
    let said = headers
        .get(header::DATE)
        .and_then(|date| since_epoch(date.to_str().ok()?.trim()));
    let now = said.unwrap_or_else(|| {
        now.duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs())
    });
    Some(Duration::from_secs(then.saturating_sub(now)).min(MAX_RETRY_AFTER))
}

/// Returns the seconds since 1970 of an HTTP date in any of its three forms (RFC 9110, 5.6.7). The
/// day of the week is ignored.
fn since_epoch(text: &str) -> Option<u64> {
    let mut words = [""; 6];
    let mut count = 0;
    for word in text.split([' ', ',', '-']).filter(|word| !word.is_empty()) {
        *words.get_mut(count)? = word;
        count += 1;
    }
    let (day, month, year, time) = match (count, words) {
        // Sun, 06 Nov 1994 08:49:37 GMT, and Sunday, 06-Nov-94 08:49:37 GMT
        (6, [_, day, month, year, time, "GMT"]) => (day, month, year, time),
        // Sun Nov  6 08:49:37 1994
        (5, [_, month, day, time, year, _]) => (day, month, year, time),
        _ => return None,
    };
    let days = days(number(year, 4)?, month, number(day, 2)?, year.len() == 2)?;
    let mut parts = time.split(':');
    let mut part = |most: u64| number(parts.next()?, 2).filter(|value| *value <= most);
    // A leap second is a second.
    let (hours, minutes, seconds) = (part(23)?, part(59)?, part(60)?);
    parts
        .next()
        .is_none()
        .then_some(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
}

/// Parses a number of at most `most` digits.
fn number(text: &str, most: usize) -> Option<u64> {
    let digits = text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Returns the days since 1970 of a day of the Gregorian calendar.
fn days(year: u64, month: &str, day: u64, short: bool) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    const LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let year = match (short, year) {
        (true, 70..) => 1900 + year,
        (true, _) => 2000 + year,
        (false, 1970..) => year,
        (false, _) => return None,
    };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let leap_day = u64::from(is_leap(year));
    if day == 0 || day > LENGTHS[month] + if month == 1 { leap_day } else { 0 } {
        return None;
    }
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let before = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let months: u64 = LENGTHS[..month].iter().sum::<u64>() + if month > 1 { leap_day } else { 0 };
    Some(before + months + day - 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use http::HeaderValue;

    use super::*;

    fn wait(retry: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::RETRY_AFTER,
            HeaderValue::from_bytes(retry.as_bytes()).unwrap(),
        );
        if let Some(date) = date {
            headers.insert(header::DATE, date.parse().unwrap());
        }
        // Sun, 06 Nov 1994 08:49:00 GMT
        let now = UNIX_EPOCH + Duration::from_secs(784_111_740);
        retry_after(&headers, now).map(|wait| wait.as_secs())
    }

    // Proves E13.
    #[test]
    fn seconds_and_dates_of_every_form_are_read() {
        for (text, expected) in [
            ("0", 0),
            (" 7 ", 7),
            ("86401", 86_400),
            ("99999999999999999999999999", 86_400),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 37),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 37),
            ("Sun Nov  6 08:49:37 1994", 37),
            ("Sun, 06 Nov 1994 08:48:59 GMT", 0),
            ("Mon, 07 Nov 1994 08:48:59 GMT", 86_399),
            ("Fri, 31 Dec 9999 23:59:60 GMT", 86_400),
        ] {
            assert_eq!(wait(text, None), Some(expected), "{text}");
        }
    }

    // Proves E13.
    #[test]
    fn date_is_compared_with_the_servers_own_date() {
        let date = Some("Tue, 29 Feb 2028 23:59:50 GMT");
        assert_eq!(wait("Wed, 01 Mar 2028 00:00:05 GMT", date), Some(15));
        assert_eq!(wait("Tue, 29 Feb 2028 23:59:50 GMT", date), Some(0));
        assert_eq!(
            wait("Wed, 01 Mar 2028 00:00:05 GMT", Some("some time")),
            Some(86_400)
        );
        assert_eq!(wait("7", date), Some(7));
    }

    // Proves E13.
    #[test]
    fn invalid_dates_give_no_wait() {
        for text in [
            "",
            "-7",
            "1.5",
            "soon",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Wed, 29 Feb 2100 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1960 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 08:49:37:11 GMT",
            "Sun, 06 Nov 99999 08:49:37 GMT",
            "\u{e9}",
        ] {
            assert_eq!(wait(text, None), None, "{text}");
        }
    }

    #[test]
    fn days_agree_with_a_count_of_them() {
        let mut counted = 0;
        for year in 1970..2405_u64 {
            assert_eq!(days(year, "Jan", 1, false), Some(counted), "{year}");
            assert_eq!(
                days(year, "Dec", 31, false).unwrap() + 1,
                days(year + 1, "Jan", 1, false).unwrap()
            );
            counted = days(year, "Dec", 31, false).unwrap() + 1;
        }
        // 400 years are 146,097 days.
        assert_eq!(
            days(2370, "Mar", 1, false).unwrap() - days(1970, "Mar", 1, false).unwrap(),
            146_097
        );
    }
}
