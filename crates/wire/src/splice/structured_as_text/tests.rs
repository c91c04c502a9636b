#![allow(clippy::unwrap_used, reason = "a test may panic")]
use proptest::prelude::*;
use serde_json::{Value as Tree, json};

use super::*;
use crate::testing;

const LEFT_OUT: LeftOutTexts = LeftOutTexts {
    value: "too large",
    perhaps: "too far",
};

fn edit(carried: CarriedValues) -> StructuredAsText {
    StructuredAsText::new(carried, LEFT_OUT)
}

/// Passes the text through in chunks of this size with a limit on the held bytes. Returns the
/// result, and the most bytes that were held.
fn within(carried: CarriedValues, text: &str, size: usize, most: usize) -> (String, usize) {
    let (mut out, mut edit, mut peak) = (BytesMut::new(), edit(carried), 0);
    for chunk in text.as_bytes().chunks(size) {
        let held = edit.held();
        let mut left = most - held;
        let mut room = |bytes: usize| {
            let fits = bytes <= left;
            left -= if fits { bytes } else { 0 };
            fits
        };
        edit.feed(&Bytes::copy_from_slice(chunk), &mut room, &mut out)
            .unwrap();
        peak = peak.max(edit.held());
    }
    assert_eq!(edit.held(), 0, "{text}");
    edit.finish().unwrap();
    (String::from_utf8(out.to_vec()).unwrap(), peak)
}

fn chunked(carried: CarriedValues, text: &str, size: usize) -> String {
    within(carried, text, size, usize::MAX).0
}

#[track_caller]
fn becomes(carried: CarriedValues, from: &str, to: &str) {
    for size in [usize::MAX, 1, 2, 3, 7, 16] {
        assert_eq!(
            chunked(carried, from, size),
            to,
            "{carried:?}, in pieces of {size}"
        );
    }
}

// Proves R129.
#[test]
fn uncarried_values_become_text_in_either_order() {
    use CarriedValues::{Nothing, Objects};
    for carried in [Nothing, Objects] {
        becomes(
            carried,
            r#"{ "content" : [ {"type":"text","text":"two"} ] , "isError":false, "structuredContent" : [1, "\"\u00e9"] }"#,
            r#"{ "content" : [ {"type":"text","text":"two"} ,{"type":"text","text":"[1, \"\\\"\\u00e9\"]"}] , "isError":false, "structuredContent" : [1, "\"\u00e9"] }"#,
        );
        becomes(
            carried,
            r#"{"structuredContent":[1,2],"x":0,"content":[{"type":"text","text":"two"}],"isError":false}"#,
            r#"{"structuredContent":[1,2],"x":0,"content":[{"type":"text","text":"two"},{"type":"text","text":"[1,2]"}],"isError":false}"#,
        );
        for (value, text) in [
            ("0.5", "0.5"),
            ("null", "null"),
            ("true", "true"),
            (r#""a""#, r#"\"a\""#),
        ] {
            becomes(
                carried,
                &format!(r#"{{"content":[],"structuredContent":{value}}}"#),
                &format!(
                    r#"{{"content":[{{"type":"text","text":"{text}"}}],"structuredContent":{value}}}"#
                ),
            );
            becomes(
                carried,
                &format!(r#"{{"structuredContent":{value},"content":[]}}"#),
                &format!(
                    r#"{{"structuredContent":{value},"content":[{{"type":"text","text":"{text}"}}]}}"#
                ),
            );
            becomes(
                carried,
                &format!(r#"{{"structuredContent":{value}}}"#),
                &format!(
                    r#"{{"structuredContent":{value},"content":[{{"type":"text","text":"{text}"}}]}}"#
                ),
            );
        }
    }
    let (first, last) = (
        r#"{"structuredContent":{"a":1},"content":[]}"#,
        r#"{"content":[],"structuredContent":{"a":1}}"#,
    );
    becomes(
        Nothing,
        first,
        r#"{"structuredContent":{"a":1},"content":[{"type":"text","text":"{\"a\":1}"}]}"#,
    );
    becomes(
        Nothing,
        last,
        r#"{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}"#,
    );
    for carriable in [first, last] {
        becomes(Objects, carriable, carriable);
    }
}

#[test]
fn text_block_with_the_structured_value_in_any_spelling_suffices() {
    let value = r#"{"b":[1,{"c":null}],"a":"é"}"#;
    for text in [value, r#" { "a" : "\u00e9", "b" : [1.0, {"c":null}] } "#] {
        let block =
            json!({ "text": text, "annotations": { "text": "x", "type": "y" }, "type": "text" });
        for block in [
            block.to_string(),
            format!(
                r#"{{"ty\u0070e":"tex\u0074","text":{}}}"#,
                testing::spell(text, true)
            ),
        ] {
            for (before, after) in [
                ("", ""),
                (
                    r#"{"type":"text","text":"Hello"},"#,
                    r#",{"type":"text","text":"{}"}"#,
                ),
            ] {
                let content = format!(r#""content":[{before}{block}{after}]"#);
                for said in [
                    format!(r#"{{{content},"structuredContent":{value}}}"#),
                    format!(r#"{{"structuredContent":{value},{content}}}"#),
                ] {
                    becomes(CarriedValues::Nothing, &said, &said);
                }
            }
        }
    }
    // Neither a text block nor JSON of the same value.
    for block in [
        json!({ "type": "image", "text": "[1]" }),
        json!({ "type": "text", "text": { "text": "[1]" } }),
        json!({ "type": "text", "note": "[1]" }),
        json!({ "type": "text", "text": "[1] " , "type2": 1 }),
        json!([{ "type": "text", "text": "[1]" }]),
        json!({ "type": "text", "text": "[1][1]" }),
        json!({ "type": "text", "text": "[1" }),
        json!({ "type": "text", "text": "\"[1]\"" }),
        json!({ "type": "text", "text": "[[1]]" }),
    ] {
        let is_said = block["type2"] == 1;
        for text in [
            format!(r#"{{"content":[{block}],"structuredContent":[1]}}"#),
            format!(r#"{{"structuredContent":[1],"content":[{block}]}}"#),
        ] {
            for size in [usize::MAX, 1, 5] {
                let edited: Tree =
                    serde_json::from_str(&chunked(CarriedValues::Objects, &text, size)).unwrap();
                let added = json!({ "type": "text", "text": "[1]" });
                let expected = if is_said {
                    json!([block])
                } else {
                    json!([block, added])
                };
                assert_eq!(edited["content"], expected, "{text}");
            }
        }
    }
}

#[test]
fn results_without_content_array_pass_unchanged() {
    for same in [
        "{}",
        r#"{"content":[]}"#,
        r#" { "content" : [ {"type":"text","text":"[1]"} ] , "isError":true , "_meta":{"structuredContent":[1]} } "#,
        r#"{"content":"x","structuredContent":[1]}"#,
        r#"{"structuredContent":[1],"content":{"a":[]}}"#,
        r#"{"content":[{"structuredContent":[1]}],"x":{"content":[],"structuredContent":[1]}}"#,
    ] {
        becomes(CarriedValues::Nothing, same, same);
        becomes(CarriedValues::Objects, same, same);
    }
}

#[test]
fn oversized_values_are_replaced_by_a_notice() {
    let long = format!("[\"{}\"]", "x".repeat(3000));
    let escaped = long.replace('"', "\\\"");
    let small = r#"{"type":"text","text":"small"}"#;
    let same = format!(r#"{{"type":"text","text":"{escaped}"}}"#);
    let gone = r#"{"type":"text","text":"too large"}"#;
    let far = r#"{"type":"text","text":"too far"}"#;
    for (from, to) in [
        // Too large, and no text block has it.
        (
            format!(r#"{{"content":[{small}],"a":1,"structuredContent":{long},"b":2}}"#),
            format!(r#"{{"content":[{small},{gone}],"a":1,"b":2}}"#),
        ),
        (
            format!(r#"{{"structuredContent":{long},"content":[{small}],"b":2}}"#),
            format!(r#"{{"structuredContent":{long},"content":[{small},{gone}],"b":2}}"#),
        ),
        // Too large, and a text block has it.
        (
            format!(r#"{{"content":[{small},{same}],"structuredContent":{long}}}"#),
            format!(r#"{{"content":[{small},{same}]}}"#),
        ),
        (
            format!(r#"{{"structuredContent":{long},"content":[{same},{small}]}}"#),
            format!(r#"{{"structuredContent":{long},"content":[{same},{small}]}}"#),
        ),
        // Behind more than can be held.
        (
            format!(r#"{{"content":[{small}],"a":{long},"structuredContent":[1],"b":2}}"#),
            format!(r#"{{"content":[{small},{far}],"a":{long},"structuredContent":[1],"b":2}}"#),
        ),
        (
            format!(
                r#"{{"content":[],"{}":1,"structuredContent":[1]}}"#,
                "k".repeat(2000)
            ),
            format!(
                r#"{{"content":[{far}],"{}":1,"structuredContent":[1]}}"#,
                "k".repeat(2000)
            ),
        ),
        // Large texts pass without being held.
        (
            format!(r#"{{"content":[{same},{same}],"structuredContent":[1]}}"#),
            format!(
                r#"{{"content":[{same},{same},{{"type":"text","text":"[1]"}}],"structuredContent":[1]}}"#
            ),
        ),
    ] {
        for size in [100, 999, 7] {
            let (out, peak) = within(CarriedValues::Objects, &from, size, 1000);
            assert_eq!(out, to, "in pieces of {size}");
            assert!(peak <= 1000, "{peak}");
        }
        assert!(serde_json::from_str::<Tree>(&to).is_ok(), "{to}");
    }
    // An object that the client can read ends the wait at its beginning.
    let object =
        format!(r#"{{"content":[{small}],"structuredContent":{{"a":{long}}},"z":{long}}}"#);
    let (out, peak) = within(CarriedValues::Objects, &object, 50, 200);
    assert_eq!(out, object);
    assert!(peak < 100, "{peak}");
}

/// A text block, of a JSON text or another text.
fn block() -> impl Strategy<Value = String> {
    let text = prop_oneof![2 => testing::value(), 1 => any::<String>()];
    let kind = prop::sample::select(vec!["text", "text", "image"]);
    (text, kind, any::<bool>(), any::<bool>()).prop_map(|(text, kind, escaped, type_first)| {
        let (kind, text) = (
            format!(r#""type":"{kind}""#),
            format!(r#""text" : {}"#, testing::spell(&text, escaped)),
        );
        if type_first {
            format!("{{{kind} , {text}}}")
        } else {
            format!("{{ {text},{kind}}}")
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn structured_value_appears_as_text_exactly_once(
        value in testing::value(),
        mut blocks in prop::collection::vec(block(), 0..4),
        said in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        turned in any::<bool>(),
        objects in any::<bool>(),
        size in 1_usize..30,
    ) {
        let carried = if objects { CarriedValues::Objects } else { CarriedValues::Nothing };
        if let Some(said) = said {
            let block = format!(r#"{{"type":"text","text":{}}}"#, testing::spell(&value, true));
            blocks.insert(said.index(blocks.len() + 1), block);
        }
        let content = format!(r#""content":[{}]"#, blocks.join(" , "));
        let structured = format!(r#""structuredContent": {value}"#);
        let (first, second) = if turned { (&structured, &content) } else { (&content, &structured) };
        let text = format!(r#"{{{first}, "isError" : false,{second}}}"#);
        let out = chunked(carried, &text, size);
        prop_assert_eq!(&out, &chunked(carried, &text, usize::MAX));
        prop_assert_eq!(&out, &edit(carried).apply(&Bytes::from(text.clone())).unwrap());
        let (before, after): (Tree, Tree) = (serde_json::from_str(&text).unwrap(), serde_json::from_str(&out).unwrap());
        prop_assert_eq!(&before["structuredContent"], &after["structuredContent"]);
        let (before, after) = (before["content"].as_array().unwrap(), after["content"].as_array().unwrap());
        prop_assert_eq!(before, &after[..before.len()]);
        let is_equal = |block: &&Tree| {
            let text = block["text"].as_str().unwrap();
            let [text, value] = [text, &value].map(|text| {
                let mut digest = JsonDigest::default();
                digest.feed(text.as_bytes()).ok().and_then(|()| digest.finish())
            });
            block["type"] == "text" && text == value
        };
        let is_carried = objects && value.starts_with('{');
        let added = usize::from(!is_carried && !before.iter().any(|block| is_equal(&block)));
        prop_assert_eq!(after.len(), before.len() + added);
        if added == 1 {
            prop_assert_eq!(&after[before.len()], &json!({ "type": "text", "text": value }));
        }
    }
}
