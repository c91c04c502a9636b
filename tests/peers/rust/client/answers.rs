//! The answers of a client with `--asks`, each after a line for the question.

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ListRootsResult,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::print;

/// What such a client says that it can do.
pub(super) fn capabilities() -> ClientCapabilities {
    typed(json!({ "sampling": {}, "elicitation": { "form": {} }, "roots": {} })).unwrap_or_default()
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn asked(method: &str, message: &Value) {
    print(json!({ "event": "asked", "method": method, "message": message }));
}

pub(super) fn sample(params: &CreateMessageRequestParams) -> Result<CreateMessageResult, ErrorData> {
    asked("sampling/createMessage", &json!(params)["messages"][0]["content"]["text"]);
    let content = json!({ "type": "text", "text": "a sampled text" });
    typed(json!({ "role": "assistant", "model": "driver", "content": content }))
}

pub(super) fn elicit(params: &ElicitRequestParams) -> Result<ElicitResult, ErrorData> {
    let params = json!(params);
    asked("elicitation/create", &params["message"]);
    let fields = params["requestedSchema"]["properties"].as_object().into_iter().flatten();
    let content: serde_json::Map<_, _> = fields.map(|(name, field)| (name.clone(), filled(field))).collect();
    typed(json!({ "action": "accept", "content": content }))
}

pub(super) fn roots() -> Result<ListRootsResult, ErrorData> {
    asked("roots/list", &Value::Null);
    typed(json!({ "roots": [{ "uri": "file:///srv/driver", "name": "driver" }] }))
}

/// A value that a field of a form takes.
fn filled(field: &Value) -> Value {
    let known = [&field["default"], &field["enum"][0], &field["oneOf"][0]["const"]];
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
