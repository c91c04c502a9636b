//! Answers of clients to the questions of a server, whose connection breaks while the stream of the
//! call is whole.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::{FaultProxy, MockBehaviour, MockServer};
use weir_upstream::UpstreamSettings;
use weir_wire::Revision;

use crate::fixtures::*;

pub(crate) async fn asking_server() -> MockServer {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let ask = AnswerStep::Ask {
        method: "elicitation/create",
        params: json!({ "message": "Your name?", "requestedSchema": schema }),
    };
    MockServer::legacy(Revision::V2025_11_25)
        .tool("ask", MockBehaviour::steps([ask, AnswerStep::Answer]))
        .start()
        .await
}

/// Waits until a connection more has come to the proxy than before.
async fn wait_for_connection(between: &FaultProxy, before: u64) {
    while between.connections() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn answer_whose_connection_breaks_is_sent_again() {
    let mock = asking_server().await;
    let between = FaultProxy::start(mock.address()).await;
    let upstream = upstream(&between.url("/mcp"));
    let (reply, question) = ask(&upstream).await;
    let before = between.connections();
    between.set_refusing(true);
    question.answer(filled());
    let ended = tokio::spawn(text(reply));
    wait_for_connection(&between, before).await;
    between.set_refusing(false);
    assert!(ended.await.unwrap().contains("Ada"));
    assert_eq!(mock.executions("ask"), 1);
}

#[tokio::test]
async fn call_whose_answer_does_not_reach_the_server_ends_with_an_unknown_result() {
    let mock = asking_server().await;
    let between = FaultProxy::start(mock.address()).await;
    let upstream = build(UpstreamSettings {
        own_deadlines: list_deadline(Duration::from_millis(300)),
        ..settings(&between.url("/mcp"))
    });
    let (reply, question) = ask(&upstream).await;
    between.set_refusing(true);
    question.answer(filled());
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
    assert!(
        failure.message().contains("could not be delivered"),
        "{failure:?}"
    );
    assert_eq!(mock.executions("ask"), 1, "it is not called again");
}

/// A proxy before the server can refuse an answer that is too large for it, or send it to a server
/// without the session.
#[tokio::test]
async fn call_whose_answer_is_refused_ends_with_an_unknown_result() {
    let (mock, other) = (asking_server().await, asking_server().await);
    let between = FaultProxy::start(mock.address()).await;
    let upstream = upstream(&between.url("/mcp"));
    let (reply, question) = ask(&upstream).await;
    between.retarget(other.address());
    question.answer(filled());
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
}

/// A question on the stream of a session names no call. It goes to the newest one, which may not be
/// the one that asks.
#[tokio::test]
async fn question_goes_to_the_clients_other_call_when_the_newest_call_ends_or_is_cancelled() {
    for is_cancelled in [false, true] {
        let (older, newest) = (CallGate::new(), CallGate::new());
        let mock = MockServer::legacy(Revision::V2025_11_25)
            .tool("older", MockBehaviour::gated(&older))
            .tool("newest", MockBehaviour::gated(&newest))
            .start()
            .await;
        let upstream = upstream(&mock.url());
        let call = async |tool: &str| {
            let outbound = outbound(tool, call_in_session(tool)).await;
            upstream.clone().call(outbound).await
        };
        let mut first = call("older").await;
        let mut second = call("newest").await;
        let session = mock.requests_of("tools/call")[0]
            .session()
            .unwrap()
            .to_owned();
        let schema = json!({ "type": "object", "properties": {} });
        let params = json!({ "message": "Your name?", "requestedSchema": schema });
        let answer = mock.request_on_get_stream(&session, "elicitation/create", &params);
        let mut early = question(&mut second).await;
        if is_cancelled {
            drop(second);
        } else {
            newest.open();
            assert!(outcome(second).await.end.is_ok());
        }
        let withdrawn = std::future::poll_fn(|cx| early.poll_withdrawn(cx));
        tokio::time::timeout(Duration::from_secs(10), withdrawn)
            .await
            .unwrap();
        question(&mut first).await.answer(filled());
        let first = tokio::spawn(outcome(first));
        let answer = tokio::time::timeout(Duration::from_secs(10), answer).await;
        assert_eq!(answer.unwrap().unwrap()["result"]["action"], "accept");
        older.open();
        assert!(first.await.unwrap().end.is_ok());
        let is_answer = |message: &Value| message["id"].is_string() && message["method"].is_null();
        let posted = mock.requests().into_iter();
        let answers = posted.filter(|request| is_answer(&request.message)).count();
        assert_eq!(answers, 1, "{is_cancelled}");
    }
}

/// A client may answer with anything. The server gets a result of its question, or an error.
#[tokio::test]
async fn server_gets_no_answer_that_is_no_result_of_its_question() {
    let mock = asking_server().await;
    let upstream = upstream(&mock.url());
    let (reply, question) = ask(&upstream).await;
    question.answer(Ok(Bytes::from_static(br#"{"role":"assistant"}"#)));
    outcome(reply).await.end.unwrap();
    let answers = mock.answers();
    assert!(answers[0]["error"].is_object(), "{answers:?}");
}
