//! One field of an elicitation form: its prompt, and the conversion of a typed line.

use serde_json::{Number, Value};
use weir_text::one_line;

/// A field, as in the schemas of all revisions.
#[derive(Debug, PartialEq)]
pub(super) struct FormField {
    /// The member's name in the answer.
    pub name: String,
    label: String,
    kind: FieldKind,
    required: bool,
    default: Option<Value>,
}

#[derive(Debug, PartialEq)]
enum FieldKind {
    Text {
        least: u64,
        most: Option<u64>,
        format: Option<String>,
    },
    Number {
        whole: bool,
        least: Option<f64>,
        most: Option<f64>,
    },
    Boolean,
    /// One of these, each a value and a title.
    Choice(Vec<(String, String)>),
    /// Several of these.
    Choices {
        of: Vec<(String, String)>,
        least: u64,
        most: Option<u64>,
    },
}

impl FormField {
    /// Returns the fields of a form.
    pub(crate) fn of(schema: &Value) -> Vec<Self> {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties
            .map(|(name, property)| {
                Self::read_schema(name, property, required.contains(&name.as_str()))
            })
            .collect()
    }

    fn read_schema(name: &str, schema: &Value, required: bool) -> Self {
        let title = schema["title"].as_str().unwrap_or(name);
        let about = schema["description"]
            .as_str()
            .filter(|about| *about != title);
        let label = about.map_or_else(
            || one_line(title),
            |about| format!("{} ({})", one_line(title), one_line(about)),
        );
        let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
        let choices = choices(schema);
        let kind = match schema["type"].as_str() {
            Some("boolean") => FieldKind::Boolean,
            Some("integer") => FieldKind::Number {
                whole: true,
                least,
                most,
            },
            Some("number") => FieldKind::Number {
                whole: false,
                least,
                most,
            },
            Some("array") => FieldKind::Choices {
                of: self::choices(&schema["items"]),
                least: schema["minItems"].as_u64().unwrap_or_default(),
                most: schema["maxItems"].as_u64(),
            },
            _ if !choices.is_empty() => FieldKind::Choice(choices),
            _ => FieldKind::Text {
                least: schema["minLength"].as_u64().unwrap_or_default(),
                most: schema["maxLength"].as_u64(),
                format: schema["format"].as_str().map(one_line),
            },
        };
        let default = Some(schema["default"].clone()).filter(|default| !default.is_null());
        Self {
            name: name.to_owned(),
            label,
            kind,
            required,
            default,
        }
    }

    /// Returns the prompt, as one line or with a line for each choice.
    pub(crate) fn prompt(&self) -> String {
        let mut lines = String::new();
        let what = match &self.kind {
            FieldKind::Text { format, .. } => format.clone().unwrap_or_else(|| "text".to_owned()),
            FieldKind::Number { whole: true, .. } => "whole number".to_owned(),
            FieldKind::Number { whole: false, .. } => "number".to_owned(),
            FieldKind::Boolean => "y or n".to_owned(),
            FieldKind::Choice(of) => {
                lines = listed(of);
                "one number".to_owned()
            }
            FieldKind::Choices { of, .. } => {
                lines = listed(of);
                "numbers with commas".to_owned()
            }
        };
        let optional = if self.required { "" } else { ", optional" };
        let default = self
            .default
            .as_ref()
            .map(|default| format!(" [{}]", shown(default)))
            .unwrap_or_default();
        let label = &self.label;
        if lines.is_empty() {
            format!("{label}, {what}{optional}{default}: ")
        } else {
            format!("{label}\n{lines}  {what}{optional}{default}: ")
        }
    }

    /// Converts a typed line to a value. Returns `None` for an optional field that is left out.
    ///
    /// # Errors
    /// A message for people: the form of the line.
    pub(crate) fn read(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("a value is required; Ctrl-D cancels".to_owned()),
            };
        }
        match &self.kind {
            FieldKind::Text { least, most, .. } => text(line, *least, *most),
            FieldKind::Number { whole, least, most } => number(line, *whole, *least, *most),
            FieldKind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::from(true)),
                "n" | "no" | "false" => Ok(Value::from(false)),
                _ => Err("write y or n".to_owned()),
            },
            FieldKind::Choice(of) => choice(line, of).map(Value::from),
            FieldKind::Choices { of, least, most } => several(line, of, *least, *most),
        }
        .map(Some)
    }
}

/// Returns the choices of an enumeration in each of its forms.
fn choices(schema: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(titled) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        return titled
            .iter()
            .map(|one| (text(&one["const"]), one_line(&text(&one["title"]))))
            .collect();
    }
    let values = schema["enum"].as_array().into_iter().flatten().map(text);
    let titled = values.enumerate().map(|(at, value)| {
        let title = schema["enumNames"][at].as_str().unwrap_or(&value);
        let title = one_line(title);
        (value, title)
    });
    titled.collect()
}

fn listed(of: &[(String, String)]) -> String {
    of.iter()
        .enumerate()
        .map(|(at, (_, title))| format!("  {}) {title}\n", at + 1))
        .collect()
}

fn shown(default: &Value) -> String {
    match default {
        Value::String(text) => one_line(text),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            weir_text::json(default)
        }
    }
}

fn text(line: &str, least: u64, most: Option<u64>) -> Result<Value, String> {
    let length = line.chars().count() as u64;
    match most {
        _ if length < least => Err(format!(
            "write at least {}",
            weir_text::count(least, "character")
        )),
        Some(most) if length > most => Err(format!(
            "write at most {}",
            weir_text::count(most, "character")
        )),
        _ => Ok(Value::from(line)),
    }
}

fn number(line: &str, whole: bool, least: Option<f64>, most: Option<f64>) -> Result<Value, String> {
    let parsed: Option<Number> = serde_json::from_str(line).ok();
    let Some(number) = parsed.filter(|number| !whole || number.is_i64() || number.is_u64()) else {
        return Err(if whole {
            "write a whole number"
        } else {
            "write a number"
        }
        .to_owned());
    };
    let value = number.as_f64().unwrap_or_default();
    match (least, most) {
        (Some(least), _) if value < least => Err(format!("write {least} or more")),
        (_, Some(most)) if value > most => Err(format!("write {most} or less")),
        _ => Ok(Value::Number(number)),
    }
}

/// Finds a choice by its number, its title or its value.
fn choice(line: &str, of: &[(String, String)]) -> Result<String, String> {
    let by_number = line
        .parse::<usize>()
        .ok()
        .and_then(|number| of.get(number.checked_sub(1)?));
    let by_word = || {
        of.iter()
            .find(|(value, title)| value == line || title.eq_ignore_ascii_case(line))
    };
    let found = by_number.or_else(by_word).map(|(value, _)| value.clone());
    found.ok_or_else(|| format!("write a number from 1 to {}", of.len()))
}

fn several(
    line: &str,
    of: &[(String, String)],
    least: u64,
    most: Option<u64>,
) -> Result<Value, String> {
    let mut chosen: Vec<String> = Vec::new();
    for part in line
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let value = choice(part, of)?;
        if !chosen.contains(&value) {
            chosen.push(value);
        }
    }
    let number = chosen.len() as u64;
    match most {
        _ if number < least => Err(format!("choose at least {least}")),
        Some(most) if number > most => Err(format!("choose at most {most}")),
        _ => Ok(Value::from(chosen)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: &Value, required: bool) -> FormField {
        FormField::read_schema("f", schema, required)
    }

    #[test]
    fn typed_lines_become_values_of_each_kind() {
        let color = json!({ "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "g", "title": "Green" }] });
        let old = json!({ "type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"] });
        let many = json!({ "type": "array", "items": { "enum": ["a", "b", "c"] }, "minItems": 1, "maxItems": 2 });
        for (schema, line, expected) in [
            (json!({ "type": "string" }), " Ann ", Ok(json!("Ann"))),
            (
                json!({ "type": "string", "maxLength": 2 }),
                "Ann",
                Err("write at most 2 characters"),
            ),
            (
                json!({ "type": "string", "minLength": 4 }),
                "Ann",
                Err("write at least 4 characters"),
            ),
            (json!({ "type": "integer" }), "5", Ok(json!(5))),
            (
                json!({ "type": "integer" }),
                "5.5",
                Err("write a whole number"),
            ),
            (
                json!({ "type": "number", "minimum": 1, "maximum": 2 }),
                "1.5",
                Ok(json!(1.5)),
            ),
            (
                json!({ "type": "number", "minimum": 1 }),
                "0.5",
                Err("write 1 or more"),
            ),
            (json!({ "type": "boolean" }), "Y", Ok(json!(true))),
            (json!({ "type": "boolean" }), "perhaps", Err("write y or n")),
            (color.clone(), "2", Ok(json!("g"))),
            (color.clone(), "red", Ok(json!("r"))),
            (color, "3", Err("write a number from 1 to 2")),
            (old, "1", Ok(json!("r"))),
            (many.clone(), "1, c,1", Ok(json!(["a", "c"]))),
            (many, "1,2,3", Err("choose at most 2")),
        ] {
            let read = field(&schema, true).read(line);
            assert_eq!(
                read,
                expected.map(Some).map_err(str::to_owned),
                "{schema} {line}"
            );
        }
    }

    #[test]
    fn empty_input_takes_the_default_or_omits_an_optional_field() {
        let with_default = json!({ "type": "integer", "default": 7 });
        assert_eq!(field(&with_default, true).read(""), Ok(Some(json!(7))));
        assert_eq!(
            field(&json!({ "type": "string" }), false).read("  "),
            Ok(None)
        );
        assert!(field(&json!({ "type": "string" }), true).read("").is_err());
    }

    #[test]
    fn field_prompt_shows_type_and_default_without_escape_sequences() {
        let schema = json!({ "type": "string", "title": "Name\u{1b}[2J", "description": "yours", "default": "Ann" });
        assert_eq!(
            field(&schema, false).prompt(),
            "Name[2J (yours), text, optional [Ann]: "
        );
        let schema = json!({ "type": "string", "enum": ["a", "b"] });
        assert_eq!(
            field(&schema, true).prompt(),
            "f\n  1) a\n  2) b\n  one number: "
        );
    }
}
