//! The form of modern responses, and the content of their streams (R037 to R044, R207, R215, R216,
//! B21, E21).

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockTool};
use weir_testkit::{MessageSender, MockBehaviour, MockServer, ProtocolSchemas};
use weir_wire::{LogLevel, Revision};

use super::WeirWithUpstream;
use super::request_draft::assert_refused;
use super::weir_with_upstream::{usual_tools, within_timeout};

/// Checks every message against the official schema, if this run has it.
pub fn check_schema(answered: &str, messages: &[Value]) {
    let Some(schemas) = ProtocolSchemas::from_environment() else {
        return;
    };
    for message in messages {
        schemas
            .check(Revision::MODERN, MessageSender::Server, answered, message)
            .unwrap();
    }
}

// Proves R037, R038, R041, R042.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_one_object_or_a_stream_that_ends_with_it() {
    let upstream = usual_tools(MockServer::modern()).tool("steps", MockBehaviour::progress(3));
    let mut stage = WeirWithUpstream::with_upstream(
        upstream,
        json!({ "limits": { "progress_interval": "0ms" } }),
    )
    .await;
    let plain = stage.modern_client().call("echo", json!({})).await.unwrap();
    assert_eq!(
        plain.header("content-type").unwrap().split(';').next(),
        Some("application/json")
    );
    assert_eq!(plain.messages.len(), 1);
    let exchange = stage
        .modern_client()
        .start_call("steps", json!({}), json!("token"))
        .await
        .unwrap();
    assert!(exchange.is_stream() && exchange.status == 200);
    assert_eq!(exchange.headers.get("x-accel-buffering").unwrap(), "no");
    // It ends by itself, at the response.
    let streamed = within_timeout("the end of the stream", exchange.finish())
        .await
        .unwrap();
    assert_eq!(streamed.notes("notifications/progress").count(), 3);
    assert_eq!(streamed.last()["result"]["resultType"], "complete");
    assert!(
        streamed
            .events
            .iter()
            .all(|event| event.id.is_none() && event.retry.is_none()),
        "{:?}",
        streamed.events
    );
    check_schema("tools/call", &streamed.messages);
    assert_eq!(stage.take_client_requests().len(), 2);
}

// Proves R039.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_is_kept_alive_by_comments() {
    let upstream =
        usual_tools(MockServer::modern()).tool("hang", MockBehaviour::hang_after_progress());
    let mut stage = WeirWithUpstream::with_upstream(
        upstream,
        json!({ "limits": { "keep_alive": "50ms", "stream_after": "50ms" } }),
    )
    .await;
    let listening = stage
        .modern_client()
        .listen(json!({ "toolsListChanged": true }))
        .await
        .unwrap();
    let calling = stage
        .modern_client()
        .start_call("hang", json!({}), json!(1))
        .await
        .unwrap();
    for mut exchange in [listening, calling] {
        let mut comments = 0;
        while comments < 3 {
            let event = within_timeout("a comment", exchange.next_event())
                .await
                .unwrap()
                .unwrap();
            assert_eq!(event.id, None, "r041");
            comments += usize::from(event.data.is_empty() && !event.comments.is_empty());
        }
    }
    stage
        .up
        .wait_until("the call to be given up", |up| {
            up.counts("hang").abandoned == 1
        })
        .await;
    stage.take_client_requests();
    stage.assert_still_serving("quiet streams").await;
}

// Proves R040, E21.
#[tokio::test(flavor = "multi_thread")]
async fn a_legacy_upstreams_request_is_declined_and_never_on_a_modern_stream() {
    let mut upstream = usual_tools(MockServer::legacy(Revision::V2025_11_25));
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let ask = MockBehaviour::steps([
            AnswerStep::Progress(1, 2),
            AnswerStep::Ask {
                method,
                params: json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } }),
            },
            AnswerStep::Echo,
        ]);
        upstream = upstream.tool(&method.replace('/', "_"), ask.as_events());
    }
    let stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let call = stage
            .modern_client()
            .start_call(&method.replace('/', "_"), json!({ "a": 1 }), json!("token"))
            .await
            .unwrap();
        let answer = within_timeout("the end of the call", call.finish())
            .await
            .unwrap();
        assert_eq!(
            answer.text(),
            json!({ "a": 1 }).to_string(),
            "{method}: the call goes on"
        );
        let requests: Vec<_> = answer
            .messages
            .iter()
            .filter(|message| message.get("method").is_some() && message.get("id").is_some())
            .collect();
        assert_eq!(requests, Vec::<&Value>::new(), "{method}");
    }
    let declined: Vec<_> = stage.up.answers();
    assert_eq!(declined.len(), 3);
    assert!(
        declined
            .iter()
            .all(|answer| answer["error"]["code"].is_i64()),
        "{declined:?}"
    );
}

/// Two calls at once, with the same progress token: each stream has the notifications of its own
/// call alone.
// Proves R043, B21, R207.
#[tokio::test(flavor = "multi_thread")]
async fn response_stream_carries_only_notifications_of_its_own_request() {
    let gate = CallGate::new();
    let told = |total| {
        MockBehaviour::steps([
            AnswerStep::Progress(1, total),
            AnswerStep::Gate(gate.clone()),
            AnswerStep::Progress(2, total),
            AnswerStep::Echo,
        ])
        .as_events()
    };
    let upstream = usual_tools(MockServer::modern())
        .tool("ten", told(10))
        .tool("twenty", told(20));
    let mut stage = WeirWithUpstream::with_upstream(
        upstream,
        json!({ "limits": { "progress_interval": "0ms" } }),
    )
    .await;
    let client = stage.modern_client();
    let mut streams = Vec::new();
    for tool in ["ten", "twenty", "ten", "twenty"] {
        streams.push((
            tool,
            client
                .start_call(tool, json!({ "is": tool }), json!("same"))
                .await
                .unwrap(),
        ));
    }
    stage
        .up
        .wait_until("all calls to run", |up| up.total_executions() == 5)
        .await;
    gate.open();
    for (tool, stream) in streams {
        let answer = within_timeout("the end of the call", stream.finish())
            .await
            .unwrap();
        let total = if tool == "ten" { 10 } else { 20 };
        let notes: Vec<_> = answer
            .notes("notifications/progress")
            .map(|note| note["params"].clone())
            .collect();
        let expected =
            |progress| json!({ "progressToken": "same", "progress": progress, "total": total });
        assert_eq!(notes, [expected(1), expected(2)], "{tool}");
        assert_eq!(answer.text(), json!({ "is": tool }).to_string());
    }
    let tokens: std::collections::HashSet<_> = stage
        .take_client_requests()
        .iter()
        .map(|call| call.meta()["progressToken"].to_string())
        .collect();
    assert_eq!(
        tokens.len(),
        4,
        "weir's tokens are all different: {tokens:?}"
    );
    assert!(!tokens.contains("\"same\""), "and its own");
}

// Proves R044, R169.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_chosen_once_the_upstream_has_spoken() {
    let missing = json!({ "code": -32021, "message": "needs sampling", "data": { "requiredCapabilities": { "sampling": {} } } });
    let unknown = json!({ "code": -32602, "message": "no" });
    let at_once = |error: &Value| MockBehaviour::steps([AnswerStep::Error(error.clone())]);
    // A response head and a comment come first, as from a server that is about to stream.
    let late = |error: &Value| {
        MockBehaviour::steps([
            AnswerStep::Comment,
            AnswerStep::Wait(Duration::from_millis(100)),
            AnswerStep::Error(error.clone()),
        ])
        .as_events()
    };
    let upstream = usual_tools(MockServer::modern())
        .with(MockTool::new("missing").does(at_once(&missing).with_status(400)))
        .with(MockTool::new("missing_late").does(late(&missing)))
        .with(MockTool::new("unknown").does(at_once(&unknown)))
        .with(MockTool::new("unknown_late").does(late(&unknown)));
    let mut stage =
        WeirWithUpstream::with_upstream(upstream, json!({ "limits": { "stream_after": "1h" } }))
            .await;
    for (tool, status, code) in [
        ("missing", 400, -32021),
        ("missing_late", 400, -32021),
        ("unknown", 200, -32602),
        ("unknown_late", 200, -32602),
    ] {
        let mut draft = stage.draft_request("tools/call", json!({ "name": tool, "arguments": {} }));
        draft.body["id"] = json!(tool);
        let answer = draft.post(&stage).await;
        assert_refused(tool, &answer, status, code, &json!(tool));
        if code == -32021 {
            assert_eq!(
                answer.error()["data"]["requiredCapabilities"],
                json!({ "sampling": {} })
            );
        }
        stage.take_client_requests();
        stage.assert_still_serving(tool).await;
    }
}

// Proves R215, R216.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_message_without_a_level() {
    let upstream = usual_tools(MockServer::legacy(Revision::V2025_11_25))
        .tool("chatty", MockBehaviour::unasked_log(LogLevel::Error));
    let mut stage = WeirWithUpstream::with_upstream(upstream, json!({})).await;
    let answer = stage
        .modern_client()
        .call("chatty", json!({}))
        .await
        .unwrap();
    assert_eq!(
        answer.notes("notifications/message").count(),
        0,
        "{:?}",
        answer.messages
    );
    assert_eq!(stage.take_client_requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_request() {
    let mut stage = WeirWithUpstream::new().await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..20 {
        let answer = stage
            .modern_client()
            .ask("server/discover", json!({}))
            .await
            .unwrap();
        ids.insert(answer.header("x-request-id").unwrap().to_owned());
        let mut draft = stage.draft_call();
        // A client's own `x-request-id` is replaced by weir's.
        draft.set_header("x-request-id", "mine");
        draft.set_method("roots/list");
        let answer = draft.post(&stage).await;
        let id = answer.header("x-request-id").unwrap();
        assert_eq!(answer.error()["data"]["requestId"], id, "{:?}", answer.body);
        ids.insert(id.to_owned());
        let answer = stage.send(Method::PUT, http::HeaderMap::new(), "").await;
        ids.insert(answer.header("x-request-id").unwrap().to_owned());
    }
    assert_eq!(ids.len(), 60, "{ids:?}");
    stage.assert_still_serving("sixty requests").await;
}
