//! Decodes the tree into the raw types with serde, and reports every mistake.
//!
//! serde stops at the first mistake. So a value with a mistake is reported and removed from the
//! tree, and decoding starts again. Every key is optional in the raw types, so the removal causes
//! no further reports.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::report::{Path, Problem, Report};
use super::tree::{Node, Value};
use crate::suggestion::nearest;

/// Decodes the tree. A value that does not fit is reported and left out.
pub(crate) fn decode<T: DeserializeOwned + Default>(mut root: Node, report: &mut Report) -> T {
    loop {
        match T::deserialize(&root) {
            Ok(raw) => return raw,
            Err(mistake) => {
                let Mistake {
                    path,
                    message,
                    hint,
                } = mistake;
                let path = path_of(path);
                let is_reported = root
                    .find(&path)
                    .is_some_and(|node| matches!(node.value, Value::Unset));
                if !is_reported {
                    let mut problem = Problem::error(path.clone(), message);
                    problem.hint = hint;
                    report.add(problem);
                }
                // The tree shrinks in every iteration, so the loop ends.
                if !root.remove(&path) {
                    return T::default();
                }
            }
        }
    }
}

/// A mistake that serde found. Its path is collected from the inside out.
#[derive(Debug)]
pub(crate) struct Mistake {
    path: Vec<String>,
    message: String,
    hint: Option<String>,
}

fn path_of(inside_out: Vec<String>) -> Path {
    inside_out
        .into_iter()
        .rev()
        .fold(Path::root(), |path, segment| path.key(segment))
}

impl Mistake {
    fn under(mut self, segment: impl fmt::Display) -> Self {
        self.path.push(segment.to_string());
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        // The raw types put a hint after a newline. serde's own messages have none.
        let (message, hint) = match text.split_once('\n') {
            Some((message, hint)) => (message.to_owned(), Some(hint.to_owned())),
            None => (text, None),
        };
        Self {
            path: Vec::new(),
            message,
            hint,
        }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        if NOT_YET.contains(&field) {
            let hint = Some("take it out: nothing would act on it".to_owned());
            return Self {
                path: Vec::new(),
                message: "is not implemented in this version".to_owned(),
                hint,
            };
        }
        let hint = match nearest(field, expected.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known keys: {}", expected.join(", ")),
        };
        Self {
            path: Vec::new(),
            message: "unknown key".to_owned(),
            hint: Some(hint),
        }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let hint = match nearest(variant, expected.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of: {}", expected.join(", ")),
        };
        Self {
            path: Vec::new(),
            message: format!("`{variant}` is not known here"),
            hint: Some(hint),
        }
    }
}

/// Returns the mistake of a key without a value, which is neither a default nor `off`.
fn no_value() -> Mistake {
    let hint = Some("write one, or remove the key".to_owned());
    Mistake {
        hint,
        ..de::Error::custom("has no value")
    }
}

/// Returns the mistake of a value of the wrong kind.
fn misfit(node: &Node, wanted: &dyn de::Expected) -> Mistake {
    let mistake: Mistake =
        de::Error::custom(format_args!("expected {wanted}, found {}", node.kind()));
    let quote = matches!(
        node.value,
        Value::Integer(_) | Value::Float(_) | Value::Bool(_)
    );
    let hint =
        (quote && wanted.to_string().contains("string")).then(|| "put it in quotes".to_owned());
    let message = mistake.message.replace("a string", "a text");
    Mistake {
        message,
        hint,
        ..mistake
    }
}

impl<'de> de::Deserializer<'de> for &Node {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Null => return Err(no_value()),
            Value::Unset => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            // An environment variable is always text, so a number or boolean is parsed from it.
            Value::Text(text) if text.from_env => scalar(&text.text, visitor),
            Value::Text(text) => visitor.visit_str(&text.text),
            Value::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries { entries, next: 0 }),
        }
        .map_err(|mistake| self.reword(mistake))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.value {
            Value::Null => Err(no_value()),
            Value::Unset => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Text(text) => visitor
                .visit_str(&text.text)
                .map_err(|mistake| self.reword(mistake)),
            Value::Null => Err(no_value()),
            _ => Err(misfit(self, &visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_string(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            // A section with all keys commented out is null.
            Value::Map(_) | Value::Null => self.deserialize_any(visitor),
            Value::Unset => visitor.visit_map(Entries {
                entries: &[],
                next: 0,
            }),
            _ => Err(de::Error::custom(format_args!(
                "expected a map, found {}",
                self.kind()
            ))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::List(_) | Value::Null => self.deserialize_any(visitor),
            _ => Err(Mistake {
                hint: Some("write [a, b]".to_owned()),
                ..de::Error::custom(format_args!("expected a list, found {}", self.kind()))
            }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match &self.value {
            Value::Text(text) => {
                let variant: StringDeserializer<Mistake> = text.text.clone().into_deserializer();
                visitor
                    .visit_enum(variant)
                    .map_err(|mistake| self.reword(mistake))
            }
            Value::Null => Err(no_value()),
            // YAML reads a bare `off` or `no` as text, but `false` as a boolean. The message names
            // the expected kind.
            _ => Err(de::Error::custom(format_args!(
                "expected a word, found {}",
                self.kind()
            ))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

/// serde's terms, and those for the author of a config.
const WORDS: [(&str, &str); 10] = [
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
    ("found sequence", "found a list"),
    ("found string ", "found "),
    ("found integer ", "found "),
    ("found floating point ", "found "),
    ("expected usize", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected u8", "expected a number from 0 to 255"),
    ("expected a boolean", "expected true or false"),
];

/// Keys that this version does not implement. They are errors: a rule without effect must not look
/// effective.
const NOT_YET: [&str; 3] = ["replica", "toolsets", "resend"];

impl Node {
    /// Removes a value of the environment from the message, and replaces serde's terms.
    fn reword(&self, mut mistake: Mistake) -> Mistake {
        if !mistake.path.is_empty() {
            return mistake;
        }
        if let Value::Text(text) = &self.value
            && text.from_env
        {
            mistake.message = "the value from the environment does not fit".to_owned();
            mistake.hint = mistake.hint.filter(|hint| !hint.contains(&text.text));
        }
        for (serde, ours) in WORDS {
            mistake.message = mistake.message.replace(serde, ours);
        }
        mistake
    }
}

fn scalar<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Mistake> {
    if let Ok(value) = text.parse() {
        visitor.visit_i64(value)
    } else if let Ok(value) = text.parse() {
        visitor.visit_bool(value)
    } else {
        visitor.visit_str(text)
    }
}

struct Items<'a> {
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mistake> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let place = self.next;
        self.next += 1;
        seed.deserialize(item)
            .map(Some)
            .map_err(|mistake| mistake.under(place))
    }
}

struct Entries<'a> {
    entries: &'a [(String, Node)],
    next: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mistake> {
        let Some((key, _)) = self.entries.get(self.next) else {
            return Ok(None);
        };
        let name: StringDeserializer<Mistake> = key.clone().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|mistake| mistake.under(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let (key, value) = &self.entries[self.next];
        self.next += 1;
        seed.deserialize(value)
            .map_err(|mistake| mistake.under(key))
    }
}
