//! A call that ended with the questions of its server, and waits for the answers of its client.

use serde_json::{Value, json};

/// Returns the params of the request by which a call of the tool `ask` goes on after this result.
///
/// # Panics
///
/// The result has no questions.
pub fn retry_params(result: &Value, arguments: &Value) -> Value {
    assert_eq!(result["resultType"], "input_required", "{result}");
    let requests = result["inputRequests"].as_object().unwrap();
    let key = requests.keys().next().unwrap();
    let answer = json!({ key: { "action": "accept", "content": { "name": "Ada" } } });
    json!({
        "name": "ask",
        "arguments": arguments,
        "inputResponses": answer,
        "requestState": result["requestState"],
    })
}
