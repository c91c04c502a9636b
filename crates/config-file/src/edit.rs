//! Inserts upstreams into the text of a config. Comments and the order of entries stay.

use serde_json::{Map, Value as Json};
use std::fmt;

use crate::config_report::ConfigProblem;
use crate::config_tree::{ConfigNode, NodeValue};
use crate::document::{FileFormat, parse, parse_nonempty};
use crate::foreign;

/// A new upstream entry, as YAML lines, as text in braces, and as a value.
pub struct NewUpstream<'a> {
    /// The id of the upstream.
    pub id: &'a str,
    /// The id as YAML: some words are no strings without quotes.
    pub key: String,
    /// Writes the lines of the entry. The arguments are the indent of each line, and the indent of
    /// one more level.
    pub block: &'a dyn Fn(&str, &str) -> String,
    /// The entry in braces.
    pub flow: String,
    /// The entry as a value.
    pub value: Json,
}

impl fmt::Debug for NewUpstream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewUpstream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Returns the text of a config with one more upstream.
///
/// # Errors
/// The text cannot be parsed, has the upstream already, belongs to another program, or is written
/// in a way that weir does not edit.
pub fn with_upstream(name: &str, text: &str, new: &NewUpstream<'_>) -> Result<String, String> {
    let (tree, format) = parse_nonempty(name, text)
        .map_err(|problem| format!("{}; fix it first", problem.message))?;
    if foreign::is_foreign_file(&tree, format) {
        return Err(
            "is a file of another program: `weir import FILE --write weir.yaml` converts it"
                .to_owned(),
        );
    }
    let upstreams = tree
        .entries()
        .iter()
        .find(|(key, _)| key == "upstreams")
        .map(|(_, node)| node);
    if let Some((_, old)) =
        upstreams.and_then(|node| node.entries().iter().find(|(key, _)| key == new.id))
    {
        return Err(format!(
            "already has an upstream `{}`, in line {}",
            new.id, old.line
        ));
    }
    let edited = match (format, upstreams) {
        (FileFormat::Yaml, None) if !text.trim_start().starts_with('{') => {
            Some(appended(text, new))
        }
        (FileFormat::Yaml, Some(_)) if !text.trim_start().starts_with('{') => {
            into_section(text, new)
        }
        _ => into_braces(text, upstreams.is_some(), new),
    };
    let wanted = expected(&tree, new);
    let is_right =
        |text: &String| parse_nonempty(name, text).is_ok_and(|(tree, _)| json(&tree) == wanted);
    edited.filter(is_right).ok_or_else(|| {
        format!(
            "is written in a way that weir does not edit; put this under `upstreams`: \"{}\": {}",
            new.id, new.flow
        )
    })
}

/// Returns the config that the edited text must parse to.
fn expected(tree: &ConfigNode, new: &NewUpstream<'_>) -> Json {
    let mut wanted = json(tree);
    if let Json::Object(sections) = &mut wanted {
        let upstreams = sections
            .entry("upstreams")
            .or_insert_with(|| Json::Object(Map::new()));
        if upstreams.is_null() {
            *upstreams = Json::Object(Map::new());
        }
        if let Json::Object(upstreams) = upstreams {
            upstreams.insert(new.id.to_owned(), new.value.clone());
        }
    }
    wanted
}

/// Parses a file into JSON. Its name decides the format.
///
/// # Errors
/// The text cannot be parsed.
pub fn json_tree(name: &str, text: &str) -> Result<Json, ConfigProblem> {
    parse(name, text).map(|(tree, _)| json(&tree))
}

/// Converts a tree to JSON, without its lines.
fn json(node: &ConfigNode) -> Json {
    match &node.value {
        NodeValue::Null | NodeValue::Unset => Json::Null,
        NodeValue::Bool(value) => (*value).into(),
        NodeValue::Integer(value) => (*value).into(),
        NodeValue::Float(value) => (*value).into(),
        NodeValue::Text(text) => text.text.as_str().into(),
        NodeValue::List(items) => items.iter().map(json).collect(),
        NodeValue::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, node)| (key.clone(), json(node)))
                .collect(),
        ),
    }
}

/// Returns the lines of the entry, with the line ends of the text.
fn entry(new: &NewUpstream<'_>, indent: &str, line_end: &str) -> String {
    let step = if indent.is_empty() { "  " } else { indent };
    format!(
        "{indent}{}:\n{}",
        new.key,
        (new.block)(&format!("{indent}{step}"), step)
    )
    .replace('\n', line_end)
}

/// Returns the line end of a text: that of its first line.
fn line_end(text: &str) -> &'static str {
    match text.split_once('\n') {
        Some((first, _)) if first.ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Returns the text with a new section at its end.
fn appended(text: &str, new: &NewUpstream<'_>) -> String {
    let line_end = line_end(text);
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        line_end
    };
    let entry = entry(new, "  ", line_end);
    format!("{text}{end}upstreams:{line_end}{entry}")
}

/// Returns the text with the entry at the end of its `upstreams` section.
fn into_section(text: &str, new: &NewUpstream<'_>) -> Option<String> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let rest = ["upstreams", "\"upstreams\"", "'upstreams'"]
            .iter()
            .find_map(|key| line.strip_prefix(key));
        if let Some(value) = rest.and_then(|rest| rest.trim_start_matches(' ').strip_prefix(':')) {
            let start = at + line.len() - value.len();
            let value = value.trim();
            return if value.is_empty() || value.starts_with('#') {
                Some(after_block(text, at + line.len(), new))
            } else if value.starts_with('{') {
                into_flow(text, start + text[start..].find('{')?, true, new)
            } else {
                None
            };
        }
        at += line.len();
    }
    None
}

/// Returns the text with the entry after the lines of a section, which begins at `start`.
fn after_block(text: &str, start: usize, new: &NewUpstream<'_>) -> String {
    let (mut end, mut at, mut indent) = (start, start, None);
    for line in text[start..].split_inclusive('\n') {
        let bare = line.trim_start_matches(' ');
        let depth = line.len() - bare.len();
        let (is_blank, is_comment) = (bare.trim().is_empty(), bare.starts_with('#'));
        if depth == 0 && !is_blank && !is_comment {
            break;
        }
        at += line.len();
        if depth > 0 && !is_blank {
            end = at;
        }
        if depth > 0 && !is_blank && !is_comment {
            indent = indent.or(Some(depth));
        }
    }
    let (before, after) = text.split_at(end);
    let line_end = line_end(text);
    let line = if before.ends_with('\n') { "" } else { line_end };
    let entry = entry(new, &" ".repeat(indent.unwrap_or(2)), line_end);
    format!("{before}{line}{entry}{after}")
}

/// Returns the text of a document in braces with one more entry.
fn into_braces(text: &str, has_section: bool, new: &NewUpstream<'_>) -> Option<String> {
    let open = text.find('{')?;
    if !has_section {
        let section = NewUpstream {
            id: "upstreams",
            key: "upstreams".to_owned(),
            block: &|_, _| String::new(),
            flow: format!("{{ {}: {} }}", Json::from(new.id), new.flow),
            value: Json::Null,
        };
        return into_flow(text, open, false, &section);
    }
    // The first match may be inside a string or deeper. The caller compares the result, so a wrong
    // position causes an error and never a wrong config.
    let key = ["\"upstreams\"", "upstreams"]
        .iter()
        .find_map(|key| text.find(key).map(|at| at + key.len()))?;
    into_flow(text, key + text[key..].find('{')?, false, new)
}

/// Returns the text with the entry before the brace that closes the one at `open`.
fn into_flow(text: &str, open: usize, is_block: bool, new: &NewUpstream<'_>) -> Option<String> {
    let braces = BracePair::find(text, open)?;
    let (inside, after) = (&text[open + 1..braces.close], &text[braces.close..]);
    if inside.trim().is_empty() && is_block {
        let (rest, after) = after[1..].split_once('\n').unwrap_or((&after[1..], ""));
        let rest = if rest.trim().is_empty() {
            String::new()
        } else {
            format!(" {}", rest.trim())
        };
        let line_end = line_end(text);
        let entry = entry(new, "  ", line_end);
        let before = text[..open].trim_end();
        return Some(format!("{before}{rest}{line_end}{entry}{after}"));
    }
    let (before, between) = text[..braces.close].split_at(braces.last);
    let comma = if before.ends_with(['{', ',']) {
        ""
    } else {
        ","
    };
    // If the entries have lines of their own, the new one gets a line, too.
    let first = inside.len() - inside.trim_start().len();
    let space = match inside[..first].rfind('\n') {
        Some(line) => format!("{}{}", line_end(text), &inside[line + 1..first]),
        None => " ".to_owned(),
    };
    let between = if between.is_empty() { " " } else { between };
    Some(format!(
        "{before}{comma}{space}{}: {}{between}{after}",
        Json::from(new.id),
        new.flow
    ))
}

/// A pair of braces in a JSON or YAML text.
struct BracePair {
    /// The offset of the closing brace.
    close: usize,
    /// The end of the last token before it. Spaces and comments do not count as tokens.
    last: usize,
}

impl BracePair {
    fn find(text: &str, open: usize) -> Option<Self> {
        let bytes = text.as_bytes();
        let (mut at, mut depth, mut last) = (open, 0_usize, open);
        while at < bytes.len() {
            let rest = &text[at..];
            let is_apart = at == 0 || bytes[at - 1].is_ascii_whitespace();
            let skipped = match bytes[at] {
                b'#' if is_apart => rest.find('\n').unwrap_or(rest.len()),
                b'/' if is_apart && rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                b'/' if is_apart && rest.starts_with("/*") => rest.find("*/")? + 2,
                byte if byte.is_ascii_whitespace() => 1,
                quote @ (b'"' | b'\'') => {
                    at += quoted(rest.as_bytes(), quote)?;
                    last = at;
                    continue;
                }
                byte => {
                    match byte {
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth = depth.checked_sub(1)?,
                        _ => {}
                    }
                    if depth == 0 {
                        return Some(Self { close: at, last });
                    }
                    at += 1;
                    last = at;
                    continue;
                }
            };
            at += skipped;
        }
        None
    }
}

/// Returns the length of a text in quotes.
fn quoted(bytes: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(name: &str, text: &str) -> Result<String, String> {
        let block = |indent: &str, _: &str| format!("{indent}url: http://x/\n");
        let value = serde_json::json!({ "url": "http://x/" });
        let flow = "{ \"url\": \"http://x/\" }".to_owned();
        with_upstream(
            name,
            text,
            &NewUpstream {
                id: "new",
                key: "new".to_owned(),
                block: &block,
                flow,
                value,
            },
        )
    }

    #[test]
    fn new_lines_have_the_line_ends_of_the_file() {
        for (name, text) in [
            ("a.yaml", "listen: 127.0.0.1:1\n"),
            ("a.yaml", "listen: 127.0.0.1:1\n# end"),
            (
                "a.yaml",
                "upstreams:\n  a: { url: \"http://a/\" }\nlisten: 127.0.0.1:1\n",
            ),
            ("a.yaml", "listen: 127.0.0.1:1\nupstreams: {} # none\n"),
            (
                "a.yaml",
                "# first\nupstreams: {\n  a: { url: \"http://a/\" }\n}\n",
            ),
            (
                "a.json",
                "{\n  \"upstreams\": {\n    \"a\": { \"url\": \"http://a/\" }\n  }\n}\n",
            ),
        ] {
            let with_lf = add(name, text).expect("it is added");
            let with_crlf = add(name, &text.replace('\n', "\r\n")).expect("it is added");
            assert_eq!(with_crlf, with_lf.replace('\n', "\r\n"), "{text}");
        }
    }

    #[test]
    fn upstream_is_appended_and_rest_is_kept() {
        for (text, wanted) in [
            (
                "listen: a # b\n",
                "listen: a # b\nupstreams:\n  new:\n    url: http://x/\n",
            ),
            ("upstreams: {}", "upstreams:\n  new:\n    url: http://x/\n"),
            (
                "upstreams: {} # none\nlisten: a",
                "upstreams: # none\n  new:\n    url: http://x/\nlisten: a",
            ),
            (
                "# a\nupstreams: # b\n    a: { url: x } # c\n    # d\n\n# e\nlisten: a\n",
                "# a\nupstreams: # b\n    a: { url: x } # c\n    # d\n    new:\n        url: http://x/\n\n# e\nlisten: a\n",
            ),
            (
                "upstreams:\n  a:\n    args:\n    - |\n      x: {\n\n      y\n",
                "upstreams:\n  a:\n    args:\n    - |\n      x: {\n\n      y\n  new:\n    url: http://x/\n",
            ),
            (
                "upstreams: { a: { url: x } }\nlisten: a",
                "upstreams: { a: { url: x }, \"new\": { \"url\": \"http://x/\" } }\nlisten: a",
            ),
            (
                "upstreams: { a: { url: \"}\" }, } # {",
                "upstreams: { a: { url: \"}\" }, \"new\": { \"url\": \"http://x/\" } } # {",
            ),
        ] {
            assert_eq!(add("a.yaml", text).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn a_config_in_json_stays_json() {
        for (text, wanted) in [
            (
                "{\n  \"upstreams\": {\n    \"a\": {} // }\n  }\n}",
                "{\n  \"upstreams\": {\n    \"a\": {},\n    \"new\": { \"url\": \"http://x/\" } // }\n  }\n}",
            ),
            (
                "{ \"listen\": \"a\" }",
                "{ \"listen\": \"a\", \"upstreams\": { \"new\": { \"url\": \"http://x/\" } } }",
            ),
            (
                "{ \"upstreams\": {} }",
                "{ \"upstreams\": { \"new\": { \"url\": \"http://x/\" } } }",
            ),
        ] {
            assert_eq!(add("a.json", text).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn uneditable_config_is_reported() {
        for (text, words) in [
            (
                "upstreams: { new: { url: x } }",
                "already has an upstream `new`, in line 1",
            ),
            (
                "a: &x { b: {} }\nupstreams: *x\n",
                "does not edit; put this under `upstreams`",
            ),
            ("upstreams: [", "fix it first"),
            ("{ \"mcpServers\": { \"a\": {} } }", "of another program"),
            ("", "fix it first"),
        ] {
            let said = add("a.yaml", text).expect_err(text);
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
