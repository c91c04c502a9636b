//! The answers of a client with `--asks`, each after a line for the question.

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ListRootsResult,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::print;

/// Returns the capabilities of such a client.
pub(super) fn capabilities() -> ClientCapabilities {
    typed(json!({ "sampling": { "tools": {} }, "elicitation": { "form": {} }, "roots": {} }))
        .unwrap_or_default()
}

/// Returns the capabilities of a client that also takes tasks for results.
pub(super) fn with_tasks() -> ClientCapabilities {
    let mut able = capabilities();
    able.extensions = ClientCapabilities::builder()
        .enable_tasks()
        .build()
        .extensions;
    able
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn asked(method: &str, message: &Value) {
    print(&json!({ "event": "asked", "method": method, "message": message }));
}

pub(super) fn sample(
    params: &CreateMessageRequestParams,
) -> Result<CreateMessageResult, ErrorData> {
    let params = json!(params);
    let contents = params["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|message| &message["content"]);
    let blocks = contents.flat_map(|content| match content.as_array() {
        Some(blocks) => blocks.iter().collect(),
        None => vec![content],
    });
    let blocks: Vec<&Value> = blocks.collect();
    let tools: Vec<&Value> = params["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tool| &tool["name"])
        .collect();
    let message = blocks.first().map(|block| &block["text"]);
    print(
        &json!({ "event": "asked", "method": "sampling/createMessage", "message": message, "tools": tools }),
    );
    let used = blocks.iter().find(|block| block["type"] == "tool_result");
    let (reason, content) = match (tools.first(), used) {
        (Some(tool), None) => {
            let content = json!([{ "type": "tool_use", "id": "use-1", "name": tool, "input": { "city": "Riga" } }]);
            ("toolUse", content)
        }
        (_, used) => {
            let given = used.and_then(|used| used["content"][0]["text"].as_str());
            let text = given.map_or_else(
                || "a sampled text".to_owned(),
                |given| format!("a sampled text of {given}"),
            );
            ("endTurn", json!({ "type": "text", "text": text }))
        }
    };
    typed(
        json!({ "role": "assistant", "model": "driver", "stopReason": reason, "content": content }),
    )
}

pub(super) fn elicit(params: &ElicitRequestParams) -> Result<ElicitResult, ErrorData> {
    let params = json!(params);
    asked("elicitation/create", &params["message"]);
    let fields = params["requestedSchema"]["properties"]
        .as_object()
        .into_iter()
        .flatten();
    let content: serde_json::Map<_, _> = fields
        .map(|(name, field)| (name.clone(), filled(field)))
        .collect();
    typed(json!({ "action": "accept", "content": content }))
}

pub(super) fn roots() -> Result<ListRootsResult, ErrorData> {
    asked("roots/list", &Value::Null);
    typed(json!({ "roots": [{ "uri": "file:///srv/driver", "name": "driver" }] }))
}

/// Returns a value that a field of a form accepts.
fn filled(field: &Value) -> Value {
    let known = [
        &field["default"],
        &field["enum"][0],
        &field["oneOf"][0]["const"],
    ];
    if let Some(known) = known.into_iter().find(|value| !value.is_null()) {
        return known.clone();
    }
    match field["type"].as_str() {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(7),
        Some("array") => json!([]),
        _ => json!("Ada"),
    }
}
