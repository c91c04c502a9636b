//! Prompts, resources and completion of a mock server: a small, fixed library.

use serde_json::{Value, json};
use weir_wire::error_code;

/// The capabilities of a server with a library.
pub(super) fn declare(capabilities: &mut Value, list_changed: bool) {
    let changes = if list_changed {
        json!({"listChanged": true})
    } else {
        json!({})
    };
    capabilities["prompts"] = changes.clone();
    capabilities["resources"] = changes;
    capabilities["resources"]["subscribe"] = json!(true);
    capabilities["completions"] = json!({});
}

/// Reports if the server sends updates of a resource.
pub(super) fn has_updates(uri: &str) -> bool {
    uri.starts_with("memo:")
}

/// Returns the result of a request to the library, or an error's code and message; no value for an
/// unknown method.
pub(super) fn answer(
    method: &str,
    params: &Value,
    modern: bool,
) -> Option<Result<Value, (i64, &'static str)>> {
    let mut result = match method {
        "prompts/list" => Ok(json!({"prompts": [
            {"name": "greet", "title": "Greet", "arguments": [{"name": "who", "required": true}], "x-unknown": 1},
            {"name": "linked"},
        ]})),
        "prompts/get" => prompt(params),
        "resources/list" => Ok(json!({"resources": [
            {"uri": "memo:1", "name": "one", "mimeType": "text/plain", "x-unknown": [1]},
            {"uri": "ui://panel/main", "name": "panel", "mimeType": "text/html;profile=mcp-app"},
        ]})),
        "resources/templates/list" => {
            Ok(json!({"resourceTemplates": [{"uriTemplate": "memo:{id}", "name": "memo"}]}))
        }
        "resources/read" => read(params, modern),
        "completion/complete" => complete(params),
        _ => return None,
    };
    if let (true, Ok(result)) = (modern, &mut result) {
        result["resultType"] = json!("complete");
        if method.ends_with("/list") || method == "resources/read" {
            result["ttlMs"] = json!(60_000);
            result["cacheScope"] = json!("public");
        }
    }
    Some(result)
}

/// The member of `params` that `Mcp-Name` repeats.
pub(super) fn mcp_name_member(method: &str) -> Option<&'static str> {
    match method {
        "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

fn prompt(params: &Value) -> Result<Value, (i64, &'static str)> {
    let content = match params["name"].as_str() {
        Some("greet") => {
            json!({"type": "text", "text": format!("Hello {}", params["arguments"]["who"].as_str().unwrap_or("?"))})
        }
        Some("linked") => json!({"type": "resource", "resource": {"uri": "memo:1", "text": "in"}}),
        _ => return Err((error_code::INVALID_PARAMS, "no such prompt")),
    };
    Ok(json!({"messages": [{"role": "user", "content": content}]}))
}

fn read(params: &Value, modern: bool) -> Result<Value, (i64, &'static str)> {
    let uri = params["uri"].as_str().unwrap_or_default();
    if uri.starts_with("memo:") || uri == "ui://panel/main" {
        return Ok(
            json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": format!("of {uri}")}]}),
        );
    }
    Err((
        if modern {
            error_code::INVALID_PARAMS
        } else {
            error_code::RESOURCE_NOT_FOUND
        },
        "Resource not found",
    ))
}

fn complete(params: &Value) -> Result<Value, (i64, &'static str)> {
    let known = match params["ref"]["type"].as_str() {
        Some("ref/prompt") => params["ref"]["name"] == "greet",
        // A single resource has no variable.
        Some("ref/resource") if params["ref"]["uri"] == "memo:1" => {
            return Ok(json!({ "completion": { "values": [], "hasMore": false } }));
        }
        Some("ref/resource") => params["ref"]["uri"] == "memo:{id}",
        _ => false,
    };
    if !known {
        return Err((error_code::INVALID_PARAMS, "nothing to complete for"));
    }
    let begun = params["argument"]["value"].as_str().unwrap_or_default();
    Ok(
        json!({"completion": {"values": [format!("{begun}1"), format!("{begun}2")], "hasMore": false}}),
    )
}
