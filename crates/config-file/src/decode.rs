//! Decodes the tree into the raw types with serde, and reports every mistake.
//!
//! serde stops at the first mistake. So a value with a mistake is reported and removed from the
//! tree, and decoding starts again. Every key is optional in the raw types, so the removal causes
//! no further reports.

use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use weir_text::suggestion::nearest;

use crate::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use crate::config_tree::{ConfigNode, NodeValue};
use crate::raw::BOOLEAN_WORDS;

/// The most values of lists that one decoding reports. Each starts it again.
const MAX_IN_LISTS: usize = 100;

/// Decodes the tree. A value that does not fit is reported and left out; a list with such a value is
/// left out whole, once all of its values are checked.
pub fn decode<T: DeserializeOwned + Default>(mut root: ConfigNode, report: &mut ConfigReport) -> T {
    // Values in lists that are left out.
    let mut incomplete = Vec::new();
    root.unset_items(&ConfigPath::root(), &mut incomplete);
    let mut reported: Vec<ConfigPath> = Vec::new();
    loop {
        match T::deserialize(&root) {
            Ok(raw) if incomplete.is_empty() => return raw,
            Ok(_) => {
                for path in incomplete.drain(..) {
                    root.remove(&path);
                }
            }
            Err(mistake) => {
                let DecodeError {
                    path,
                    message,
                    hint,
                } = mistake;
                let path = path_of(path);
                // What is left out may be missed above it.
                let is_reported = root
                    .find(&path)
                    .is_some_and(|node| matches!(node.value, NodeValue::Unset))
                    || reported.iter().any(|other| other.starts_with(&path));
                if !is_reported {
                    let mut problem = ConfigProblem::error(path.clone(), message);
                    problem.hint = listen_hint(&root, &path)
                        .or(hint)
                        .filter(|_| !path.is_root());
                    report.add(problem);
                }
                // The tree shrinks in every iteration, so the loop ends.
                if reported.len() < MAX_IN_LISTS && root.leave_out_of_list(&path) {
                    incomplete.push(path.clone());
                    reported.push(path);
                } else if !root.remove(&path) {
                    return T::default();
                }
            }
        }
    }
}

/// Returns the hint for a port in the place of an address, which quotes would not mend.
fn listen_hint(root: &ConfigNode, path: &ConfigPath) -> Option<String> {
    let NodeValue::Integer(port) = root.find(path)?.value else {
        return None;
    };
    (path.segments().last() == Some("listen")).then(|| format!("write 127.0.0.1:{port}"))
}

/// A mistake that serde found. Its path is collected from the inside out.
#[derive(Debug)]
pub struct DecodeError {
    path: Vec<String>,
    message: String,
    hint: Option<String>,
}

fn path_of(inside_out: Vec<String>) -> ConfigPath {
    inside_out
        .into_iter()
        .rev()
        .fold(ConfigPath::root(), |path, segment| path.key(segment))
}

impl DecodeError {
    fn prepend(mut self, segment: impl fmt::Display) -> Self {
        self.path.push(segment.to_string());
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
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
        // The selection of an endpoint's tools is called a toolset by people, not by the config.
        let meant = (field == "toolsets").then_some("tools");
        let meant = meant.filter(|meant| expected.contains(meant));
        let hint = match meant.or_else(|| nearest(field, expected.iter().copied())) {
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
            message: format!("`{variant}` is not a known value"),
            hint: Some(hint),
        }
    }
}

/// Returns the one of the words that programs of YAML 1.1 write as this boolean.
fn word_of(value: bool, words: &[&'static str]) -> Option<&'static str> {
    let mut found = BOOLEAN_WORDS
        .into_iter()
        .filter(|(word, boolean)| *boolean == value && words.contains(word));
    found.next().map(|(word, _)| word)
}

/// The keys that a section has in its shortest form.
const MAIN_KEYS: [&str; 8] = [
    "mode", "listen", "path", "url", "issuer", "rate", "level", "upstream",
];

/// Returns the hint for a text in the place of a section: the section with its main key.
fn main_key_hint(node: &ConfigNode, keys: &[&str]) -> Option<String> {
    let NodeValue::Text(text) = &node.value else {
        return None;
    };
    let key = MAIN_KEYS.iter().find(|key| keys.contains(key))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    let is_shown = !text.from_env && text.text.bytes().all(is_plain);
    let value = if is_shown { &text.text } else { "..." };
    Some(format!("write {{ {key}: {value} }}"))
}

/// Returns the mistake of a key without a value, which is neither a default nor `off`.
fn no_value() -> DecodeError {
    let hint = Some("write one, or remove the key".to_owned());
    DecodeError {
        hint,
        ..de::Error::custom("has no value")
    }
}

/// Returns the mistake of a value of the wrong kind.
fn wrong_kind(node: &ConfigNode, wanted: &dyn de::Expected) -> DecodeError {
    let mistake: DecodeError =
        de::Error::custom(format_args!("expected {wanted}, found {}", node.kind()));
    let quote = matches!(
        node.value,
        NodeValue::Integer(_) | NodeValue::Float(_) | NodeValue::Bool(_)
    );
    let hint =
        (quote && wanted.to_string().contains("string")).then(|| "put it in quotes".to_owned());
    DecodeError { hint, ..mistake }
}

impl<'de> de::Deserializer<'de> for &ConfigNode {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            NodeValue::Null => return Err(no_value()),
            NodeValue::Unset => visitor.visit_unit(),
            NodeValue::Bool(value) => visitor.visit_bool(*value),
            NodeValue::Integer(value) => visitor.visit_i64(*value),
            NodeValue::Float(value) => visitor.visit_f64(*value),
            // An environment variable is always text, so a number or boolean is parsed from it.
            NodeValue::Text(text) if text.from_env => scalar(&text.text, visitor),
            NodeValue::Text(text) => visitor.visit_str(&text.text),
            NodeValue::List(items) => visitor.visit_seq(NodeListAccess { items, next: 0 }),
            NodeValue::Map(entries) => visitor.visit_map(NodeMapAccess { entries, next: 0 }),
        }
        .map_err(|mistake| self.reword(mistake))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            NodeValue::Null => Err(no_value()),
            NodeValue::Unset => visitor.visit_none(),
            NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_)
            | NodeValue::List(_)
            | NodeValue::Map(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            NodeValue::Text(text) => visitor
                .visit_str(&text.text)
                .map_err(|mistake| self.reword(mistake)),
            NodeValue::Null => Err(no_value()),
            NodeValue::Unset
            | NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::List(_)
            | NodeValue::Map(_) => Err(wrong_kind(self, &visitor)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            // A section with all keys commented out is null.
            NodeValue::Map(_) | NodeValue::Null => self.deserialize_any(visitor),
            NodeValue::Unset => visitor.visit_map(NodeMapAccess {
                entries: &[],
                next: 0,
            }),
            NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_)
            | NodeValue::List(_) => Err(de::Error::custom(format_args!(
                "expected a map, found {}",
                self.kind()
            ))),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let hint = main_key_hint(self, keys);
        self.deserialize_map(visitor)
            .map_err(|mistake| DecodeError {
                hint: hint.filter(|_| mistake.path.is_empty()).or(mistake.hint),
                ..mistake
            })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            NodeValue::List(_) | NodeValue::Null => self.deserialize_any(visitor),
            NodeValue::Unset
            | NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_)
            | NodeValue::Map(_) => Err(DecodeError {
                hint: Some("write [a, b]".to_owned()),
                ..de::Error::custom(format_args!("expected a list, found {}", self.kind()))
            }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if let NodeValue::Bool(value) = self.value
            && let Some(word) = word_of(value, words)
        {
            let variant: StrDeserializer<'_, DecodeError> = word.into_deserializer();
            return visitor.visit_enum(variant);
        }
        match &self.value {
            NodeValue::Text(text) => {
                let variant: StringDeserializer<DecodeError> =
                    text.text.clone().into_deserializer();
                visitor
                    .visit_enum(variant)
                    .map_err(|mistake| self.reword(mistake))
            }
            NodeValue::Null => Err(no_value()),
            // The message names the expected kind.
            NodeValue::Unset
            | NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::List(_)
            | NodeValue::Map(_) => Err(de::Error::custom(format_args!(
                "expected a string, found {}",
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
const WORDS: [(&str, &str); 12] = [
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
    ("found sequence", "found a list"),
    ("found string ", "found "),
    ("found integer ", "found "),
    ("found floating point ", "found "),
    ("expected usize", "expected a whole number"),
    ("expected u32", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected u8", "expected a number from 1 to 255"),
    ("expected a boolean", "expected true or false"),
];

impl ConfigNode {
    /// Removes a value of the environment from the message, and replaces serde's terms.
    fn reword(&self, mut mistake: DecodeError) -> DecodeError {
        if !mistake.path.is_empty() {
            return mistake;
        }
        if let NodeValue::Text(text) = &self.value
            && text.from_env
        {
            mistake.message = "the value from the environment is not valid here".to_owned();
            mistake.hint = mistake.hint.filter(|hint| !hint.contains(&text.text));
        }
        for (serde, ours) in WORDS {
            mistake.message = mistake.message.replace(serde, ours);
        }
        mistake
    }
}

fn scalar<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, DecodeError> {
    if let Ok(value) = text.parse() {
        visitor.visit_i64(value)
    } else if let Ok(value) = text.parse() {
        visitor.visit_bool(value)
    } else if let Some(value) = text.parse().ok().filter(|value: &f64| value.is_finite()) {
        visitor.visit_f64(value)
    } else {
        visitor.visit_str(text)
    }
}

struct NodeListAccess<'a> {
    items: &'a [ConfigNode],
    next: usize,
}

impl<'de> SeqAccess<'de> for NodeListAccess<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        // The mistakes of unset items are reported already.
        let rest = self.items.iter().enumerate().skip(self.next);
        let mut set = rest.filter(|(_, item)| !matches!(item.value, NodeValue::Unset));
        let Some((place, item)) = set.next() else {
            return Ok(None);
        };
        self.next = place + 1;
        seed.deserialize(item)
            .map(Some)
            .map_err(|mistake| mistake.prepend(place))
    }
}

struct NodeMapAccess<'a> {
    entries: &'a [(String, ConfigNode)],
    next: usize,
}

impl<'de> MapAccess<'de> for NodeMapAccess<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, _)) = self.entries.get(self.next) else {
            return Ok(None);
        };
        let name: StringDeserializer<DecodeError> = key.clone().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|mistake| mistake.prepend(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let (key, value) = &self.entries[self.next];
        self.next += 1;
        seed.deserialize(value)
            .map_err(|mistake| mistake.prepend(key))
    }
}
