//! Times and sizes with their unit: `500ms`, `2s`, `5m`, `1h`; `64KiB`, `4MiB`. A bare number is
//! refused, because its unit is ambiguous.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

const TIMES: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZES: [(&str, u64); 4] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("B", 1),
];
/// The largest amount. Anything above is a typing mistake.
const MAX_AMOUNT: u64 = 1 << 42;

/// Parses a whole number and its unit.
fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number
        .checked_mul(*factor)
        .filter(|&amount| amount <= MAX_AMOUNT)
}

macro_rules! unit {
    ($name:ident, $units:ident, $what:literal, $hint:literal, $pattern:literal, $make:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct UnitVisitor;
                impl Visitor<'_> for UnitVisitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        let make: fn(u64) -> $name = $make;
                        // The text after the newline becomes the hint.
                        let bad = || E::custom(format_args!("`{text}` is not a {}\n{}", $what, $hint));
                        amount(text.trim(), &$units).map(make).ok_or_else(bad)
                    }
                    fn visit_i64<E: Error>(self, number: i64) -> Result<$name, E> {
                        Err(E::custom(format_args!("`{number}` has no unit\n{}", $hint)))
                    }
                }
                deserializer.deserialize_any(UnitVisitor)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $hint })
            }
        }
    };
}

unit!(
    Time,
    TIMES,
    "time",
    "write a number and ms, s, m, h or d, such as 500ms or 2s",
    "^[0-9]+ ?(ms|s|m|h|d)$",
    |n| { Time(Duration::from_millis(n)) }
);
unit!(
    Size,
    SIZES,
    "size",
    "write a number and B, KiB, MiB or GiB, such as 4MiB",
    "^[0-9]+ ?(B|KiB|MiB|GiB)$",
    |n| { Size(usize::try_from(n).unwrap_or(usize::MAX)) }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_needs_unit_and_is_bounded() {
        assert_eq!(amount("500ms", &TIMES), Some(500));
        assert_eq!(amount("2 h", &TIMES), Some(7_200_000));
        assert_eq!(amount("4MiB", &SIZES), Some(4 << 20));
        for bad in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "5 s s",
            "99999999999999999999s",
            "99999999999999d",
            "5S",
        ] {
            assert_eq!(amount(bad, &TIMES), None, "{bad}");
        }
    }
}
