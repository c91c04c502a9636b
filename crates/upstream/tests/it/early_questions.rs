//! Messages on the standing stream before the head of a call's response. A server that answers with
//! plain JSON sends the head with the result, as the SDKs do with `enableJsonResponse` and
//! `json_response`.

use std::time::Duration;

use serde_json::{Value, json};
use weir_core::call::LogMessages;
use weir_core::reply::{NoteKind, ReplyEvent};
use weir_core::upstream::CallDeadlines;
use weir_testkit::mock_server::{AnswerStep, CallGate};
use weir_testkit::{FaultProxy, MockBehaviour, MockServer};
use weir_upstream::UpstreamSettings;
use weir_wire::{LogLevel, Revision};

use crate::fixtures::*;

/// A behaviour that asks on the standing stream, and then goes on with `steps` as JSON.
fn asking(steps: impl IntoIterator<Item = AnswerStep>) -> MockBehaviour {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let ask = AnswerStep::AskOnGetStream {
        method: "elicitation/create",
        params: json!({ "message": "Your name?", "requestedSchema": schema }),
    };
    MockBehaviour::steps([ask].into_iter().chain(steps)).as_json()
}

async fn server(behaviour: MockBehaviour) -> MockServer {
    MockServer::legacy(Revision::V2025_11_25)
        .tool("ask", behaviour)
        .start()
        .await
}

/// Returns the answers that were posted to the server's questions.
fn posted_answers(mock: &MockServer) -> Vec<Value> {
    let requests = mock.requests().into_iter();
    let messages = requests.map(|request| request.message);
    messages
        .filter(|message| message["id"].is_string() && message["method"].is_null())
        .collect()
}

#[tokio::test]
async fn question_before_the_head_reaches_the_client_and_its_answer_the_server() {
    let mock = server(asking([AnswerStep::Answer])).await;
    let upstream = upstream(&mock.url());
    for round in 1..=2 {
        let (reply, question) = ask(&upstream).await;
        question.answer(filled());
        assert!(text(reply).await.contains("Ada"));
        assert_eq!(mock.executions("ask"), round);
    }
    assert_eq!(mock.requests_of("initialize").len(), 1);
    assert_eq!(mock.requests_of("notifications/cancelled").len(), 0);
}

#[tokio::test]
async fn large_result_after_an_early_question_arrives_whole() {
    const SIZE: usize = 4 << 20;
    let mock = server(asking([AnswerStep::Huge(SIZE)])).await;
    let upstream = upstream(&mock.url());
    let (reply, question) = ask(&upstream).await;
    question.answer(filled());
    assert_eq!(text(reply).await.len(), SIZE);
}

#[tokio::test]
async fn open_question_before_the_head_does_not_count_as_idle_time() {
    let mock = server(asking([AnswerStep::Answer])).await;
    let upstream = upstream(&mock.url());
    // Opens the session, which may take longer than the call.
    let (reply, first) = ask(&upstream).await;
    first.answer(filled());
    assert!(text(reply).await.contains("Ada"));
    let mut second = outbound("ask", call_in_session("ask")).await;
    second.deadlines = CallDeadlines {
        idle: Duration::from_secs(3),
        ..CallDeadlines::CALL
    };
    let waits = second.deadlines.idle + Duration::from_millis(500);
    let mut reply = upstream.call(second).await;
    let question = question(&mut reply).await;
    let answering = tokio::spawn(async move {
        tokio::time::sleep(waits).await;
        question.answer(filled());
    });
    assert!(text(reply).await.contains("Ada"));
    answering.await.unwrap();
}

#[tokio::test]
async fn notes_before_the_head_reach_the_client_at_once() {
    let gate = CallGate::new();
    let mock = server(MockBehaviour::gated(&gate).as_json()).await;
    let upstream = upstream(&mock.url());
    let mut call = call_in_session("ask");
    call.wants_progress = true;
    call.log_messages = LogMessages::From(LogLevel::Info);
    let running = tokio::spawn(upstream.call(outbound("ask", call).await));
    mock.wait_until("the call runs", |mock| mock.executions("ask") == 1)
        .await;
    let request = mock.requests_of("tools/call").remove(0);
    let session = request.session().unwrap();
    let token = &request.meta()["progressToken"];
    let progress = json!({ "progressToken": token, "progress": 1 });
    let log = json!({ "level": "info", "data": "early" });
    for (method, params) in [
        ("notifications/progress", progress),
        ("notifications/message", log),
    ] {
        let note = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        mock.send_on_get_stream(session, &note);
    }
    let mut reply = running.await.unwrap();
    for expected in [NoteKind::Progress, NoteKind::Log(LogLevel::Info)] {
        let ReplyEvent::Note(note) = next(&mut reply).await else {
            panic!("no note")
        };
        assert_eq!(note.kind, expected);
    }
    gate.open();
    let outcome = outcome(reply).await;
    assert_eq!(outcome.notes.len(), 0);
    outcome.end.unwrap();
}

#[tokio::test]
async fn call_that_is_cancelled_at_an_early_question_is_cancelled_at_the_server() {
    let mock = server(asking([AnswerStep::Hang])).await;
    let upstream = upstream(&mock.url());
    let (reply, mut question) = ask(&upstream).await;
    drop(reply);
    let withdrawn = std::future::poll_fn(|cx| question.poll_withdrawn(cx));
    tokio::time::timeout(Duration::from_secs(10), withdrawn)
        .await
        .unwrap();
    mock.wait_until("the call is cancelled", |mock| {
        mock.requests_of("notifications/cancelled").len() == 1 && posted_answers(mock).len() == 1
    })
    .await;
    let cancelled = mock.requests_of("notifications/cancelled").remove(0);
    let id = &mock.requests_of("tools/call")[0].message["id"];
    assert_eq!(&cancelled.message["params"]["requestId"], id);
    assert!(posted_answers(&mock)[0]["error"].is_object());
}

/// The question reached the client: the call is not made again, even if that would do no harm.
#[tokio::test]
async fn call_whose_connection_breaks_after_an_early_question_ends_with_an_unknown_result() {
    let mock = server(asking([AnswerStep::ResetAfter(0), AnswerStep::Answer])).await;
    let upstream = upstream(&mock.url());
    let mut outbound = outbound("ask", call_in_session("ask")).await;
    outbound.safe_to_repeat = true;
    let mut reply = upstream.call(outbound).await;
    question(&mut reply).await.answer(filled());
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
    assert_eq!(mock.executions("ask"), 1);
    assert_eq!(mock.requests_of("notifications/cancelled").len(), 0);
}

#[tokio::test]
async fn call_whose_connection_breaks_while_an_early_question_is_open_withdraws_it() {
    let mut mock = server(asking([AnswerStep::Answer])).await;
    let upstream = upstream(&mock.url());
    let (reply, mut question) = ask(&upstream).await;
    mock.stop().await;
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
    let withdrawn = std::future::poll_fn(|cx| question.poll_withdrawn(cx));
    tokio::time::timeout(Duration::from_secs(10), withdrawn)
        .await
        .unwrap();
}

#[tokio::test]
async fn call_whose_early_answer_does_not_reach_the_server_ends_with_an_unknown_result() {
    let mock = server(asking([AnswerStep::Answer])).await;
    let between = FaultProxy::start(mock.address()).await;
    let upstream = build(UpstreamSettings {
        own_deadlines: list_deadline(Duration::from_secs(3)),
        ..settings(&between.url("/mcp"))
    });
    let (reply, question) = ask(&upstream).await;
    between.set_refusing(true);
    question.answer(filled());
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "result_unknown", "{failure:?}");
    assert!(failure.message().contains("could not be delivered"));
    assert_eq!(mock.executions("ask"), 1);
}

#[tokio::test]
async fn call_whose_session_is_lost_after_an_early_question_fails_once() {
    let error = json!({ "code": -32001, "message": "Session not found" });
    let mock = server(asking([AnswerStep::Error(error)]).with_status(404)).await;
    let upstream = upstream(&mock.url());
    let (reply, question) = ask(&upstream).await;
    question.answer(filled());
    let failure = failure(reply).await;
    assert_eq!(failure.reason(), "unavailable", "{failure:?}");
    assert_eq!(mock.executions("ask"), 1);
}

/// Without a message before the head, a failed attempt is made again as that of any client.
#[tokio::test]
async fn lost_session_of_a_client_that_can_be_asked_is_opened_again() {
    let mock = server(asking([AnswerStep::Answer])).await;
    let upstream = upstream(&mock.url());
    for round in 1..=2 {
        let (reply, question) = ask(&upstream).await;
        question.answer(filled());
        assert!(text(reply).await.contains("Ada"));
        assert_eq!(mock.executions("ask"), round);
        assert_eq!(mock.requests_of("initialize").len(), round);
        mock.drop_sessions();
    }
}
