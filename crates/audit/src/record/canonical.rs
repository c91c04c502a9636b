//! One spelling for arguments of one value, and its digest, so that two records can be compared
//! without showing the arguments.
//!
//! The spelling is RFC 8785's: members sorted, no white space, shortest strings, numbers as
//! ECMAScript writes them. One rule differs: a number that no double holds keeps its digits, so
//! that two large ids never have one digest.

use std::fmt::Write as _;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// The digest of a JSON value, in hexadecimal. Bytes that are not JSON (they do not get this far)
/// count as they stand.
pub(super) fn digest(raw: &[u8]) -> String {
    let hash = match canonical(raw) {
        Some(text) => Sha256::digest(text),
        None => Sha256::digest(raw),
    };
    data_encoding::HEXLOWER.encode(&hash)
}

fn canonical(raw: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    write(serde_json::from_slice(raw).ok()?, &mut out)?;
    Some(out)
}

/// The members of an object in their order. Returns `None` for another value.
pub(super) fn members(value: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    struct RawMembersVisitor;
    impl<'de> Visitor<'de> for RawMembersVisitor {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(value.get())
        .deserialize_map(RawMembersVisitor)
        .ok()
}

/// Writes a value in canonical form. The depth is bounded: front refuses bodies that nest deeper
/// than its limits.
fn write(value: &RawValue, out: &mut String) -> Option<()> {
    match value.get().as_bytes().first()? {
        b'{' => {
            let mut members = members(value)?;
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            write_items(out, ['{', '}'], members, |(key, value), out| {
                out.push_str(&serde_json::to_string(&key).ok()?);
                out.push(':');
                write(value, out)
            })?;
        }
        b'[' => write_items(
            out,
            ['[', ']'],
            serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?,
            write,
        )?,
        b'"' => {
            let text: String = serde_json::from_str(value.get()).ok()?;
            // serde_json writes strings as RFC 8785 3.2.2.2 demands.
            out.push_str(&serde_json::to_string(&text).ok()?);
        }
        b'-' | b'0'..=b'9' => number(value.get(), out),
        _ => out.push_str(value.get()),
    }
    Some(())
}

/// Writes items between brackets, with commas between them.
pub(super) fn write_items<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: Vec<T>,
    mut write: impl FnMut(T, &mut String) -> Option<()>,
) -> Option<()> {
    out.push(open);
    for (n, item) in items.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        write(item, out)?;
    }
    out.push(close);
    Some(())
}

/// A number as ECMAScript writes it (ECMA-262, Number::toString).
fn number(text: &str, out: &mut String) {
    let whole = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let value: f64 = text.parse().unwrap_or(f64::NAN);
    // Digits that a double would change are more exact than the double.
    let kept = value.is_finite() && (!whole || format!("{value}") == text || text == "-0");
    if !kept {
        out.push_str(text);
        return;
    }
    if value == 0.0 {
        out.push('0');
        return;
    }
    // The shortest digits that read back: `d.ddde±x`.
    let shortest = format!("{:e}", value.abs());
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let point: i32 = exponent.parse().unwrap_or(0) + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if value < 0.0 {
        out.push('-');
    }
    let zeros = |n: i32| "0".repeat(usize::try_from(n).unwrap_or(0));
    if count <= point && point <= 21 {
        out.push_str(&digits);
        out.push_str(&zeros(point - count));
    } else if 0 < point && point <= 21 {
        let (before, after) = digits.split_at(usize::try_from(point).unwrap_or(0));
        let _ = write!(out, "{before}.{after}");
    } else if -6 < point && point <= 0 {
        let _ = write!(out, "0.{}{digits}", zeros(-point));
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        let _ = write!(out, "{first}{dot}{rest}e{:+}", point - 1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn same(text: &str) -> String {
        canonical(text.as_bytes()).unwrap()
    }

    // Proves F18.
    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        // The table of RFC 8785, appendix B, and values next to its borders.
        for (written, expected) in [
            ("-0", "0"),
            ("0.0", "0"),
            ("1.0", "1"),
            ("1e21", "1e+21"),
            ("999999999999999900000", "999999999999999900000"),
            ("1e20", "100000000000000000000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-1.5E+3", "-1500"),
            ("333333333.3333332", "333333333.3333332"),
            ("5e-324", "5e-324"),
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("123.456", "123.456"),
        ] {
            assert_eq!(same(written), expected, "{written}");
        }
        for kept in [
            "9007199254740993",
            "12345678901234567890",
            "1e400",
            "-1e400",
        ] {
            assert_eq!(same(kept), kept);
        }
    }

    // Proves F18.
    #[test]
    fn one_value_has_one_digest_and_two_have_two() {
        let spellings = [
            r#"{"b":[1,2.50,"\u00e9\n/"],"a":{"y":null,"x":true}}"#,
            "{ \"a\" : {\"x\":true, \"y\": null}, \"b\":[1.0, 25e-1,\"é\\u000a\\/\"] }",
        ];
        assert_eq!(
            same(spellings[0]),
            r#"{"a":{"x":true,"y":null},"b":[1,2.5,"é\n/"]}"#
        );
        assert_eq!(
            digest(spellings[0].as_bytes()),
            digest(spellings[1].as_bytes())
        );
        let others = [
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":[1]}"#,
            r#"{"a":12345678901234567890}"#,
            r#"{"a":12345678901234567891}"#,
        ];
        for (n, one) in others.iter().enumerate() {
            for other in &others[n + 1..] {
                assert_ne!(
                    digest(one.as_bytes()),
                    digest(other.as_bytes()),
                    "{one} {other}"
                );
            }
        }
        assert_eq!(
            digest(b"{}"),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    // Proves F18.
    #[test]
    fn members_are_sorted_by_their_utf16_units() {
        // RFC 8785, 3.2.3: U+FB33 comes after a surrogate pair.
        assert_eq!(
            same("{\"\u{fb33}\":1,\"\u{1f600}\":2}"),
            "{\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }
}
