//! Failures that users of other gateways have reported, one test each.

mod call_rounds;
mod child_processes;
mod cleaned_results;
mod client_headers;
mod followed_tasks;
mod forged_ids;
mod get_stream_messages;
mod http_sse_clients;
mod http_sse_questions;
mod invalid_answers;
mod large_results;
mod legacy_era_tasks;
mod list_changes;
mod list_cursors;
mod lost_connections;
mod mcp_apps;
mod mixed_eras;
mod parameter_headers;
mod replicas;
mod request_ids;
mod request_outcomes;
mod secret_patterns;
mod sessionless;
mod shutdown;
mod structured_content;
mod task_errors;
mod tasks_over_reloads;
mod tool_lists;
mod tool_names;
mod trace_context;
mod unhealthy_upstreams;
mod unknown_extensions;
mod unknown_methods;
mod upstream_sessions;
mod upstream_urls;
mod url_elicitation;

use serde_json::{Value, json};
use weir_testkit::mock_server::MockServerBuilder;
use weir_testkit::{ClientAnswer, MockServer};
use weir_wire::{Revision, meta};

use crate::harness::{CheckedClient, Weir, wait_until_async};

/// A client revision of each era.
const BOTH: [Revision; 2] = [Revision::NEWEST_LEGACY, Revision::MODERN];

/// Returns a mock server of each era.
fn both_eras() -> [(Revision, MockServerBuilder); 2] {
    BOTH.map(|revision| (revision, mock_server(revision)))
}

/// Returns a mock server of a revision.
fn mock_server(revision: Revision) -> MockServerBuilder {
    if revision.is_modern() {
        MockServer::modern()
    } else {
        MockServer::legacy(revision)
    }
}

/// Starts weir in front of these, without any further config.
fn weir_over(upstreams: &[(&str, &MockServer)]) -> Weir {
    Weir::with_upstreams(
        upstreams
            .iter()
            .map(|(id, mock_server)| ((*id).to_owned(), json!({ "url": mock_server.url() })))
            .collect(),
    )
}

/// Returns weir's own error in a tool's result, in a form for models; null if the result has no
/// such error.
fn own_error(answer: &ClientAnswer) -> &Value {
    let result = answer.result();
    let error = &result["_meta"][meta::WEIR_ERROR];
    if !error.is_null() {
        assert_eq!(
            (answer.status.as_u16(), &result["isError"]),
            (200, &Value::Bool(true)),
            "{result}"
        );
        assert!(
            error["requestId"].is_string() && error["reason"].is_string(),
            "{error}"
        );
        assert!(
            answer.text().len() > 10,
            "a text that says what to do: {result}"
        );
    }
    error
}

/// Waits until a call of this tool goes well.
async fn wait_until_called(client: &CheckedClient, tool: &str) {
    wait_until_async("a call to go well", async || {
        own_error(&client.call(tool, json!({})).await)
            .is_null()
            .then_some(())
    })
    .await;
}

/// Returns the upstreams whose part of a list is incomplete or stale: id and reason.
fn missing_upstreams(list: &ClientAnswer) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let upstreams = list.result()["_meta"][meta::WEIR_UPSTREAMS]
        .as_array()
        .cloned()
        .unwrap_or_default();
    upstreams
        .iter()
        .map(|missing| (text(&missing["upstream"]), text(&missing["reason"])))
        .collect()
}
