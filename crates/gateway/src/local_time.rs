//! The local time of day, for people at a terminal: in the time zone of `TZ`, or of the machine.
//!
//! The standard library knows no zones. Their files are read here (RFC 9636), with the rule for all
//! later years (POSIX `TZ`).

mod rule;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rule::{DAY, TimeZoneRule};

/// The zone of the machine, and the folder of all zones.
const MACHINE: &str = "/etc/localtime";
const ZONES: &str = "/usr/share/zoneinfo";

/// A time zone: offsets in seconds east of UTC, and the times of their changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeZone {
    /// The offset before the first change.
    first: i32,
    /// Instants of changes, and the offset from each on.
    changes: Vec<(i64, i32)>,
    /// The rule after the last change.
    rule: Option<TimeZoneRule>,
}

impl TimeZone {
    /// Returns the zone of this process; UTC if it is unknown.
    pub(crate) fn own() -> Self {
        match std::env::var("TZ") {
            Err(_) => Self::file(Path::new(MACHINE)).unwrap_or_default(),
            Ok(name) => {
                let name = name.trim_start_matches(':');
                let file = Self::file(&Path::new(ZONES).join(name)).filter(|_| !name.is_empty());
                let rule = || {
                    TimeZoneRule::parse(name).map(|rule| Self {
                        rule: Some(rule),
                        ..Self::default()
                    })
                };
                file.or_else(rule).unwrap_or_default()
            }
        }
    }

    fn file(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read(path).ok()?)
    }

    /// Parses a zone's file; `None` if it is malformed.
    fn parse(file: &[u8]) -> Option<Self> {
        let (head, version) = (TzifHeader::read(file)?, *file.get(4)?);
        if version < b'2' {
            return head.zone(file.get(TzifHeader::LENGTH..)?, 4);
        }
        // The first block has times of 32 bits, for readers of old; the second has all.
        let second = file.get(TzifHeader::LENGTH + head.length(4)..)?;
        let head = TzifHeader::read(second)?;
        let (block, footer) = second
            .get(TzifHeader::LENGTH..)?
            .split_at_checked(head.length(8))?;
        let footer = std::str::from_utf8(footer).ok()?.trim_matches('\n');
        Some(Self {
            rule: TimeZoneRule::parse(footer),
            ..head.zone(block, 8)?
        })
    }

    /// Returns the seconds east of UTC at a Unix time.
    fn offset(&self, unix: i64) -> i32 {
        let past = self.changes.partition_point(|(from, _)| *from <= unix);
        match (&self.rule, past.checked_sub(1)) {
            (Some(rule), _) if past == self.changes.len() => rule.offset(unix),
            (_, Some(last)) => self.changes[last].1,
            (_, None) => self.first,
        }
    }

    /// Returns the time of day, such as `09:05:00`.
    pub(crate) fn time_of_day(&self, time: SystemTime) -> String {
        let unix = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let unix = i64::try_from(unix).unwrap_or_default();
        let seconds = (unix + i64::from(self.offset(unix))).rem_euclid(DAY);
        format!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }
}

/// The numbers in the head of a block.
struct TzifHeader {
    utc: usize,
    standard: usize,
    leaps: usize,
    times: usize,
    kinds: usize,
    letters: usize,
}

impl TzifHeader {
    const LENGTH: usize = 44;

    fn read(file: &[u8]) -> Option<Self> {
        let head = file
            .get(..Self::LENGTH)
            .filter(|head| head.starts_with(b"TZif"))?;
        let count = |at: usize| {
            usize::try_from(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?)).ok()
        };
        Some(Self {
            utc: count(20)?,
            standard: count(24)?,
            leaps: count(28)?,
            times: count(32)?,
            kinds: count(36)?,
            letters: count(40)?,
        })
    }

    /// Returns the length of the block after this head, with times of so many bytes.
    fn length(&self, time: usize) -> usize {
        let Self {
            utc,
            standard,
            leaps,
            times,
            kinds,
            letters,
        } = self;
        times * (time + 1) + kinds * 6 + letters + leaps * (time + 4) + standard + utc
    }

    fn zone(&self, block: &[u8], time: usize) -> Option<TimeZone> {
        let (instants, rest) = block.split_at_checked(self.times * time)?;
        let (indices, rest) = rest.split_at_checked(self.times)?;
        let kinds = rest.get(..self.kinds * 6)?;
        let offset = |kind: usize| {
            Some(i32::from_be_bytes(
                kinds.get(kind * 6..kind * 6 + 4)?.try_into().ok()?,
            ))
        };
        let instant = |bytes: &[u8]| match time {
            4 => Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
            _ => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        };
        let changes = instants.chunks_exact(time).zip(indices);
        let changes = changes
            .map(|(at, kind)| Some((instant(at)?, offset(usize::from(*kind))?)))
            .collect::<Option<_>>()?;
        Some(TimeZone {
            first: offset(0)?,
            changes,
            rule: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns a file of the second version with two changes and a rule.
    fn file(footer: &str) -> Vec<u8> {
        let head = |times: u32| {
            let mut head = b"TZif2".to_vec();
            head.extend([0; 15]);
            for count in [0, 0, 0, times, 2, 4] {
                head.extend(u32::to_be_bytes(count));
            }
            head
        };
        let kinds: Vec<u8> = [3600_i32, 7200]
            .iter()
            .flat_map(|offset| [&offset.to_be_bytes()[..], &[0, 0]].concat())
            .collect();
        let mut file = [head(0), kinds.clone(), b"CET\0".to_vec(), head(2)].concat();
        for at in [1_000_i64, 2_000] {
            file.extend(at.to_be_bytes());
        }
        file.extend([1, 0]);
        file.extend(
            [
                kinds,
                b"CET\0".to_vec(),
                format!("\n{footer}\n").into_bytes(),
            ]
            .concat(),
        );
        file
    }

    #[test]
    fn a_zone_is_read_with_its_changes_and_its_rule() {
        let zone = TimeZone::parse(&file("CET-1CEST,M3.5.0,M10.5.0/3")).expect("a zone");
        // 2026-07-01 and 2026-12-01.
        for (unix, offset) in [
            (0, 3600),
            (1_500, 7200),
            (2_500, 3600),
            (1_782_864_000, 7200),
            (1_796_083_200, 3600),
        ] {
            assert_eq!(zone.offset(unix), offset, "{unix}");
        }
        let plain = TimeZone::parse(&file("")).expect("a zone without a rule");
        assert_eq!(plain.offset(1_782_864_000), 3600);
        assert_eq!(
            zone.time_of_day(UNIX_EPOCH + Duration::from_secs(1_782_864_000)),
            "02:00:00"
        );
    }

    #[test]
    fn truncated_time_zone_file_is_rejected_without_panic() {
        let whole = file("CET-1");
        for end in 0..whole.len() - 7 {
            assert_eq!(TimeZone::parse(&whole[..end]), None, "{end}");
        }
    }
}
