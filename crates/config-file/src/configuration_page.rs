//! The configuration reference, generated from the config's JSON Schema: one table for each group
//! of keys, in the order in which a reader meets them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;

use serde_json::Value;

use crate::schema::schema;

const HEAD: &str = "# Configuration

This page is generated from the config's schema (`weir docs configuration`); a test keeps it current. `weir check FILE` reports
every error in a file, with its line. A key that is not in these tables is an error. `weir schema > weir.schema.json` writes the schema for editors:
a YAML file names it in the comment `# yaml-language-server: $schema=weir.schema.json` of its first line, and a JSON file under `$schema`.

The file is YAML or JSON. Programs that read YAML 1.1, such as Helm, write `false` for a bare `off` or `no`, and `true` for `yes`: weir takes these for the
words. `${NAME}` is the value of an environment variable, and `${NAME:-text}` is the same with a default.
`${file:/run/secrets/x}` is the content of that file, which weir watches like the config. Examples are in `examples/`. weir also accepts the files
of MCP clients unchanged: see `docs/migrating.md`. Relative paths of files start at the folder of the main config file, also those in files of
`include`.
";

/// Returns `docs/configuration.md`, from the schema.
///
/// # Panics
/// If the schema is no JSON: it is made by this program.
#[must_use]
pub fn configuration_page() -> String {
    let schema: Value = serde_json::from_str(&schema()).expect("the schema is made as JSON");
    ConfigurationReference {
        definitions: &schema["$defs"],
        known: BTreeSet::new(),
        open: VecDeque::new(),
    }
    .write(&schema)
}

/// The page while it is written.
struct ConfigurationReference<'s> {
    definitions: &'s Value,
    /// Definitions that have a section, or will have one.
    known: BTreeSet<&'s str>,
    /// The definitions still to be written, with the key under which a reader first meets them.
    open: VecDeque<(&'s str, String)>,
}

impl<'s> ConfigurationReference<'s> {
    fn write(mut self, schema: &'s Value) -> String {
        let mut page = HEAD.to_owned();
        page.push_str("\n## The file\n\n");
        self.table(&mut page, schema, "");
        while let Some((name, place)) = self.open.pop_front() {
            let section = &self.definitions[name];
            // Writing to a string cannot fail.
            let _ = write!(
                page,
                "\n<a id=\"{}\"></a>\n\n## `{place}`\n\n{}\n\n",
                anchor(name),
                about(section)
            );
            self.table(&mut page, section, &place);
        }
        page
    }

    fn table(&mut self, page: &mut String, section: &'s Value, place: &str) {
        page.push_str("| key | value | description |\n|---|---|---|\n");
        for (key, property) in section["properties"].as_object().into_iter().flatten() {
            let below = if place.is_empty() {
                key.clone()
            } else {
                format!("{place}.{key}")
            };
            let value = self.value(property, &below);
            let _ = writeln!(page, "| `{key}` | {value} | {} |", about(property));
        }
    }

    /// Describes a value in a few words, or links to the section of its keys.
    fn value(&mut self, schema: &'s Value, place: &str) -> String {
        if let Some(name) = schema["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/$defs/"))
        {
            let definition = &self.definitions[name];
            if definition["properties"].is_object() {
                if self.known.insert(name) {
                    self.open.push_back((name, place.to_owned()));
                }
                return format!("[keys](#{})", anchor(name));
            }
            return self.value(definition, place);
        }
        if let Some(choices) = schema["oneOf"]
            .as_array()
            .or_else(|| schema["anyOf"].as_array())
        {
            let choices = choices.iter().filter(|choice| choice["type"] != "null");
            return choices
                .map(|choice| self.value(choice, place))
                .collect::<Vec<_>>()
                .join(" or ");
        }
        if let Some(constant) = schema["const"].as_str() {
            return format!("`{constant}`");
        }
        if let Some(words) = schema["enum"].as_array() {
            return words
                .iter()
                .filter_map(Value::as_str)
                .map(|word| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(" or ");
        }
        let kind = match schema["type"].as_array() {
            Some(kinds) => kinds
                .iter()
                .find(|kind| *kind != "null")
                .and_then(Value::as_str),
            None => schema["type"].as_str(),
        };
        match (kind, schema["pattern"].as_str()) {
            (Some("array"), _) => format!(
                "list: {}",
                self.value(&schema["items"], &format!("{place}[]"))
            ),
            (Some("object"), _) if schema["additionalProperties"].is_object() => {
                format!(
                    "map: {}",
                    self.value(&schema["additionalProperties"], &format!("{place}.NAME"))
                )
            }
            (Some("boolean"), _) => "`true` or `false`".to_owned(),
            (Some("integer"), _) => "whole number".to_owned(),
            (Some("number"), _) => "number".to_owned(),
            (Some("string"), Some(_)) => short(&about(schema)),
            (Some("string"), None) => "text".to_owned(),
            _ => "any".to_owned(),
        }
    }
}

/// Shortens `write a number and ms, such as 500ms` to `a number and ms`.
fn short(about: &str) -> String {
    let rest = about.strip_prefix("write ").unwrap_or(about);
    rest.split(", such as").next().unwrap_or(rest).to_owned()
}

fn about(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ")
        .replace('|', "\\|")
}

/// Turns `RawToolset` into `toolset`.
fn anchor(definition: &str) -> String {
    definition
        .strip_prefix("Raw")
        .unwrap_or(definition)
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run with `UPDATE=1` to write the file anew.
    #[test]
    fn the_checked_in_configuration_reference_is_current_and_names_every_key() {
        let page = configuration_page();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(file, &page).expect("docs/ can be written");
        }
        let checked_in = std::fs::read_to_string(file).expect("the page is there");
        assert_eq!(
            checked_in, page,
            "run this test with UPDATE=1 and review the difference"
        );
        let schema: Value = serde_json::from_str(&schema()).expect("it is JSON");
        let definitions = schema["$defs"].as_object().expect("it has definitions");
        for section in std::iter::once(&schema).chain(definitions.values()) {
            for key in section["properties"]
                .as_object()
                .into_iter()
                .flat_map(|keys| keys.keys())
            {
                assert!(page.contains(&format!("| `{key}` |")), "{key} is missing");
            }
        }
    }
}
