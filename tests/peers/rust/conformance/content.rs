//! Resources, prompts and completions.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResult,
    Prompt, ReadResourceResult, Resource, ResourceTemplate,
};
use serde_json::{Value, json};

use super::{question_tools, typed};

/// A picture of one red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// Eight silent samples.
pub(super) const WAV: &str =
    "UklGRjQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YRAAAAAAAAAAAAAAAAAAAAAAAAAA";

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";
const WATCHED: &str = "test://watched-resource";

pub(super) fn resources() -> Result<Vec<Resource>, ErrorData> {
    typed(json!([
        { "uri": TEXT, "name": "static-text", "mimeType": "text/plain", "description": "A text that never changes" },
        { "uri": BINARY, "name": "static-binary", "mimeType": "image/png", "description": "A picture" },
        { "uri": WATCHED, "name": "watched", "mimeType": "text/plain", "description": "A text one can subscribe to" },
    ]))
}

pub(super) fn templates() -> Result<Vec<ResourceTemplate>, ErrorData> {
    typed(json!([{
        "uriTemplate": "test://template/{id}/data",
        "name": "data",
        "mimeType": "application/json",
        "description": "What is known of an id"
    }]))
}

pub(super) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let id = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        (TEXT, _) => {
            json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
        }
        (BINARY, _) => json!({ "mimeType": "image/png", "blob": PNG }),
        (WATCHED, _) => json!({ "mimeType": "text/plain", "text": "Watched" }),
        (_, Some(id)) => {
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "mimeType": "application/json", "text": data.to_string() })
        }
        _ => {
            return Err(ErrorData::resource_not_found(
                format!("no resource {uri}"),
                Some(json!({ "uri": uri })),
            ));
        }
    };
    let mut contents = contents;
    contents["uri"] = json!(uri);
    Ok(ReadResourceResult::new(typed(json!([contents]))?))
}

pub(super) fn prompts() -> Result<Vec<Prompt>, ErrorData> {
    typed(json!([
        { "name": "test_simple_prompt", "description": "One message" },
        {
            "name": "test_prompt_with_arguments",
            "description": "One message made of two arguments",
            "arguments": [
                { "name": "arg1", "description": "The first", "required": true },
                { "name": "arg2", "description": "The second", "required": true }
            ]
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "A resource and a question",
            "arguments": [{ "name": "resourceUri", "description": "The resource's URI", "required": true }]
        },
        { "name": "test_prompt_with_image", "description": "A picture and a question" },
        { "name": question_tools::PROMPT, "description": "A prompt around a context that it asks for" },
    ]))
}

pub(super) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
    let argument = |name: &str| {
        let given = request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get(name));
        given
            .map_or(Value::Null, |value| json!(value))
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let text = |text: &str| json!({ "type": "text", "text": text });
    let contents = match request.name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            vec![text(&format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({ "uri": argument("resourceUri"), "mimeType": "text/plain", "text": "An embedded resource" });
            vec![
                json!({ "type": "resource", "resource": resource }),
                text("What does it say?"),
            ]
        }
        "test_prompt_with_image" => {
            vec![
                json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
                text("What does it show?"),
            ]
        }
        other => {
            return Err(ErrorData::invalid_params(
                format!("no prompt {other}"),
                None,
            ));
        }
    };
    let messages: Vec<Value> = contents
        .into_iter()
        .map(|content| json!({ "role": "user", "content": content }))
        .collect();
    Ok(GetPromptResult::new(typed(json!(messages))?))
}

pub(super) fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let words = ["paris", "park", "party", "rome"];
    let fitting = words
        .into_iter()
        .filter(|word| word.starts_with(&request.argument.value));
    let values = CompletionInfo::with_all_values(fitting.map(str::to_owned).collect());
    values
        .map(CompleteResult::new)
        .map_err(|error| ErrorData::internal_error(error, None))
}
