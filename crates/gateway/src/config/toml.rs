//! Parses TOML, as Codex writes its settings.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::LineIndex;
use super::report::{Path, Problem};
use super::tree::{LONGEST, Node, Text, Value};

/// Parses a TOML text into a tree.
///
/// # Errors
/// The text is not TOML, or larger than a config may be.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    if text.len() > LONGEST {
        let message = format!(
            "the file has {} bytes, more than the {LONGEST} a config may have",
            text.len()
        );
        return Err(Problem::error(Path::root(), message));
    }
    let lines = LineIndex::of(text);
    let root = DeTable::parse(text).map_err(|error| Problem {
        line: error.span().map(|span| lines.line(span.start)),
        ..Problem::error(
            Path::root(),
            format!("this is no valid TOML: {}", error.message()),
        )
    })?;
    Ok(Node {
        line: 1,
        value: table(root.into_inner(), &lines),
    })
}

fn table(entries: DeTable<'_>, lines: &LineIndex) -> Value {
    let entries = entries.into_iter().map(|(key, value)| {
        let line = lines.line(key.span().start);
        // The line of a value is that of its key.
        (
            key.into_inner().into_owned(),
            Node {
                line,
                ..node(value, lines)
            },
        )
    });
    Value::Map(entries.collect())
}

fn node(value: Spanned<DeValue<'_>>, lines: &LineIndex) -> Node {
    let line = lines.line(value.span().start);
    let text = |text: String| {
        Value::Text(Text {
            text,
            from_env: false,
        })
    };
    let value = match value.into_inner() {
        DeValue::String(string) => text(string.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => text(integer.to_string()),
        },
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .map_or_else(|_| text(float.to_string()), Value::Float),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(time) => text(time.to_string()),
        DeValue::Array(items) => {
            Value::List(items.into_iter().map(|item| node(item, lines)).collect())
        }
        DeValue::Table(entries) => table(entries, lines),
    };
    Node { line, value }
}
