//! Requests of HTTP+SSE servers, in calls and outside of them. The servers are newer ones behind a
//! second weir, which serves them over HTTP+SSE.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::{AnswerStep, MockBehaviour, MockTool};
use weir_wire::Revision;

use super::weir_over;
use crate::harness::{CheckedClient, CheckedStream, Weir, within_test_timeout};

fn able() -> Value {
    json!({ "sampling": {}, "elicitation": { "form": {} }, "roots": {} })
}

/// Starts two weirs: the one that clients use, and the one that is its HTTP+SSE server.
pub(super) fn chain(server: &MockServer) -> (Weir, Weir) {
    let old = weir_over(&[("one", server)]);
    let far = json!({ "url": old.url("/mcp/one/sse"), "protocol": "sse" });
    (
        Weir::with_config(
            json!({ "upstreams": { "far": far }, "endpoints": { "/mcp": { "upstreams": ["far"] } } }),
        ),
        old,
    )
}

async fn client(weir: &Weir, revision: Revision) -> CheckedClient {
    CheckedClient::with_capabilities(&weir.url("/mcp"), revision, able()).await
}

async fn server_of_one_tool() -> MockServer {
    let server = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    server.start().await
}

/// Opens two client sessions, each with its standing stream.
async fn two_listening_clients(weir: &Weir) -> [(CheckedClient, CheckedStream); 2] {
    let (one, other) = (
        client(weir, Revision::NEWEST_LEGACY).await,
        client(weir, Revision::NEWEST_LEGACY).await,
    );
    let streams = (
        one.open_change_stream().await,
        other.open_change_stream().await,
    );
    [(one, streams.0), (other, streams.1)]
}

/// Returns the requests that a server of HTTP+SSE may make, and a correct answer to each.
fn questions() -> [(&'static str, Value, Value); 3] {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let prompt = json!({ "role": "user", "content": { "type": "text", "text": "6 times 7?" } });
    let said =
        json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "42" } });
    let name = json!({ "action": "accept", "content": { "name": "Ada" } });
    [
        (
            "roots/list",
            json!({}),
            json!({ "roots": [{ "uri": "file:///work" }] }),
        ),
        (
            "sampling/createMessage",
            json!({ "messages": [prompt], "maxTokens": 9 }),
            said,
        ),
        (
            "elicitation/create",
            json!({ "message": "Who?", "requestedSchema": schema }),
            name,
        ),
    ]
}

// Proves R185, R193.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_server_question_outside_of_calls_reaches_its_client_or_is_refused() {
    let upstream = server_of_one_tool().await;
    let (weir, _old) = chain(&upstream);
    let [(own, mut stream), (other, mut others)] = two_listening_clients(&weir).await;
    assert!(
        other
            .call("far__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    assert!(
        own.call("far__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    let newest = |upstream: &MockServer| {
        upstream
            .requests_of("tools/call")
            .pop()
            .unwrap()
            .session()
            .unwrap()
            .to_owned()
    };
    let session = newest(&upstream);
    for (method, params, answer) in questions() {
        let answered = upstream.request_on_get_stream(&session, method, &params);
        let asked = within_test_timeout(method, stream.next()).await.unwrap();
        assert_eq!(asked["method"], method);
        if method == "elicitation/create" {
            assert_eq!(
                asked["params"]["message"], "[far] Who?",
                "dressed as those of calls are"
            );
        }
        own.raw()
            .respond(&asked["id"], answer.clone())
            .await
            .unwrap();
        let heard = within_test_timeout("the answer", answered).await.unwrap();
        assert_eq!(heard["result"], answer, "{method}");
    }
    drop(stream);
    // weir notices that the client is gone when its connection is closed: until then it may still
    // be asked, without an answer.
    for (method, params, _) in questions() {
        let refused = async {
            while upstream
                .request_on_get_stream(&session, method, &params)
                .await
                .unwrap()["error"]["code"]
                != -32602
            {}
        };
        within_test_timeout("the refusal of a question for nobody", refused).await;
    }
    let modern = client(&weir, Revision::MODERN).await;
    assert!(
        modern
            .call("far__tool_0000", json!({}))
            .await
            .result()
            .is_object()
    );
    assert_ne!(newest(&upstream), session, "a line of its own");
    for (method, params, _) in questions() {
        let refused = within_test_timeout(
            "the refusal",
            upstream.request_on_get_stream(&newest(&upstream), method, &params),
        )
        .await
        .unwrap();
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    // The next message for the other client is one for all.
    upstream.set_tools([MockTool::new("new")]);
    upstream.notify_list_changed();
    others.expect_list_changed().await;
}

// Proves R182.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_server_question_in_a_call_reaches_clients_of_both_eras() {
    let asks = |(method, params, _)| {
        MockBehaviour::steps([AnswerStep::Ask { method, params }, AnswerStep::Answer])
    };
    let builder = MockServer::legacy(Revision::NEWEST_LEGACY);
    let upstream = questions().into_iter().fold(builder, |server, one| {
        server.with(MockTool::new(tool(one.0)).does(asks(one)))
    });
    let upstream = upstream.start().await;
    let (weir, _old) = chain(&upstream);
    let (legacy, modern) = (
        client(&weir, Revision::NEWEST_LEGACY).await,
        client(&weir, Revision::MODERN).await,
    );
    for (method, _, answer) in questions() {
        let name = format!("far__{}", tool(method));
        let mut call = legacy.start_call(&name, json!({}), None).await;
        let asked = call.next().await.unwrap();
        assert_eq!(asked["method"], method, "{asked}");
        legacy
            .raw()
            .respond(&asked["id"], answer.clone())
            .await
            .unwrap();
        let last = call.next().await.unwrap();
        assert_eq!(
            last["result"]["content"][0]["text"],
            answer.to_string(),
            "{last}"
        );
        let asked = modern.call(&name, json!({})).await;
        let (key, question) = asked.result()["inputRequests"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        assert_eq!(question["method"], method);
        let (answers, state) = (json!({ key: answer }), &asked.result()["requestState"]);
        let again = json!({ "name": name, "arguments": {}, "inputResponses": answers, "requestState": state });
        assert_eq!(
            modern.ask("tools/call", again).await.text(),
            answer.to_string(),
            "{method}"
        );
        assert_eq!(upstream.executions(tool(method)), 2, "each ran once");
    }
}

/// Returns the tool that asks by this method.
fn tool(method: &str) -> &str {
    method.split_once('/').map_or(method, |(kind, _)| kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_server_log_message_outside_of_calls_reaches_its_client_alone() {
    let upstream = server_of_one_tool().await;
    let (weir, _old) = chain(&upstream);
    let [(own, mut stream), (other, mut others)] = two_listening_clients(&weir).await;
    for (caller, stream) in [(&other, &mut others), (&own, &mut stream)] {
        caller.call("far__tool_0000", json!({})).await.result();
        let call = upstream.requests_of("tools/call").pop().unwrap();
        let session = call.session().unwrap();
        let log = json!({
            "jsonrpc": "2.0", "method": "notifications/message",
            "params": { "level": "info", "data": session },
        });
        upstream.send_on_get_stream(session, &log);
        let message = stream.next().await.unwrap();
        assert_eq!(message["params"]["data"], session, "{message}");
    }
}
