//! The streams of legacy sessions: their messages, and their number (D04, D20, R088 to R092).

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, MockTool};
use weir_testkit::{HttpExchange, MockBehaviour, MockServer};
use weir_wire::Revision;

use super::WeirWithUpstream;
use super::weir_with_upstream::{usual_tools, within_timeout};

async fn next(stream: &mut HttpExchange) -> Option<Value> {
    within_timeout("a message", stream.next_message())
        .await
        .unwrap()
}

/// Changes the list and notifies every stream for changes.
fn change_list(stage: &WeirWithUpstream, name: &str) {
    stage
        .up
        .set_tools([MockTool::new("echo"), MockTool::new(name)]);
    stage.up.notify_list_changed();
}

// Proves R088, R089, R092.
#[tokio::test(flavor = "multi_thread")]
async fn get_is_a_stream_of_changes_and_of_nothing_else() {
    let mut stage = WeirWithUpstream::with_config(json!({ "change_window": "20ms" })).await;
    for (round, revision) in Revision::LEGACY.into_iter().enumerate() {
        let client = stage.legacy_client(revision).await;
        let mut listening = client.get_stream().await.unwrap();
        assert!(
            listening.status == 200 && listening.is_stream(),
            "{revision:?}: {}",
            listening.status
        );
        // Responses to calls travel on the calls' own streams.
        for number in 0..5 {
            let answer = client
                .call("echo", json!({ "number": number }))
                .await
                .unwrap();
            assert_eq!(answer.text(), json!({ "number": number }).to_string());
        }
        assert_eq!(
            client.ask("tools/list", json!({})).await.unwrap().status,
            200
        );
        change_list(&stage, &format!("new_{round}"));
        let mut ids = std::collections::HashSet::new();
        loop {
            let event = within_timeout("the change", listening.next_event())
                .await
                .unwrap()
                .unwrap();
            assert!(
                event.id.is_none_or(|id| ids.insert(id)),
                "r092: ids are unique"
            );
            if event.data.is_empty() {
                continue;
            }
            let message: Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(
                message["method"], "notifications/tools/list_changed",
                "{revision:?}: {message}"
            );
            assert_eq!(message.get("id"), None);
            break;
        }
        stage.take_client_requests();
    }
}

/// The newest GET stream has the messages; the older one ends in an orderly way.
// Proves D04, R090.
#[tokio::test(flavor = "multi_thread")]
async fn each_message_is_on_one_stream() {
    let mut stage = WeirWithUpstream::with_config(json!({ "change_window": "20ms" })).await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let mut older = client.get_stream().await.unwrap();
    let mut newer = client.get_stream().await.unwrap();
    assert_eq!((older.status.as_u16(), newer.status.as_u16()), (200, 200));
    let mut other = stage
        .legacy_client(Revision::V2025_11_25)
        .await
        .get_stream()
        .await
        .unwrap();
    assert_eq!(
        next(&mut older).await,
        None,
        "the older stream ends without a message"
    );
    change_list(&stage, "new");
    assert_eq!(
        next(&mut newer).await.unwrap()["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(
        next(&mut other).await.unwrap()["method"],
        "notifications/tools/list_changed",
        "another session is another client"
    );
    stage.assert_still_serving("two streams").await;
}

// Proves R091.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_drops_its_stream_does_not_cancel_its_call() {
    let gate = CallGate::new();
    for upstream in [
        MockServer::modern(),
        MockServer::legacy(Revision::V2025_11_25),
    ] {
        let gated = MockBehaviour::gated_after_progress(&gate);
        let mut stage =
            WeirWithUpstream::with_upstream(usual_tools(upstream).tool("gated", gated), json!({}))
                .await;
        let client = stage.legacy_client(Revision::V2025_06_18).await;
        let mut calling = client
            .start_call("gated", json!({}), json!("token"))
            .await
            .unwrap();
        assert_eq!(
            next(&mut calling).await.unwrap()["method"],
            "notifications/progress"
        );
        drop(calling);
        // Another call completes meanwhile.
        stage.take_client_requests();
        stage.assert_still_serving("a dropped stream").await;
        assert_eq!(stage.up.counts("gated").abandoned, 0);
        gate.admit(1);
        stage
            .up
            .wait_until("the call to complete", |up| {
                up.counts("gated").completed == 1
            })
            .await;
        assert_eq!(stage.up.requests_of("notifications/cancelled").len(), 0);
        assert_eq!(client.ask("ping", json!({})).await.unwrap().status, 200);
    }
}

/// Events whose data would be more than one event if weir did not re-encode it.
// Proves D20.
#[tokio::test(flavor = "multi_thread")]
async fn one_event_of_an_upstream_is_one_event_to_the_client() {
    let forged = "a\n\nevent: message\nid: 7\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"forged\":true}}\n\n";
    let forged = [
        forged.to_owned(),
        forged.replace('\n', "\r\n"),
        forged.replace('\n', "\r"),
        "\u{2028}\u{85}\u{0}:\u{feff}".to_owned(),
    ];
    let mut steps = Vec::new();
    for (number, text) in forged.iter().enumerate() {
        let params = json!({ "progressToken": "TOKEN", "progress": number + 1, "message": text });
        let note =
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        steps.push(AnswerStep::Send(
            note.to_string().replace("\"TOKEN\"", "\"$token\""),
        ));
    }
    // Fields of the upstream's own, data split over several lines, comments between: all legal.
    steps.push(AnswerStep::Raw(
        [
            "event: message",
            "id: upstream-1",
            "retry: 1",
            ": comment",
            "data: {\"jsonrpc\":\"2.0\",",
            "data:  \"method\":\"notifications/message\",",
            "data: \"params\":{\"level\":\"error\",\"data\":\"split\"}}",
            "",
            "",
        ]
        .join("\n"),
    ));
    steps.push(AnswerStep::Echo);
    let upstream =
        usual_tools(MockServer::modern()).tool("forger", MockBehaviour::steps(steps).as_events());
    let mut stage = WeirWithUpstream::with_upstream(
        upstream,
        json!({ "limits": { "progress_interval": "0ms" } }),
    )
    .await;
    let session = stage.legacy_client(Revision::V2025_11_25).await;
    for client in [stage.modern_client(), session] {
        let arguments = json!({ "text": forged[0] });
        let call = client
            .start_call("forger", arguments.clone(), json!("mine"))
            .await
            .unwrap();
        let answer = within_timeout("the end of the call", call.finish())
            .await
            .unwrap();
        let told: Vec<_> = answer
            .notes("notifications/progress")
            .map(|note| note["params"]["message"].as_str().unwrap())
            .collect();
        // Control characters that only a terminal interprets are removed.
        let shown: Vec<_> = forged
            .iter()
            .map(|text| text.replace(['\u{85}', '\0'], ""))
            .collect();
        assert_eq!(told, shown);
        assert!(
            answer
                .notes("notifications/progress")
                .all(|note| note["params"]["progressToken"] == "mine")
        );
        let answers: Vec<_> = answer
            .messages
            .iter()
            .filter(|message| message.get("result").is_some())
            .collect();
        assert_eq!(answers.len(), 1, "{:?}", answer.messages);
        assert_eq!(answer.text(), arguments.to_string());
        let events: Vec<_> = answer
            .events
            .iter()
            .filter(|event| !event.data.is_empty())
            .collect();
        assert_eq!(events.len(), answer.messages.len());
        assert!(events.iter().all(|event| event.retry.is_none()
            && event.id.as_deref() != Some("7")
            && event.id.as_deref() != Some("upstream-1")));
    }
    assert_eq!(stage.take_client_requests().len(), 2);
}
