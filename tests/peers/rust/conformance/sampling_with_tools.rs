//! A question to the client's model that it can only answer with a tool of the server, in two
//! turns.

use rmcp::model::{CallToolResponse, InputResponses};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::plain_tools::said;
use super::question_tools::unasked;
use super::typed;

/// Returns the parameters of a turn: the question, and after the first one the model's tool use and
/// the tool's result.
fn turn(answered: Option<&Value>) -> Value {
    let mut messages = vec![
        json!({ "role": "user", "content": { "type": "text", "text": "How warm is it in Riga?" } }),
    ];
    if let Some(used) = answered.and_then(used) {
        let text = format!(
            "21 degrees in {}",
            used["input"]["city"].as_str().unwrap_or("no city")
        );
        let result = json!({ "type": "tool_result", "toolUseId": used["id"], "content": [{ "type": "text", "text": text }] });
        messages.push(json!({ "role": "assistant", "content": [used] }));
        messages.push(json!({ "role": "user", "content": [result] }));
    }
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let tool = json!({ "name": "temperature", "inputSchema": schema });
    json!({ "messages": messages, "maxTokens": 100, "tools": [tool], "toolChoice": { "mode": "auto" } })
}

/// Returns the use of a tool in the model's answer.
fn used(answered: &Value) -> Option<&Value> {
    let content = &answered["content"];
    let mut blocks = content
        .as_array()
        .map_or_else(|| std::slice::from_ref(content), Vec::as_slice)
        .iter();
    blocks.find(|block| block["type"] == "tool_use")
}

fn text(answered: &Value) -> &str {
    let content = &answered["content"];
    content["text"]
        .as_str()
        .or(content[0]["text"].as_str())
        .unwrap_or("(no text)")
}

/// Runs both turns, by requests while the call runs.
pub(super) async fn pushed(
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let mut answered = None;
    for _ in 0..2 {
        match context
            .peer
            .create_message(typed(turn(answered.as_ref()))?)
            .await
        {
            Ok(answer) => answered = Some(json!(answer)),
            Err(error) => return Ok(unasked(error)),
        }
    }
    Ok(said(format!(
        "LLM response: {}",
        answered.as_ref().map_or("(no answer)", text)
    ))
    .into())
}

/// Returns the end of two rounds, or the question of the next one.
pub(super) fn rounds(given: Option<&InputResponses>) -> Result<String, Value> {
    let answer = |key: &str| given.and_then(|given| given.get(key));
    if let Some(answered) = answer("turn2") {
        return Ok(format!("Sampled: {}", text(answered)));
    }
    let (key, params) = match answer("turn1") {
        Some(answered) => ("turn2", turn(Some(answered))),
        None => ("turn1", turn(None)),
    };
    Err(json!({ key: { "method": "sampling/createMessage", "params": params } }))
}
