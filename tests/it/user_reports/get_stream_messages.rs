//! Legacy servers that send messages on their GET stream: a message of a call reaches the call, any
//! other only the client of the session.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockBehaviour, MockTool};
use weir_testkit::{MockServer, MockStdio};
use weir_wire::{LogLevel, Revision};

use super::http_sse_questions::chain;
use crate::harness::{CheckedClient, CheckedStream, Weir, within_test_timeout};

fn capabilities() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} })
}

fn form() -> Value {
    json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } } })
}

fn ada() -> Value {
    json!({ "action": "accept", "content": { "name": "Ada" } })
}

async fn server() -> MockServer {
    let beside = [
        AnswerStep::AskOnGetStream {
            method: "elicitation/create",
            params: form(),
        },
        AnswerStep::Echo,
    ];
    let url = json!({ "mode": "url", "message": "Sign in", "url": "https://idp.example/", "elicitationId": "own-1" });
    let mut first = url.clone();
    first["elicitationId"] = json!("own-2");
    let mut unsafe_one = first.clone();
    unsafe_one["url"] = json!("http://idp.example/");
    let data = json!({ "elicitations": [unsafe_one, first] });
    let sign_in = json!({ "code": -32042, "message": "Sign in first", "data": data });
    let visit = [
        AnswerStep::Ask {
            method: "elicitation/create",
            params: url,
        },
        AnswerStep::Echo,
    ];
    // Streams, not JSON: a server that answers by JSON sends no message before its answer.
    MockServer::legacy(Revision::NEWEST_LEGACY)
        .with(MockTool::new("beside").does(MockBehaviour::steps(beside).as_events()))
        .with(MockTool::new("visit").does(MockBehaviour::steps(visit)))
        .with(MockTool::new("sign_in").does(MockBehaviour::steps([AnswerStep::Error(sign_in)])))
        .tools(1)
        .start()
        .await
}

fn weir(server: &MockServer) -> Weir {
    Weir::with_config(json!({
        "upstreams": { "shop": { "url": server.url() }, "other": { "url": server.url() } },
        "endpoints": { "/shop": { "upstream": "shop" }, "/mcp": { "upstreams": ["shop", "other"] } },
    }))
}

/// Returns the server's session in which a tool was called last.
fn session_of(server: &MockServer, tool: &str) -> String {
    let calls = server.requests_of("tools/call");
    let last = calls
        .iter()
        .rev()
        .find(|call| call.tool() == Some(tool))
        .unwrap();
    last.session().unwrap().to_owned()
}

// Proves R182, R193.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_on_the_get_stream_reaches_the_client_within_its_call() {
    let server = server().await;
    let weir = weir(&server);
    let client = CheckedClient::with_capabilities(
        &weir.url("/shop"),
        Revision::NEWEST_LEGACY,
        capabilities(),
    )
    .await;
    let mut call = client.start_call("beside", json!({ "n": 1 }), None).await;
    let asked = call.next().await.unwrap();
    assert_eq!(asked["params"]["message"], "Who?", "{asked}");
    client.raw().respond(&asked["id"], ada()).await.unwrap();
    assert!(
        call.next().await.unwrap()["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("\"n\"")
    );
    assert_eq!(
        server.answers().last().unwrap()["result"]["content"],
        ada()["content"]
    );

    let client =
        CheckedClient::with_capabilities(&weir.url("/shop"), Revision::MODERN, capabilities())
            .await;
    let asked = client.call("beside", json!({ "n": 2 })).await;
    assert_eq!(asked.result()["resultType"], "input_required");
    let (key, question) = asked.result()["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert_eq!(question["params"]["message"], "Who?");
    let again = json!({
        "name": "beside", "arguments": { "n": 2 },
        "inputResponses": { key: ada() }, "requestState": asked.result()["requestState"],
    });
    assert!(
        client
            .ask("tools/call", again)
            .await
            .text()
            .contains("\"n\"")
    );
    assert_eq!(server.executions("beside"), 2, "each ran once");
}

/// Opens two clients with these capabilities, each with a stream. The second one has a session at
/// the server, because it called this tool.
async fn two_listening_clients(
    url: &str,
    able: &Value,
    tool: &str,
) -> [(CheckedClient, CheckedStream); 2] {
    let open = async || {
        let revision = Revision::NEWEST_LEGACY;
        let client = CheckedClient::with_capabilities(url, revision, able.clone()).await;
        let stream = client.open_change_stream().await;
        (client, stream)
    };
    let (first, second) = (open().await, open().await);
    let called = second.0.call(tool, json!({})).await;
    assert!(called.result().is_object(), "{}", called.last());
    [first, second]
}

// Proves R185, R193.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_outside_of_calls_reaches_only_the_client_of_that_session() {
    let server = server().await;
    let weir = weir(&server);
    let [(client, mut stream), (_other, mut others)] =
        two_listening_clients(&weir.url("/mcp"), &capabilities(), "shop__tool_0000").await;
    client.call("shop__tool_0000", json!({})).await;
    let session = session_of(&server, "tool_0000");
    let answer = server.request_on_get_stream(&session, "elicitation/create", &form());
    let asked = within_test_timeout("the question", stream.next())
        .await
        .unwrap();
    assert_eq!(
        asked["params"]["message"], "[shop] Who?",
        "dressed as those of calls are"
    );
    client.raw().respond(&asked["id"], ada()).await.unwrap();
    assert_eq!(
        within_test_timeout("the answer", answer).await.unwrap()["result"]["content"],
        ada()["content"]
    );

    let answer = server.request_on_get_stream(
        &session,
        "sampling/createMessage",
        &json!({ "messages": [], "maxTokens": 1 }),
    );
    assert!(
        within_test_timeout("the refusal", answer).await.unwrap()["error"].is_object(),
        "it never said that it could"
    );
    drop(stream);
    // weir notices that the client is gone when its connection is closed: until then it may still
    // be asked, without an answer.
    let refused = async {
        loop {
            let answer = server.request_on_get_stream(&session, "roots/list", &json!({}));
            if answer.await.unwrap()["error"]["code"] == -32602 {
                return;
            }
        }
    };
    within_test_timeout("the refusal of a question for nobody", refused).await;
    // The next message for the other client is one for all.
    server.set_tools([MockTool::new("new")]);
    server.notify_list_changed();
    others.expect_list_changed().await;
}

// Proves R186.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_completion_reaches_the_asked_client() {
    let server = server().await;
    let weir = weir(&server);
    let [(client, mut stream), (_other, mut others)] =
        two_listening_clients(&weir.url("/shop"), &capabilities(), "tool_0000").await;
    let mut call = client.start_call("visit", json!({}), None).await;
    let asked = call.next().await.unwrap();
    client
        .raw()
        .respond(&asked["id"], json!({ "action": "accept" }))
        .await
        .unwrap();
    assert!(call.next().await.unwrap()["result"].is_object());
    let (ours, session) = (
        &asked["params"]["elicitationId"],
        session_of(&server, "visit"),
    );
    assert!(ours.as_str().unwrap().starts_with("weir-"), "{ours}");
    let done = json!({ "elicitationId": "own-1" });
    let done =
        json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done });
    server.send_on_get_stream(&session, &done);
    let told = within_test_timeout("the visit", stream.next())
        .await
        .unwrap();
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(
        &told["params"]["elicitationId"], ours,
        "under the name by which it was asked"
    );
    // The next message for the other client is one for all.
    server.set_tools([MockTool::new("new")]);
    server.notify_list_changed();
    others.expect_list_changed().await;
}

// Proves R186, R187.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn url_elicitation_completion_has_the_id_of_the_error() {
    let server = server().await;
    let weir = weir(&server);
    let client = CheckedClient::with_capabilities(
        &weir.url("/shop"),
        Revision::NEWEST_LEGACY,
        capabilities(),
    )
    .await;
    let mut stream = client.open_change_stream().await;
    let refused = client.call("sign_in", json!({})).await;
    assert_eq!(refused.code(), -32042, "{}", refused.last());
    let [one] = &refused.error()["data"]["elicitations"].as_array().unwrap()[..] else {
        panic!("nobody is sent where others can listen: {}", refused.last())
    };
    let done = json!({ "elicitationId": "own-2" });
    let done =
        json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": done });
    server.send_on_get_stream(&session_of(&server, "sign_in"), &done);
    let told = within_test_timeout("the visit", stream.next())
        .await
        .unwrap();
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(told["params"]["elicitationId"], one["elicitationId"]);
}

/// FastMCP 1.x declares no changes of its lists, and sends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_change_that_the_server_did_not_declare_reaches_the_client_of_its_session() {
    let server = MockServer::legacy(Revision::NEWEST_LEGACY)
        .without_list_changed()
        .tools(1)
        .start()
        .await;
    let weir = Weir::with_upstreams(json!({ "shop": { "url": server.url(), "poll": "1h" } }));
    let url = weir.url("/mcp/shop");
    let client = CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, json!({})).await;
    let mut stream = client.open_change_stream().await;
    client.call("tool_0000", json!({})).await.result();
    let session = session_of(&server, "tool_0000");
    let both = "the streams of the watch and of the client's session";
    server.wait_until(both, |mock| mock.listeners() == 2).await;
    server.set_tools([MockTool::new("new")]);
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    server.send_on_get_stream(&session, &changed);
    stream.expect_list_changed().await;
    let tools = client.ask("tools/list", json!({})).await;
    assert_eq!(tools.result()["tools"][0]["name"], "new");
}

fn log(level: &str, data: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": level, "data": data },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_message_outside_of_calls_reaches_only_the_client_of_that_session_at_its_level() {
    let server = server().await;
    let weir = weir(&server);
    for able in [json!({}), capabilities()] {
        let [(client, mut stream), (_other, mut others)] =
            two_listening_clients(&weir.url("/mcp"), &able, "shop__tool_0000").await;
        let session_of_other = session_of(&server, "tool_0000");
        client.call("shop__tool_0000", json!({})).await.result();
        let session = session_of(&server, "tool_0000");
        assert_ne!(session, session_of_other);

        server.send_on_get_stream(&session, &log("debug", "own"));
        let message = stream.next().await.unwrap();
        let expected = json!({ "level": "debug", "data": "own", "logger": "shop" });
        assert_eq!(message["params"], expected, "{able}");

        let _client = client.with_log_level(LogLevel::Error).await;
        server.send_on_get_stream(&session, &log("warning", "too mild"));
        server.send_on_get_stream(&session, &log("error", "severe"));
        let message = stream.next().await.unwrap();
        assert_eq!(message["params"]["data"], "severe", "{able}");

        server.send_on_get_stream(&session_of_other, &log("info", "of the other"));
        let message = others.next().await.unwrap();
        assert_eq!(message["params"]["data"], "of the other", "{able}");
    }
}

/// The level reaches the server at once, and not with the client's next call: a server with a level
/// of its own sends milder messages to nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_level_reaches_the_server_of_the_clients_session_without_a_call() {
    let server = server().await;
    let direct = weir(&server);
    let (over_sse, _far) = chain(&server);
    for (weir, tool, able) in [
        (&direct, "shop__tool_0000", json!({})),
        (&over_sse, "far__tool_0000", capabilities()),
    ] {
        let asked_before = server.requests_of("logging/setLevel").len();
        let url = weir.url("/mcp");
        let client = CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, able).await;
        client.call(tool, json!({})).await.result();
        let session = session_of(&server, "tool_0000");
        let _client = client.with_log_level(LogLevel::Debug).await;
        server
            .wait_until("the level", |server| {
                server.requests_of("logging/setLevel").len() > asked_before
            })
            .await;
        let asked = server.requests_of("logging/setLevel").pop().unwrap();
        assert_eq!(asked.message["params"]["level"], "debug", "{tool}");
        assert_eq!(asked.session(), Some(session.as_str()), "{tool}");
    }
}

/// A request of weir's own, such as the one for a level, is no call that a log message could be of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_message_beside_a_request_of_weir_reaches_the_client_of_that_session() {
    let server = server().await;
    let weir = weir(&server);
    let url = weir.url("/mcp");
    let client =
        CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, capabilities()).await;
    let mut stream = client.open_change_stream().await;
    client.call("shop__tool_0000", json!({})).await.result();
    let session = session_of(&server, "tool_0000");
    server.add_rule("logging/setLevel", 1, MockBehaviour::hang());
    let _client = client.with_log_level(LogLevel::Debug).await;
    server
        .wait_until("the level", |server| {
            !server.requests_of("logging/setLevel").is_empty()
        })
        .await;
    server.send_on_get_stream(&session, &log("debug", "meanwhile"));
    let message = stream.next().await.unwrap();
    assert_eq!(message["params"]["data"], "meanwhile");
}

/// A process serves several client sessions, so the message does not name its client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_message_outside_of_calls_of_a_child_process_reaches_no_client() {
    let server = server().await;
    let (command, args) = MockStdio::relay(&server.url()).command();
    let weir = Weir::with_config(json!({
        "upstreams": { "shop": { "command": command, "args": args } },
        "endpoints": { "/shop": { "upstream": "shop" } },
        "change_window": "50ms",
    }));
    let url = weir.url("/shop");
    let client =
        CheckedClient::with_capabilities(&url, Revision::NEWEST_LEGACY, capabilities()).await;
    let mut stream = client.open_change_stream().await;
    client.call("tool_0000", json!({})).await.result();
    let session = session_of(&server, "tool_0000");
    server.send_on_get_stream(&session, &log("error", "of no client"));
    // The change comes after the log message, on the same pipe of the child.
    server.set_tools([MockTool::new("new")]);
    server.notify_list_changed();
    let message = stream.next().await.unwrap();
    assert_eq!(message["method"], "notifications/tools/list_changed");
}
