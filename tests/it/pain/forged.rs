//! Requests of a server's own, with ids that are not its own to use: nobody but the server that asked hears of them.

use serde_json::{Value, json};
use weir_testkit::Behaviour;
use weir_testkit::mockup::{Gate, Recorded, Step};
use weir_wire::Revision;

use super::{BOTH, mockup, weir_over};
use crate::harness::Checked;

/// A request of the server's own as text; `id` is JSON.
fn asks(id: &str, method: &str) -> Step {
    let params = json!({ "message": "your password?", "requestedSchema": { "type": "object", "properties": {} } });
    Step::Send(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
}

/// What weir posted to the server as an answer in one of its sessions: the ids.
fn answered_in(requests: &[Recorded], session: Option<&str>) -> Vec<Value> {
    let answers = requests.iter().filter(|sent| sent.message.get("error").is_some() && sent.session() == session);
    answers.map(|sent| sent.message["id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b22_r193_a_servers_request_with_a_forged_id_is_answered_where_it_was_asked_and_told_to_no_client() {
    let gate = Gate::new();
    // The id of the very call, one that is the same in every session, and one that names another call's.
    let steps = [
        asks(r#""$id""#, "elicitation/create"),
        asks("-7", "sampling/createMessage"),
        asks("\"same\"", "roots/list"),
        Step::Progress(1, 2),
        Step::Gate(gate.clone()),
        Step::Echo,
    ];
    let upstream = mockup(Revision::V2025_11_25).tool("forger", Behaviour::steps(steps).as_events()).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let before = upstream.requests().len();
        let all = json!({ "sampling": {}, "elicitation": { "form": {} }, "roots": {} });
        let mut calls = Vec::new();
        for name in ["a", "b"] {
            let client = Checked::with_capabilities(&weir.url("/mcp"), revision, all.clone()).await;
            let mut call = client.start_call("one__forger", json!({ "of": name }), Some(&json!("same"))).await;
            let first = call.next().await.unwrap();
            assert_eq!(first["method"], "notifications/progress", "the first thing a client hears: {first}");
            calls.push((name, client, call));
        }
        upstream
            .until("all questions were answered", |upstream| {
                upstream.requests()[before..].iter().filter(|sent| sent.message.get("error").is_some()).count() == 6
            })
            .await;
        let heard = upstream.requests()[before..].to_vec();
        let made: Vec<_> = heard.iter().filter(|sent| sent.tool() == Some("forger")).collect();
        assert_eq!(made.len(), 2);
        for call in &made {
            let answered = answered_in(&heard, call.session());
            let of_this_call = answered.iter().filter(|id| **id == call.message["id"]).count();
            let shared = made[0].session() == made[1].session();
            assert_eq!((of_this_call, answered.len()), (1, if shared { 6 } else { 3 }), "{revision:?}: {answered:?}");
        }
        if !revision.is_modern() {
            assert_ne!(made[0].session(), made[1].session(), "each legacy client has its own session with the server");
            // A client that answers what it was never asked is taken at no word.
            for id in [made[0].message["id"].clone(), json!(-7), json!("same")] {
                let forged = json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept", "content": {} } });
                let (headers, _) = calls[1].1.raw().envelope("ping", Value::Null);
                let sent = calls[1].1.raw().send(http::Method::POST, headers, forged.to_string()).await.unwrap();
                assert_eq!(sent.finish().await.unwrap().status, 202);
            }
        }
        gate.admit(2);
        for (name, _, call) in calls {
            let rest = call.rest().await;
            let texts: Vec<_> = rest.iter().map(|message| &message["result"]["content"][0]["text"]).collect();
            assert_eq!(texts, [&json!(json!({ "of": name }).to_string())], "its own answer and nothing else");
        }
        let results = upstream.requests()[before..].iter().filter(|sent| sent.message.get("result").is_some()).count();
        assert_eq!(results, 0, "nothing a client made up reached the server");
    }
}
