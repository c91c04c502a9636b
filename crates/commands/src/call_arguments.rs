//! Arguments of a call as a person types them: `key=value`, a JSON object, `@file`, or `-`.

use std::io::Read as _;

use serde_json::{Map, Value};
use weir_text::one_line;
use weir_text::suggestion::nearest;

/// The most references that are followed in a schema.
const MAX_REFERENCES: usize = 8;

/// The arguments before the tool's schema is known.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallArguments {
    /// The JSON object, from the command line, a file or standard input.
    whole: Map<String, Value>,
    /// The single arguments, in their order.
    pairs: Vec<(String, String)>,
}

impl CallArguments {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// A message for people: the word, and the forms of an argument.
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut wholes = 0;
        for word in words {
            let text =
                match word.as_str() {
                    "-" => Some(standard_input()?),
                    word => match word.strip_prefix('@') {
                        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
                            format!("{} cannot be read: {error}", one_line(file))
                        })?),
                        None if word.trim_start().starts_with(['{', '[']) => Some(word.to_owned()),
                        None => None,
                    },
                };
            if let Some(text) = text {
                wholes += 1;
                let parsed = weir_mcp_client::arguments(&text)
                    .map_err(|why| format!("the arguments are not a JSON object: {why}"))?;
                if let Value::Object(members) = parsed {
                    arguments.whole = members;
                }
            } else {
                let (key, value) = word.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                    format!(
                        "`{}` is not an argument: write KEY=VALUE, a JSON object, @FILE, or - for standard input",
                        one_line(word)
                    )
                })?;
                arguments.pairs.push((key.to_owned(), value.to_owned()));
            }
        }
        if wholes > 1 {
            return Err(
                "give at most one JSON object, @FILE or -; KEY=VALUE can be repeated".to_owned(),
            );
        }
        Ok(arguments)
    }

    /// Reports if the types of values must be looked up.
    pub(super) fn needs_schema(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Returns the arguments with the types of the schema. A value without a type in the schema is
    /// JSON if it parses as JSON, and text otherwise.
    ///
    /// # Errors
    /// A message for people: a value that is not of its type, or a name that the schema does not
    /// have.
    pub(super) fn typed(self, schema: &Value) -> Result<Value, String> {
        let Self {
            whole: mut arguments,
            pairs,
        } = self;
        let mut begun: Vec<String> = Vec::new();
        for (key, text) in pairs {
            let property = property(schema, &key)?;
            let lists = kinds(property, schema, MAX_REFERENCES).contains(&"array");
            let is_whole = text.trim_start().starts_with('[');
            if lists && !is_whole {
                let item = value(
                    &key,
                    &text,
                    &resolved(property, schema, MAX_REFERENCES)["items"],
                    schema,
                )?;
                let again = begun.contains(&key);
                match arguments.get_mut(&key) {
                    Some(Value::Array(items)) if again => items.push(item),
                    _ => drop(arguments.insert(key.clone(), Value::Array(vec![item]))),
                }
            } else if begun.contains(&key) {
                return Err(format!(
                    "`{}` is given twice, and takes one value",
                    one_line(&key)
                ));
            } else {
                arguments.insert(key.clone(), value(&key, &text, property, schema)?);
            }
            begun.push(key);
        }
        Ok(Value::Object(arguments))
    }

    /// Returns the arguments as texts, as prompts take them.
    ///
    /// # Errors
    /// A message for people: an argument is given twice.
    pub(super) fn texts(self) -> Result<Value, String> {
        let Self {
            whole: mut arguments,
            pairs,
        } = self;
        let mut given: Vec<String> = Vec::new();
        for (key, text) in pairs {
            if given.contains(&key) {
                return Err(format!(
                    "`{}` is given twice, and takes one value",
                    one_line(&key)
                ));
            }
            arguments.insert(key.clone(), Value::from(text));
            given.push(key);
        }
        Ok(Value::Object(arguments))
    }
}

fn standard_input() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map(|_| text)
        .map_err(|error| format!("standard input cannot be read: {error}"))
}

/// Returns the schema of one argument, or `Null` if the schema has no such property but allows
/// others.
fn property<'a>(schema: &'a Value, key: &str) -> Result<&'a Value, String> {
    let found = &schema["properties"][key];
    let closed = schema["additionalProperties"] == false && schema["patternProperties"].is_null();
    if !found.is_null() || !closed {
        return Ok(found);
    }
    let names = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str());
    let names: Vec<&str> = names.collect();
    let hint = match (nearest(key, names.iter().copied()), names.is_empty()) {
        (Some(near), _) => format!("did you mean `{}`?", one_line(near)),
        (None, true) => "it takes none".to_owned(),
        (None, false) => format!("it takes {}", one_line(&names.join(", "))),
    };
    Err(format!(
        "the tool has no argument `{}`: {hint}",
        one_line(key)
    ))
}

/// Parses one value as a type that the schema allows.
fn value(key: &str, text: &str, schema: &Value, root: &Value) -> Result<Value, String> {
    let kinds = kinds(schema, root, MAX_REFERENCES);
    if kinds.is_empty() {
        return Ok(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)));
    }
    let parsed: Option<Value> = serde_json::from_str(text.trim()).ok();
    let fits = |parsed: &Value| {
        kinds.iter().any(|kind| match *kind {
            "boolean" => parsed.is_boolean(),
            "integer" => {
                parsed.is_i64()
                    || parsed.is_u64()
                    || parsed.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            "number" => parsed.is_number(),
            "null" => parsed.is_null(),
            "array" => parsed.is_array(),
            "object" => parsed.is_object(),
            _ => false,
        })
    };
    match parsed.filter(fits) {
        Some(parsed) => Ok(parsed),
        None if kinds.contains(&"string") => Ok(Value::from(text)),
        None => {
            let wanted = kinds
                .iter()
                .map(|kind| article(kind))
                .collect::<Vec<_>>()
                .join(" or ");
            Err(format!(
                "`{}` must be {wanted}, not `{}`",
                one_line(key),
                one_line(text)
            ))
        }
    }
}

fn article(kind: &str) -> String {
    match kind {
        "object" | "array" => format!("a JSON {kind}"),
        "integer" => "an integer".to_owned(),
        "boolean" => "true or false".to_owned(),
        kind => format!("a {kind}"),
    }
}

/// Returns the types of a schema, or an empty list if it has no types.
pub(super) fn kinds<'a>(schema: &'a Value, root: &'a Value, depth: usize) -> Vec<&'a str> {
    let schema = resolved(schema, root, depth);
    let Some(depth) = depth.checked_sub(1) else {
        return Vec::new();
    };
    let found: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            let values = schema["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .chain(schema.get("const"));
            let parts = ["anyOf", "oneOf", "allOf"]
                .into_iter()
                .filter_map(|key| schema[key].as_array())
                .flatten();
            values
                .map(|value| -> &'a str { kind_of(value) })
                .chain(parts.flat_map(|part| kinds(part, root, depth)))
                .collect()
        }
    };
    let mut once: Vec<&str> = Vec::new();
    for kind in found {
        if !once.contains(&kind) {
            once.push(kind);
        }
    }
    once
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Follows the references of a schema.
fn resolved<'a>(schema: &'a Value, root: &'a Value, depth: usize) -> &'a Value {
    let mut schema = schema;
    for _ in 0..depth {
        let target = schema["$ref"]
            .as_str()
            .and_then(|place| place.strip_prefix('#'))
            .and_then(|at| root.pointer(at));
        match target {
            Some(target) => schema = target,
            None => return schema,
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(words: &[&str]) -> Result<CallArguments, String> {
        CallArguments::read(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    fn schema() -> Value {
        json!({
            "properties": {
                "text": { "type": "string" },
                "count": { "type": "integer" },
                "ratio": { "type": "number" },
                "deep": { "type": "boolean" },
                "tags": { "type": "array", "items": { "type": "integer" } },
                "where": { "$ref": "#/$defs/place" },
                "level": { "enum": ["low", "high"] },
                "maybe": { "anyOf": [{ "type": "null" }, { "type": "integer" }] },
                "either": { "type": ["string", "number"] },
            },
            "$defs": { "place": { "type": "object" } },
            "additionalProperties": false,
        })
    }

    #[test]
    fn values_get_the_types_of_the_schema() {
        let words = [
            "text=5",
            "count=-3",
            "ratio=0.5",
            "deep=true",
            "tags=1",
            "tags=2",
            "where={\"x\":1}",
            "level=low",
            "maybe=null",
            "either=7",
        ];
        let typed = given(&words).and_then(|given| given.typed(&schema()));
        let expected = json!({
            "text": "5", "count": -3, "ratio": 0.5, "deep": true, "tags": [1, 2], "where": { "x": 1 }, "level": "low",
            "maybe": null, "either": 7,
        });
        assert_eq!(typed, Ok(expected));
        let typed = given(&["tags=[4,5]", "text=a=b", "{\"count\":1,\"text\":\"old\"}"])
            .and_then(|given| given.typed(&schema()));
        assert_eq!(
            typed,
            Ok(json!({ "count": 1, "text": "a=b", "tags": [4, 5] }))
        );
    }

    #[test]
    fn without_a_schema_json_is_json_and_the_rest_is_text() {
        let typed =
            given(&["a=1", "b=x y", "c=[1]", "d=007"]).and_then(|given| given.typed(&Value::Null));
        assert_eq!(
            typed,
            Ok(json!({ "a": 1, "b": "x y", "c": [1], "d": "007" }))
        );
        assert_eq!(
            given(&["a=1", "b="]).and_then(CallArguments::texts),
            Ok(json!({ "a": "1", "b": "" }))
        );
    }

    #[test]
    fn mismatch_names_the_argument() {
        for (word, words) in [
            ("count=many", "`count` must be an integer, not `many`"),
            ("deep=yes", "`deep` must be true or false"),
            ("where=here", "`where` must be a JSON object"),
            (
                "txet=x",
                "the tool has no argument `txet`: did you mean `text`?",
            ),
            ("zzzzzzzz=1", "it takes text, count"),
        ] {
            let said = given(&[word])
                .and_then(|given| given.typed(&schema()))
                .expect_err(word);
            assert!(said.contains(words), "{said}");
        }
        for (words, said) in [
            (&["text=a", "text=b"][..], "`text` is given twice"),
            (&["hello"], "`hello` is not an argument: write KEY=VALUE"),
            (&["=x"], "is not an argument"),
            (&["{}", "{}"], "give at most one JSON object"),
            (&["[1]"], "arguments are an object"),
            (&["@/nowhere/x.json"], "/nowhere/x.json cannot be read"),
        ] {
            let failed = given(words)
                .and_then(|given| given.typed(&schema()))
                .expect_err(said);
            assert!(failed.contains(said), "{failed}");
        }
    }
}
