//! Forms and messages that some revisions do not have: enums of forms, lists of content blocks.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use weir_core::UpstreamQuestion;
use weir_wire::method::Method;
use weir_wire::splice::ObjectEdits;
use weir_wire::{Revision, scan};

use crate::server_questions::question_refusal::QuestionRefusal;

/// The text in place of an audio block, for revisions without audio.
const AUDIO_LEFT_OUT: &str = "[audio content was left out: this revision of the protocol has none]";

/// The kinds of content that a sampled message can have before 2025-11-25. Audio is here, because
/// where a revision lacks it a text stands in its place.
const SINGLE_BLOCKS: [&str; 3] = ["text", "image", "audio"];

/// The `params` of a question for a client of this revision.
///
/// # Errors
/// [`QuestionRefusal::NotInRevision`].
pub(super) fn lower_params(
    revision: Revision,
    question: &UpstreamQuestion,
) -> Result<Bytes, QuestionRefusal> {
    let params = &question.params;
    if question.method == Method::ElicitationCreate && !revision.has_elicitation_modes() {
        form(params)
    } else if question.method == Method::SamplingCreateMessage && !revision.has_sampling_tools() {
        messages(revision, params)
    } else {
        Ok(params.clone())
    }
}

/// An answer for a server of this revision: before 2025-11-25 a sampled message has one content
/// block, which is audio only since 2025-03-26.
pub(super) fn lower_answer(revision: Revision, method: Method, result: &Bytes) -> Bytes {
    if method != Method::SamplingCreateMessage || revision.has_sampling_tools() {
        return result.clone();
    }
    let Some(content) = scan::find(result, "content").map(|range| &result[range]) else {
        return result.clone();
    };
    let is_list = content.starts_with(b"[");
    let is_foreign = !revision.has_audio() && scan::is_object(content) && kind(content) == "audio";
    if !is_list && !is_foreign {
        return result.clone();
    }
    let blocks = match serde_json::from_slice::<Value>(content) {
        Ok(Value::Array(blocks)) => blocks,
        Ok(block) => vec![block],
        Err(_) => return result.clone(),
    };
    let blocks = blocks
        .into_iter()
        .map(|block| without_audio(revision, block))
        .collect();
    let edits =
        ObjectEdits::new().replace("content", Bytes::from(merge_blocks(blocks).to_string()));
    edits.apply_or_keep(result)
}

/// The block, or a text in its place if it is audio and the revision has none.
fn without_audio(revision: Revision, block: Value) -> Value {
    if block["type"] == "audio" && !revision.has_audio() {
        json!({ "type": "text", "text": AUDIO_LEFT_OUT })
    } else {
        block
    }
}

/// Several blocks as one: all texts together, else the first block of a kind that every revision
/// has or that became one, else a text that names what was left out.
fn merge_blocks(blocks: Vec<Value>) -> Value {
    let kind = |block: &Value| block["type"].as_str().unwrap_or_default().to_owned();
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    if blocks.len() > 1 && !texts.is_empty() {
        return json!({ "type": "text", "text": texts.join("\n") });
    }
    let left_out = blocks.first().map(&kind).unwrap_or_default();
    blocks
        .into_iter()
        .find(|block| SINGLE_BLOCKS.contains(&&*kind(block)))
        .unwrap_or_else(|| json!({ "type": "text", "text": format!("[{left_out} content was left out: this revision of the protocol has none]") }))
}

/// A form for 2025-06-18: no `mode`; a single choice is `enum` with `enumNames`, a multiple choice
/// cannot be expressed.
fn form(params: &Bytes) -> Result<Bytes, QuestionRefusal> {
    let mut edits = ObjectEdits::new().remove("mode");
    let schema = scan::find(params, "requestedSchema").map(|range| &params[range]);
    if let Some(schema) = schema.filter(|schema| is_newer(schema)) {
        let mut schema: Value =
            serde_json::from_slice(schema).map_err(|_| QuestionRefusal::NotInRevision)?;
        let properties = schema["properties"]
            .as_object_mut()
            .ok_or(QuestionRefusal::NotInRevision)?;
        properties
            .values_mut()
            .filter_map(Value::as_object_mut)
            .try_for_each(field)?;
        edits = edits.replace("requestedSchema", Bytes::from(schema.to_string()));
    }
    edits
        .apply_checked(params)
        .map(|(params, _)| params)
        .map_err(|_| QuestionRefusal::NotInRevision)
}

/// True if some field has a form that 2025-06-18 does not know.
fn is_newer(schema: &[u8]) -> bool {
    let properties = scan::find(schema, "properties").map_or(&b"{}"[..], |range| &schema[range]);
    scan::members(properties).any(|member| {
        let field = &properties[member.value];
        let kind = scan::find(field, "type").and_then(|range| scan::string(&field[range]));
        scan::find(field, "oneOf").is_some() || kind.as_deref() == Some("array")
    })
}

fn field(field: &mut Map<String, Value>) -> Result<(), QuestionRefusal> {
    if field.get("type").is_some_and(|kind| kind == "array") {
        return Err(QuestionRefusal::NotInRevision);
    }
    let Some(choices) = field.remove("oneOf") else {
        return Ok(());
    };
    let choices = choices.as_array().ok_or(QuestionRefusal::NotInRevision)?;
    let all =
        |name: &str| -> Vec<Value> { choices.iter().map(|choice| choice[name].clone()).collect() };
    field.insert("enum".into(), all("const").into());
    field.insert("enumNames".into(), all("title").into());
    Ok(())
}

/// Messages with one content block each, of kinds that the revision has.
fn messages(revision: Revision, params: &Bytes) -> Result<Bytes, QuestionRefusal> {
    let Some(range) = scan::find(params, "messages") else {
        return Ok(params.clone());
    };
    let raw = &params[range];
    let is_plain = |at: std::ops::Range<usize>| {
        let content = scan::find(&raw[at.clone()], "content")
            .map(|range| &raw[at.start + range.start..at.start + range.end]);
        content
            .is_some_and(|content| scan::is_object(content) && has_kind(revision, &kind(content)))
    };
    if scan::elements(raw).all(is_plain) {
        return Ok(params.clone());
    }
    let given: Vec<Value> =
        serde_json::from_slice(raw).map_err(|_| QuestionRefusal::NotInRevision)?;
    let mut messages = Vec::with_capacity(given.len());
    for message in given {
        let blocks = match &message["content"] {
            Value::Array(blocks) => blocks.clone(),
            one @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => vec![one.clone()],
        };
        for block in blocks {
            let content = without_audio(revision, block);
            if !has_kind(revision, content["type"].as_str().unwrap_or_default()) {
                return Err(QuestionRefusal::NotInRevision);
            }
            messages.push(json!({ "role": message["role"], "content": content }));
        }
    }
    let edits =
        ObjectEdits::new().replace("messages", Bytes::from(Value::from(messages).to_string()));
    edits
        .apply_checked(params)
        .map(|(params, _)| params)
        .map_err(|_| QuestionRefusal::NotInRevision)
}

fn kind(block: &[u8]) -> String {
    scan::find(block, "type")
        .and_then(|range| scan::string(&block[range]))
        .unwrap_or_default()
        .into_owned()
}

fn has_kind(revision: Revision, kind: &str) -> bool {
    matches!(kind, "text" | "image") || (kind == "audio" && revision.has_audio())
}
