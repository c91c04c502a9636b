//! Parses JSON with comments and trailing commas, as editors write their settings.

use std::collections::HashSet;

use jsonc_parser::ast::Value as Ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use crate::config_report::{ConfigPath, ConfigProblem};
use crate::config_tree::{ConfigNode, NodeText, NodeValue};
use crate::line_index::LineIndex;

/// The most values in a file. Settings of an editor are far below this.
const MAX_NODES: usize = 200_000;
const MAX_DEPTH: usize = 64;

/// Parses a JSON text into a tree.
///
/// # Errors
/// The text is not JSON, or has more values than a config may have.
pub fn parse(text: &str) -> Result<ConfigNode, ConfigProblem> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options()).map_err(|error| {
        let line = u32::try_from(error.line_display()).ok();
        broken(line, &format!("this is not valid JSON: {}", error.kind()))
    })?;
    let root = parsed
        .value
        .ok_or_else(|| broken(None, "this is not valid JSON: there is no value"))?;
    JsonReader {
        lines: LineIndex::of(text),
        nodes: 0,
    }
    .node(root, 0)
}

/// Returns the options for JSON with comments and trailing commas.
pub fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn broken(line: Option<u32>, message: &str) -> ConfigProblem {
    ConfigProblem {
        line,
        ..ConfigProblem::error(ConfigPath::root(), message)
    }
}

struct JsonReader {
    lines: LineIndex,
    nodes: usize,
}

impl JsonReader {
    fn node(&mut self, value: Ast<'_>, depth: usize) -> Result<ConfigNode, ConfigProblem> {
        let line = self.lines.line(value.range().start);
        self.nodes += 1;
        if self.nodes > MAX_NODES || depth > MAX_DEPTH {
            return Err(broken(
                Some(line),
                "the file exceeds the limits of a config: too many or too deep values",
            ));
        }
        let value = match value {
            Ast::NullKeyword(_) => NodeValue::Null,
            Ast::BooleanLit(literal) => NodeValue::Bool(literal.value),
            Ast::NumberLit(literal) => number(literal.value),
            Ast::StringLit(literal) => NodeValue::Text(NodeText {
                text: literal.value.into_owned(),
                from_env: false,
            }),
            Ast::Array(array) => {
                let items = array
                    .elements
                    .into_iter()
                    .map(|item| self.node(item, depth + 1));
                NodeValue::List(items.collect::<Result<_, _>>()?)
            }
            Ast::Object(object) => {
                let (mut entries, mut seen) = (Vec::new(), HashSet::new());
                for property in object.properties {
                    let line = self.lines.line(property.range.start);
                    let key = property.name.into_string();
                    if !seen.insert(key.clone()) {
                        return Err(broken(
                            Some(line),
                            &format!("key `{key}` appears twice in one map"),
                        ));
                    }
                    // The line of a value is that of its key.
                    entries.push((
                        key,
                        ConfigNode {
                            line,
                            ..self.node(property.value, depth + 1)?
                        },
                    ));
                }
                NodeValue::Map(entries)
            }
        };
        Ok(ConfigNode { line, value })
    }
}

fn number(text: &str) -> NodeValue {
    text.parse().map_or_else(
        |_| NodeValue::Float(text.parse().unwrap_or(f64::NAN)),
        NodeValue::Integer,
    )
}
