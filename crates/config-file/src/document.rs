//! Parses a file into a tree. The format is YAML, JSON with comments, or TOML.

use std::path::Path as FilePath;

use crate::config_report::{ConfigPath, ConfigProblem};
use crate::config_tree::{ConfigNode, MAX_BYTES, NodeValue};
use crate::{json, toml};

/// The format of a file. weir's own files are YAML or JSON; files of other programs are JSON with
/// comments, or TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// YAML.
    Yaml,
    /// JSON. Comments and trailing commas are allowed.
    Json,
    /// TOML, by the extension of the file's name.
    Toml,
}

/// Parses the text of the file `name`. An empty file is an error: it has probably lost its content,
/// and must not become a config of defaults.
///
/// # Errors
/// The file cannot be parsed, or is empty.
pub fn parse_nonempty(name: &str, text: &str) -> Result<(ConfigNode, FileFormat), ConfigProblem> {
    let (tree, format) = parse(name, text)?;
    let is_empty = match &tree.value {
        NodeValue::Map(entries) => entries.is_empty(),
        NodeValue::Null => true,
        NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_)
        | NodeValue::Text(_)
        | NodeValue::List(_) => false,
    };
    if is_empty {
        let hint = "a config has at least `upstreams`; one without any is `upstreams: {}`";
        return Err(ConfigProblem::error(
            ConfigPath::root(),
            "the file is empty: its contents may be lost",
        )
        .hint(hint));
    }
    Ok((tree, format))
}

/// Parses the text of the file `name`, which may be empty.
///
/// # Errors
/// The file cannot be parsed.
pub fn parse(name: &str, text: &str) -> Result<(ConfigNode, FileFormat), ConfigProblem> {
    // Windows programs put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > MAX_BYTES {
        let message = format!(
            "the file has {} bytes, more than the {MAX_BYTES} a config may have",
            text.len()
        );
        return Err(ConfigProblem::error(ConfigPath::root(), message));
    }
    let extension = FilePath::new(name)
        .extension()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if extension == "toml" {
        return toml::parse(text).map(|tree| (tree, FileFormat::Toml));
    }
    if !begins_like_json(text) {
        return ConfigNode::parse(text).map(|tree| (tree, FileFormat::Yaml));
    }
    json::parse(text)
        .map(|tree| (tree, FileFormat::Json))
        .or_else(|problem| {
            // A text in braces that is no JSON may still be YAML: `{ listen: 127.0.0.1:80 }`.
            let parsed = ConfigNode::parse(text).map(|tree| (tree, FileFormat::Yaml));
            parsed.map_err(|other| {
                if extension == "json" || extension == "jsonc" {
                    problem
                } else {
                    other
                }
            })
        })
}

fn begins_like_json(text: &str) -> bool {
    let text = text.trim_start();
    ["{", "//", "/*"]
        .iter()
        .any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str, text: &str) -> Option<FileFormat> {
        parse_nonempty(name, text).ok().map(|(_, format)| format)
    }

    #[test]
    fn format_follows_the_text_and_toml_the_name() {
        assert_eq!(format("a.yaml", "listen: x"), Some(FileFormat::Yaml));
        assert_eq!(format("a.json", "{ listen: x }"), Some(FileFormat::Yaml));
        assert_eq!(
            format("a.yaml", "{ \"listen\": \"x\" }"),
            Some(FileFormat::Json)
        );
        assert_eq!(
            format("a.json", "\u{feff}// one\n/* two */ { \"listen\": \"x\", }"),
            Some(FileFormat::Json)
        );
        assert_eq!(format("a.toml", "[a]\nb = 1"), Some(FileFormat::Toml));
        for (name, text) in [
            ("a.yaml", ""),
            ("a.json", "{}"),
            ("a.toml", ""),
            ("a.json", "// nothing\n{}"),
        ] {
            let problem = parse_nonempty(name, text).expect_err(name);
            assert!(
                problem.message.contains("the file is empty"),
                "{name}: {problem}"
            );
        }
    }

    #[test]
    fn json_keeps_its_tabs_its_escapes_and_its_lines() {
        let text = "{\n\t// a comment\n\t\"a\": \"\\ud83d\\ude00 // no comment\",\n\t\"b\": [1, 2.5, true, null,],\n}";
        let (tree, _) = parse_nonempty("a.json", text).expect("it is JSON with comments");
        let at = |path: &str| tree.find(&ConfigPath::at(path)).expect(path);
        assert!(matches!(&at("a").value, NodeValue::Text(text) if text.text == "😀 // no comment"));
        assert_eq!((at("a").line, at("b").line), (3, 4));
        assert!(matches!(&at("b").value, NodeValue::List(items) if items.len() == 4));
    }

    #[test]
    fn parse_error_has_line() {
        for (name, text, line, words) in [
            (
                "a.json",
                "{\n  \"a\": 1\n  \"b\": 2\n}",
                2,
                "not valid JSON: Expected comma",
            ),
            ("a.json", "{ \"a\": 1,\n\"a\": 2 }", 2, "appears twice"),
            ("a.toml", "[a]\nb = \n", 2, "not valid TOML"),
        ] {
            let problem = parse_nonempty(name, text).expect_err(text);
            assert_eq!(problem.line, Some(line), "{problem}");
            assert!(problem.message.contains(words), "{problem}");
        }
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        assert!(parse_nonempty("a.json", &deep).is_err());
    }
}
