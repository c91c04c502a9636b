//! The rule of a zone for all years, as POSIX has it in `TZ`: `CET-1CEST,M3.5.0,M10.5.0/3`.

/// The seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// An hour in seconds.
const HOUR: i32 = 3600;

/// An offset, or two that change on certain days of every year.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeZoneRule {
    standard: i32,
    summer: Option<SummerTime>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SummerTime {
    offset: i32,
    begins: TransitionDay,
    ends: TransitionDay,
}

/// The `week`th `weekday` of a month, the last for 5, at a time in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TransitionDay {
    month: i64,
    week: i64,
    weekday: i64,
    time: i32,
}

impl TimeZoneRule {
    /// Parses a rule. Days by their number in the year are not supported; no present zone has them.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (standard, rest) = offset(name(text)?)?;
        if rest.is_empty() {
            return Some(Self {
                standard: -standard,
                summer: None,
            });
        }
        let rest = name(rest)?;
        let (summer, rest) = match rest.starts_with(',') {
            true => (-standard + HOUR, rest),
            false => offset(rest).map(|(summer, rest)| (-summer, rest))?,
        };
        let mut days = rest.strip_prefix(',')?.split(',');
        let (begins, ends) = (
            TransitionDay::parse(days.next()?)?,
            TransitionDay::parse(days.next()?)?,
        );
        Some(Self {
            standard: -standard,
            summer: Some(SummerTime {
                offset: summer,
                begins,
                ends,
            }),
        })
    }

    /// Returns the seconds east of UTC at a Unix time.
    pub(super) fn offset(&self, unix: i64) -> i32 {
        let Some(SummerTime {
            offset,
            begins,
            ends,
        }) = &self.summer
        else {
            return self.standard;
        };
        let year = year_of((unix + i64::from(self.standard)).div_euclid(DAY));
        let (begins, ends) = (
            begins.instant(year, self.standard),
            ends.instant(year, *offset),
        );
        let is_summer = match begins < ends {
            true => (begins..ends).contains(&unix),
            false => !(ends..begins).contains(&unix),
        };
        if is_summer { *offset } else { self.standard }
    }
}

impl TransitionDay {
    fn parse(text: &str) -> Option<Self> {
        let (day, time) = text.split_once('/').unwrap_or((text, "2"));
        let mut numbers = day
            .strip_prefix('M')?
            .split('.')
            .map(|number| number.parse().ok());
        let (month, week, weekday) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let is_day =
            (1..=12).contains(&month) && (1..=5).contains(&week) && (0..=6).contains(&weekday);
        let (time, rest) = offset(time)?;
        (is_day && rest.is_empty()).then_some(Self {
            month,
            week,
            weekday,
            time,
        })
    }

    /// Returns the Unix time of the transition in a year, at an offset of so many seconds east of
    /// UTC.
    fn instant(&self, year: i64, offset: i32) -> i64 {
        let first = days_before(year, self.month);
        // The first of January 1970 was a Thursday, the fourth day after Sunday.
        let weekday = (first + 4).rem_euclid(7);
        let mut day = first + (self.weekday - weekday).rem_euclid(7) + 7 * (self.week - 1);
        let next_month = days_before(year, self.month + 1);
        while day >= next_month {
            day -= 7;
        }
        day * DAY + i64::from(self.time) - i64::from(offset)
    }
}

/// Returns the text after a name such as `CET` or `<+0330>`.
fn name(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>').map(|(_, rest)| rest);
    }
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    (end >= 3).then(|| &text[end..])
}

/// Parses hours, minutes and seconds into seconds. Returns the text after them too.
fn offset(text: &str) -> Option<(i32, &str)> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || "+-:".contains(c)))
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let mut seconds = 0;
    for (part, unit) in number.split(':').zip([HOUR, 60, 1]) {
        seconds += part.parse::<i32>().ok().filter(|part| *part <= 167)? * unit;
    }
    Some((sign * seconds, rest))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the days from the first of January 1970 to the first of a month; the thirteenth is
/// January of the next year.
fn days_before(year: i64, month: i64) -> i64 {
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let mut days = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
    for month in 1..month {
        days += match month {
            4 | 6 | 9 | 11 => 30,
            2 if is_leap(year) => 29,
            2 => 28,
            _ => 31,
        };
    }
    days
}

/// Returns the year of a day since the first of January 1970.
fn year_of(day: i64) -> i64 {
    let mut year = 1970 + day.div_euclid(366);
    while days_before(year + 1, 1) <= day {
        year += 1;
    }
    year
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(rule: &str, times: &[i64]) -> Option<Vec<i32>> {
        let rule = TimeZoneRule::parse(rule)?;
        Some(times.iter().map(|unix| rule.offset(*unix)).collect())
    }

    #[test]
    fn summer_begins_and_ends_to_the_second() {
        // 2026-03-29 01:00 UTC and 2026-10-25 01:00 UTC.
        let europe = [1_774_745_999, 1_774_746_000, 1_792_889_999, 1_792_890_000];
        assert_eq!(
            offsets("CET-1CEST,M3.5.0,M10.5.0/3", &europe),
            Some(vec![3600, 7200, 7200, 3600])
        );
        // 2026-03-08 07:00 UTC and 2026-11-01 06:00 UTC.
        let america = [1_772_953_199, 1_772_953_200, 1_793_512_799, 1_793_512_800];
        assert_eq!(
            offsets("EST5EDT,M3.2.0,M11.1.0", &america),
            Some(vec![-18_000, -14_400, -14_400, -18_000])
        );
        // In the south summer is at the turn of the year: 2026-04-04 16:00 UTC.
        let australia = [1_767_225_600, 1_775_318_399, 1_775_318_400, 1_782_864_000];
        assert_eq!(
            offsets("AEST-10AEDT,M10.1.0,M4.1.0/3", &australia),
            Some(vec![39_600, 39_600, 36_000, 36_000])
        );
    }

    #[test]
    fn zones_without_summer_and_with_odd_names_are_read() {
        assert_eq!(offsets("<+0330>-3:30", &[0]), Some(vec![12_600]));
        assert_eq!(offsets("UTC0", &[0]), Some(vec![0]));
        for bad in [
            "",
            "x",
            "CET",
            "CET-1CEST",
            "CET-1CEST,J60,J300",
            "CET-1CEST,M13.5.0,M10.5.0",
        ] {
            assert_eq!(offsets(bad, &[0]), None, "{bad}");
        }
    }
}
