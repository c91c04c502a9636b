//! Arguments of a call as a person types them: `key=value`, a JSON object, `@file`, or `-`.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use weir_text::one_line;
use weir_text::suggestion::nearest;

/// The most references that are followed in a schema.
pub(super) const MAX_REFERENCES: usize = 8;

/// The arguments before the tool's schema is known. Values keep their text: a JSON tree would round
/// long numbers.
#[derive(Debug, Default)]
pub(super) struct CallArguments {
    /// The JSON object, from the command line, a file or standard input.
    whole: BTreeMap<String, Box<RawValue>>,
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
                arguments.whole = weir_mcp_client::arguments(&text)
                    .map_err(|why| format!("the arguments are not a JSON object: {why}"))?;
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
    /// A message for people: a value that is not of its type, a name that the schema excludes, or a
    /// required argument that is missing.
    pub(super) fn typed(self, schema: &Value) -> Result<Box<RawValue>, String> {
        let whole = self.whole.into_iter();
        let mut arguments: BTreeMap<String, TypedArgument> = whole
            .map(|(key, value)| (key, TypedArgument::One(value)))
            .collect();
        let mut begun: Vec<String> = Vec::new();
        for (key, text) in self.pairs {
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
                    Some(TypedArgument::List(items)) if again => items.push(item),
                    _ => drop(arguments.insert(key.clone(), TypedArgument::List(vec![item]))),
                }
            } else if begun.contains(&key) {
                return Err(given_twice(&key));
            } else {
                let value = value(&key, &text, property, schema)?;
                // Further items may follow.
                let argument = match serde_json::from_str(value.get()) {
                    Ok(items) if lists => TypedArgument::List(items),
                    _ => TypedArgument::One(value),
                };
                arguments.insert(key.clone(), argument);
            }
            begun.push(key);
        }
        check_required(schema, arguments.keys().map(String::as_str))?;
        object(&arguments)
    }

    /// Returns the arguments as texts, as prompts take them.
    ///
    /// # Errors
    /// A message for people: an argument is given twice.
    pub(super) fn texts(self) -> Result<Box<RawValue>, String> {
        let Self {
            whole: mut arguments,
            pairs,
        } = self;
        let mut given: Vec<String> = Vec::new();
        for (key, text) in pairs {
            if given.contains(&key) {
                return Err(given_twice(&key));
            }
            arguments.insert(key.clone(), string(&text)?);
            given.push(key);
        }
        object(&arguments)
    }
}

/// The value of an argument with a schema.
#[derive(Serialize)]
#[serde(untagged)]
enum TypedArgument {
    One(Box<RawValue>),
    /// A list, which grows by each further pair of its key.
    List(Vec<Box<RawValue>>),
}

fn given_twice(key: &str) -> String {
    format!("`{}` is given twice, and takes one value", one_line(key))
}

fn object(members: &BTreeMap<String, impl Serialize>) -> Result<Box<RawValue>, String> {
    to_raw_value(members).map_err(|error| error.to_string())
}

fn string(text: &str) -> Result<Box<RawValue>, String> {
    to_raw_value(text).map_err(|error| error.to_string())
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

/// Refuses arguments that lack a required one. The server fills in one that has a default.
fn check_required<'a>(
    schema: &Value,
    given: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), String> {
    let known = &schema["properties"];
    let has_default = |name: &str| {
        let property = &known[name];
        let declared = [property, resolved(property, schema, MAX_REFERENCES)];
        declared.iter().any(|one| one.get("default").is_some())
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let missing: Vec<&str> = required
        .filter_map(Value::as_str)
        .filter(|name| given.clone().all(|one| one != *name) && !has_default(name))
        .collect();
    let unknown = given.filter(|name| known.get(name).is_none());
    let misspelt = missing
        .iter()
        .find_map(|name| Some((nearest(name, unknown.clone())?, name)));
    match (misspelt, missing.is_empty()) {
        (Some((given, name)), _) => Err(format!(
            "the tool has no argument `{}`: did you mean `{}`?",
            one_line(given),
            one_line(name)
        )),
        (None, true) => Ok(()),
        (None, false) => Err(format!(
            "the tool requires {}",
            one_line(&missing.join(", "))
        )),
    }
}

/// Returns one value as a type that the schema allows. JSON stays as it is written.
fn value(key: &str, text: &str, schema: &Value, root: &Value) -> Result<Box<RawValue>, String> {
    let kinds = kinds(schema, root, MAX_REFERENCES);
    let json: Option<Box<RawValue>> = serde_json::from_str(text.trim()).ok();
    let fits = |json: &RawValue| {
        kinds.is_empty()
            || kinds.iter().any(|kind| match *kind {
                "string" => false,
                "integer" => kind_of_json(json) == "number" && is_integer(json.get()),
                kind => kind_of_json(json) == kind,
            })
    };
    match json.filter(|json| fits(json)) {
        Some(json) => Ok(json),
        None if kinds.is_empty() || kinds.contains(&"string") => string(text),
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

/// Returns the type of a JSON text, by its first character.
fn kind_of_json(json: &RawValue) -> &'static str {
    match json.get().as_bytes().first() {
        Some(b'n') => "null",
        Some(b't' | b'f') => "boolean",
        Some(b'"') => "string",
        Some(b'[') => "array",
        Some(b'{') => "object",
        _ => "number",
    }
}

/// Reports if a JSON number is an integer, as in `7`, `7.0` and `7.5e1`. A float cannot decide it
/// for long numbers.
fn is_integer(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (whole, fraction) = (
        whole.trim_start_matches('-'),
        fraction.trim_end_matches('0'),
    );
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0').len();
    if significant == 0 {
        return true;
    }
    // The number of digits before the point, once the exponent has moved it.
    match exponent.parse::<i128>() {
        Ok(exponent) => whole.len() as i128 + exponent >= significant as i128,
        Err(_) => !exponent.starts_with('-'),
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

    fn tree(arguments: Result<Box<RawValue>, String>) -> Result<Value, String> {
        arguments.map(|json| serde_json::from_str(json.get()).expect("JSON"))
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
        let typed = tree(given(&words).and_then(|given| given.typed(&schema())));
        let expected = json!({
            "text": "5", "count": -3, "ratio": 0.5, "deep": true, "tags": [1, 2], "where": { "x": 1 }, "level": "low",
            "maybe": null, "either": 7,
        });
        assert_eq!(typed, Ok(expected));
        let words = [
            "tags=[4,5]",
            "tags=6",
            "text=a=b",
            "{\"count\":1,\"text\":\"old\"}",
        ];
        let typed = tree(given(&words).and_then(|given| given.typed(&schema())));
        assert_eq!(
            typed,
            Ok(json!({ "count": 1, "text": "a=b", "tags": [4, 5, 6] }))
        );
    }

    #[test]
    fn numbers_keep_their_text() {
        let texts = |words: &[&str], schema: &Value| {
            given(words)
                .and_then(|given| given.typed(schema))
                .map(|arguments| arguments.get().to_owned())
        };
        let long = "123456789012345678901234567890";
        assert_eq!(
            texts(
                &[
                    &format!("count={long}"),
                    "ratio=0.10000000000000000000000000001",
                    &format!("tags={long}"),
                    "tags=1e400",
                    &format!("where={{\"x\":{long}}}"),
                    &format!("text={long}"),
                ],
                &schema()
            ),
            Ok(format!(
                "{{\"count\":{long},\"ratio\":0.10000000000000000000000000001,\
                 \"tags\":[{long},1e400],\"text\":\"{long}\",\"where\":{{\"x\":{long}}}}}"
            ))
        );
        let whole = format!("{{\"n\":{long}}}");
        assert_eq!(
            texts(&[&format!("m={long}"), &whole], &Value::Null),
            Ok(format!("{{\"m\":{long},\"n\":{long}}}"))
        );
        assert_eq!(
            given(&[&whole])
                .and_then(CallArguments::texts)
                .map(|arguments| arguments.get().to_owned()),
            Ok(whole)
        );
    }

    #[test]
    fn integers_are_told_from_fractions() {
        for integer in [
            "0", "-7", "7.0", "7e2", "7.5e1", "70e-1", "0e-9", "0.0", "12e99999",
        ] {
            assert!(is_integer(integer), "{integer}");
        }
        for fraction in [
            "0.5",
            "7.5",
            "7e-1",
            "7.55e1",
            "0.05e1",
            "12345678901234567890123.5",
            "1e-99999999999999999999999999999999999999999",
        ] {
            assert!(!is_integer(fraction), "{fraction}");
        }
    }

    #[test]
    fn without_a_schema_json_is_json_and_the_rest_is_text() {
        let words = ["a=1", "b=x y", "c=[1]", "d=007"];
        let typed = tree(given(&words).and_then(|given| given.typed(&Value::Null)));
        assert_eq!(
            typed,
            Ok(json!({ "a": 1, "b": "x y", "c": [1], "d": "007" }))
        );
        assert_eq!(
            tree(given(&["a=1", "b="]).and_then(CallArguments::texts)),
            Ok(json!({ "a": "1", "b": "" }))
        );
    }

    #[test]
    fn missing_required_argument_is_named() {
        let schema = json!({
            "properties": {
                "path": { "type": "string" },
                "mode": { "$ref": "#/$defs/mode" },
                "depth": { "type": "integer", "default": 1 },
            },
            "required": ["path", "mode", "depth"],
            "$defs": { "mode": { "enum": ["r", "w"], "default": "r" } },
        });
        let typed = |words: &[&str]| tree(given(words).and_then(|given| given.typed(&schema)));
        assert_eq!(
            typed(&["pth=/x"]),
            Err("the tool has no argument `pth`: did you mean `path`?".to_owned())
        );
        assert_eq!(
            typed(&["depth=2"]),
            Err("the tool requires path".to_owned())
        );
        // The schema allows other names, and the server has values for the rest.
        assert_eq!(
            typed(&["extra=1", "path=/x"]),
            Ok(json!({ "extra": 1, "path": "/x" }))
        );
        assert_eq!(
            typed(&["depth=2", "{\"path\":\"/x\"}"]),
            Ok(json!({ "depth": 2, "path": "/x" }))
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
