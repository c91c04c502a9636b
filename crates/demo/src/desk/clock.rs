//! A clock: wall time as RFC 3339 text at an offset from UTC. It knows no time zone names, only
//! offsets.

use jiff::Timestamp;
use jiff::tz::Offset;

/// Returns the seconds east of UTC that `text` (`Z`, `+02:00`, `-0530`) names.
pub(super) fn parse_offset(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!("`{text}` is not an offset. Use Z or a form such as +02:00, from -14:00 to +14:00.")
    };
    if text.eq_ignore_ascii_case("z") {
        return Ok(0);
    }
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return Err(wrong()),
    };
    let digits: String = match digits.split_once(':') {
        Some((hours, minutes)) if hours.len() == 2 => [hours, minutes].concat(),
        Some(_) => return Err(wrong()),
        None => digits.to_owned(),
    };
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    let (hours, minutes) = (number / 100, number % 100);
    if minutes > 59 || hours * 60 + minutes > 14 * 60 {
        return Err(wrong());
    }
    Ok(sign * (hours * 60 + minutes) * 60)
}

/// `unix` seconds as RFC 3339 text, `offset` seconds east of UTC, within 14 hours.
pub(super) fn rfc3339(unix: i64, offset: i64) -> String {
    let zone = i32::try_from(offset)
        .ok()
        .and_then(|offset| Offset::from_seconds(offset).ok())
        .unwrap_or(Offset::UTC);
    let time = Timestamp::from_second(unix).unwrap_or_default();
    let form = if zone == Offset::UTC {
        "%Y-%m-%dT%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%S%:z"
    };
    let local = time.to_zoned_datetime(zone.to_time_zone());
    local.strftime(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_at_their_offset() {
        for (unix, offset, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (1_709_251_199, 3_600, "2024-03-01T00:59:59+01:00"),
            (1_795_234_093, -19_800, "2026-11-20T22:38:13-05:30"),
            (-1, 0, "1969-12-31T23:59:59Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix, offset), text);
        }
    }

    #[test]
    fn offsets_are_read_or_refused() {
        for (text, seconds) in [
            ("Z", 0),
            ("+02:00", 7_200),
            ("-0530", -19_800),
            ("+14:00", 50_400),
        ] {
            assert_eq!(parse_offset(text), Ok(seconds), "{text}");
        }
        for text in [
            "",
            "02:00",
            "+2:00",
            "+14:01",
            "+01:60",
            "+0200é",
            "+é",
            "Europe/Berlin",
            "+1:000",
        ] {
            assert!(parse_offset(text).is_err(), "{text}");
        }
    }
}
