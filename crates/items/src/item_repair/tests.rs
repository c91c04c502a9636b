#![allow(clippy::unwrap_used, reason = "a test may panic")]
use super::*;

/// The repaired form of an item; no value if it stays byte for byte.
fn repaired(kind: ListKind, item: &str) -> Result<Option<String>, InvalidItem> {
    let raw = Bytes::copy_from_slice(item.as_bytes());
    let done = repair(kind, raw.clone())?;
    Ok((done != raw).then(|| String::from_utf8(done.to_vec()).unwrap()))
}

fn assert_repaired(kind: ListKind, item: &str, expected: &str) {
    assert_eq!(
        repaired(kind, item).unwrap().as_deref(),
        Some(expected),
        "{item}"
    );
    assert_eq!(repaired(kind, expected).unwrap(), None, "{expected}");
}

/// A tool with this member, behind the members that every tool has.
fn tool(member: &str) -> String {
    format!(r#"{{"name":"x","inputSchema":{{"type":"object"}}{member}}}"#)
}

// Proves R119.
#[test]
fn a_well_formed_item_stays_byte_for_byte() {
    for (kind, item) in [
        (
            ListKind::Tools,
            r#" { "name":"x", "inputSchema" : {"type":"object","properties":{"a":{}, "b" : {"type":["string","null"],"default":null}},"required":["a"],"$schema":"s"} ,"x-odd":null } "#,
        ),
        (
            ListKind::Tools,
            r#"{"name":"x","inputSchema":{"type":"object"},"outputSchema":{"anyOf":[{"type":"array"}]},"annotations":{"readOnlyHint":true,"x":null},"execution":{"taskSupport":"optional"},"_meta":{"a":null},"icons":[{"src":"data:,","sizes":["48x48"],"theme":"dark"}]}"#,
        ),
        (
            ListKind::Prompts,
            r#"{"name":"x","title":"T","arguments":[{"name":"a","required":true,"x":null}],"icons":[]}"#,
        ),
        (
            ListKind::Resources,
            r#"{"uri":"memo:1","name":"n","size":18446744073709551615,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"},"description":"\ud83d\ude00"}"#,
        ),
        (
            ListKind::Templates,
            r#"{"uriTemplate":"{+path}","name":""}"#,
        ),
    ] {
        assert_eq!(repaired(kind, item), Ok(None), "{item}");
    }
}

#[test]
fn a_missing_input_schema_permits_any_arguments() {
    let plain = tool("");
    for given in [
        "null",
        "true",
        "[ ]",
        "{}",
        r#"{"type":null}"#,
        r#"{"type":["null","object"]}"#,
    ] {
        let item = format!(r#"{{"name":"x","inputSchema":{given}}}"#);
        assert_repaired(ListKind::Tools, &item, &plain);
    }
    assert_repaired(ListKind::Tools, r#"{"name":"x"}"#, &plain);
    assert_repaired(
        ListKind::Tools,
        r#"{"name":"x","inputSchema":{"properties":{"a":{}}}}"#,
        r#"{"name":"x","inputSchema":{"properties":{"a":{}},"type":"object"}}"#,
    );
    for bad in [
        "5",
        "false",
        r#""object""#,
        "[{}]",
        r#"{"type":"string"}"#,
        r#"{"type":["array","null"]}"#,
        r#"{"type":{}}"#,
    ] {
        let item = format!(r#"{{"name":"x","inputSchema":{bad}}}"#);
        assert_eq!(
            repaired(ListKind::Tools, &item),
            Err(InvalidItem::InputSchema("x".to_owned())),
            "{bad}"
        );
    }
}

#[test]
fn parts_of_schemas_that_clients_refuse_are_repaired() {
    for (given, expected) in [
        (r#","properties":null,"required":null,"$schema":null"#, ""),
        (r#","properties":[],"required":true"#, ""),
        (r#","required":["a",5,null]"#, r#","required":["a"]"#),
        (
            r#","properties":{"a":true,"b":false,"c":null,"d":{"type":5},"e":"s"}"#,
            r#","properties":{"a":{},"b":{"not":{}},"c":{},"d":{"type":5},"e":{}}"#,
        ),
    ] {
        for member in ["inputSchema", "outputSchema"] {
            let schema = |members: &str| {
                let own = format!(r#""{member}":{{"type":"object"{members}}}"#);
                match member {
                    "inputSchema" => format!(r#"{{"name":"x",{own}}}"#),
                    _ => tool(&format!(",{own}")),
                }
            };
            assert_repaired(ListKind::Tools, &schema(given), &schema(expected));
        }
    }
}

#[test]
fn optional_members_of_a_wrong_type_are_removed() {
    for member in [
        "title",
        "description",
        "outputSchema",
        "annotations",
        "execution",
        "icons",
        "_meta",
    ] {
        for wrong in ["null", "5", "false", "[5]"] {
            if (member, wrong) != ("icons", "[5]") {
                assert_repaired(
                    ListKind::Tools,
                    &tool(&format!(r#","{member}":{wrong}"#)),
                    &tool(""),
                );
            }
        }
    }
    for (given, expected) in [
        (
            r#","icons":[5,{"src":5},{"src":"a","sizes":"48x48","theme":"blue","mimeType":null},{}]"#,
            r#","icons":[{"src":"a"}]"#,
        ),
        (r#","icons":[{"src":null}]"#, r#","icons":[]"#),
        (
            r#","annotations":{"title":null,"readOnlyHint":"yes","x":null}"#,
            r#","annotations":{"x":null}"#,
        ),
        (
            r#","execution":{"taskSupport":"sometimes"}"#,
            r#","execution":{}"#,
        ),
    ] {
        assert_repaired(ListKind::Tools, &tool(given), &tool(expected));
    }
    for (kind, given, expected) in [
        (
            ListKind::Prompts,
            r#"{"name":"x","arguments":null,"title":5}"#,
            r#"{"name":"x"}"#,
        ),
        (
            ListKind::Prompts,
            r#"{"name":"x","arguments":[{"description":"no name"},{"name":"a","title":null,"required":"true"}]}"#,
            r#"{"name":"x","arguments":[{"name":"a"}]}"#,
        ),
        (
            ListKind::Resources,
            r#"{"uri":"memo:1","name":"n","size":5.5,"mimeType":null,"annotations":{"audience":["user","x"],"priority":7,"lastModified":"today"}}"#,
            r#"{"uri":"memo:1","name":"n","annotations":{}}"#,
        ),
    ] {
        assert_repaired(kind, given, expected);
    }
}

#[test]
fn a_resource_without_a_name_has_its_uri_as_its_name() {
    for name in ["", r#","name":null"#, r#","name":5"#] {
        assert_repaired(
            ListKind::Resources,
            &format!(r#"{{"uri":"memo:\u0031"{name}}}"#),
            r#"{"uri":"memo:\u0031","name":"memo:1"}"#,
        );
        assert_repaired(
            ListKind::Templates,
            &format!(r#"{{"uriTemplate":"memo:{{id}}"{name}}}"#),
            r#"{"uriTemplate":"memo:{id}","name":"memo:{id}"}"#,
        );
    }
}

/// The verdicts are those of the Python SDK 1.x, whose type of URIs reads them as browsers do.
#[test]
fn only_resources_with_a_uri_that_clients_read_are_kept() {
    let resource = |uri: &str| format!(r#"{{"uri":{},"name":"n"}}"#, Value::from(uri));
    for good in [
        "note:a b",
        "note:user:alice",
        "note://{id}/x",
        "note://a:80/x",
        "note://a:/x",
        "note://a@b@c:1/",
        "note:///x",
        "note://",
        "note://%zz/",
        "note://é/ü",
        "note://[::1]/x",
        "note://a/b:c",
        "npm://@scope/pkg:1",
        "ui://shop/card",
        "urn:isbn:1",
        "data:text/plain,hi",
        "file:///a b",
        "file://C:/Users/x",
        r"file:///C:\Users\a.txt",
        "http://a/|",
        "https://münchen.de/",
    ] {
        let item = resource(good);
        assert_eq!(repaired(ListKind::Resources, &item), Ok(None), "{good}");
    }
    for bad in [
        "",
        "readme",
        "/a:b",
        "1a:b",
        ":x",
        " note:x",
        "note://user:alice",
        "docker://image:latest",
        "k8s://ns:pod/x",
        "ssh://git@github.com:org/repo",
        "note://a:99999/",
        "note://:80/x",
        "note://a b/x",
        "note://<id>/x",
        "note://a|b",
        "note://a^b/x",
        "note://a[b]/x",
        "note://[zz]/x",
        r"note://a\b",
        "ui://a:b/x",
        "http://",
        "https:///",
        "http://%zz/",
        "http://a b/",
        "ws://^/",
        // Invalid behind the id of an upstream only.
        r"file://server\share\x",
        r"http://a\b",
        "file://C|/x",
    ] {
        let found = repaired(ListKind::Resources, &resource(bad));
        assert_eq!(found, Err(InvalidItem::Uri(bad.to_owned())), "{bad}");
    }
}

#[test]
fn the_id_of_a_schema_is_removed_unless_something_refers_to_it() {
    let schema = |members: &str| tool(&format!(r#","outputSchema":{{{members}}}"#));
    assert_repaired(
        ListKind::Tools,
        &schema(
            r##""$id":"https://x.example/a","type":"object","properties":{"$id":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}"##,
        ),
        &schema(r##""type":"object","properties":{"$id":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}"##),
    );
    for kept in [
        r#""$id":"https://x.example/a","type":"object","properties":{"b":{"$ref":"https://x.example/a"}}"#,
        r#""$id":"https://x.example/a","type":"object","properties":{"b":{"$ref":"b"}}"#,
        r#""$id":"https://x.example/a","type":"object","properties":{"b":{"$id":"b"}}"#,
    ] {
        assert_eq!(repaired(ListKind::Tools, &schema(kept)), Ok(None), "{kept}");
    }
}

#[test]
fn half_a_surrogate_pair_becomes_a_replacement_character() {
    for (given, expected) in [
        (r"\ud800", r"\ufffd"),
        (r"\udc00\ud800", r"\ufffd\ufffd"),
        (r"\\ud800\\\uD800x", r"\\ud800\\\ufffdx"),
        (r"\ud83d\ude00\ud83d", r"\ud83d\ude00\ufffd"),
        (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
    ] {
        let item = |text: &str| tool(&format!(r#","_meta":{{"a":["{text}"]}}"#));
        assert_repaired(ListKind::Tools, &item(given), &item(expected));
    }
}

#[test]
fn numbers_that_readers_of_json_refuse_are_in_no_list() {
    for size in ["-1", "-0", "12.0", "1e3", "18446744073709551616", r#""5""#] {
        assert_repaired(
            ListKind::Resources,
            &format!(r#"{{"uri":"memo:1","name":"n","size":{size}}}"#),
            r#"{"uri":"memo:1","name":"n"}"#,
        );
    }
    let long = "9".repeat(400);
    for number in ["1e400", "-1e309", &long] {
        for item in [
            tool(&format!(r#","_meta":{{"a":[{number}]}}"#)),
            tool(&format!(r#","x-odd":{number}"#)),
            format!(r#"{{"name":"x","inputSchema":{{"maximum":{number}}}}}"#),
        ] {
            assert_eq!(
                repaired(ListKind::Tools, &item),
                Err(InvalidItem::Number("x".to_owned())),
                "{item}"
            );
        }
    }
    let held = tool(r#","_meta":{"a":[1e308,1e-400,-0,123456789012345678901234567890]}"#);
    assert_eq!(repaired(ListKind::Tools, &held), Ok(None));
}
