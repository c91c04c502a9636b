//! Servers of three SDKs that speak both eras on one URL, with the clients of the official SDKs in
//! front, through one weir. Each client is asked in the way of its era: a legacy one by a request
//! while its call runs, a modern one by the end of its call. Each client lists, gets, reads and
//! completes the items of each server, under the names of the endpoint.

use serde_json::{Value, json};

use weir_testkit::ClientAnswer;
use weir_wire::Revision;

use super::sdk_questions::{QuestionTry, asked, over};
use crate::harness::{
    CheckedClient, ForeignClient, ForeignServer, peers_are_enabled, wait_until_async,
};

const LEGACY: [ForeignClient; 4] = [
    ForeignClient::TypeScript1,
    ForeignClient::TypeScript2("legacy"),
    ForeignClient::Python1,
    ForeignClient::Python2As("legacy"),
];
const MODERN: [ForeignClient; 4] = [
    ForeignClient::TypeScript2("modern"),
    ForeignClient::TypeScript2("auto"),
    ForeignClient::Python2As("modern"),
    ForeignClient::Python2As("auto"),
];

/// Runs both eras in turns, so that neither finds weir prepared for itself. Legacy clients call the
/// tools that ask while the call runs, modern ones those that end the call with the question.
fn asks(server: ForeignServer, pushed: &[QuestionTry], ended: &[QuestionTry]) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(server);
    weir.wait_until_listed("/mcp/peer", &["test_elicitation", "test_sampling"]);
    let url = weir.url("/mcp/peer");
    for (legacy, modern) in LEGACY.into_iter().zip(MODERN) {
        asked(legacy, &url, pushed);
        asked(modern, &url, ended);
    }
    asked(ForeignClient::Rmcp("legacy"), &url, pushed);
    asked(ForeignClient::Rmcp("modern"), &url, ended);
}

/// Asks for a form, and for a text of the client's model.
fn asks_once(server: ForeignServer) {
    let pushed = [
        (
            "test_elicitation",
            json!({ "message": "Who is there?" }),
            "elicitation/create",
            "accept",
        ),
        (
            "test_sampling",
            json!({ "prompt": "a word" }),
            "sampling/createMessage",
            "a sampled text",
        ),
    ];
    let ended = [
        (
            "test_input_required_result_elicitation",
            json!({}),
            "elicitation/create",
            "Hello, Ada!",
        ),
        (
            "test_input_required_result_sampling",
            json!({}),
            "sampling/createMessage",
            "a sampled text",
        ),
    ];
    asks(server, &pushed, &ended);
}

/// Runs sampling with tools: the first answer of the client's model is the use of a tool, and the
/// second a text about its result.
fn samples_with_tools(server: ForeignServer) {
    let says = "21 degrees in Riga";
    let pushed = [(
        "test_sampling_with_tools",
        json!({}),
        "sampling/createMessage",
        says,
    )];
    let ended = [(
        "test_input_required_result_sampling_with_tools",
        json!({}),
        "sampling/createMessage",
        says,
    )];
    asks(server, &pushed, &ended);
}

// Proves R182.
#[test]
fn the_typescript_sdks_server_of_both_eras_asks_each_client_in_its_own() {
    asks_once(ForeignServer::DualTypeScript);
}

// Proves R182.
#[test]
fn the_rust_sdks_server_of_both_eras_asks_each_client_in_its_own() {
    asks_once(ForeignServer::DualRust);
}

// Proves R182.
#[test]
fn fastmcps_server_of_both_eras_asks_each_client_in_its_own() {
    asks_once(ForeignServer::DualFastMcp);
}

// Proves R182.
#[test]
fn the_typescript_sdks_server_has_every_sdk_sample_with_tools() {
    samples_with_tools(ForeignServer::DualTypeScript);
}

// Proves R182.
#[test]
fn the_rust_sdks_server_has_every_sdk_sample_with_tools() {
    samples_with_tools(ForeignServer::DualRust);
}

// Proves R182.
#[test]
fn fastmcps_server_has_every_sdk_sample_with_tools() {
    samples_with_tools(ForeignServer::DualFastMcp);
}

/// Checks prompts, resources, templates, completion and instructions of one server, for all
/// clients.
fn library(server: ForeignServer) {
    if !peers_are_enabled() {
        return;
    }
    let (_running, weir) = over(server);
    weir.wait_until_listed("/mcp/peer", &["test_simple_text"]);
    let url = weir.url("/mcp");
    let clients = LEGACY.into_iter().chain(MODERN);
    for client in clients.chain([ForeignClient::Rmcp("legacy"), ForeignClient::Rmcp("modern")]) {
        reads(client, &url);
    }
}

fn reads(client: ForeignClient, url: &str) {
    let uris = ["peer+test://static-text", "peer+test://template/7/data"];
    let arguments = json!({
        "arguments": { "arg1": "x", "arg2": "y" },
        "read": uris,
        "argument": { "name": "arg1", "value": "par" },
    });
    let seen = client.run(
        url,
        &[
            "library",
            "peer__test_prompt_with_arguments",
            &arguments.to_string(),
        ],
    );
    let has = |event: &str, list: &str, item: &str| {
        let all = seen.only_line(event)[list].as_array().unwrap();
        assert!(
            all.contains(&json!(item)),
            "{client:?}: no {item} in {all:?}"
        );
    };
    has("prompts", "names", "peer__test_simple_prompt");
    has("prompts", "names", "peer__test_prompt_with_arguments");
    has("resources", "uris", uris[0]);
    has("templates", "uris", "peer+test://template/{id}/data");
    let content = &seen.only_line("prompt")["messages"][0]["content"];
    assert_eq!(
        content["text"], "Prompt with arguments: arg1='x', arg2='y'",
        "{client:?}"
    );
    let read: Vec<&Value> = seen
        .lines_of("read")
        .into_iter()
        .map(|read| &read["contents"][0])
        .collect();
    assert_eq!([&read[0]["uri"], &read[1]["uri"]], uris, "{client:?}");
    assert_eq!(
        read[0]["text"], "This is the content of the static text resource.",
        "{client:?}"
    );
    assert!(
        read[1]["text"].as_str().unwrap().contains("Data for ID: 7"),
        "{client:?}: {}",
        read[1]
    );
    assert_eq!(
        seen.only_line("completed")["values"],
        json!(["paris", "park", "party"]),
        "{client:?}"
    );
    // In this mode the Python SDK does not ask a server for its instructions.
    if client != ForeignClient::Python2As("modern") {
        let told = &seen.only_line("connected")["instructions"];
        assert_eq!(
            told, "Every name of the conformance suite is here.",
            "{client:?}"
        );
    }
}

// Proves R128, R134, R138.
#[test]
fn the_typescript_sdks_server_is_read_by_every_sdk() {
    library(ForeignServer::DualTypeScript);
}

// Proves R128, R134, R138.
#[test]
fn the_rust_sdks_server_is_read_by_every_sdk() {
    library(ForeignServer::DualRust);
}

// Proves R128, R134, R138.
#[test]
fn fastmcps_server_is_read_by_every_sdk() {
    library(ForeignServer::DualFastMcp);
}

/// The first call of a client of 2025-11-25, at a weir that has called no tool of the server before.
async fn first_call(tool: &str) -> ClientAnswer {
    let (_running, weir) = over(ForeignServer::Apart);
    let url = weir.url("/mcp");
    weir.wait_until_listed("/mcp", &["peer__both", "peer__only_modern"]);
    let client = CheckedClient::open(&url, Revision::NEWEST_LEGACY).await;
    assert!(
        !client
            .list_tool_names()
            .await
            .contains(&"peer__only_legacy".to_owned())
    );
    let first = client.call(tool, json!({})).await;
    // From now on the list is of both eras.
    wait_until_async("the list of the session", async || {
        let names = client.list_tool_names().await;
        (names == ["peer__both", "peer__only_legacy", "peer__only_modern"]).then_some(())
    })
    .await;
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_call_of_a_legacy_client_is_made_in_the_era_that_has_the_tool() {
    if !peers_are_enabled() {
        return;
    }
    for (tool, era) in [
        ("both", "legacy"),
        ("only_legacy", "legacy"),
        ("only_modern", "modern"),
    ] {
        let answer = first_call(&format!("peer__{tool}")).await;
        let text = format!("{tool} in the {era} era");
        assert_eq!(answer.text(), text, "{}", answer.last());
    }
    let answer = first_call("peer__neither").await;
    assert_eq!(answer.code(), -32602, "{}", answer.last());
    let message = answer.error()["message"].as_str().unwrap();
    assert!(message.contains("Unknown tool"), "{message}");
}

/// Sends the first request of a client of 2025-11-25, at a weir that knows no session of the server.
async fn first_request(path: &str, method: &str, params: Value) -> ClientAnswer {
    let (_running, weir) = over(ForeignServer::Apart);
    weir.wait_until_listed("/mcp", &["peer__both"]);
    let client = CheckedClient::open(&weir.url(path), Revision::NEWEST_LEGACY).await;
    client.ask(method, params).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_and_resources_of_the_legacy_era_alone_are_there_at_the_first_request() {
    if !peers_are_enabled() {
        return;
    }
    for (path, prefix, scheme) in [("/mcp", "peer__", "peer+"), ("/mcp/peer", "", "")] {
        let prompt = json!({ "name": format!("{prefix}only_legacy") });
        let got = first_request(path, "prompts/get", prompt).await;
        let text = &got.result()["messages"][0]["content"]["text"];
        assert_eq!(text, "only_legacy in the legacy era", "{path}");
        let resource = json!({ "uri": format!("{scheme}test://only-legacy") });
        let read = first_request(path, "resources/read", resource).await;
        let text = &read.result()["contents"][0]["text"];
        assert_eq!(text, "only_legacy in the legacy era", "{path}");
    }
    // The one server of a path decides which lists the path has.
    for (method, list) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        let listed = first_request("/mcp/peer", method, json!({})).await;
        assert_eq!(listed.result()[list][0]["name"], "only_legacy");
    }
}
