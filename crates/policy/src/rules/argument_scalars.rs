//! A call's arguments for rules: JSON pointers and texts, read once from the same bytes that go to
//! the upstream.
//!
//! Numbers have one form (`1`, not `1.0` or `1e0`), so that another spelling of a number cannot
//! bypass a rule. Ambiguous arguments are refused: the upstream might read them differently.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::rules::attribute_reads::ArgumentPointers;

/// Values that rules may be compared with in one call.
const MAX_SCALARS: usize = 1024;
/// Bytes of their pointers and texts.
const BYTES: usize = 256 << 10;
/// Objects and arrays within each other.
const DEPTH: usize = 32;

/// The scalars of `json` at the `wanted` pointers (RFC 6901). All of it is read, and has to be
/// valid. `named` reports if the tool's schema names the property at a pointer.
///
/// # Errors
/// For people: a bound is exceeded, a key stands twice in one object, the input is not a JSON
/// object, or a property differs in case alone from a wanted one and is not named in the schema:
/// the upstream might take it for that one.
pub(super) fn scalars(
    json: &[u8],
    wanted: &ArgumentPointers,
    named: &dyn Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, String> {
    let mut found = ScalarCollector {
        values: Vec::new(),
        wanted,
        named,
        count: 0,
        bytes: 0,
    };
    let mut pointer = String::new();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let seed = ScalarSeed {
        found: &mut found,
        pointer: &mut pointer,
        depth: 0,
    };
    seed.deserialize(&mut reader)
        .and_then(|()| reader.end())
        .map_err(|error| {
            let text = error.to_string();
            // The position in bytes of a client's text is of no use to its reader.
            text.split(" at line ")
                .next()
                .unwrap_or_default()
                .to_owned()
        })?;
    Ok(found.values)
}

struct ScalarCollector<'w> {
    values: Vec<(String, String)>,
    wanted: &'w ArgumentPointers,
    named: &'w dyn Fn(&str) -> bool,
    /// Of all values, wanted or not.
    count: usize,
    bytes: usize,
}

struct ScalarSeed<'a, 'w> {
    found: &'a mut ScalarCollector<'w>,
    pointer: &'a mut String,
    depth: usize,
}

impl ScalarSeed<'_, '_> {
    fn keep<E: serde::de::Error>(self, text: Cow<'_, str>) -> Result<(), E> {
        let ScalarCollector {
            values,
            wanted,
            count,
            bytes,
            ..
        } = self.found;
        *count += 1;
        *bytes += self.pointer.len() + text.len();
        if *count > MAX_SCALARS || *bytes > BYTES {
            return Err(E::custom(format_args!(
                "the arguments are more than {MAX_SCALARS} values or {} KiB",
                BYTES >> 10
            )));
        }
        if wanted.has(self.pointer) {
            values.push((self.pointer.clone(), text.into_owned()));
        }
        Ok(())
    }

    fn deeper<E: serde::de::Error>(&self) -> Result<usize, E> {
        match self.depth < DEPTH {
            true => Ok(self.depth + 1),
            false => Err(E::custom(format_args!(
                "the arguments are nested more than {DEPTH} deep"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.keep(Cow::Borrowed("null"))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.keep(value.to_string().into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.keep(value.to_string().into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.keep(value.to_string().into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        // Up to here a float holds every integer; `{}` writes neither an exponent nor `.0`, and -0
        // is 0.
        let value = if value == 0.0 { 0.0 } else { value };
        self.keep(format!("{value}").into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.keep(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let (depth, before) = (self.deeper()?, self.pointer.len());
        for at in 0usize.. {
            // Writing into a String cannot fail.
            let _ = write!(self.pointer, "/{at}");
            let seed = ScalarSeed {
                found: &mut *self.found,
                pointer: &mut *self.pointer,
                depth,
            };
            let more = items.next_element_seed(seed)?;
            self.pointer.truncate(before);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (depth, before) = (self.deeper()?, self.pointer.len());
        let mut keys = SeenKeys::default();
        while let Some(ArgumentKey(key)) = members.next_key()? {
            self.pointer.push('/');
            if key.contains(['~', '/']) {
                self.pointer
                    .push_str(&key.replace('~', "~0").replace('/', "~1"));
            } else {
                self.pointer.push_str(&key);
            }
            if !keys.add(key) {
                return Err(A::Error::custom(
                    "an object in the arguments has the same key twice",
                ));
            }
            if self.found.wanted.has_variant(self.pointer, before)
                && !(self.found.named)(self.pointer)
            {
                return Err(A::Error::custom(format_args!(
                    "the name of {:.64} differs in case alone from one that a rule looks at",
                    self.pointer
                )));
            }
            members.next_value_seed(ScalarSeed {
                found: &mut *self.found,
                pointer: &mut *self.pointer,
                depth,
            })?;
            self.pointer.truncate(before);
        }
        Ok(())
    }
}

/// Keys of one object. Most objects have only a few, and these are found faster by comparison than
/// by a hash.
#[derive(Default)]
struct SeenKeys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> SeenKeys<'de> {
    const FEW: usize = 12;

    /// Returns false if it was there already.
    fn add(&mut self, key: Cow<'de, str>) -> bool {
        if self.many.is_empty() && self.few.len() < Self::FEW {
            let new = !self.few.contains(&key);
            self.few.push(key);
            return new;
        }
        self.many.extend(self.few.drain(..));
        self.many.insert(key)
    }
}

/// A key, borrowed if it has no escapes. serde's own `Cow` never borrows.
#[derive(Deserialize)]
#[serde(transparent)]
struct ArgumentKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn text(json: &str) -> String {
        let values = scalars(json.as_bytes(), &ArgumentPointers::all(), &|_| false).unwrap();
        values
            .iter()
            .map(|(pointer, text)| format!("{pointer}={text}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn scalars_stand_under_their_pointers() {
        assert_eq!(
            text(r#"{"a":"x","b":{"c":[true,null,{"d":7}]},"e":{},"f":[]}"#),
            "/a=x /b/c/0=true /b/c/1=null /b/c/2/d=7"
        );
        assert_eq!(text(r#"{"a/b":{"~":1},"":2}"#), "/a~1b/~0=1 /=2");
        assert_eq!(text("{}"), "");
    }

    #[test]
    fn only_requested_argument_scalars_are_kept() {
        let wanted = ArgumentPointers::these(&["/b/c", "/x~1y"]);
        let values = scalars(
            br#"{"a":"x","b":{"c":1.0,"d":"c"},"x/y":true,"c":2}"#,
            &wanted,
            &|_| false,
        )
        .unwrap();
        assert_eq!(
            values,
            [
                ("/b/c".to_owned(), "1".to_owned()),
                ("/x~1y".to_owned(), "true".to_owned())
            ]
        );
    }

    #[test]
    fn equal_numbers_have_one_canonical_form() {
        assert_eq!(
            text(r#"{"a":1,"b":1.0,"c":1e0,"d":10E-1,"e":-0.0,"f":0}"#),
            "/a=1 /b=1 /c=1 /d=1 /e=0 /f=0"
        );
        assert_eq!(
            text(r#"{"a":18446744073709551615,"b":-9223372036854775808}"#),
            "/a=18446744073709551615 /b=-9223372036854775808"
        );
        assert_eq!(
            text(r#"{"a":0.5,"b":5e-1,"c":1e21}"#),
            "/a=0.5 /b=0.5 /c=1000000000000000000000"
        );
    }

    #[test]
    fn ambiguous_and_oversized_arguments_are_refused() {
        let deep = format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40));
        let many = format!("{{\"a\":[{}1]}}", "1,".repeat(MAX_SCALARS));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(BYTES));
        let table = [
            (r#"{"a":1,"a":2}"#, "same key twice"),
            (r#"{"a":1,"\u0061":2}"#, "same key twice"),
            (r#"{"a":{"b":1},"a":{}}"#, "same key twice"),
            (deep.as_str(), "nested"),
            (many.as_str(), "more than"),
            (long.as_str(), "more than"),
            (r#"{"a":1e999}"#, "range"),
            (r#"{"a":"\ud800"}"#, "hex escape"),
            ("{", "EOF"),
            ("{} {}", "trailing"),
        ];
        let none = ArgumentPointers::default();
        let twice = |first: usize| {
            format!(
                "{{{}\"{first}\":0}}",
                (0..40).map(|at| format!("\"{at}\":1,")).collect::<String>()
            )
        };
        let twice = [twice(3), twice(39)];
        let table = table
            .into_iter()
            .chain(twice.iter().map(|json| (json.as_str(), "same key twice")));
        for (json, why) in table {
            let error = scalars(json.as_bytes(), &ArgumentPointers::all(), &|_| false).unwrap_err();
            assert_eq!(
                scalars(json.as_bytes(), &none, &|_| false).unwrap_err(),
                error,
                "also where no rule looks at it"
            );
            assert!(error.contains(why), "{json:.40}: {error}");
        }
    }

    // Proves B04.
    #[test]
    fn properties_that_differ_from_wanted_ones_in_case_alone_are_refused() {
        let wanted = ArgumentPointers::these(&["/path", "/task/kind", "/x~1y", "/list/0/deep"]);
        let by_schema = |pointer: &str| pointer == "/PATH";
        for (json, place) in [
            (r#"{"Path":1}"#, "/Path"),
            (r#"{"path":1,"p\u0041th":2}"#, "/pAth"),
            ("{\"ta\u{17f}k\":{}}", "/ta\u{17f}k"),
            ("{\"task\":{\"\u{212a}ind\":1}}", "/task/\u{212a}ind"),
            (r#"{"X/Y":1}"#, "/X~1Y"),
            (r#"{"list":[{"Deep":1}]}"#, "/list/0/Deep"),
        ] {
            for wanted in [wanted.clone(), wanted.clone().and(&ArgumentPointers::all())] {
                let error = scalars(json.as_bytes(), &wanted, &by_schema).unwrap_err();
                assert!(
                    error.contains(&format!("the name of {place} differs")),
                    "{json}: {error}"
                );
            }
        }
        for json in [
            r#"{"path":1,"PATH":2,"task":{"kind":1},"x/y":1}"#,
            r#"{"other":{"Path":1},"task":{"Task":1,"Path":2},"list":[{"deep":1},{"Deep":1}],"p\u0131th":1}"#,
        ] {
            assert!(
                scalars(json.as_bytes(), &wanted, &by_schema).is_ok(),
                "{json}"
            );
        }
    }
}
