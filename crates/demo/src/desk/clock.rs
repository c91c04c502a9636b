//! A clock: wall time as RFC 3339 text at an offset from UTC. It knows no time zone names, only
//! offsets.

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

/// `unix` seconds as RFC 3339 text, `offset` seconds east of UTC.
pub(super) fn rfc3339(unix: i64, offset: i64) -> String {
    let local = unix + offset;
    let (year, month, day) = civil(local.div_euclid(86_400));
    let second = local.rem_euclid(86_400);
    let zone = if offset == 0 {
        "Z".to_owned()
    } else {
        let sign = if offset < 0 { '-' } else { '+' };
        format!(
            "{sign}{:02}:{:02}",
            offset.abs() / 3600,
            offset.abs() / 60 % 60
        )
    };
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}{zone}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Returns year, month and day of a day counted from 1970-01-01. Years are counted from March here,
/// so that the leap day is the last of its year and the months' lengths follow one rule.
fn civil(day: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let from_0000_03_01 = day + 719_468;
    let era = from_0000_03_01.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = from_0000_03_01.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
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
