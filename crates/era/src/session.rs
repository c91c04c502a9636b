//! A legacy client's session: the settings from `initialize` and `logging/setLevel`, and their
//! encoding as bytes.
//!
//! The record is all that an idle session costs. It begins with a version, so that replicas of two
//! releases can share a store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use weir_core::CapabilityClass;
use weir_core::call::LogMessages;
use weir_core::instant::unix_millis;
use weir_wire::{LogLevel, Revision};

const VERSION: u8 = 2;

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacySessionRecord {
    /// The negotiated revision, always a legacy one.
    pub revision: Revision,
    /// The capabilities that the client declared at `initialize`.
    pub class: CapabilityClass,
    /// The level the client set, if it did.
    pub level: Option<LogLevel>,
    /// True once the client sent `notifications/initialized`: before that it is asked no question
    /// (lifecycle, every revision).
    pub initialized: bool,
    /// The time of `initialize`, to the millisecond.
    pub began: SystemTime,
}

impl LegacySessionRecord {
    /// The log messages that the client wants. Before `logging/setLevel` the server decides which
    /// messages to send (legacy revisions).
    #[must_use]
    pub fn log_messages(&self) -> LogMessages {
        self.level
            .map_or(LogMessages::ServerChoice, LogMessages::From)
    }

    /// The length of the record's bytes. Further state of the session may stand behind them.
    pub const LENGTH: usize = 14;

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(Self::LENGTH);
        out.put_u8(VERSION);
        out.put_u8(index(&Revision::LEGACY, &self.revision));
        out.put_u8(
            self.level
                .map_or(u8::MAX, |level| index(&LogLevel::ALL, &level)),
        );
        out.put_u8(u8::from(self.initialized));
        out.put_u16(self.class.bits());
        out.put_u64(unix_millis(self.began));
        out.freeze()
    }

    /// Reads a record, without the bytes behind it. No value for a record of another version or a
    /// malformed one: such a session counts as unknown.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::LENGTH)?;
        let &[VERSION, revision, level, initialized, ref rest @ ..] = bytes else {
            return None;
        };
        let (class, millis) = rest.split_first_chunk::<2>()?;
        let millis = u64::from_be_bytes(millis.try_into().ok()?);
        Some(Self {
            revision: *Revision::LEGACY.get(usize::from(revision))?,
            class: CapabilityClass::from_bits(u16::from_be_bytes(*class)),
            initialized: initialized == 1,
            level: if level == u8::MAX {
                None
            } else {
                Some(*LogLevel::ALL.get(usize::from(level))?)
            },
            began: UNIX_EPOCH.checked_add(Duration::from_millis(millis))?,
        })
    }
}

/// The answer to an `initialize` that proposes this version: the same if weir has it as a legacy
/// one, else the newest legacy one.
#[must_use]
pub fn negotiate(proposed: Option<&str>) -> Revision {
    proposed
        .and_then(Revision::parse)
        .filter(|revision| !revision.is_modern())
        .unwrap_or(Revision::NEWEST_LEGACY)
}

fn index<T: PartialEq>(all: &[T], one: &T) -> u8 {
    // Both tables are shorter than 255; a value outside them reads back as absent.
    all.iter()
        .position(|each| each == one)
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn session_record_round_trips_and_rejects_truncation() {
        for revision in Revision::LEGACY {
            for level in LogLevel::ALL.into_iter().map(Some).chain([None]) {
                let began = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
                let class = CapabilityClass::SAMPLING.with(CapabilityClass::UI);
                let session = LegacySessionRecord {
                    revision,
                    class,
                    level,
                    initialized: level.is_some(),
                    began,
                };
                let record = session.encode();
                assert_eq!(record.len(), LegacySessionRecord::LENGTH);
                let longer = [&record[..], b"more"].concat();
                assert_eq!(LegacySessionRecord::decode(&longer), Some(session));
                assert_eq!(LegacySessionRecord::decode(&record), Some(session));
                assert_eq!(LegacySessionRecord::decode(&record[1..]), None);
            }
        }
    }

    proptest! {
        // Proves D19.
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn arbitrary_bytes_decode_to_a_round_tripping_session_or_none(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Some(session) = LegacySessionRecord::decode(&bytes) {
                prop_assert_eq!(LegacySessionRecord::decode(&session.encode()), Some(session));
            }
        }
    }

    // Proves R059, R060, R061.
    #[test]
    fn versions_are_echoed_or_countered() {
        for revision in Revision::LEGACY {
            assert_eq!(negotiate(Some(revision.as_str())), revision);
        }
        for other in [
            None,
            Some("1.0.0"),
            Some("2026-07-28"),
            Some("2099-01-01"),
            Some(""),
        ] {
            assert_eq!(negotiate(other), Revision::NEWEST_LEGACY, "{other:?}");
        }
    }
}
