//! Answers of clients to the questions of a server, whose connection breaks while the stream of the
//! call is whole.

use std::time::Duration;

use serde_json::json;
use weir_testkit::mock_server::AnswerStep;
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
