//! Parameter headers (`Mcp-Param-*`): arguments that a tool's schema asks to be repeated as headers.
//!
//! Source: 2026-07-28 Streamable HTTP, "Custom headers"; server/tools, `x-mcp-header`.

use std::borrow::Cow;

use weir_wire::{header, scan};

const ANNOTATION: &str = "x-mcp-header";
/// Integers beyond this are not exact in every JSON library, so they may not be mirrored.
const EXACT: i64 = (1 << 53) - 1;
/// Levels of `properties` that are followed. Checked JSON is not deeper than the scan's limit; this bounds the work.
const DEEPEST: usize = 16;

/// Why a tool's annotations are not valid: a conforming client drops such a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an x-mcp-header annotation is not valid")]
pub struct BadMirror;

/// The header names (without `Mcp-Param-`) that a tool object's input schema asks for, each with the path to its
/// argument.
///
/// # Errors
/// [`BadMirror`] where an annotation breaks the rules.
pub fn mirrors(tool: &[u8]) -> Result<Vec<(String, Vec<String>)>, BadMirror> {
    let mut found = Vec::new();
    if let Some(schema) = scan::find(tool, "inputSchema") {
        let mut path = Vec::new();
        walk(&tool[schema], &mut path, &mut found)?;
    }
    let mut names: Vec<_> = found.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) { Err(BadMirror) } else { Ok(found) }
}

/// The headers of one call: name behind `Mcp-Param-`, and the encoded value. Absent and null arguments have none.
#[must_use]
pub fn mirrored(mirrors: &[(String, Vec<String>)], arguments: Option<&[u8]>) -> Vec<(String, String)> {
    let Some(arguments) = arguments else { return Vec::new() };
    mirrors
        .iter()
        .filter_map(|(name, path)| {
            let value = path.iter().try_fold(arguments, |object, key| Some(&object[scan::find(object, key)?]))?;
            let text: Cow<'_, str> = match scan::trim(value) {
                b"null" => return None,
                literal @ (b"true" | b"false") => String::from_utf8_lossy(literal),
                quoted if quoted.first() == Some(&b'"') => scan::string(quoted)?,
                number => Cow::Owned(scan::integer(number).filter(|n| n.abs() <= EXACT)?.to_string()),
            };
            Some((name.clone(), header::encode(&text).into_owned()))
        })
        .collect()
}

/// Collects what stands on chains of `properties`; an annotation anywhere else is against the rules.
fn walk(schema: &[u8], path: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) -> Result<(), BadMirror> {
    for member in scan::members(schema) {
        let value = &schema[member.value];
        if !member.key.eq_str("properties") {
            // The annotation of the schema itself was read by whoever led here; at the root it has no argument.
            let own = member.key.eq_str(ANNOTATION) && !path.is_empty();
            if !own && stray(member.key, value, DEEPEST) {
                return Err(BadMirror);
            }
            continue;
        }
        for property in scan::members(value) {
            let inner = &value[property.value];
            path.push(property.key.decode().into_owned());
            if let Some(annotation) = scan::find(inner, ANNOTATION) {
                let name = scan::string(&inner[annotation]).filter(|name| is_token(name)).ok_or(BadMirror)?;
                let kind = scan::find(inner, "type").and_then(|range| scan::string(&inner[range]));
                if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
                    return Err(BadMirror);
                }
                found.push((name.into_owned(), path.clone()));
            }
            if path.len() < DEEPEST {
                walk(inner, path, found)?;
            }
            path.pop();
        }
    }
    Ok(())
}

/// True if this member is an annotation or holds one, apart from plain data.
fn stray(key: scan::Key<'_>, value: &[u8], levels: usize) -> bool {
    if key.eq_str(ANNOTATION) {
        return true;
    }
    if levels == 0 || ["default", "const", "enum", "examples"].iter().any(|data| key.eq_str(data)) {
        return false;
    }
    scan::members(value).any(|member| stray(member.key, &value[member.value], levels - 1))
        || scan::elements(value).any(|at| stray(scan::Key::new(b""), &value[at], levels - 1))
}

/// A token as RFC 9110 5.6.2 has it.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: &str) -> Vec<u8> {
        format!(r#"{{"name":"t","inputSchema":{schema}}}"#).into_bytes()
    }

    #[test]
    fn r018_arguments_are_mirrored_as_the_schema_asks() {
        let schema = r#"{"properties":{
            "a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"},
            "c":{"properties":{"d":{"type":"boolean","x-mcp-header":"D"}}},"e":{"type":"string"},
            "n":{"type":"string","x-mcp-header":"N"},"m":{"type":"string","x-mcp-header":"M"}}}"#;
        let mirrors = mirrors(&tool(schema)).unwrap_or_default();
        let arguments = r#"{"a":" é","b":-7,"c":{"d":true},"e":"x","n":null}"#.as_bytes();
        let expected =
            [("A", "=?base64?IMOp?="), ("B", "-7"), ("D", "true")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(mirrored(&mirrors, Some(arguments)), expected);
        assert_eq!(mirrored(&mirrors, None), []);
    }

    #[test]
    fn r019_bad_annotations_are_found() {
        for schema in [
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":1}}}"#,
            r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"X"},"b":{"type":"string","x-mcp-header":"x"}}}"#,
        ] {
            assert_eq!(mirrors(&tool(schema)), Err(BadMirror), "{schema}");
        }
        assert_eq!(mirrors(b"{}"), Ok(Vec::new()));
    }
}
