//! Repairs items that break the specification. Clients check the form of a whole list at once, so
//! one member of a wrong type, such as `"description": null`, would take the tools of all upstreams
//! from them.
//!
//! An optional member of a wrong type is removed; a required one gets the value that it has by
//! default, if it has one. A well-formed item stays byte for byte.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use url::Url;
use weir_core::upstream::ListKind;
use weir_schema::find_unreadable;
use weir_wire::scan;

use crate::invalid_item::InvalidItem;
use crate::timestamp::is_timestamp;
use ValueForm::{AnyObject, Boolean, Fraction, List, OneOf, Size, Text, Timestamp, WholeList};

/// The form of a value.
#[derive(Debug)]
enum ValueForm {
    Text,
    Boolean,
    /// A number of bytes, as plain digits: clients in typed languages read no other form.
    Size,
    /// A number from 0 to 1.
    Fraction,
    /// A date with a time and an offset (RFC 3339).
    Timestamp,
    OneOf(&'static [&'static str]),
    AnyObject,
    Object(&'static [MemberForm]),
    /// An array, whose elements of another form are removed.
    List(&'static ValueForm),
    /// An array, which is removed if an element has another form.
    WholeList(&'static ValueForm),
    /// A JSON Schema of an object.
    InputSchema,
    OutputSchema,
    /// The member `type` of a schema of an object.
    ObjectType,
    /// The schemas of an object's properties, by name.
    Properties,
}

/// The form of a member of an object.
#[derive(Debug)]
struct MemberForm {
    name: &'static str,
    form: &'static ValueForm,
    presence: Presence,
}

/// The need for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Removed if its form is another one.
    Optional,
    /// The object is invalid without it.
    Required,
    /// Added with this value if it is missing. The object is invalid with one of another form.
    Default(&'static str),
}

const fn optional(name: &'static str, form: &'static ValueForm) -> MemberForm {
    MemberForm {
        name,
        form,
        presence: Presence::Optional,
    }
}

const fn required(name: &'static str, form: &'static ValueForm) -> MemberForm {
    MemberForm {
        name,
        form,
        presence: Presence::Required,
    }
}

/// The schema of arguments of any kind.
const ANY_OBJECT_SCHEMA: &str = r#"{"type":"object"}"#;

const ICONS: ValueForm = List(&ValueForm::Object(&[
    required("src", &Text),
    optional("mimeType", &Text),
    optional("sizes", &WholeList(&Text)),
    optional("theme", &OneOf(&["dark", "light"])),
]));

const ANNOTATIONS: ValueForm = ValueForm::Object(&[
    optional("audience", &WholeList(&OneOf(&["assistant", "user"]))),
    optional("priority", &Fraction),
    optional("lastModified", &Timestamp),
]);

const TOOL_ANNOTATIONS: ValueForm = ValueForm::Object(&[
    optional("title", &Text),
    optional("readOnlyHint", &Boolean),
    optional("destructiveHint", &Boolean),
    optional("idempotentHint", &Boolean),
    optional("openWorldHint", &Boolean),
]);

const EXECUTION: ValueForm = ValueForm::Object(&[optional(
    "taskSupport",
    &OneOf(&["forbidden", "optional", "required"]),
)]);

const PROMPT_ARGUMENTS: ValueForm = List(&ValueForm::Object(&[
    required("name", &Text),
    optional("title", &Text),
    optional("description", &Text),
    optional("required", &Boolean),
]));

const TOOL: &[MemberForm] = &[
    MemberForm {
        name: "inputSchema",
        form: &ValueForm::InputSchema,
        presence: Presence::Default(ANY_OBJECT_SCHEMA),
    },
    optional("title", &Text),
    optional("description", &Text),
    optional("outputSchema", &ValueForm::OutputSchema),
    optional("annotations", &TOOL_ANNOTATIONS),
    optional("execution", &EXECUTION),
    optional("icons", &ICONS),
    optional("_meta", &AnyObject),
];

const PROMPT: &[MemberForm] = &[
    optional("title", &Text),
    optional("description", &Text),
    optional("arguments", &PROMPT_ARGUMENTS),
    optional("icons", &ICONS),
    optional("_meta", &AnyObject),
];

const RESOURCE: &[MemberForm] = &[
    optional("name", &Text),
    optional("title", &Text),
    optional("description", &Text),
    optional("mimeType", &Text),
    optional("size", &Size),
    optional("annotations", &ANNOTATIONS),
    optional("icons", &ICONS),
    optional("_meta", &AnyObject),
];

const TEMPLATE: &[MemberForm] = &[
    optional("name", &Text),
    optional("title", &Text),
    optional("description", &Text),
    optional("mimeType", &Text),
    optional("annotations", &ANNOTATIONS),
    optional("icons", &ICONS),
    optional("_meta", &AnyObject),
];

const INPUT_SCHEMA: &[MemberForm] = &[
    MemberForm {
        name: "type",
        form: &ValueForm::ObjectType,
        presence: Presence::Default(r#""object""#),
    },
    optional("$schema", &Text),
    optional("properties", &ValueForm::Properties),
    optional("required", &List(&Text)),
];

const OUTPUT_SCHEMA: &[MemberForm] = &[
    optional("$schema", &Text),
    optional("properties", &ValueForm::Properties),
    optional("required", &List(&Text)),
];

/// Repairs an item that is an object within the limits. A well-formed one stays as it is.
///
/// # Errors
/// The item cannot be repaired.
pub(super) fn repair(kind: ListKind, raw: Bytes) -> Result<Bytes, InvalidItem> {
    let key = scan::find(&raw, kind.key()).and_then(|at| scan::string(&raw[at]));
    let key = key.ok_or(InvalidItem::Name)?.into_owned();
    if kind == ListKind::Resources && !is_uri(&key) {
        return Err(InvalidItem::Uri(key));
    }
    let raw = match without_lone_surrogates(&raw) {
        Cow::Borrowed(_) => raw,
        Cow::Owned(whole) => whole.into(),
    };
    // Half a surrogate pair is in no text any more.
    if find_unreadable(&raw).is_some() {
        return Err(InvalidItem::Number(key));
    }
    let members = match kind {
        ListKind::Tools => TOOL,
        ListKind::Prompts => PROMPT,
        ListKind::Resources => RESOURCE,
        ListKind::Templates => TEMPLATE,
    };
    let mut repaired = match object(members, &raw) {
        Some(Cow::Borrowed(_)) => raw,
        Some(Cow::Owned(repaired)) => repaired.into(),
        None => return Err(InvalidItem::InputSchema(key)),
    };
    // Clients show the name of a resource, and its URI in place of a missing one.
    if matches!(kind, ListKind::Resources | ListKind::Templates)
        && scan::find(&repaired, "name").is_none()
    {
        let mut named = MemberList::of(repaired.len());
        scan::members(&repaired).for_each(|member| {
            named.add(member.key.raw(), &repaired[member.value]);
        });
        named.add(b"name", Value::from(key).to_string().as_bytes());
        repaired = named.end().into();
    }
    Ok(repaired)
}

/// The value in this form; no value if it has to be removed.
fn value<'a>(form: &ValueForm, value: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let fits = match form {
        ValueForm::Text => scan::string(value).is_some(),
        ValueForm::Boolean => matches!(value, b"true" | b"false"),
        ValueForm::Size => is_size(value),
        ValueForm::Fraction => number(value).is_some_and(|number| (0.0..=1.0).contains(&number)),
        ValueForm::Timestamp => scan::string(value).is_some_and(|text| is_timestamp(&text)),
        ValueForm::OneOf(words) => words.iter().any(|word| scan::is_string(value, word)),
        ValueForm::AnyObject => scan::is_object(value),
        ValueForm::Object(members) => return object(members, value),
        ValueForm::List(form) => return list(form, value),
        ValueForm::WholeList(form) => {
            value.starts_with(b"[")
                && scan::elements(value).all(|at| self::value(form, &value[at]).is_some())
        }
        ValueForm::InputSchema => return input_schema(value),
        ValueForm::OutputSchema => return object(OUTPUT_SCHEMA, value).map(without_id),
        ValueForm::ObjectType => return object_type(value),
        ValueForm::Properties => return properties(value),
    };
    fits.then_some(Cow::Borrowed(value))
}

/// An object whose members have these forms; no value if it is none, or a required member is
/// missing.
fn object<'a>(members: &[MemberForm], object: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if !scan::is_object(object) {
        return None;
    }
    let (mut found, mut changed) = (0_u32, false);
    let mut out = MemberList::of(object.len());
    for member in scan::members(object) {
        let given = &object[member.value];
        let known = members
            .iter()
            .position(|known| member.key.eq_str(known.name));
        let Some((nth, known)) = known.map(|nth| (nth, &members[nth])) else {
            out.add(member.key.raw(), given);
            continue;
        };
        match (value(known.form, given), known.presence) {
            (Some(kept), _) => {
                found |= 1 << nth;
                changed |= matches!(kept, Cow::Owned(_));
                out.add(member.key.raw(), &kept);
            }
            (None, Presence::Optional) => changed = true,
            (None, Presence::Required | Presence::Default(_)) => return None,
        }
    }
    for (nth, known) in members.iter().enumerate() {
        match known.presence {
            Presence::Required if found & 1 << nth == 0 => return None,
            Presence::Default(default) if found & 1 << nth == 0 => {
                out.add(known.name.as_bytes(), default.as_bytes());
                changed = true;
            }
            Presence::Optional | Presence::Required | Presence::Default(_) => {}
        }
    }
    Some(if changed {
        Cow::Owned(out.end())
    } else {
        Cow::Borrowed(object)
    })
}

/// An array without the elements of another form.
fn list<'a>(form: &ValueForm, list: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    if !list.starts_with(b"[") {
        return None;
    }
    let (mut out, mut changed) = (Vec::with_capacity(list.len()), false);
    for at in scan::elements(list) {
        let Some(kept) = value(form, &list[at]) else {
            changed = true;
            continue;
        };
        changed |= matches!(kept, Cow::Owned(_));
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(&kept);
    }
    if !changed {
        return Some(Cow::Borrowed(list));
    }
    if out.is_empty() {
        out.push(b'[');
    }
    out.push(b']');
    Some(Cow::Owned(out))
}

/// The schema of a tool's arguments. A missing one permits any arguments; so do the empty array of
/// PHP and `true`.
fn input_schema(schema: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_empty = matches!(schema, b"null" | b"true") || is_empty_array(schema);
    if is_empty {
        return Some(Cow::Owned(ANY_OBJECT_SCHEMA.into()));
    }
    object(INPUT_SCHEMA, schema).map(without_id)
}

/// The type of arguments, which are always an object: among several types only that one counts.
fn object_type(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    if scan::is_string(value, "object") {
        return Some(Cow::Borrowed(value));
    }
    let has_object = || scan::elements(value).any(|at| scan::is_string(&value[at], "object"));
    (value == b"null" || has_object()).then(|| Cow::Owned(br#""object""#.to_vec()))
}

/// The schemas of properties as objects, the only form before 2026-07-28: `true` is `{}`, and
/// `false` is `{"not":{}}`. A value that is no schema permits anything.
fn properties(map: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !scan::is_object(map) {
        return None;
    }
    if scan::members(map).all(|member| scan::is_object(&map[member.value])) {
        return Some(Cow::Borrowed(map));
    }
    let mut out = MemberList::of(map.len());
    for member in scan::members(map) {
        let schema = match &map[member.value] {
            schema if scan::is_object(schema) => schema,
            b"false" => br#"{"not":{}}"#,
            _ => b"{}",
        };
        out.add(member.key.raw(), schema);
    }
    Some(Cow::Owned(out.end()))
}

/// A schema without its own `$id`, unless something in it refers to that: clients keep one schema
/// of each id, and several servers may have the same.
fn without_id(schema: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if scan::find(&schema, "$id").is_none() || !has_only_local_references(&schema) {
        return schema;
    }
    let mut out = MemberList::of(schema.len());
    scan::members(&schema)
        .filter(|member| !member.key.eq_str("$id"))
        .for_each(|member| out.add(member.key.raw(), &schema[member.value]));
    Cow::Owned(out.end())
}

/// True if all references in a schema are pointers into it, and no part has an id.
fn has_only_local_references(schema: &[u8]) -> bool {
    let Ok(schema) = serde_json::from_slice::<Value>(schema) else {
        return false;
    };
    let mut open = vec![&schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let is_root = std::ptr::eq(value, &raw const schema);
                let is_foreign = |(key, value): (&String, &Value)| match key.as_str() {
                    "$id" => !is_root && value.is_string(),
                    // Some validators find an anchor in a schema with an id alone.
                    "$ref" | "$dynamicRef" | "$recursiveRef" => value
                        .as_str()
                        .is_some_and(|target| target != "#" && !target.starts_with("#/")),
                    _ => false,
                };
                if members.iter().any(is_foreign) {
                    return false;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    true
}

/// The text with U+FFFD in place of each escape of half a surrogate pair, which several readers of
/// JSON refuse together with the whole message.
fn without_lone_surrogates(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(run) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += run;
        let length = match unit(json, at) {
            Some(0xd800..0xdc00) if matches!(unit(json, at + 6), Some(0xdc00..0xe000)) => 12,
            Some(0xd800..0xe000) => {
                let out = out.get_or_insert_with(|| json.to_vec());
                out[at..at + 6].copy_from_slice(br"\ufffd");
                6
            }
            _ => 2,
        };
        at = (at + length).min(json.len());
    }
    out.map_or(Cow::Borrowed(json), Cow::Owned)
}

/// The code unit of the escape `\uXXXX` at this offset.
fn unit(json: &[u8], at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix(br"\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn number(value: &[u8]) -> Option<f64> {
    let is_number = value
        .first()
        .is_some_and(|byte| matches!(byte, b'-' | b'0'..=b'9'));
    let number = is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok())?;
    number.filter(|number: &f64| number.is_finite())
}

fn is_size(value: &[u8]) -> bool {
    let digits = std::str::from_utf8(value).ok();
    digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
}

fn is_empty_array(value: &[u8]) -> bool {
    value.starts_with(b"[") && scan::elements(value).next().is_none()
}

/// True for a URI that readers of URIs (WHATWG) in clients accept, both as the server wrote it and
/// behind the id of an upstream, where the scheme is another one and permits other hosts.
fn is_uri(uri: &str) -> bool {
    let is_read = |uri: &str| Url::parse(uri).is_ok();
    is_read(uri) && is_read(&format!("u+{uri}"))
}

/// The members of an object in the making.
struct MemberList(Vec<u8>);

impl MemberList {
    fn of(size: usize) -> Self {
        Self(Vec::with_capacity(size + 2))
    }

    /// Adds a member: its key as it is written between the quotes, and its value.
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.push(b'"');
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(b"\":");
        self.0.extend_from_slice(value);
    }

    fn end(mut self) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests;
