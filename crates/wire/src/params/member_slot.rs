//! Positions of members, and reading their values with a type.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::id::RequestId;
use crate::log_level::LogLevel;
use crate::params::params_error::ParamsError;
use crate::scan;
use crate::scan::json_members::JsonMember;

/// The position of a member's value, if it is present. It is half the size of a range, because a
/// view has many of them and is moved often.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemberSlot {
    start: u32,
    /// No value ends at offset zero: zero means that the member is absent.
    end: u32,
}

impl MemberSlot {
    /// The position of a value. A value beyond 4 GiB, which no limit admits, counts as absent.
    fn of(range: &Range<usize>) -> Self {
        match (u32::try_from(range.start), u32::try_from(range.end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::default(),
        }
    }

    pub(super) const fn range(self) -> Option<Range<usize>> {
        if self.end == 0 {
            None
        } else {
            Some(self.start as usize..self.end as usize)
        }
    }

    pub(super) const fn is_present(self) -> bool {
        self.end != 0
    }
}

/// Records the position of a member and reports if the table has its name. Unknown members stay in
/// the raw bytes.
pub(super) fn record_position(
    member: &JsonMember<'_>,
    table: &mut [(&str, &mut MemberSlot)],
) -> bool {
    let Some((_, slot)) = table.iter_mut().find(|(name, _)| member.key.eq_str(name)) else {
        return false;
    };
    **slot = MemberSlot::of(&member.value);
    true
}

pub(super) fn read_text<'a>(
    raw: &'a Bytes,
    slot: MemberSlot,
    member: &'static str,
) -> Result<Option<Cow<'a, str>>, ParamsError> {
    let Some(range) = slot.range() else {
        return Ok(None);
    };
    scan::string(&raw[range]).map(Some).ok_or(ParamsError {
        member,
        expected: "a string",
    })
}

pub(super) fn read_object(
    raw: &Bytes,
    slot: MemberSlot,
    member: &'static str,
) -> Result<Option<Bytes>, ParamsError> {
    read_raw(raw, slot, scan::is_object).map_err(|()| ParamsError {
        member,
        expected: "an object",
    })
}

pub(super) fn read_token(
    raw: &Bytes,
    slot: MemberSlot,
    member: &'static str,
) -> Result<Option<Bytes>, ParamsError> {
    let is_token = |value: &[u8]| RequestId::from_json(value).is_ok();
    read_raw(raw, slot, is_token).map_err(|()| ParamsError {
        member,
        expected: "a string or an integer of at most 256 bytes",
    })
}

/// Returns the bytes of a value that has to be valid.
fn read_raw(
    raw: &Bytes,
    slot: MemberSlot,
    is_valid: impl FnOnce(&[u8]) -> bool,
) -> Result<Option<Bytes>, ()> {
    match slot.range() {
        None => Ok(None),
        Some(range) if is_valid(&raw[range.clone()]) => Ok(Some(raw.slice(range))),
        Some(_) => Err(()),
    }
}

pub(super) fn read_level(
    raw: &Bytes,
    slot: MemberSlot,
    member: &'static str,
) -> Result<Option<LogLevel>, ParamsError> {
    let Some(name) = read_text(raw, slot, member)? else {
        return Ok(None);
    };
    let expected = "one of debug, info, notice, warning, error, critical, alert, emergency";
    LogLevel::parse(&name)
        .map(Some)
        .ok_or(ParamsError { member, expected })
}
