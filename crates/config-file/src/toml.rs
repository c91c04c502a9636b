//! Parses TOML, as Codex writes its settings.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config_report::{ConfigPath, ConfigProblem};
use crate::config_tree::{ConfigNode, NodeText, NodeValue};
use crate::line_index::LineIndex;

/// Parses a TOML text into a tree.
///
/// # Errors
/// The text is not TOML.
pub(crate) fn parse(text: &str) -> Result<ConfigNode, ConfigProblem> {
    let lines = LineIndex::of(text);
    let root = DeTable::parse(text).map_err(|error| ConfigProblem {
        line: error.span().map(|span| lines.line(span.start)),
        ..ConfigProblem::error(
            ConfigPath::root(),
            format!("this is not valid TOML: {}", error.message()),
        )
    })?;
    Ok(ConfigNode {
        line: 1,
        value: table(root.into_inner(), &lines),
    })
}

fn table(entries: DeTable<'_>, lines: &LineIndex) -> NodeValue {
    let entries = entries.into_iter().map(|(key, value)| {
        let line = lines.line(key.span().start);
        // The line of a value is that of its key.
        (
            key.into_inner().into_owned(),
            ConfigNode {
                line,
                ..node(value, lines)
            },
        )
    });
    NodeValue::Map(entries.collect())
}

fn node(value: Spanned<DeValue<'_>>, lines: &LineIndex) -> ConfigNode {
    let line = lines.line(value.span().start);
    let text = |text: String| {
        NodeValue::Text(NodeText {
            text,
            from_env: false,
        })
    };
    let value = match value.into_inner() {
        DeValue::String(string) => text(string.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => NodeValue::Integer(integer),
            Err(_) => text(integer.to_string()),
        },
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .map_or_else(|_| text(float.to_string()), NodeValue::Float),
        DeValue::Boolean(value) => NodeValue::Bool(value),
        DeValue::Datetime(time) => text(time.to_string()),
        DeValue::Array(items) => {
            NodeValue::List(items.into_iter().map(|item| node(item, lines)).collect())
        }
        DeValue::Table(entries) => table(entries, lines),
    };
    ConfigNode { line, value }
}
