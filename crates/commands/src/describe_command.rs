//! `weir describe URL TOOL`: shows the description, the arguments and an example of a tool.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use weir_core::upstream::ListKind;
use weir_text::{one_line, plain};

use crate::call_arguments::{MAX_REFERENCES, kinds};
use crate::exit_code::{EXIT_UNREACHABLE, exit_with_error};
use crate::server_target::{ServerTarget, print_client_error};
use crate::table::columns;
use crate::unknown_name::{UnknownName, find_by_own_name};

/// The options of `weir describe`.
#[derive(Debug, Args)]
pub struct DescribeOptions {
    #[command(flatten)]
    target: ServerTarget,
    /// The tool's name, as `weir tools` shows it
    tool: String,
    /// Print the tool's definition as JSON, with its schemas
    #[arg(long)]
    json: bool,
}

/// Prints the description and the arguments of a tool.
pub async fn describe(options: &DescribeOptions) -> ExitCode {
    let DescribeOptions { target, tool, json } = options;
    let mut client = match target.open().await {
        Ok(client) => client,
        Err(error) => return print_client_error(&error),
    };
    let listed = match client.list(ListKind::Tools).await {
        Ok(listed) => listed,
        Err(error) => return print_client_error(&error),
    };
    let found = listed
        .items
        .iter()
        .find(|item| item["name"] == **tool)
        .or_else(|| find_by_own_name(&listed.items, tool));
    let Some(found) = found else {
        client.close().await;
        return exit_with_error(
            EXIT_UNREACHABLE,
            UnknownName::new(ListKind::Tools, tool, &listed).explain(&target.url),
        );
    };
    if *json {
        weir_terminal::line(weir_text::json(found));
    } else {
        weir_terminal::write(show(found, &target.url));
    }
    client.close().await;
    ExitCode::SUCCESS
}

fn show(tool: &Value, url: &str) -> String {
    let name = one_line(tool["name"].as_str().unwrap_or("?"));
    let title = tool["title"]
        .as_str()
        .or(tool["annotations"]["title"].as_str())
        .map(one_line);
    let mut out = title.map_or_else(|| format!("{name}\n"), |title| format!("{name}: {title}\n"));
    if let Some(description) = tool["description"].as_str() {
        out.push_str(&format!("\n{}\n", plain(description.trim())));
    }
    let schema = &tool["inputSchema"];
    let arguments: Vec<Vec<String>> = properties(schema)
        .map(|(name, property)| row(name, property, schema))
        .collect();
    match arguments.is_empty() {
        true => out.push_str("\nIt takes no arguments.\n"),
        false => out.push_str(&format!(
            "\nArguments:\n{}",
            columns(&arguments, weir_terminal::width())
        )),
    }
    let hints = hints(&tool["annotations"]);
    if !hints.is_empty() {
        out.push_str(&format!(
            "\nIts server declares that it {}.\n",
            hints.join(", ")
        ));
    }
    out.push_str(&format!(
        "\nCall it:\n  weir call {url} {name}{}\n",
        example(schema)
    ));
    out
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"]
        .as_array()
        .is_some_and(|required| required.iter().any(|one| one == name))
}

/// Returns the columns of an argument: its name, its type, and its description.
fn row(name: &str, property: &Value, schema: &Value) -> Vec<String> {
    let kinds = kinds(property, schema, MAX_REFERENCES);
    let mut kind = if kinds.is_empty() {
        "anything".to_owned()
    } else {
        kinds.join(" or ")
    };
    if is_required(schema, name) {
        kind.push_str(", required");
    }
    let mut about = vec![one_line(
        property["description"]
            .as_str()
            .or(property["title"].as_str())
            .unwrap_or_default()
            .trim(),
    )];
    if let Some(values) = property["enum"].as_array() {
        let values: Vec<String> = values.iter().map(literal).collect();
        about.push(format!("one of {}", values.join(", ")));
    }
    if !property["default"].is_null() {
        about.push(format!("default {}", literal(&property["default"])));
    }
    about.retain(|part| !part.is_empty());
    vec![
        format!("  {}", one_line(name)),
        one_line(&kind),
        about.join("; "),
    ]
}

fn literal(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| weir_text::json(value), one_line)
}

fn hints(annotations: &Value) -> Vec<&'static str> {
    let known = [
        ("readOnlyHint", true, "changes nothing"),
        ("destructiveHint", true, "may destroy something"),
        ("destructiveHint", false, "destroys nothing"),
        ("idempotentHint", true, "does no more when called twice"),
        ("openWorldHint", true, "reaches other systems"),
        ("openWorldHint", false, "stays within its own system"),
    ];
    known
        .into_iter()
        .filter(|(name, value, _)| annotations[*name] == *value)
        .map(|(_, _, words)| words)
        .collect()
}

/// Returns the required arguments, with placeholders as values.
fn example(schema: &Value) -> String {
    let required = properties(schema).filter(|(name, _)| is_required(schema, name));
    required
        .map(|(name, property)| format!(" {}={}", one_line(name), placeholder(property, schema)))
        .collect()
}

fn placeholder(property: &Value, schema: &Value) -> String {
    let given = property["default"]
        .as_str()
        .or(property["enum"][0].as_str())
        .map(one_line);
    let simple = given.filter(|text| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
    });
    simple.unwrap_or_else(|| match kinds(property, schema, MAX_REFERENCES).first() {
        Some(&("integer" | "number")) => "1".to_owned(),
        Some(&"boolean") => "true".to_owned(),
        Some(&"array") => "'[...]'".to_owned(),
        Some(&"object") => "'{...}'".to_owned(),
        _ => "...".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_shown_with_its_arguments_and_an_example() {
        let tool = json!({
            "name": "files__search", "title": "Search", "description": "Looks for a text.\n\nFast.\u{1b}[2J",
            "inputSchema": {
                "properties": {
                    "limit": { "type": "integer", "default": 10 },
                    "mode": { "enum": ["fast", "whole"] },
                    "text": { "type": "string", "description": "What to look for" },
                },
                "required": ["text", "mode"],
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        });
        let shown = show(&tool, "http://127.0.0.1:8080/mcp");
        let expected = "files__search: Search\n\n\
            Looks for a text.\n\nFast.[2J\n\n\
            Arguments:\n  \
              limit  integer           default 10\n  \
              mode   string, required  one of fast, whole\n  \
              text   string, required  What to look for\n\n\
            Its server declares that it changes nothing, stays within its own system.\n\n\
            Call it:\n  weir call http://127.0.0.1:8080/mcp files__search mode=fast text=...\n";
        assert_eq!(shown, expected);
        assert!(show(&json!({"name": "now"}), "URL").contains("It takes no arguments."));
    }
}
