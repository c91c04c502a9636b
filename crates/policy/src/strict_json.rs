//! Strict parsing of JSON objects from outside, so that two readers cannot disagree: an object with
//! a repeated name is refused, at any depth. Numbers keep their kind, so that `1.5` and `"1"` are
//! no whole numbers later on.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads a whole text as one object. Depth is bounded by `serde_json`, size by the caller.
pub(crate) fn parse_object(text: &[u8]) -> Option<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = StrictJson.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    let Value::Object(members) = value else {
        return None;
    };
    Some(members)
}

#[derive(Clone, Copy)]
struct StrictJson;

impl<'de> DeserializeSeed<'de> for StrictJson {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated names")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Self)?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(members.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves C06.
    #[test]
    fn a_name_may_occur_once_at_every_depth() {
        for good in [
            "{}",
            r#"{"a":1,"b":{"a":[1,2.5,null,true,"x"]}}"#,
            " {\"a\":-1} ",
        ] {
            assert_eq!(
                parse_object(good.as_bytes()).map(Value::Object),
                serde_json::from_str(good).ok(),
                "{good}"
            );
        }
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"b":{"a":1,"a":2}}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
            r#"{"a":1}{"a":1}"#,
            "[]",
            "1",
            "",
            r#"{"a":1"#,
        ] {
            assert!(parse_object(bad.as_bytes()).is_none(), "{bad}");
        }
        let deep = format!("{}1{}", r#"{"a":"#.repeat(4000), "}".repeat(4000));
        assert!(parse_object(deep.as_bytes()).is_none());
    }
}
