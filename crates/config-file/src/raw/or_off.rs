//! A section of the config, or the word `off`: a protection must be given up explicitly.
//!
//! Programs that read YAML 1.1, such as Helm, take a bare `off` for a boolean and write `false`, so
//! `false` has the same meaning.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

const OFF: &str = "off";
/// The words of the config that YAML 1.1 takes for booleans, with their values. The config takes the
/// boolean for the word.
pub(crate) const BOOLEAN_WORDS: [(&str, bool); 3] = [(OFF, false), ("no", false), ("yes", true)];

/// A section, or `off`.
#[derive(Clone, Debug)]
pub enum OrOff<T> {
    /// The word `off`.
    Off,
    /// The section.
    On(T),
}

impl<T> OrOff<T> {
    /// Returns the section, if there is one.
    pub fn section(given: Option<&Self>) -> Option<&T> {
        match given {
            Some(Self::On(section)) => Some(section),
            Some(Self::Off) | None => None,
        }
    }

    /// The same as [`Self::section`], by value.
    pub fn into_section(given: Option<Self>) -> Option<T> {
        match given {
            Some(Self::On(section)) => Some(section),
            Some(Self::Off) | None => None,
        }
    }

    /// Reports if the file has the word `off`.
    pub fn is_off(given: Option<&Self>) -> bool {
        matches!(given, Some(Self::Off))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrOffVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrOffVisitor<T> {
            type Value = OrOff<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map, or `off`")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<T>, E> {
                if text == OFF {
                    return Ok(OrOff::Off);
                }
                Err(E::custom(format_args!(
                    "`{text}` is neither a map nor `off`"
                )))
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<OrOff<T>, E> {
                if value {
                    return Err(E::custom("expected a map, or `off`, found true"));
                }
                Ok(OrOff::Off)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrOff<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrOff::On)
            }
        }
        deserializer.deserialize_any(OrOffVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OrOff<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_off", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let section = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [section, { "const": OFF }] })
    }
}
