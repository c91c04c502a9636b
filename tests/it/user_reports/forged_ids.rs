//! Requests of a server with ids that are not its own: only the server that asked gets their
//! answers.

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, CallGate, RecordedRequest};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{mock_server, weir_over};
use crate::harness::{CheckedClient, CheckedStream, Weir};

/// Returns a request of the server's own as text; `id` is JSON.
fn asks(id: &str, method: &str) -> AnswerStep {
    let params = match method {
        "roots/list" => json!({}),
        "sampling/createMessage" => json!({ "messages": [], "maxTokens": 1 }),
        _ => {
            json!({ "message": "your password?", "requestedSchema": { "type": "object", "properties": {} } })
        }
    };
    AnswerStep::Send(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
    ))
}

/// Returns the answers that weir posted to the server in one of its sessions, as (id, true for a
/// result).
fn answered_in(requests: &[RecordedRequest], session: Option<&str>) -> Vec<(Value, bool)> {
    let answers = requests
        .iter()
        .filter(|sent| sent.message.get("method").is_none() && sent.session() == session);
    let answers = answers.filter(|sent| sent.message.get("id").is_some());
    answers
        .map(|sent| {
            (
                sent.message["id"].clone(),
                sent.message.get("result").is_some(),
            )
        })
        .collect()
}

/// A call of a client of its own, of which the server has asked its questions.
struct ForgedCall {
    name: &'static str,
    client: CheckedClient,
    running: CheckedStream,
    /// The ids that weir gave to the questions.
    question_ids: Vec<Value>,
}

impl ForgedCall {
    async fn start(weir: &Weir, name: &'static str) -> Self {
        let all = json!({ "sampling": {}, "elicitation": { "form": {} }, "roots": {} });
        let client =
            CheckedClient::with_capabilities(&weir.url("/mcp"), Revision::V2025_11_25, all).await;
        let mut running = client
            .start_call("one__forger", json!({ "of": name }), Some(&json!("same")))
            .await;
        let mut question_ids = Vec::new();
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            let question = running.next().await.unwrap();
            assert_eq!(question["method"], method);
            assert!(
                question["id"].as_str().unwrap().starts_with("weir-"),
                "an id of weir's own: {question}"
            );
            question_ids.push(question["id"].clone());
        }
        Self {
            name,
            client,
            running,
            question_ids,
        }
    }
}

// Proves B22, R193.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_request_with_forged_id_is_answered_by_its_own_client_only() {
    let gate = CallGate::new();
    // The id of the call itself, one that is the same in every session, and one that names another
    // call's.
    let steps = [
        asks(r#""$id""#, "elicitation/create"),
        asks("-7", "sampling/createMessage"),
        asks("\"same\"", "roots/list"),
        AnswerStep::Gate(gate.clone()),
        AnswerStep::Echo,
    ];
    let upstream = mock_server(Revision::V2025_11_25)
        .tool("forger", MockBehaviour::steps(steps).as_events())
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let mut calls = Vec::new();
    for name in ["a", "b"] {
        calls.push(ForgedCall::start(&weir, name).await);
    }
    // One client answers for the other, and by the server's own ids: weir ignores all of these
    // answers.
    let others: Vec<_> = calls[0]
        .question_ids
        .iter()
        .cloned()
        .chain([json!(-7), json!("same")])
        .collect();
    for id in &others {
        let taken = calls[1]
            .client
            .raw()
            .respond(
                id,
                json!({ "action": "accept", "content": {}, "roots": [] }),
            )
            .await
            .unwrap();
        assert_eq!(taken.status, 202);
    }
    let made: Vec<_> = upstream.requests_of("tools/call");
    assert_ne!(
        made[0].session(),
        made[1].session(),
        "each legacy client has its own session with the server"
    );
    for call in &made {
        assert_eq!(
            answered_in(&upstream.requests(), call.session()),
            [],
            "nobody answered yet"
        );
    }
    for call in &calls {
        let answers = [
            json!({ "action": "decline" }),
            json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "t" } }),
            json!({ "roots": [] }),
        ];
        for (id, answer) in call.question_ids.iter().zip(answers) {
            let taken = call.client.raw().respond(id, answer).await.unwrap();
            assert_eq!(taken.status, 202);
        }
    }
    let in_session = |upstream: &MockServer, call: &RecordedRequest| {
        answered_in(&upstream.requests(), call.session())
    };
    upstream
        .wait_until("all are answered", |up| {
            made.iter().all(|call| in_session(up, call).len() == 3)
        })
        .await;
    for call in &made {
        let answered = in_session(&upstream, call);
        for id in [call.message["id"].clone(), json!(-7), json!("same")] {
            assert!(
                answered.contains(&(id, true)),
                "under the server's own ids: {answered:?}"
            );
        }
    }
    gate.admit(2);
    for ForgedCall { name, running, .. } in calls {
        let rest = running.read_rest().await;
        let texts: Vec<_> = rest
            .iter()
            .map(|message| &message["result"]["content"][0]["text"])
            .collect();
        assert_eq!(
            texts,
            [&json!(json!({ "of": name }).to_string())],
            "its own answer and nothing else"
        );
    }
}
