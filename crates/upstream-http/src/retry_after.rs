//! Parses `Retry-After`: seconds or a date (RFC 9110, 10.2.3).

use std::time::{Duration, SystemTime};

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
    let then = httpdate::parse_http_date(text).ok()?;
    let sent_at = headers
        .get(header::DATE)
        .and_then(|date| httpdate::parse_http_date(date.to_str().ok()?.trim()).ok());
    let wait = then
        .duration_since(sent_at.unwrap_or(now))
        .unwrap_or_default();
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::UNIX_EPOCH;

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
            ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
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
}
