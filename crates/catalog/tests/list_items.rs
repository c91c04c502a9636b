//! Items of lists, however malformed they come from a server, have the official type of every
//! revision or are left out.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::OnceLock;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use weir_core::upstream::ListKind;
use weir_items::ItemDraft;
use weir_testkit::ProtocolSchemas;
use weir_wire::Revision;

/// Names of members that the specification defines in some item or in a part of one.
const NAMES: &[&str] = &[
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "execution",
    "icons",
    "_meta",
    "arguments",
    "mimeType",
    "size",
    "uri",
    "uriTemplate",
    "type",
    "properties",
    "required",
    "$schema",
    "$id",
    "src",
    "sizes",
    "theme",
    "audience",
    "priority",
    "lastModified",
    "taskSupport",
    "readOnlyHint",
    "x-unknown",
];

fn schemas() -> Option<&'static ProtocolSchemas> {
    static SCHEMAS: OnceLock<Option<ProtocolSchemas>> = OnceLock::new();
    SCHEMAS
        .get_or_init(ProtocolSchemas::from_environment)
        .as_ref()
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2..9).prop_map(Value::from),
        Just(json!(0.5)),
        prop::sample::select(vec![
            "object", "user", "dark", "optional", "x:y", "", "48x48"
        ])
        .prop_map(Value::from),
    ]
}

fn object_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(NAMES), value), 0..7).prop_map(|members| {
        let members = members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Value::Object(members.collect::<Map<_, _>>())
    })
}

/// Any value, with members of the known names.
fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            object_of(inner),
        ]
    })
}

/// An item that has its key, and perhaps an input schema of the right type.
fn item() -> impl Strategy<Value = Value> {
    (object_of(value()), any::<bool>()).prop_map(|(mut item, has_type)| {
        for key in ["name", "uri", "uriTemplate"] {
            if item[key].is_null() {
                item[key] = json!("x:y");
            }
        }
        if has_type && item["inputSchema"].is_object() {
            item["inputSchema"]["type"] = json!("object");
        }
        item
    })
}

const KINDS: [(ListKind, &str); 4] = [
    (ListKind::Tools, "Tool"),
    (ListKind::Prompts, "Prompt"),
    (ListKind::Resources, "Resource"),
    (ListKind::Templates, "ResourceTemplate"),
];

proptest! {
    // Proves R119.
    #[test]
    fn every_listed_item_has_the_official_type_of_every_revision(item in item()) {
        let Some(schemas) = schemas() else { return Ok(()) };
        for (kind, definition) in KINDS {
            let raw = Bytes::from(item.to_string());
            let Ok(draft) = ItemDraft::read_listed(kind, raw.clone()) else { continue };
            let listed: Value = serde_json::from_slice(&draft.raw).unwrap();
            let again = ItemDraft::read_listed(kind, draft.raw.clone()).unwrap();
            prop_assert_eq!(&again.raw, &draft.raw, "a repaired item is well-formed");
            let mut is_valid = true;
            for revision in Revision::ALL {
                // Clients of older revisions do not see output schemas of other types.
                let shown = |item: &Value| {
                    let mut item = item.clone();
                    if !revision.has_any_structured_content() && item["outputSchema"]["type"] != "object" {
                        item.as_object_mut().map(|item| item.remove("outputSchema"));
                    }
                    item
                };
                let checked = schemas.check_as(revision, definition, &shown(&listed));
                prop_assert_eq!(checked, Ok(()), "{}", item);
                is_valid &= schemas.check_as(revision, definition, &shown(&item)).is_ok();
            }
            let has_id = |schema: &str| item[schema].get("$id").is_some();
            if is_valid && !has_id("inputSchema") && !has_id("outputSchema") {
                // The official types permit any text as a time, and any integer as a size.
                let is_stricter = listed["annotations"]["lastModified"] != item["annotations"]["lastModified"]
                    || listed["size"] != item["size"];
                prop_assert!(
                    draft.raw == raw || is_stricter,
                    "a well-formed item stays byte for byte: {}", item
                );
            }
        }
    }
}
