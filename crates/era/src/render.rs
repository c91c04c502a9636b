//! Results, lists and notes in the form of the client's revision.

mod notifications;

use bytes::{BufMut, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use weir_core::catalog_item::CatalogItem;
use weir_core::upstream::ListKind;
use weir_wire::method::Method;
use weir_wire::splice::{BlockLocation, BlockReplacer, MetaEdits, ObjectEdits, ReplacedBlock};
use weir_wire::splitter::WITHHELD;
use weir_wire::write::{ObjectWriter, string};
use weir_wire::{Revision, meta, scan};

use crate::capabilities::OfferedCapabilities;
use crate::lower;

pub use notifications::{
    RESOURCE_SUBSCRIPTIONS, SUBSCRIPTION_FILTERS, acknowledged, list_changed, log_message,
    note_notification, updated,
};

/// The identity of weir in every result, and the edits that results get with it, made once.
#[derive(Clone, Debug)]
pub struct WeirIdentity {
    /// The `Implementation` object of weir itself.
    pub(crate) server_info: Bytes,
    results: ResultEdits,
}

/// The edits of complete results ([`complete`]).
#[derive(Clone, Debug)]
struct ResultEdits {
    modern: ObjectEdits,
    modern_resource: ObjectEdits,
    /// Of a resource, for a caller with credentials.
    private_resource: ObjectEdits,
    legacy: ObjectEdits,
    /// Of a method that no revision knows, for a legacy client.
    legacy_extension: ObjectEdits,
}

impl WeirIdentity {
    /// The identity with this `Implementation` object.
    #[must_use]
    pub fn new(server_info: Bytes) -> Self {
        let results = ResultEdits::new(own(&server_info));
        Self {
            server_info,
            results,
        }
    }

    /// The edits of the `_meta` of a modern result.
    pub(crate) fn meta(&self) -> MetaEdits {
        own(&self.server_info)
    }
}

impl ResultEdits {
    fn new(own: MetaEdits) -> Self {
        let all = ObjectEdits::new()
            .without_variants_of(&WITHHELD)
            .observe(IS_ERROR);
        // Members that would announce a continuation of the call never come from a server: older
        // revisions have no such members.
        let modern = all
            .clone()
            .set("resultType", &b"\"complete\""[..])
            .meta(own)
            .remove("requestState")
            .remove("inputRequests");
        // A server without valid cache hints promises no freshness (server/utilities/caching).
        let is_ttl = |value: &[u8]| scan::integer(value).is_some_and(|ttl| ttl >= 0);
        let is_scope = |value: &[u8]| {
            ["public", "private"]
                .iter()
                .any(|scope| scan::is_string(value, scope))
        };
        let modern_resource = modern
            .clone()
            .ensure_valid("ttlMs", is_ttl, &b"0"[..])
            .ensure_valid("cacheScope", is_scope, &b"\"private\""[..]);
        // A cache that several callers share knows none of weir's permissions.
        let private_resource = modern_resource
            .clone()
            .set("cacheScope", &b"\"private\""[..]);
        // Before 2026-07-28 structured content is an object.
        let legacy = all
            .clone()
            .remove("resultType")
            .remove("ttlMs")
            .remove("cacheScope")
            .only_object("structuredContent")
            .meta(MetaEdits::new().drop_owned());
        // All other members are between client and server.
        let legacy_extension = all.remove("resultType").meta(MetaEdits::new().drop_owned());
        Self {
            modern,
            modern_resource,
            private_resource,
            legacy,
            legacy_extension,
        }
    }
}

/// The member of a result that marks a tool's failure; [`complete`] has it observed.
pub const IS_ERROR: &str = "isError";

/// Writes the members of a tool's result that is an error in text.
pub fn tool_error(result: &mut ObjectWriter<'_>, text: &str) {
    result.with("content", |out| {
        out.extend_from_slice(br#"[{"type":"text","text":"#);
        string(out, text);
        out.extend_from_slice(b"}]");
    });
    result.boolean(IS_ERROR, true);
}

/// The edits of a complete result of a method for a client of this revision, that has sent
/// credentials or not. The value of [`IS_ERROR`] is observed.
#[must_use]
pub fn complete(
    revision: Revision,
    method: Method,
    is_anonymous: bool,
    about: &WeirIdentity,
) -> &ObjectEdits {
    let results = &about.results;
    match (revision.is_modern(), method) {
        (true, Method::ResourcesRead) if !is_anonymous => &results.private_resource,
        (true, Method::ResourcesRead) => &results.modern_resource,
        (true, _) => &results.modern,
        (false, Method::Extension) => &results.legacy_extension,
        (false, _) => &results.legacy,
    }
}

/// The same for a result that lost this number of hidden characters: its `_meta` states the number.
#[must_use]
pub fn cleaned(complete: &ObjectEdits, removed: u64) -> ObjectEdits {
    complete
        .clone()
        .add_meta(meta::WEIR_CLEANED, removed.to_string())
}

/// The replacement by text of content blocks that the revision does not have, in the result of
/// this method; no value if it has them all. Results of extension methods have no content blocks.
#[must_use]
pub fn block_replacements(revision: Revision, method: Method) -> Option<BlockReplacer> {
    if method == Method::Extension {
        return None;
    }
    let foreign: &[&str] = match (revision.has_audio(), revision.has_resource_link()) {
        (true, true) => return None,
        (true, false) => &["resource_link"],
        (false, _) => &["audio", "resource_link"],
    };
    let location = if method == Method::PromptsGet {
        BlockLocation::Messages
    } else {
        BlockLocation::Content
    };
    Some(BlockReplacer::replacing(location, foreign, block_as_text))
}

/// What is no visible ASCII in a URI: all other characters are encoded by default. Hidden characters
/// are removed from texts alone, so a URI that becomes a text may have them; encoded, it keeps its
/// meaning (RFC 3986, 2.1).
const HIDDEN: &AsciiSet = &CONTROLS.add(b' ');

/// A content block as text.
fn block_as_text(block: &ReplacedBlock) -> String {
    match block.kind().as_deref() {
        Some("resource_link") => {
            let name = block.text("title").or_else(|| block.text("name")).unwrap_or_default();
            let uri = block.text("uri").unwrap_or_default();
            let uri = utf8_percent_encode(&uri, HIDDEN);
            let about = block.text("description").map(|about| format!(": {about}")).unwrap_or_default();
            format!("Resource link: {name} <{uri}>{about}")
        }
        Some(kind) => {
            let form = block.text("mimeType");
            let form = form.filter(|form| form.bytes().all(|byte| byte.is_ascii_graphic()));
            let form = form.map(|form| format!(" ({form})")).unwrap_or_default();
            format!("[{kind} content{form} was left out: this revision of the protocol has none]")
        }
        None => "[a content block was left out: it is too large to see whether this revision of the protocol has it]"
            .to_owned(),
    }
}

/// The edits of an `input_required` result for a modern client: its state, if it has one, becomes
/// `sealed`.
#[must_use]
pub fn input_required(about: &WeirIdentity, sealed: Option<&str>) -> ObjectEdits {
    let edits = ObjectEdits::new()
        .without_variants_of(&WITHHELD)
        .remove("ttlMs")
        .remove("cacheScope")
        .meta(about.meta());
    match sealed {
        Some(sealed) => edits.set("requestState", lower::json(sealed)),
        None => edits,
    }
}

fn own(server_info: &Bytes) -> MetaEdits {
    MetaEdits::new()
        .drop_owned()
        .add(meta::SERVER_INFO, server_info.clone())
}

/// The JSON array of a list page's items, and the braces that end the result and the response
/// around it ([`list`]). It depends only on the items and on the revision's family, so it can be
/// kept.
#[must_use]
pub fn items(revision: Revision, items: &[CatalogItem]) -> Bytes {
    let size: usize = items.iter().map(|item| item.tool.raw.len() + 64).sum();
    let mut out = BytesMut::with_capacity(size + 4);
    out.put_u8(b'[');
    for (nth, item) in items.iter().enumerate() {
        if nth > 0 {
            out.put_u8(b',');
        }
        write_list_item(&mut out, revision, item);
    }
    out.put_slice(b"]}}");
    out.freeze()
}

/// One item: its exposed name or URI in place of its own, without the members the revision does not
/// have, and without an output schema that clients cannot use.
fn write_list_item(out: &mut BytesMut, revision: Revision, item: &CatalogItem) {
    let raw = &item.tool.raw;
    let hidden = |key: &scan::MemberKey<'_>, value: &[u8]| {
        (key.eq_str("execution") && !revision.has_execution())
            || (key.eq_str("outputSchema")
                && (!item.tool.output.is_for_clients()
                    || !revision.has_any_structured_content() && !is_object_schema(value)))
    };
    let has_hidden =
        scan::members(raw).any(|member| hidden(&member.key, &raw[member.value.clone()]));
    if has_hidden {
        out.put_u8(b'{');
        let mut first = true;
        let mut at = 1;
        for member in scan::members(raw) {
            // A member's text begins where the one before it ended.
            let text = &raw[at..member.value.end];
            at = member.value.end;
            if hidden(&member.key, &raw[member.value.clone()]) {
                continue;
            }
            let text = text.trim_ascii_start();
            let text = text.strip_prefix(b",").unwrap_or(text);
            if !first {
                out.put_u8(b',');
            }
            first = false;
            if member.value == item.tool.name {
                out.put_slice(&text[..text.len() - member.value.len()]);
                string(out, &item.exposed);
            } else {
                out.put_slice(text);
            }
        }
        out.put_u8(b'}');
    } else {
        out.put_slice(&raw[..item.tool.name.start]);
        string(out, &item.exposed);
        out.put_slice(&raw[item.tool.name.end..]);
    }
}

/// True for a schema whose root says `type: "object"`: the only kind that revisions before
/// 2026-07-28 have.
fn is_object_schema(schema: &[u8]) -> bool {
    scan::find(schema, "type")
        .is_some_and(|range| scan::string(&schema[range]).as_deref() == Some("object"))
}

/// The members of a list page beside its items.
#[derive(Debug)]
pub struct PageFacts<'a> {
    /// The cursor of the next page.
    pub next_cursor: Option<&'a str>,
    /// Freshness, in milliseconds.
    pub ttl_ms: u64,
    /// True if shared caches may keep it.
    pub public: bool,
    /// The upstreams with an incomplete part, as (id, reason).
    pub missing: Vec<(String, &'static str)>,
}

/// The `result` object of a list up to its [`items`], the last member. A page is long: so it is not
/// copied, and no bytes follow it.
#[must_use]
pub fn list(
    revision: Revision,
    kind: ListKind,
    about: &WeirIdentity,
    facts: &PageFacts<'_>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    if revision.has_result_type() {
        result.string("resultType", "complete");
    }
    if let Some(cursor) = facts.next_cursor {
        result.string("nextCursor", cursor);
    }
    if revision.has_cache_hints() {
        result.integer("ttlMs", i64::try_from(facts.ttl_ms).unwrap_or(i64::MAX));
        result.string(
            "cacheScope",
            if facts.public { "public" } else { "private" },
        );
    }
    if revision.is_modern() || !facts.missing.is_empty() {
        result.with("_meta", |out| list_meta(out, revision, about, facts));
    }
    result.key(kind.member());
    out.freeze()
}

fn list_meta(out: &mut BytesMut, revision: Revision, about: &WeirIdentity, facts: &PageFacts<'_>) {
    let mut object = ObjectWriter::new(out);
    if revision.is_modern() {
        object.raw(meta::SERVER_INFO, &about.server_info);
    }
    if !facts.missing.is_empty() {
        object.with(meta::WEIR_UPSTREAMS, |out| {
            out.put_u8(b'[');
            for (nth, (id, reason)) in facts.missing.iter().enumerate() {
                if nth > 0 {
                    out.put_u8(b',');
                }
                ObjectWriter::new(out)
                    .string("upstream", id)
                    .string("reason", reason)
                    .end();
            }
            out.put_u8(b']');
        });
    }
    object.end();
}

/// The result of `initialize`.
#[must_use]
pub fn initialized(
    revision: Revision,
    about: &WeirIdentity,
    offer: &OfferedCapabilities,
    instructions: Option<&str>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    result.string("protocolVersion", revision.as_str());
    result.with("capabilities", |out| offer.write(revision, out));
    result.raw("serverInfo", &about.server_info);
    if let Some(instructions) = instructions {
        result.string("instructions", instructions);
    }
    result.end();
    out.freeze()
}

/// The result of `server/discover`. A client may keep it for this number of milliseconds.
#[must_use]
pub fn discovered(
    about: &WeirIdentity,
    offer: &OfferedCapabilities,
    instructions: Option<&str>,
    ttl_ms: u32,
) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    result.string("resultType", "complete");
    result.with("supportedVersions", |out| {
        out.put_u8(b'[');
        string(out, Revision::MODERN.as_str());
        out.put_u8(b']');
    });
    result.with("capabilities", |out| offer.write(Revision::MODERN, out));
    if let Some(instructions) = instructions {
        result.string("instructions", instructions);
    }
    result
        .integer("ttlMs", ttl_ms.into())
        .string("cacheScope", "private");
    result.with("_meta", |out| {
        ObjectWriter::new(out)
            .raw(meta::SERVER_INFO, &about.server_info)
            .end()
    });
    result.end();
    out.freeze()
}

/// The empty result that ends a `subscriptions/listen` (2026-07-28, Subscriptions).
#[must_use]
pub fn listen_end(about: &WeirIdentity, subscription: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    let mut result = ObjectWriter::new(&mut out);
    result.string("resultType", "complete");
    result.with("_meta", |out| {
        ObjectWriter::new(out)
            .raw(meta::SUBSCRIPTION_ID, subscription)
            .raw(meta::SERVER_INFO, &about.server_info)
            .end();
    });
    result.end();
    out.freeze()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn prompts_and_tool_results_have_only_block_types_of_the_revision() {
        let blocks = [
            json!({ "type": "text", "text": "t" }),
            json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }),
            json!({ "type": "resource_link", "uri": "file:///c", "name": "c" }),
        ];
        let message = |block: &Value| json!({ "role": "user", "content": block });
        let messages: Vec<Value> = blocks.iter().map(message).collect();
        let prompt = json!({ "messages": messages });
        let result = json!({ "content": blocks });
        let edited = |revision, method, result: &Value| {
            let result = Bytes::from(result.to_string());
            let blocks = block_replacements(revision, method);
            let edited = blocks.map_or(result.clone(), |blocks| blocks.apply(&result).unwrap());
            serde_json::from_slice::<Value>(&edited).unwrap()
        };
        for revision in Revision::ALL {
            let prompt = edited(revision, Method::PromptsGet, &prompt);
            let result = edited(revision, Method::ToolsCall, &result);
            for (nth, known) in [true, revision.has_audio(), revision.has_resource_link()]
                .into_iter()
                .enumerate()
            {
                let block = &prompt["messages"][nth]["content"];
                assert_eq!(block == &blocks[nth], known, "{revision}: {block}");
                assert!(known || block["type"] == "text", "{revision}: {block}");
                assert_eq!(prompt["messages"][nth]["role"], "user");
                // A tool's result has the same replacement.
                assert_eq!(&result["content"][nth], block, "{revision}");
            }
        }
    }

    #[test]
    fn invalid_cache_hints_of_a_resource_become_those_of_none() {
        let about = WeirIdentity::new(Bytes::from_static(b"{}"));
        for (hints, ttl, scope) in [
            (r#","ttlMs":5,"cacheScope":"public""#, json!(5), "public"),
            (r#","ttlMs":-7,"cacheScope":"foo""#, json!(0), "private"),
            (r#","ttlMs":null,"cacheScope":null"#, json!(0), "private"),
            (
                r#","ttlMs":1.5,"cacheScope":["public"]"#,
                json!(0),
                "private",
            ),
            (r#","ttlMs":"5""#, json!(0), "private"),
            ("", json!(0), "private"),
        ] {
            let result = Bytes::from(format!(r#"{{"contents":[]{hints}}}"#));
            let edits = complete(Revision::MODERN, Method::ResourcesRead, true, &about);
            let whole = edits.apply_checked(&result).unwrap().0;
            let streamed = edits.clone().apply(&result).unwrap().0;
            for edited in [whole, streamed] {
                let edited: Value = serde_json::from_slice(&edited).unwrap();
                assert_eq!(
                    (&edited["ttlMs"], &edited["cacheScope"]),
                    (&ttl, &json!(scope)),
                    "{result:?}"
                );
            }
        }
    }

    #[test]
    fn texts_in_place_of_blocks_have_visible_characters_only() {
        let content = json!([
            { "type": "resource_link", "uri": "x://\u{e0053}a b/\u{1b}[2J?q=ü", "name": "n" },
            { "type": "audio", "data": "", "mimeType": "audio/\u{e0053}" },
        ]);
        let result = Bytes::from(json!({ "content": content }).to_string());
        let blocks = block_replacements(Revision::V2024_11_05, Method::ToolsCall).unwrap();
        let edited = blocks.apply(&result).unwrap();
        let edited: Value = serde_json::from_slice(&edited).unwrap();
        let link = "Resource link: n <x://%F3%A0%81%93a%20b/%1B[2J?q=%C3%BC>";
        assert_eq!(edited["content"][0]["text"], link);
        let audio = "[audio content was left out: this revision of the protocol has none]";
        assert_eq!(edited["content"][1]["text"], audio);
    }
}
