//! The form of an announcement of lists in the shared store: the field of its group, and the value.
//!
//! A field is the bits of the capability class in hexadecimal digits, a colon and the name of the
//! upstream. A value is the version of its form, the hops, and the digests in hexadecimal digits.

use data_encoding::HEXLOWER;
use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::UpstreamId;
use weir_core::port::{ListDigests, ListGroup};

/// The version of the form. Values of another one are ignored.
const FORM: &str = "1";
/// The hexadecimal digits of a digest.
const DIGEST_DIGITS: usize = 32;

/// The field of a group.
pub(crate) fn field_name(group: &ListGroup) -> String {
    format!("{:04x}:{}", group.class.bits(), group.upstream)
}

/// The group of a field; `None` for a field of another form.
pub(crate) fn group_of(field: &str) -> Option<ListGroup> {
    let (class, upstream) = field.split_once(':')?;
    let bits = u16::from_str_radix(class, 16).ok()?;
    let class = CapabilityClass::from_bits(bits);
    let upstream = UpstreamId::new(upstream).ok()?;
    // A class that this version does not know is not the class without its unknown members.
    (class.bits() == bits).then_some(ListGroup { upstream, class })
}

/// The value of a group's lists. The script compares what stands behind the second colon.
pub(crate) fn encode_value(lists: &ListDigests) -> String {
    let digests = lists.digests.each_ref().map(|one| HEXLOWER.encode(&one.0));
    format!("{FORM}:{}:{}", lists.hops, digests.concat())
}

/// The lists of a value; `None` for a value of another form.
pub(crate) fn decode_value(value: &str) -> Option<ListDigests> {
    let (hops, digits) = value
        .strip_prefix(FORM)?
        .strip_prefix(':')?
        .split_once(':')?;
    let hops = hops.parse().ok()?;
    let mut lists = ListDigests {
        digests: [ContentVersion::default(); 4],
        hops,
    };
    if digits.len() != lists.digests.len() * DIGEST_DIGITS {
        return None;
    }
    let parts = digits.as_bytes().chunks(DIGEST_DIGITS);
    for (digest, part) in lists.digests.iter_mut().zip(parts) {
        let decoded = HEXLOWER.decode(part).ok()?;
        digest.0 = decoded.try_into().ok()?;
    }
    Some(lists)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn values_and_fields_are_read_as_they_were_written() {
        let lists = ListDigests {
            digests: [1, 2, 3, 250].map(|byte| ContentVersion([byte; 16])),
            hops: 1,
        };
        let value = encode_value(&lists);
        assert_eq!(decode_value(&value), Some(lists));
        let class = CapabilityClass::SAMPLING.with(CapabilityClass::SESSIONS);
        let group = ListGroup {
            upstream: UpstreamId::new("files").unwrap(),
            class,
        };
        assert_eq!(group_of(&field_name(&group)), Some(group));
        let others = ["", "1:", "1:0:", "2:0:00", "1:x:00", "1:0:zz"];
        for other in others {
            assert_eq!(decode_value(other), None, "{other}");
        }
        assert_eq!(decode_value(&value[..value.len() - 1]), None);
        assert_eq!(decode_value(&value.replacen('1', "2", 1)), None);
        for other in ["", "0000", "0000:", "zzzz:files", "f000:files"] {
            assert_eq!(group_of(other), None, "{other}");
        }
    }
}
