//! Parameter headers (`Mcp-Param-*`): arguments that a tool's schema asks to be repeated as
//! headers.
//!
//! Source: 2026-07-28 Streamable HTTP, "Custom headers"; server/tools, `x-mcp-header`.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use weir_wire::header::{ANNOTATION, ReceivedHeader};
use weir_wire::splice::ObjectEdits;
use weir_wire::write::ObjectWriter;
use weir_wire::{case_folding, header, scan};

/// Keywords with plain data as their value, even if it looks like a schema.
const DATA: [&str; 4] = ["default", "const", "enum", "examples"];
/// Keywords whose values are schemas by name.
const NAMES: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Integers beyond this are not exact in every JSON library, so they may not be mirrored.
const EXACT: i64 = (1 << 53) - 1;
/// Levels of `properties` that are followed. Checked JSON is not deeper than the scan's limit; this
/// bounds the work.
const DEEPEST: usize = 16;

/// The error for a tool with invalid annotations: a conforming client drops such a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an x-mcp-header annotation is not valid")]
pub struct InvalidHeaderAnnotation;

/// The header names (without `Mcp-Param-`) that a tool object's input schema asks for, each with
/// the path to its argument.
///
/// # Errors
/// [`InvalidHeaderAnnotation`] if an annotation breaks the rules.
pub fn annotated_headers(
    tool: &[u8],
) -> Result<Vec<(String, Vec<String>)>, InvalidHeaderAnnotation> {
    let mut found = Vec::new();
    if let Some(schema) = scan::find(tool, "inputSchema") {
        let mut path = Vec::new();
        walk(&tool[schema], &mut path, &mut found)?;
    }
    let mut names: Vec<_> = found
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        Err(InvalidHeaderAnnotation)
    } else {
        Ok(found)
    }
}

/// The tool object without any annotation in its input schema.
///
/// A legacy server's annotation has no meaning to that server, but if it breaks the rules a modern
/// client would drop the tool.
#[must_use]
pub fn without_annotations(tool: &Bytes) -> Bytes {
    let Some(schema) = scan::find(tool, "inputSchema") else {
        return tool.clone();
    };
    let mut out = BytesMut::with_capacity(schema.len());
    bare(&tool[schema], DEEPEST * 2, &mut out);
    let edited = ObjectEdits::new()
        .replace("inputSchema", out.freeze())
        .apply(tool);
    edited.map_or_else(|_| tool.clone(), |(tool, _)| tool)
}

/// Writes a schema, or a value that holds schemas, without annotations.
fn bare(value: &[u8], levels: usize, out: &mut BytesMut) {
    if levels == 0 {
        out.put_slice(value);
    } else if scan::is_object(value) {
        let mut object = ObjectWriter::new(out);
        for member in scan::members(value).filter(|member| !member.key.eq_str(ANNOTATION)) {
            let inner = &value[member.value];
            let is_data = DATA.iter().any(|data| member.key.eq_str(data));
            let names =
                NAMES.iter().any(|names| member.key.eq_str(names)) && scan::is_object(inner);
            object.raw_with(member.key.raw(), |out| match (is_data, names) {
                (true, _) => out.put_slice(inner),
                (false, true) => named(inner, levels - 1, out),
                (false, false) => bare(inner, levels - 1, out),
            });
        }
        object.end();
    } else if value.first() == Some(&b'[') {
        out.put_u8(b'[');
        for (nth, at) in scan::elements(value).enumerate() {
            if nth > 0 {
                out.put_u8(b',');
            }
            bare(&value[at], levels - 1, out);
        }
        out.put_u8(b']');
    } else {
        out.put_slice(value);
    }
}

/// Writes an object of schemas by name: the names themselves are no annotations.
fn named(value: &[u8], levels: usize, out: &mut BytesMut) {
    let mut object = ObjectWriter::new(out);
    for member in scan::members(value) {
        object.raw_with(member.key.raw(), |out| {
            bare(&value[member.value], levels, out)
        });
    }
    object.end();
}

/// The headers of one call: the name behind `Mcp-Param-`, and the encoded value. Absent and null
/// arguments have no header.
#[must_use]
pub fn header_values(
    mirrors: &[(String, Vec<String>)],
    arguments: Option<&[u8]>,
) -> Vec<(String, String)> {
    let Some(arguments) = arguments else {
        return Vec::new();
    };
    mirrors
        .iter()
        .filter_map(|(name, path)| {
            let value = path.iter().try_fold(arguments, |object, key| {
                Some(&object[scan::find(object, key)?])
            })?;
            let text: Cow<'_, str> = match scan::trim(value) {
                b"null" => return None,
                literal @ (b"true" | b"false") => String::from_utf8_lossy(literal),
                quoted if quoted.first() == Some(&b'"') => scan::string(quoted)?,
                number => Cow::Owned(exact_whole(number)?.to_string()),
            };
            Some((name.clone(), header::encode(&text).into_owned()))
        })
        .collect()
}

/// The argument that differs in case alone from one that is repeated as a header, or from an object
/// on the path to one, and that the tool's schema does not name itself. A server without regard to
/// case may take that argument in place of the one in the header.
#[must_use]
pub fn case_variant(
    tool: &[u8],
    mirrors: &[(String, Vec<String>)],
    arguments: Option<&[u8]>,
) -> Option<String> {
    let arguments = arguments?;
    mirrors.iter().find_map(|(_, path)| {
        let mut object = arguments;
        for (level, key) in path.iter().enumerate() {
            let mut members = scan::members(object);
            let variant = members.find_map(|member| {
                let name = member
                    .key
                    .text()
                    .filter(|name| **name != **key && case_folding::equal_folded(name, key))?;
                (!is_property(tool, &path[..level], &name)).then(|| name.into_owned())
            });
            if variant.is_some() {
                return variant;
            }
            object = &object[scan::find(object, key)?];
        }
        None
    })
}

/// True if the tool's schema has a property of this name in the object at this path.
fn is_property(tool: &[u8], path: &[String], name: &str) -> bool {
    let properties = |schema: &[u8]| scan::find(schema, "properties");
    let Some(at) = scan::find(tool, "inputSchema") else {
        return false;
    };
    let schema = path.iter().try_fold(&tool[at], |schema, step| {
        let inner = &schema[properties(schema)?];
        Some(&inner[scan::find(inner, step)?])
    });
    schema
        .and_then(|schema| scan::find(&schema[properties(schema)?], name))
        .is_some()
}

/// The name of a header that is absent where the call has its argument, that differs from the
/// argument, or that comes without one (2026-07-28, Streamable HTTP, "Server Validation": a header
/// that differs from the body is refused, and an absent or null argument has none). Integers are
/// compared as numbers. A number that is not an exact integer may come with or without its header:
/// the tool's schema is violated, or the client cannot repeat the number.
#[must_use]
pub fn mismatched_header<'a, 'h>(
    mirrors: &'a [(String, Vec<String>)],
    arguments: Option<&[u8]>,
    given: impl Fn(&str) -> ReceivedHeader<&'h [u8]>,
) -> Option<&'a str> {
    let arguments = arguments.unwrap_or(b"{}");
    let agrees = |(name, path): &(String, Vec<String>)| {
        let value = path.iter().try_fold(arguments, |object, key| {
            Some(&object[scan::find(object, key)?])
        });
        let value = scan::trim(value.unwrap_or(b"null"));
        let given = given(name);
        if value == b"null" {
            return given == ReceivedHeader::Absent;
        }
        let ReceivedHeader::Once(given) = given else {
            return given == ReceivedHeader::Absent
                && is_number(value)
                && exact_whole(value).is_none();
        };
        let Ok(given) = header::decode(given) else {
            return false;
        };
        match scan::string(value) {
            Some(text) => text == given,
            None if value == given.as_bytes() => true,
            None => {
                let own = std::str::from_utf8(value).ok().and_then(whole);
                own.is_some() && own == whole(&given)
            }
        }
    };
    mirrors
        .iter()
        .find(|mirror| !agrees(mirror))
        .map(|(name, _)| name.as_str())
}

fn is_number(json: &[u8]) -> bool {
    matches!(json, [b'-' | b'0'..=b'9', ..])
}

/// The value of a JSON number that is an integer which every JSON library reads exactly.
fn exact_whole(number: &[u8]) -> Option<i64> {
    whole(std::str::from_utf8(number).ok()?).filter(|number| number.abs() <= EXACT)
}

/// A whole number as an argument or a header may spell it: `42`, and `42.0` and `4.2e1` too.
fn whole(text: &str) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(unsigned) || !is_digits(fraction) {
        return None;
    }
    // The exponent moves the decimal point within the digits, or behind further zeros.
    let digits = format!("{unsigned}{fraction}");
    let point = i64::try_from(unsigned.len()).ok()?.saturating_add(exponent);
    let point = usize::try_from(point).unwrap_or(0);
    let (kept, rest) = digits.split_at(point.min(digits.len()));
    if rest.bytes().any(|digit| digit != b'0') {
        return None;
    }
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() {
        return Some(0);
    }
    let zeros = point - point.min(digits.len());
    // A longer number has no place in the result.
    let zeros = "0".repeat(Some(zeros).filter(|zeros| *zeros < 20)?);
    let sign = if whole.starts_with('-') { "-" } else { "" };
    format!("{sign}{kept}{zeros}").parse().ok()
}

/// Collects annotations on chains of `properties`; an annotation anywhere else is against the
/// rules.
fn walk(
    schema: &[u8],
    path: &mut Vec<String>,
    found: &mut Vec<(String, Vec<String>)>,
) -> Result<(), InvalidHeaderAnnotation> {
    for member in scan::members(schema) {
        let value = &schema[member.value];
        if !member.key.eq_str("properties") {
            // The caller has read the annotation of the schema itself; at the root it has no
            // argument.
            let own = member.key.eq_str(ANNOTATION) && !path.is_empty();
            if !own && has_annotation(member.key, value, DEEPEST) {
                return Err(InvalidHeaderAnnotation);
            }
            continue;
        }
        for property in scan::members(value) {
            let inner = &value[property.value];
            path.push(property.key.decode().into_owned());
            if let Some(annotation) = scan::find(inner, ANNOTATION) {
                let name = scan::string(&inner[annotation])
                    .filter(|name| is_token(name))
                    .ok_or(InvalidHeaderAnnotation)?;
                let kind = scan::find(inner, "type").and_then(|range| scan::string(&inner[range]));
                if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
                    return Err(InvalidHeaderAnnotation);
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
fn has_annotation(key: scan::MemberKey<'_>, value: &[u8], levels: usize) -> bool {
    if key.eq_str(ANNOTATION) {
        return true;
    }
    if levels == 0 || DATA.iter().any(|data| key.eq_str(data)) {
        return false;
    }
    scan::members(value).any(|member| has_annotation(member.key, &value[member.value], levels - 1))
        || scan::elements(value)
            .any(|at| has_annotation(scan::MemberKey::new(b""), &value[at], levels - 1))
}

/// A token as RFC 9110 5.6.2 has it.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(schema: &str) -> Vec<u8> {
        format!(r#"{{"name":"t","inputSchema":{schema}}}"#).into_bytes()
    }

    // Proves R018, R117.
    #[test]
    fn arguments_are_mirrored_as_the_schema_asks() {
        let schema = r#"{"properties":{
            "a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"},
            "c":{"properties":{"d":{"type":"boolean","x-mcp-header":"D"}}},"e":{"type":"string"},
            "n":{"type":"string","x-mcp-header":"N"},"m":{"type":"string","x-mcp-header":"M"}}}"#;
        let mirrors = annotated_headers(&tool(schema)).unwrap_or_default();
        let arguments = r#"{"a":" é","b":-7,"c":{"d":true},"e":"x","n":null}"#.as_bytes();
        let expected = [("A", "=?base64?IMOp?="), ("B", "-7"), ("D", "true")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(header_values(&mirrors, Some(arguments)), expected);
        assert_eq!(header_values(&mirrors, None), []);
        // Some languages write every number with a fraction; JSON Schema counts it as an integer.
        for (number, sent) in [
            ("42.0", Some("42")),
            ("-7.00", Some("-7")),
            ("0.0", Some("0")),
            ("42.5", None),
            ("9007199254740993.0", None),
            ("1e2", Some("100")),
            ("1.50E+1", Some("15")),
            ("-120e-1", Some("-12")),
            ("0e99999999999", Some("0")),
            ("-0", Some("0")),
            ("15e-1", None),
            ("1e99999999999", None),
            ("1e99999999999999999999", None),
        ] {
            let arguments = format!(r#"{{"b": {number} }}"#);
            let values = header_values(&mirrors, Some(arguments.as_bytes()));
            let expected = sent.map(|sent| ("B".to_owned(), sent.to_owned()));
            assert_eq!(values, Vec::from_iter(expected), "{number}");
        }
    }

    // Proves B04.
    #[test]
    fn arguments_that_differ_from_mirrored_ones_in_case_alone_are_found() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"A1":{},"a1":{"type":"string","x-mcp-header":"B"},
            "task":{"properties":{"kind":{"type":"string","x-mcp-header":"K"},"KIND":{}}},"plain":{"type":"string"}}}"#;
        let tool = tool(schema);
        let mirrors = annotated_headers(&tool).unwrap_or_default();
        let found = |arguments: &str| case_variant(&tool, &mirrors, Some(arguments.as_bytes()));
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(found(r#"{"a":"x","A":"y"}"#), name("A"));
        assert_eq!(found(r#"{"\u0041":"y"}"#), name("A"));
        assert_eq!(
            found("{\"task\":{\"\u{212a}ind\":\"y\"}}"),
            name("\u{212a}ind")
        );
        assert_eq!(
            found("{\"ta\u{17f}k\":{\"kind\":\"y\"}}"),
            name("ta\u{17f}k")
        );
        assert_eq!(
            found(r#"{"a":"x","A1":1,"a1":"z","task":{"kind":"k","KIND":1},"PLAIN":1,"Plain":2}"#),
            None
        );
        assert_eq!(found(r#"{"a":{"A":1},"task":7,"b":{"Kind":1}}"#), None);
        assert_eq!(case_variant(&tool, &mirrors, None), None);
    }

    // Proves R116.
    #[test]
    fn annotations_go_and_everything_else_stays() {
        let given = r#"{"type":"object","x-mcp-header":"T","properties":{"x-mcp-header":{"type":"string","x-mcp-header":"A B"},
"b":{"type":"array","items":{"type":"number","x-mcp-header":"N"},"default":[{"x-mcp-header":1}]}},"oneOf":[{"x-mcp-header":"X"},true,1.50]}"#;
        let expected = r#"{"type":"object","properties":{"x-mcp-header":{"type":"string"},"b":{"type":"array","items":{"type":"number"},"default":[{"x-mcp-header":1}]}},"oneOf":[{},true,1.50]}"#;
        let bare = without_annotations(&Bytes::from(tool(given)));
        assert_eq!(
            String::from_utf8_lossy(&bare),
            String::from_utf8_lossy(&tool(expected))
        );
        assert!(annotated_headers(&tool(given)).is_err() && annotated_headers(&bare).is_ok());
        let odd = Bytes::from_static(br#"{"name":"t","inputSchema":5}"#);
        assert_eq!(without_annotations(&odd), odd);
    }

    // Proves R020, R021, R022, R023, R024.
    #[test]
    fn headers_are_held_against_arguments() {
        let schema = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"integer","x-mcp-header":"B"},
            "c":{"type":"boolean","x-mcp-header":"C"}}}"#;
        let mirrors = annotated_headers(&tool(schema)).unwrap_or_default();
        let wrong = |arguments: &str, headers: &[(&str, &str)]| {
            let given = |name: &str| {
                let named = headers.iter().filter(|(own, _)| *own == name);
                ReceivedHeader::of(named.map(|(_, value)| value.as_bytes()))
            };
            mismatched_header(&mirrors, Some(arguments.as_bytes()), given).map(str::to_owned)
        };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(
            wrong(
                r#"{"a":"x","b":42,"c":true}"#,
                &[("A", "x"), ("B", "42"), ("C", "true")]
            ),
            None
        );
        assert_eq!(wrong(r#"{"a":"x"}"#, &[]), name("A"));
        assert_eq!(
            wrong(r#"{"a":"x"}"#, &[("A", "X")]),
            name("A"),
            "values are case-sensitive"
        );
        assert_eq!(wrong(r#"{"a":"x"}"#, &[("A", "x"), ("A", "x")]), name("A"));
        assert_eq!(
            wrong(r#"{"a":null,"d":1}"#, &[]),
            None,
            "null and absent ask for nothing"
        );
        assert_eq!(
            wrong(r#"{"a":"\u00e9"}"#, &[("A", "=?base64?w6k=?=")]),
            None
        );
        assert_eq!(
            wrong(r#"{"a":"\u00e9"}"#, &[("A", "=?base64?w6k?=")]),
            name("A"),
            "the padding is gone"
        );
        assert_eq!(
            wrong(r#"{"a":"=?BASE64?w6k=?="}"#, &[("A", "=?BASE64?w6k=?=")]),
            None,
            "literal"
        );
        for good in ["42", "42.0", " 42 "] {
            assert_eq!(wrong(r#"{"b":42}"#, &[("B", good)]), None, "{good}");
            assert_eq!(wrong(r#"{"b":42.0}"#, &[("B", good)]), None, "{good}");
        }
        for bad in ["42.5", "42.", "+42", "4e1", "0x2a", "", "43", "\"42\""] {
            assert_eq!(wrong(r#"{"b":42}"#, &[("B", bad)]), name("B"), "{bad}");
            assert_eq!(wrong(r#"{"b":42.0}"#, &[("B", bad)]), name("B"), "{bad}");
        }
        assert_eq!(wrong(r#"{"c":true}"#, &[("C", "false")]), name("C"));
        assert_eq!(wrong(r#"{"a":"x\ty"}"#, &[("A", "x\ty")]), None, "a tab");
        for inexact in ["4.5", "12345678901234567890", "-1e30"] {
            let arguments = format!(r#"{{"b":{inexact}}}"#);
            assert_eq!(wrong(&arguments, &[("B", inexact)]), None, "{inexact}");
            assert_eq!(wrong(&arguments, &[]), None, "{inexact}");
            assert_eq!(wrong(&arguments, &[("B", "4")]), name("B"), "{inexact}");
        }
        assert_eq!(wrong(r#"{"b":[4]}"#, &[]), name("B"));
        for without in [r#"{"a":null}"#, r#"{"d":1}"#, "{}"] {
            for header in ["x", ""] {
                let wrong = wrong(without, &[("A", header)]);
                assert_eq!(wrong, name("A"), "{without} has no such argument");
            }
        }
        assert_eq!(
            mismatched_header(&mirrors, None, |_| ReceivedHeader::Absent),
            None
        );
        let one = |_: &str| ReceivedHeader::Once(&b"x"[..]);
        assert_eq!(mismatched_header(&mirrors, None, one), Some("A"));
    }

    // Proves R019.
    #[test]
    fn bad_annotations_are_found() {
        for schema in [
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":1}}}"#,
            r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#,
            r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"X"},"b":{"type":"string","x-mcp-header":"x"}}}"#,
        ] {
            assert_eq!(
                annotated_headers(&tool(schema)),
                Err(InvalidHeaderAnnotation),
                "{schema}"
            );
        }
        assert_eq!(annotated_headers(b"{}"), Ok(Vec::new()));
    }
}
