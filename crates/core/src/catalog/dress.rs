//! A tool with the operator's words in place of the upstream's: its bytes are rewritten once, when a view is built.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_wire::scan;

use super::tool::{Draft, Tool};
use crate::toolset::Hints;

/// The tool as the operator describes it. Everything that is not said anew stays byte for byte.
pub(super) fn dress(tool: &Arc<Tool>, description: Option<&str>, hints: Hints) -> Arc<Tool> {
    let mut raw = tool.raw.to_vec();
    if let Some(text) = description {
        raw = set(&raw, "description", Value::from(text).to_string().as_bytes());
    }
    if hints != Hints::default() {
        let own = scan::find(&raw, "annotations").map(|at| &raw[at]).filter(|own| scan::is_object(own));
        let mut annotations = own.unwrap_or(b"{}").to_vec();
        for (name, hint) in hints.named() {
            if let Some(hint) = hint {
                annotations = set(&annotations, name, if hint { b"true" } else { b"false" });
            }
        }
        raw = set(&raw, "annotations", &annotations);
    }
    // What was a tool is one still: only values of members were replaced, or members added. Were it not, the upstream's
    // own words would stand.
    match Draft::read(tool.kind, Bytes::from(raw)) {
        Ok(draft) => Arc::new(draft.like(tool)),
        Err(_) => tool.clone(),
    }
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
    let at = last.or_else(|| object.iter().position(|byte| *byte == b'{').map(|brace| brace + 1)).unwrap_or(0);
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
    use crate::names::UpstreamId;
    use crate::schema::Contracts;
    use crate::upstream::ListKind;

    fn tool(text: &str) -> Arc<Tool> {
        let draft = Draft::read(ListKind::Tools, Bytes::copy_from_slice(text.as_bytes())).unwrap();
        Arc::new(draft.finish(&UpstreamId::new("u").unwrap(), &Contracts::default()))
    }

    fn text(tool: &Tool) -> &str {
        std::str::from_utf8(&tool.raw).unwrap()
    }

    #[test]
    fn only_what_is_said_anew_changes() {
        let plain = tool(
            r#" { "description" : "old", "x":1e400, "name":"a", "annotations": {"title":"T","readOnlyHint":true} } "#,
        );
        let hints = Hints { read_only: Some(false), destructive: Some(true), ..Hints::default() };
        let dressed = dress(&plain, Some("a \"new\" one\n"), hints);
        assert_eq!(
            text(&dressed),
            r#" { "description" : "a \"new\" one\n", "x":1e400, "name":"a", "annotations": {"title":"T","readOnlyHint":false,"destructiveHint":true} } "#
        );
        assert_eq!(&dressed.raw[dressed.name.clone()], br#""a""#);
        assert_ne!(dressed.digest, plain.digest);
        assert_eq!((&*dressed.native, dressed.hints), ("a", hints));
    }

    #[test]
    fn members_are_added_where_there_are_none() {
        let hints = Hints { open_world: Some(false), ..Hints::default() };
        for (before, after) in [
            (r#"{"name":"a"}"#, r#"{"name":"a","description":"d","annotations":{"openWorldHint":false}}"#),
            (
                r#"{"name":"a","annotations":7 }"#,
                r#"{"name":"a","annotations":{"openWorldHint":false},"description":"d" }"#,
            ),
            (
                r#"{"name":"a","annotations":{ }}"#,
                r#"{"name":"a","annotations":{"openWorldHint":false },"description":"d"}"#,
            ),
        ] {
            let dressed = dress(&tool(before), Some("d"), hints);
            assert_eq!(
                serde_json::from_slice::<Value>(&dressed.raw).unwrap(),
                serde_json::from_str::<Value>(after).unwrap(),
                "{}",
                text(&dressed)
            );
        }
    }
}
