//! The definitions of all tools, and the ones that answer without a question.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    ProgressNotificationParam, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::content::{PNG, WAV};
use super::{ChangedList, ConformanceServer, log, object, question_tools, task_tools, typed};

/// The tool whose argument also travels as a header.
pub(super) const WITH_HEADER: &str = "test_header_parameter";

/// The pause between two notifications of a call: long enough that they leave in separate writes.
const BETWEEN: Duration = Duration::from_millis(50);

pub(super) fn all() -> Vec<Tool> {
    let plain = [
        ("test_simple_text", "Answers with a text"),
        ("test_image_content", "Answers with a picture"),
        ("test_audio_content", "Answers with a sound"),
        ("test_embedded_resource", "Answers with a resource"),
        (
            "test_multiple_content_types",
            "Answers with a text, a picture and a resource",
        ),
        ("test_error_handling", "Fails, inside its result"),
        ("test_tool_with_logging", "Logs three lines"),
        ("test_logging_tool", "Logs one line"),
        (
            "test_tool_with_progress",
            "Reports its progress three times",
        ),
        ("test_reconnection", "Answers after a while"),
        ("test_trigger_tool_change", "Says that the tools changed"),
        (
            "test_trigger_prompt_change",
            "Says that the prompts changed",
        ),
    ];
    let mut all: Vec<Tool> = plain
        .into_iter()
        .map(|(name, says)| tool(name, says, json!({})))
        .collect();
    all.push(with_header());
    all.push(Tool::new(
        "json_schema_2020_12_tool",
        "Takes what 2020-12 can describe",
        object(contact()),
    ));
    all.extend(question_tools::tools());
    all.extend(task_tools::tools());
    all
}

/// Returns a tool with these properties, all required.
pub(super) fn tool(name: &'static str, description: &'static str, properties: Value) -> Tool {
    let required: Vec<String> = properties
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    let mut schema = json!({ "type": "object" });
    schema["properties"] = properties;
    schema["required"] = json!(required);
    Tool::new(name, description, object(schema))
}

pub(super) fn with_header() -> Tool {
    tool(
        WITH_HEADER,
        "Has an argument that is also a header",
        json!({
            "region": { "type": "string", "x-mcp-header": "Region" }
        }),
    )
}

fn contact() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } }
            }
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" }
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false
    })
}

/// Returns a good result of one text.
pub(super) fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

pub(super) async fn call(
    server: &ConformanceServer,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let picture = || json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    let arguments = json!(request.arguments);
    let result = match &*request.name {
        "test_simple_text" => said("This is a simple text response for testing."),
        "test_image_content" => content(json!([picture()]))?,
        "test_audio_content" => {
            content(json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]))?
        }
        "test_embedded_resource" => content(json!([resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content."
        )]))?,
        "test_multiple_content_types" => content(json!([
            { "type": "text", "text": "Multiple content types test:" },
            picture(),
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]))?,
        "test_error_handling" => CallToolResult::error(vec![ContentBlock::text(
            "This tool intentionally returns an error for testing",
        )]),
        "test_tool_with_logging" => {
            for line in [
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ] {
                log(context, line).await;
                tokio::time::sleep(BETWEEN).await;
            }
            said("Three lines were logged")
        }
        "test_logging_tool" => {
            log(context, "a line").await;
            said("One line was logged")
        }
        "test_tool_with_progress" => progress(context).await,
        "test_reconnection" => {
            tokio::time::sleep(2 * BETWEEN).await;
            said("After a while")
        }
        "test_trigger_tool_change" => {
            server.announce(ChangedList::Tools, context).await;
            said("The tools are said to have changed")
        }
        "test_trigger_prompt_change" => {
            server.announce(ChangedList::Prompts, context).await;
            said("The prompts are said to have changed")
        }
        WITH_HEADER => {
            let region = arguments["region"].as_str();
            said(region.ok_or_else(|| ErrorData::invalid_params("region must be a text", None))?)
        }
        "json_schema_2020_12_tool" => said(arguments.to_string()),
        other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
    };
    Ok(result.into())
}

fn content(blocks: Value) -> Result<CallToolResult, ErrorData> {
    Ok(CallToolResult::success(typed(blocks)?))
}

async fn progress(context: &RequestContext<RoleServer>) -> CallToolResult {
    let Some(token) = context.meta.get_progress_token() else {
        return said("No progress was asked for");
    };
    for step in [0.0, 50.0, 100.0] {
        let note = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
        // A client that is gone needs no progress.
        let _ = context.peer.notify_progress(note).await;
        tokio::time::sleep(BETWEEN).await;
    }
    said("Progress was reported")
}
