//! The values of a server: numbers as texts, bare variables as references, a command in parts.

use crate::config_tree::{ConfigNode, NodeValue};
use crate::env::reference::is_variable;

/// Flattens a command that is a map (`path`, `args`, `env`), as in older files of Zed.
pub(super) fn flatten_command(keys: &mut Vec<(String, ConfigNode)>) {
    let Some(at) = keys
        .iter()
        .position(|(key, node)| key == "command" && matches!(node.value, NodeValue::Map(_)))
    else {
        return;
    };
    let (_, command) = keys.remove(at);
    let NodeValue::Map(parts) = command.value else {
        return;
    };
    for (key, node) in parts {
        let key = if key == "path" {
            "command".to_owned()
        } else {
            key
        };
        if !keys.iter().any(|(other, _)| *other == key) {
            keys.push((key, node));
        }
    }
}

/// Converts numbers and booleans to texts in arguments, variables and headers, because only texts
/// are valid there.
pub(super) fn texts(keys: &mut [(String, ConfigNode)]) {
    for (_, node) in keys
        .iter_mut()
        .filter(|(key, _)| matches!(key.as_str(), "args" | "env" | "headers"))
    {
        match &mut node.value {
            NodeValue::List(items) => items.iter_mut().for_each(text),
            NodeValue::Map(entries) => entries.iter_mut().for_each(|(_, entry)| text(entry)),
            NodeValue::Null
            | NodeValue::Unset
            | NodeValue::Bool(_)
            | NodeValue::Integer(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_) => {}
        }
    }
}

fn text(node: &mut ConfigNode) {
    let text = match &node.value {
        NodeValue::Bool(value) => value.to_string(),
        NodeValue::Integer(value) => value.to_string(),
        NodeValue::Float(value) => value.to_string(),
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Text(_)
        | NodeValue::List(_)
        | NodeValue::Map(_) => return,
    };
    *node = ConfigNode::text(node.line, text);
}

/// Escapes references in arguments to variables that the server's own `env` sets to a plain text.
/// The program gets such an argument as written and fills it in itself, as `mcp-remote` does with
/// the value of a header.
pub(super) fn keep_own_references(keys: &mut [(String, ConfigNode)]) {
    let env = keys.iter().find(|(key, _)| key == "env");
    let own: Vec<String> = env
        .map(|(_, env)| env.entries())
        .unwrap_or_default()
        .iter()
        .filter(|(_, value)| value.as_text().is_some_and(|text| !text.contains("${")))
        .map(|(name, _)| format!("${{{name}}}"))
        .collect();
    for (_, args) in keys.iter_mut().filter(|(key, _)| key == "args") {
        let NodeValue::List(args) = &mut args.value else {
            continue;
        };
        for arg in args {
            if let NodeValue::Text(text) = &mut arg.value {
                text.text = escaped(&text.text, &own);
            }
        }
    }
}

/// Escapes these references, each with one more `$`.
fn escaped(text: &str, references: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let is_own = references
            .iter()
            .any(|reference| from.starts_with(reference));
        if is_own && !before.ends_with('$') {
            out.push('$');
        }
        out.push_str("${");
        rest = &from[2..];
    }
    out + rest
}

/// Converts `$NAME` to `${NAME}`.
pub(super) fn brace_variables(node: &mut ConfigNode) {
    match &mut node.value {
        NodeValue::Text(text) => text.text = braced(&text.text),
        NodeValue::List(items) => items.iter_mut().for_each(brace_variables),
        NodeValue::Map(entries) => entries
            .iter_mut()
            .for_each(|(_, entry)| brace_variables(entry)),
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_) => {}
    }
}

fn braced(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        let end = after
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(after.len());
        if is_variable(&after[..end]) {
            out.extend(["${", &after[..end], "}"]);
            rest = &after[end..];
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_own_variables_are_escaped_once() {
        let own = ["${A}".to_owned()];
        for (text, wanted) in [
            ("Authorization:${A}", "Authorization:$${A}"),
            ("${A} ${B} $${A} ${A", "$${A} ${B} $${A} ${A"),
            ("plain", "plain"),
        ] {
            assert_eq!(escaped(text, &own), wanted);
        }
    }

    #[test]
    fn bare_variables_get_braces() {
        for (text, wanted) in [
            ("$TOKEN", "${TOKEN}"),
            ("a $B_1/c $ $1 ${D} $$", "a ${B_1}/c $ $1 ${D} $$"),
            ("Bearer $T", "Bearer ${T}"),
        ] {
            assert_eq!(braced(text), wanted);
        }
    }
}
