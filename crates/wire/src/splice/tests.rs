#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bytes::BufMut;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::scan;
use crate::scan::json_limits::JsonLimits;
use crate::scan::scan_error::ScanErrorKind;
use crate::{meta, testing};

fn apply(edits: ObjectEdits, text: &str) -> String {
    let (out, _) = edits
        .apply(&Bytes::copy_from_slice(text.as_bytes()))
        .unwrap();
    String::from_utf8(out.to_vec()).unwrap()
}

const NAMES: &[&str] = &[
    "id",
    "resultType",
    "isError",
    "content",
    "ttlMs",
    "_meta",
    "structuredContent",
    "x\u{e9}",
];
const META_NAMES: &[&str] = &[
    "progressToken",
    "traceparent",
    "dev.weir/upstreams",
    "io.modelcontextprotocol/serverInfo",
    "com.example/x",
    "drop-me",
    "a",
];

/// An object like a result, its `_meta` mostly an object.
fn result() -> impl Strategy<Value = String> {
    let meta = testing::object_of(META_NAMES, testing::value().boxed());
    let others = testing::object_of(&NAMES[..5], testing::value().boxed());
    (
        others,
        prop_oneof![4 => meta.prop_map(Some), 1 => testing::value().prop_map(Some), 2 => Just(None)],
        any::<prop::sample::Index>(),
    )
        .prop_map(|(object, meta, place)| {
            let Some(meta) = meta else { return object };
            let starts: Vec<usize> = scan::members(object.as_bytes()).map(|member| member.value.end).collect();
            match starts.get(place.index(starts.len() + 1)) {
                Some(&at) => format!("{},\"_meta\":{meta}{}", &object[..at], &object[at..]),
                None if starts.is_empty() => format!("{{\"\\u005fmeta\":{meta}}}"),
                None => format!("{{\"_meta\" : {meta} ,{}", &object[1..]),
            }
        })
}

#[derive(Clone, Debug)]
enum EditChange {
    Remove,
    Replace(Value),
    Set(Value),
    Ensure(Value),
    EnsureNumber(Value),
    OnlyObject,
}

fn is_number(value: &[u8]) -> bool {
    matches!(value.first(), Some(b'-' | b'0'..=b'9'))
}

fn change() -> impl Strategy<Value = EditChange> {
    prop_oneof![
        Just(EditChange::Remove),
        Just(EditChange::Replace(json!(["replaced"]))),
        Just(EditChange::Set(json!("set"))),
        Just(EditChange::Ensure(json!({"ensured": 1}))),
        Just(EditChange::EnsureNumber(json!("none"))),
        Just(EditChange::OnlyObject),
    ]
}

#[derive(Clone, Debug)]
struct EditPlan {
    members: Vec<(&'static str, EditChange)>,
    meta: Option<(bool, bool, bool)>,
}

fn plan() -> impl Strategy<Value = EditPlan> {
    let members = prop::sample::subsequence(&NAMES[..5], 0..5).prop_flat_map(|names| {
        let len = names.len();
        (Just(names), prop::collection::vec(change(), len))
            .prop_map(|(names, changes)| names.into_iter().zip(changes).collect())
    });
    (members, prop::option::of(any::<(bool, bool, bool)>()))
        .prop_map(|(members, meta)| EditPlan { members, meta })
}

impl EditPlan {
    fn edits(&self) -> ObjectEdits {
        let text = |value: &Value| Bytes::from(value.to_string());
        let edits = self
            .members
            .iter()
            .fold(ObjectEdits::new(), |edits, (name, change)| match change {
                EditChange::Remove => edits.remove(*name),
                EditChange::Replace(value) => edits.replace(*name, text(value)),
                EditChange::Set(value) => edits.set(*name, text(value)),
                EditChange::Ensure(value) => edits.ensure(*name, text(value)),
                EditChange::EnsureNumber(value) => {
                    edits.ensure_valid(*name, is_number, text(value))
                }
                EditChange::OnlyObject => edits.only_object(*name),
            });
        let Some((owned, drop, add)) = self.meta else {
            return edits;
        };
        let mut changes = MetaEdits::new();
        if owned {
            changes = changes.drop_owned();
        }
        if drop {
            changes = changes.drop("drop-me");
        }
        if add {
            changes = changes
                .add("dev.weir/upstreams", "[1]")
                .add("a", "\"added\"");
        }
        edits.meta(changes)
    }

    /// Applies the same edits to a tree.
    fn apply(&self, object: &mut Map<String, Value>) {
        for (name, change) in &self.members {
            let there = object.contains_key(*name);
            match change {
                EditChange::Remove => drop(object.remove(*name)),
                EditChange::Replace(value) if there => {
                    drop(object.insert((*name).into(), value.clone()))
                }
                EditChange::Set(value) => drop(object.insert((*name).into(), value.clone())),
                EditChange::Ensure(value) if !there => {
                    drop(object.insert((*name).into(), value.clone()))
                }
                EditChange::EnsureNumber(value)
                    if !object.get(*name).is_some_and(Value::is_number) =>
                {
                    drop(object.insert((*name).into(), value.clone()))
                }
                EditChange::OnlyObject if !object.get(*name).is_some_and(Value::is_object) => {
                    drop(object.remove(*name))
                }
                EditChange::Replace(_)
                | EditChange::Ensure(_)
                | EditChange::EnsureNumber(_)
                | EditChange::OnlyObject => {}
            }
        }
        let Some((owned, drop, add)) = self.meta else {
            return;
        };
        if add && !object.get("_meta").is_some_and(Value::is_object) {
            object.insert("_meta".into(), json!({}));
        }
        let Some(meta) = object.get_mut("_meta").and_then(Value::as_object_mut) else {
            return;
        };
        meta.retain(|key, _| !(owned && meta::is_owned_by_weir(key) || drop && key == "drop-me"));
        if add {
            meta.insert("dev.weir/upstreams".into(), json!([1]));
            meta.insert("a".into(), json!("added"));
        }
    }

    fn touches(&self, name: &str) -> bool {
        name == "_meta" && self.meta.is_some()
            || self.members.iter().any(|(touched, _)| *touched == name)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rewriting_equals_editing_the_tree(text in result(), plan in plan()) {
        let mut tree: Map<String, Value> = serde_json::from_str(&text).unwrap();
        plan.apply(&mut tree);
        let out = apply(plan.edits(), &text);
        prop_assert_eq!(serde_json::from_str::<Map<_, _>>(&out).unwrap(), tree, "{} -> {}", text, out);
    }

    #[test]
    fn a_checked_object_is_edited_to_the_same_bytes(text in result(), plan in plan()) {
        let object = Bytes::from(text);
        let edits = || plan.edits().observe("isError").observe("content");
        let ((quick, seen), (slow, observed)) = (edits().apply_checked(&object).unwrap(), edits().apply(&object).unwrap());
        prop_assert_eq!(quick, slow);
        for name in ["isError", "content"] {
            prop_assert_eq!((seen.contains(name), seen.value(name)), (observed.contains(name), observed.value(name)));
        }
    }

    #[test]
    fn untouched_members_stay_byte_for_byte_and_in_order(text in result(), plan in plan()) {
        let kept = |text: &str| -> Vec<String> {
            scan::members(text.as_bytes())
                .filter(|member| !plan.touches(&member.key.decode()))
                .map(|member| String::from_utf8([member.key.raw(), b":", text[member.value].as_bytes()].concat()).unwrap())
                .collect()
        };
        let out = apply(plan.edits(), &text);
        prop_assert_eq!(kept(&text), kept(&out));
    }

    #[test]
    fn empty_edits_leave_the_bytes_unchanged(text in result()) {
        prop_assert_eq!(&apply(ObjectEdits::new(), &text), &text);
        prop_assert_eq!(&apply(ObjectEdits::new().observe("isError").remove("absent").meta(MetaEdits::new()), &text), &text);
    }

    #[test]
    fn rewriting_is_chunk_invariant(text in result(), plan in plan(), cuts in testing::cuts(), bytewise in any::<bool>()) {
        let raw = Bytes::from(text);
        let whole = plan.edits().observe("isError").apply(&raw).unwrap();
        let pieces = if bytewise { (0..raw.len()).map(|at| raw.slice(at..=at)).collect() } else { testing::cut(&raw, &cuts) };
        let (mut rewriter, mut out) = (ObjectRewriter::new(plan.edits().observe("isError")), Vec::<Bytes>::new());
        for piece in &pieces {
            rewriter.feed(piece, &mut out).unwrap();
        }
        let observed = rewriter.finish().unwrap();
        prop_assert_eq!(out.concat(), whole.0);
        prop_assert_eq!(observed.value("isError"), whole.1.value("isError"));
        prop_assert_eq!(observed.contains("isError"), whole.1.contains("isError"));
    }

    #[test]
    fn observed_scalars_are_as_they_came(text in result()) {
        let (_, observed) = ObjectEdits::new().observe("isError").observe("resultType").remove("resultType").apply(&Bytes::from(text.clone())).unwrap();
        for name in ["isError", "resultType"] {
            let place = scan::find(text.as_bytes(), name);
            prop_assert_eq!(observed.contains(name), place.is_some());
            let value = place.map(|range| &text.as_bytes()[range]).filter(|value| !matches!(value[0], b'{' | b'['));
            prop_assert_eq!(observed.value(name), value.map(|value| &value[..value.len().min(256)]));
        }
    }
}

#[test]
fn commas_and_white_space_stay_where_they_are() {
    let table: [(ObjectEdits, &str, &str); 14] = [
        (
            ObjectEdits::new().remove("a"),
            r#"{ "a" : 1 , "b" : 2 }"#,
            r#"{  "b" : 2 }"#,
        ),
        (
            ObjectEdits::new().remove("b"),
            r#"{ "a" : 1 , "b" : 2 }"#,
            r#"{ "a" : 1 }"#,
        ),
        (
            ObjectEdits::new().remove("b"),
            r#"{"a":1,"b":{"x":[1,"}"]},"c":3}"#,
            r#"{"a":1,"c":3}"#,
        ),
        (ObjectEdits::new().remove("a"), r#"{"a":1}"#, "{}"),
        (
            ObjectEdits::new().replace("a", "[]"),
            r#"{"a" : {"x":1} , "b":2}"#,
            r#"{"a" : [] , "b":2}"#,
        ),
        (
            ObjectEdits::new().replace("c", "[]"),
            r#"{"a":1}"#,
            r#"{"a":1}"#,
        ),
        (
            ObjectEdits::new().set("c", "[]"),
            r#"{"a":1 }"#,
            r#"{"a":1,"c":[] }"#,
        ),
        (
            ObjectEdits::new().ensure("a", "2").ensure("b", "3"),
            r#"{"a":1}"#,
            r#"{"a":1,"b":3}"#,
        ),
        (
            ObjectEdits::new().ensure("a", "1").ensure("b", "2"),
            "{}",
            r#"{"a":1,"b":2}"#,
        ),
        (
            ObjectEdits::new().remove("a").ensure("b", "2"),
            r#"{"a":1}"#,
            r#"{"b":2}"#,
        ),
        (
            ObjectEdits::new().meta(MetaEdits::new().drop_owned()),
            r#"{"_meta":{ "progressToken":1, "k":2 }}"#,
            r#"{"_meta":{ "k":2 }}"#,
        ),
        (
            ObjectEdits::new().meta(MetaEdits::new().drop_owned().add("k", "3")),
            r#"{"_meta":{"progressToken":1,"k":2}}"#,
            r#"{"_meta":{"k":3}}"#,
        ),
        (
            ObjectEdits::new().meta(MetaEdits::new().add("k", "3")),
            r#"{"a":1,"_meta":null}"#,
            r#"{"a":1,"_meta":{"k":3}}"#,
        ),
        (
            ObjectEdits::new().meta(MetaEdits::new().add("k\"", "3")),
            r#"{"a":1}"#,
            r#"{"a":1,"_meta":{"k\"":3}}"#,
        ),
    ];
    for (edits, text, expected) in table {
        assert_eq!(apply(edits, text), expected, "{text}");
    }
}

#[test]
fn only_the_top_level_and_its_meta_are_touched() {
    let text = r#"{"content":[{"_meta":{"progressToken":1},"id":1}],"x":{"id":2,"_meta":{"progressToken":2}},"_meta":{"y":{"progressToken":3}}}"#;
    assert_eq!(
        apply(
            ObjectEdits::new()
                .remove("id")
                .meta(MetaEdits::new().drop_owned()),
            text
        ),
        text
    );
}

// Proves B06.
#[test]
fn numbers_and_unknown_members_pass_exactly() {
    let text = r#"{"n":[1e999,-0,9007199254740993,1.0E+2],"s":"\ud800\u0061","\u0078":{}}"#;
    assert_eq!(
        apply(ObjectEdits::new().remove("gone").ensure("n", "1"), text),
        text
    );
}

#[test]
fn a_large_member_passes_in_slices_and_bounded_memory() {
    let mut head = BytesMut::from(&br#"{"content":[{"type":"text","text":""#[..]);
    head.put_bytes(b'x', 1 << 20);
    let chunk = Bytes::from(vec![b'y'; 1 << 20]);
    let (mut rewriter, mut len) = (
        ObjectRewriter::new(ObjectEdits::new().ensure("resultType", "\"complete\"")),
        0,
    );
    let chunks = std::iter::once(head.freeze()).chain(std::iter::repeat_n(chunk, 49));
    for chunk in chunks {
        let mut out: Vec<Bytes> = Vec::new();
        rewriter.feed(&chunk, &mut out).unwrap();
        let last = out.last().unwrap();
        assert!(
            chunk.as_ptr_range().contains(&last.as_ptr()),
            "the data was copied"
        );
        len += out.iter().map(Bytes::len).sum::<usize>();
    }
    let mut end = BytesMut::new();
    rewriter
        .feed(&Bytes::from_static(br#""}]}"#), &mut end)
        .unwrap();
    rewriter.finish().unwrap();
    assert_eq!(
        (len, &end[..]),
        (36 - 1 + (50 << 20), &br#""}],"resultType":"complete"}"#[..])
    );
}

#[test]
fn long_keys_pass_unread_and_long_gaps_are_cut() {
    let long = "k".repeat(5000);
    let text = format!(r#"{{"a":1,"{long}":{{"a":2}},"b":3}}"#);
    let expected = format!(r#"{{"{long}":{{"a":2}},"b":3}}"#);
    let gap = " ".repeat(1500);
    for step in [1, 7, 1000, text.len()] {
        let run = |text: &str| {
            let (mut rewriter, mut out) = (
                ObjectRewriter::new(ObjectEdits::new().remove("a")),
                BytesMut::new(),
            );
            let raw = Bytes::copy_from_slice(text.as_bytes());
            for at in (0..raw.len()).step_by(step) {
                rewriter
                    .feed(&raw.slice(at..raw.len().min(at + step)), &mut out)
                    .unwrap();
                assert!(
                    rewriter.held_len() <= 2 * 1024 + step,
                    "held {}",
                    rewriter.held_len()
                );
            }
            rewriter.finish().unwrap();
            out
        };
        assert_eq!(run(&text), expected);
        assert_eq!(
            run(&format!(r#"{{"x":1{gap},{gap}"y":2{gap}}}"#)),
            r#"{"x":1,"y":2}"#
        );
    }
}

// Proves B03.
#[test]
fn a_named_member_that_comes_twice_is_refused() {
    let text = Bytes::from_static(br#"{"a":1,"\u0061":2,"_meta":{},"_meta":{}}"#);
    for edits in [
        ObjectEdits::new().remove("a"),
        ObjectEdits::new().observe("a"),
        ObjectEdits::new().meta(MetaEdits::new()),
    ] {
        let error = edits.apply(&text).unwrap_err();
        assert!(
            matches!(error, SpliceError::Scan(error) if error.kind == ScanErrorKind::DuplicateKey),
            "{error}"
        );
    }
}

// Proves B01.
#[test]
fn limits_hold_while_streaming() {
    let limits = JsonLimits {
        max_depth: 8,
        ..JsonLimits::default()
    };
    let run = |text: &str| {
        let mut rewriter = ObjectRewriter::with_limits(ObjectEdits::new(), limits);
        for byte in text.bytes() {
            rewriter.feed(&Bytes::copy_from_slice(&[byte]), &mut BytesMut::new())?;
        }
        rewriter.finish().map(|_| ())
    };
    assert_eq!(run(r#"{"a":[[[[[[[1]]]]]]]}"#), Ok(()));
    assert!(
        matches!(run(r#"{"a":[[[[[[[[1]]]]]]]]}"#), Err(SpliceError::Scan(error)) if error.kind == ScanErrorKind::TooDeep)
    );
    assert!(
        matches!(run(r#"{"a":1"#), Err(SpliceError::Scan(error)) if error.kind == ScanErrorKind::UnexpectedEnd)
    );
    for text in ["[]", "1", "\"x\"", "null"] {
        assert_eq!(run(text), Err(SpliceError::NotAnObject));
    }
}

#[test]
fn missing_members_are_added_to_checked_objects() {
    let plain = || {
        ObjectEdits::new()
            .remove("gone")
            .ensure("a", "1")
            .meta(MetaEdits::new().drop_owned().add("k", "2"))
    };
    for text in [
        "{}",
        " { } ",
        r#"{"a":0}"#,
        r#" {"b" : "{" , "c":[] } "#,
        r#"{"gone":1}"#,
        r#"{"_meta":{"k":3}}"#,
        r#"{"a":0,"b":{"a":1}}"#,
    ] {
        let object = Bytes::from_static(text.as_bytes());
        assert_eq!(
            plain().apply_checked(&object).unwrap().0,
            plain().apply(&object).unwrap().0,
            "{text}"
        );
    }
    let same = Bytes::from_static(br#"{"content":[]}"#);
    let (untouched, _) = ObjectEdits::new()
        .remove("ttlMs")
        .meta(MetaEdits::new().drop_owned())
        .apply_checked(&same)
        .unwrap();
    assert_eq!(
        untouched.as_ptr(),
        same.as_ptr(),
        "what does not change is not copied"
    );
}

// Proves B06.
#[test]
fn members_that_differ_from_edited_ones_in_case_alone_are_taken_out() {
    const HELD: &[&str] = &["resultType", "_meta"];
    let edits = || {
        ObjectEdits::new()
            .without_variants_of(HELD)
            .set("resultType", &b"1"[..])
    };
    let text = "{\"ResultType\":{\"a\":[1]},\"re\u{17f}ultType\":2,\"\\u0052esultType\":3,\"_Meta\":4,\"x\":{\"_META\":5},\"_meta\":6,\"RESULTTYPE\":7}";
    let expected = "{\"x\":{\"_META\":5},\"_meta\":6,\"resultType\":1}";
    assert_eq!(apply(edits(), text), expected);
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    assert_eq!(edits().apply_checked(&bytes).unwrap().0, expected);
    let (mut rewriter, mut out) = (ObjectRewriter::new(edits()), BytesMut::new());
    for at in 0..bytes.len() {
        rewriter.feed(&bytes.slice(at..=at), &mut out).unwrap();
    }
    rewriter.finish().unwrap();
    assert_eq!(out, expected);
    // Without any of them no bytes are copied.
    let plain = Bytes::from_static(br#"{"resultType":1,"resultTypes":2,"meta":3}"#);
    assert_eq!(
        edits().apply_checked(&plain).unwrap().0.as_ptr(),
        plain.as_ptr()
    );
}

/// Passes chunks through edits like those of a result, with a late key. Its value is the count of
/// chunks so far.
fn with_late_key(text: &str, sizes: &[usize]) -> String {
    let mut rewriter = ObjectRewriter::new(ObjectEdits::new().meta(MetaEdits::new().drop_owned()));
    let (mut out, mut rest, mut chunks) = (BytesMut::new(), text.as_bytes(), 0);
    for size in sizes.iter().copied().chain([usize::MAX]) {
        let (chunk, left) = rest.split_at(size.min(rest.len()));
        chunks += 1;
        rewriter.add_late_meta("dev.weir/cleaned", chunks.to_string().into());
        rewriter
            .feed(&Bytes::copy_from_slice(chunk), &mut out)
            .unwrap();
        rest = left;
    }
    rewriter.finish().unwrap();
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn late_key_is_written_only_if_meta_ends_the_object() {
    let late = r#""dev.weir/cleaned":"#;
    for (text, expected) in [
        ("{}", r#"{"_meta":{LATE}}"#),
        (r#"{"content":[]} "#, r#"{"content":[],"_meta":{LATE}} "#),
        (
            r#"{"content":[], "_meta" : {"a":{"b":1} } }"#,
            r#"{"content":[], "_meta" : {"a":{"b":1} ,LATE} }"#,
        ),
        (r#"{"_meta":{}}"#, r#"{"_meta":{LATE}}"#),
        (
            r#"{"_meta":{"dev.weir/cleaned":"forged"}}"#,
            r#"{"_meta":{LATE}}"#,
        ),
        (
            r#"{"_meta":{"dev.weir/cleaned":7,"a":1},"content":[]}"#,
            r#"{"_meta":{"a":1},"content":[]}"#,
        ),
        (
            r#"{"_meta":{},"content":{"_meta":{}}}"#,
            r#"{"_meta":{},"content":{"_meta":{}}}"#,
        ),
        (r#"{"_meta":7}"#, r#"{"_meta":7}"#),
    ] {
        for at in 0..=text.len() {
            // The last chunk is the second one, or the first if the object ended with it.
            let written = with_late_key(text, &[at]);
            let ends_in_first = text[..at].trim_end().ends_with('}') && at >= text.trim_end().len();
            let value = format!("{late}{}", if ends_in_first { 1 } else { 2 });
            assert_eq!(
                written,
                expected.replace("LATE", &value),
                "{text} cut at {at}"
            );
        }
    }
    assert_eq!(
        apply(ObjectEdits::new().add_meta("k", "1"), r#"{"a":1}"#),
        r#"{"a":1,"_meta":{"k":1}}"#
    );
    let beside = ObjectEdits::new()
        .meta(MetaEdits::new().drop_owned())
        .add_meta("dev.weir/cleaned", "1");
    assert_eq!(
        apply(beside, r#"{"_meta":{"dev.weir/cleaned":2}}"#),
        r#"{"_meta":{"dev.weir/cleaned":1}}"#
    );
}

proptest! {
    #[test]
    fn a_late_key_changes_nothing_else_wherever_the_object_is_cut(
        text in result(),
        cuts in prop::collection::vec(1..9_usize, 0..40),
    ) {
        let expected = apply(ObjectEdits::new().meta(MetaEdits::new().drop_owned()), &text);
        let mut written: Value = serde_json::from_str(&with_late_key(&text, &cuts)).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let said = written["_meta"].as_object_mut().and_then(|meta| meta.remove("dev.weir/cleaned"));
        if said.is_some() && expected.get("_meta").is_none() {
            written.as_object_mut().unwrap().remove("_meta");
        }
        prop_assert!(said.is_some() || expected.get("_meta").is_some());
        prop_assert_eq!(written, expected);
    }
}
