//! Applies the operator's overrides to a tool: its bytes are rewritten once, when a view is built.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_core::names::exposed_uri;
use weir_core::server_item::ServerItem;
use weir_core::toolset::ToolHints;
use weir_wire::scan;

use crate::item_draft::ItemDraft;

/// Returns the tool as the operator describes it. Members without an override stay byte for byte.
pub fn apply_overrides(
    tool: &Arc<ServerItem>,
    description: Option<&str>,
    hints: ToolHints,
) -> Arc<ServerItem> {
    let mut raw = tool.raw.to_vec();
    if let Some(text) = description {
        raw = set(
            &raw,
            "description",
            Value::from(text).to_string().as_bytes(),
        );
    }
    if hints != ToolHints::default() {
        let own = scan::find(&raw, "annotations")
            .map(|at| &raw[at])
            .filter(|own| scan::is_object(own));
        let mut annotations = own.unwrap_or(b"{}").to_vec();
        for (name, hint) in hints.named() {
            if let Some(hint) = hint {
                annotations = set(&annotations, name, if hint { b"true" } else { b"false" });
            }
        }
        raw = set(&raw, "annotations", &annotations);
    }
    // A tool stays a tool: only values of members were replaced, or members added. If it did not,
    // the upstream's own definition would stand.
    match ItemDraft::read(tool.kind, Bytes::from(raw)) {
        Ok(draft) => Arc::new(draft.replace_definition(tool)),
        Err(_) => tool.clone(),
    }
}

/// Returns the tool with the URI of its interface (MCP Apps) as the endpoint's clients read it; no
/// value if the tool has no interface.
pub fn link_interface(tool: &ServerItem) -> Option<Arc<ServerItem>> {
    let raw = &tool.raw[..];
    let meta = member(raw, "_meta")?;
    let renamed = |object: &[u8], key: &str| {
        let native = scan::string(&object[scan::find(object, key)?])?;
        let exposed = Value::from(exposed_uri::expose(&tool.upstream, &native)).to_string();
        Some(set(object, key, exposed.as_bytes()))
    };
    let mut changed = None;
    if let Some(own) = member(meta, "ui").and_then(|own| renamed(own, "resourceUri")) {
        changed = Some(set(meta, "ui", &own));
    }
    // The member's name before SEP-1865 was final.
    if let Some(flat) = renamed(changed.as_deref().unwrap_or(meta), "ui/resourceUri") {
        changed = Some(flat);
    }
    let raw = set(raw, "_meta", &changed?);
    ItemDraft::read(tool.kind, Bytes::from(raw))
        .ok()
        .map(|draft| Arc::new(draft.replace_definition(tool)))
}

/// The object that is the value of a member.
fn member<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    scan::find(object, key)
        .map(|at| &object[at])
        .filter(|own| scan::is_object(own))
}

/// An object with one member set to a value: in its place if it is there, else as the last one.
fn set(object: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + key.len() + value.len() + 4);
    if let Some(at) = scan::find(object, key) {
        out.extend_from_slice(&object[..at.start]);
        out.extend_from_slice(value);
        out.extend_from_slice(&object[at.end..]);
        return out;
    }
    let last = scan::members(object).last().map(|member| member.value.end);
    let at = last
        .or_else(|| {
            object
                .iter()
                .position(|byte| *byte == b'{')
                .map(|brace| brace + 1)
        })
        .unwrap_or(0);
    out.extend_from_slice(&object[..at]);
    if last.is_some() {
        out.push(b',');
    }
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
    out.extend_from_slice(&object[at..]);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use weir_core::names::UpstreamId;
    use weir_core::upstream::ListKind;
    use weir_schema::SchemaCache;

    fn tool(text: &str) -> Arc<ServerItem> {
        let draft =
            ItemDraft::read(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes())).unwrap();
        Arc::new(draft.finish(&UpstreamId::new("u").unwrap(), &SchemaCache::default()))
    }

    fn text(tool: &ServerItem) -> &str {
        std::str::from_utf8(&tool.raw).unwrap()
    }

    #[test]
    fn only_overridden_members_change() {
        let plain = tool(
            r#" { "description" : "old", "x":1e400, "name":"a", "annotations": {"title":"T","readOnlyHint":true} } "#,
        );
        let hints = ToolHints {
            read_only: Some(false),
            destructive: Some(true),
            ..ToolHints::default()
        };
        let dressed = apply_overrides(&plain, Some("a \"new\" one\n"), hints);
        assert_eq!(
            text(&dressed),
            r#" { "description" : "a \"new\" one\n", "x":1e400, "name":"a", "annotations": {"title":"T","readOnlyHint":false,"destructiveHint":true} } "#
        );
        assert_eq!(&dressed.raw[dressed.name.clone()], br#""a""#);
        assert_ne!(dressed.digest, plain.digest);
        assert_eq!((&*dressed.native, dressed.hints), ("a", hints));
    }

    // Proves R144.
    #[test]
    fn the_interface_of_a_tool_is_linked_under_its_exposed_name() {
        let plain = tool(
            r#"{"name":"a","_meta":{"x":1e400,"ui":{"resourceUri" : "ui://shop/card","visibility":["app"]},"ui/resourceUri":"ui://b"}}"#,
        );
        let shown = link_interface(&plain).unwrap();
        assert_eq!(
            text(&shown),
            r#"{"name":"a","_meta":{"x":1e400,"ui":{"resourceUri" : "ui://u/shop/card","visibility":["app"]},"ui/resourceUri":"ui://u/b"}}"#
        );
        assert_ne!(shown.digest, plain.digest);
        for same in [
            r#"{"name":"a"}"#,
            r#"{"name":"a","_meta":{"ui":{}}}"#,
            r#"{"name":"a","_meta":{"ui":{"resourceUri":5}}}"#,
        ] {
            assert!(link_interface(&tool(same)).is_none(), "{same}");
        }
    }

    #[test]
    fn missing_members_are_added() {
        let hints = ToolHints {
            open_world: Some(false),
            ..ToolHints::default()
        };
        for (before, after) in [
            (
                r#"{"name":"a"}"#,
                r#"{"name":"a","description":"d","annotations":{"openWorldHint":false}}"#,
            ),
            (
                r#"{"name":"a","annotations":7 }"#,
                r#"{"name":"a","annotations":{"openWorldHint":false},"description":"d" }"#,
            ),
            (
                r#"{"name":"a","annotations":{ }}"#,
                r#"{"name":"a","annotations":{"openWorldHint":false },"description":"d"}"#,
            ),
        ] {
            let dressed = apply_overrides(&tool(before), Some("d"), hints);
            assert_eq!(
                serde_json::from_slice::<Value>(&dressed.raw).unwrap(),
                serde_json::from_str::<Value>(after).unwrap(),
                "{}",
                text(&dressed)
            );
        }
    }
}
