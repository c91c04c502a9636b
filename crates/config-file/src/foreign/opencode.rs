//! Servers in the form of opencode: `type: local` with the program and its arguments in one list, or
//! `type: remote`.

use crate::config_tree::{ConfigNode, NodeValue};
use crate::env::reference::is_variable;

/// The start of a reference to an environment variable.
const VARIABLE: &str = "{env:";

/// Reports if a server is in this form.
pub(super) fn is_server(server: &ConfigNode) -> bool {
    let mut keys = server.entries().iter();
    keys.any(|(key, node)| key == "type" && weir_type(node).is_some())
}

/// Returns the type in `mcpServers`.
fn weir_type(node: &ConfigNode) -> Option<&'static str> {
    match node.as_text()? {
        "local" => Some("stdio"),
        "remote" => Some("http"),
        _ => None,
    }
}

/// Converts the keys of a server in this form.
pub(super) fn convert(keys: &mut Vec<(String, ConfigNode)>) {
    let Some((_, kind)) = keys.iter_mut().find(|(key, _)| key == "type") else {
        return;
    };
    let Some(name) = weir_type(kind) else {
        return;
    };
    *kind = ConfigNode::text(kind.line, name);
    let mut args = None;
    for (key, node) in keys.iter_mut() {
        if key == "environment" {
            "env".clone_into(key);
        }
        convert_references(node);
        if key != "command" {
            continue;
        }
        let line = node.line;
        if let NodeValue::List(parts) = &mut node.value
            && !parts.is_empty()
        {
            let program = parts.remove(0);
            args = Some(ConfigNode {
                line,
                value: NodeValue::List(std::mem::take(parts)),
            });
            *node = program;
        }
    }
    keys.extend(args.map(|args| ("args".to_owned(), args)));
}

/// Converts `{env:NAME}` to `${NAME}`.
fn convert_references(node: &mut ConfigNode) {
    match &mut node.value {
        NodeValue::Text(text) => text.text = with_references(&text.text),
        NodeValue::List(items) => items.iter_mut().for_each(convert_references),
        NodeValue::Map(entries) => {
            let values = entries.iter_mut().map(|(_, entry)| entry);
            values.for_each(convert_references);
        }
        NodeValue::Null
        | NodeValue::Unset
        | NodeValue::Bool(_)
        | NodeValue::Integer(_)
        | NodeValue::Float(_) => {}
    }
}

fn with_references(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(VARIABLE) {
        out.push_str(before);
        match after.split_once('}') {
            Some((name, behind)) if is_variable(name) => {
                out.extend(["${", name, "}"]);
                rest = behind;
            }
            Some(_) | None => {
                out.push_str(VARIABLE);
                rest = after;
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn servers_of_opencode_become_those_of_weir() {
        let converted = |text: &str| {
            let mut tree = ConfigNode::parse(text).unwrap();
            assert!(is_server(&tree), "{text}");
            if let NodeValue::Map(keys) = &mut tree.value {
                convert(keys);
            }
            tree
        };
        let text = |tree: &ConfigNode, path: &str| {
            let node = tree.find(&crate::config_report::ConfigPath::at(path));
            node.and_then(ConfigNode::as_text).map(str::to_owned)
        };
        let local = converted(
            r#"{ "type": "local", "command": ["npx", "-y", "x"], "environment": { "A": "b {env:C} {env:no" } }"#,
        );
        for (path, wanted) in [
            ("type", "stdio"),
            ("command", "npx"),
            ("args.0", "-y"),
            ("args.1", "x"),
            ("env.A", "b ${C} {env:no"),
        ] {
            assert_eq!(text(&local, path).as_deref(), Some(wanted), "{path}");
        }
        let remote = converted(
            r#"{ "type": "remote", "url": "https://a/mcp", "headers": { "H": "Bearer {env:T}" } }"#,
        );
        assert_eq!(text(&remote, "type").as_deref(), Some("http"));
        assert_eq!(text(&remote, "headers.H").as_deref(), Some("Bearer ${T}"));
        assert!(!is_server(&ConfigNode::parse("{ type: stdio }").unwrap()));
    }
}
