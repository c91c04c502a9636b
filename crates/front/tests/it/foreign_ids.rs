//! Ids of every kind, used by another principal: each behaves like an id that was never issued.

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use weir_testkit::{ClientAnswer, RawClient};

use crate::test_front::{TestFront, settings};

/// The same text with one letter changed: an unknown id.
fn unknown_id(id: &str) -> String {
    let at = id.len() / 2;
    let other = if &id[at..=at] == "A" { "B" } else { "A" };
    format!("{}{other}{}", &id[..at], &id[at + 1..])
}

/// The status and body of an answer, without the name of its request.
fn comparable(answer: &ClientAnswer) -> (u16, String) {
    let body = String::from_utf8(answer.body.to_vec()).unwrap();
    (
        answer.status.as_u16(),
        body.replace(answer.header("x-request-id").unwrap(), "REQUEST"),
    )
}

/// Sends the same request with two ids.
async fn ask_with_both_ids(
    client: &RawClient,
    method: &str,
    params: impl Fn(&str) -> Value,
    id: &str,
) -> [ClientAnswer; 2] {
    let mut answers = Vec::new();
    for id in [id.to_owned(), unknown_id(id)] {
        let (headers, mut message) = client.envelope(method, params(&id));
        message["id"] = json!("same");
        let sent = client.send(Method::POST, headers, message.to_string());
        answers.push(sent.await.unwrap().finish().await.unwrap());
    }
    answers.try_into().unwrap()
}

// Proves B20, R276.
#[tokio::test]
async fn cursors_states_and_tasks_of_others_are_unknown() {
    let world = TestFront::with_page_size(settings(), 3).await;
    let (alice, mallory) = (world.modern("alice"), world.modern("mallory"));
    let first = alice.ask("tools/list", json!({})).await.unwrap();
    let cursor = first.result()["nextCursor"].as_str().unwrap().to_owned();
    let asked = alice.call("ask", json!({})).await.unwrap();
    let state = asked.result()["requestState"].as_str().unwrap().to_owned();
    let page = |id: &str| json!({ "cursor": id });
    let resume = |id: &str| json!({ "name": "ask", "arguments": {}, "requestState": id });
    let task = |id: &str| json!({ "taskId": id });
    for (method, params, id) in [
        ("tools/list", &page as &dyn Fn(&str) -> Value, &cursor),
        ("tools/call", &resume, &state),
        ("tasks/get", &task, &state),
        ("tasks/update", &task, &state),
        ("tasks/cancel", &task, &state),
    ] {
        let [foreign, unknown] = ask_with_both_ids(&mallory, method, params, id).await;
        assert_eq!(comparable(&foreign), comparable(&unknown), "{method}");
        assert!(
            foreign.last()["error"]["code"].is_i64(),
            "{method}: {}",
            foreign.last()
        );
    }
    // They still belong to alice.
    let rest = alice.ask("tools/list", page(&cursor)).await.unwrap();
    assert_eq!(rest.result()["tools"].as_array().unwrap().len(), 1);
    let resumed = alice.ask("tools/call", resume(&state)).await.unwrap();
    assert_eq!(resumed.text(), "resumed the \"upstream's\" own");
}

// Proves B20, R276.
#[tokio::test]
async fn sessions_and_the_calls_in_them_are_unknown_to_others() {
    let mut world = TestFront::with_page_size(settings(), 3).await;
    let alice = world.legacy("alice").await;
    let session = alice.session().unwrap().to_owned();
    let (headers, mut message) = alice.envelope(
        "tools/call",
        json!({"name": "wait", "_meta": {"progressToken": "t"}}),
    );
    message["id"] = json!("mine");
    let mut call = alice
        .send(Method::POST, headers, message.to_string())
        .await
        .unwrap();
    assert_eq!(
        call.next_message().await.unwrap().unwrap()["method"],
        "notifications/progress"
    );
    let requests = [
        json!({ "id": 1, "method": "ping" }),
        json!({ "id": 1, "method": "tools/list" }),
        json!({ "id": 1, "method": "tools/call", "params": { "name": "echo" } }),
        json!({ "id": 1, "method": "logging/setLevel", "params": { "level": "debug" } }),
        json!({ "id": 1, "method": "tasks/result", "params": { "taskId": "mine" } }),
        json!({ "method": "notifications/cancelled", "params": { "requestId": "mine" } }),
        json!({ "id": "mine", "result": {} }),
    ];
    for mut request in requests {
        request["jsonrpc"] = json!("2.0");
        let mut seen = Vec::new();
        for id in [session.clone(), unknown_id(&session)] {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("authorization", "Bearer mallory"),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", &id),
            ] {
                headers.insert(name, value.parse().unwrap());
            }
            let sent = world
                .client()
                .send(Method::POST, headers, request.to_string())
                .await
                .unwrap();
            seen.push(comparable(&sent.finish().await.unwrap()));
        }
        assert_eq!((seen[0].0, &seen[0]), (404, &seen[1]), "{request}");
    }
    // Another session of alice's own does not reach the first one either.
    let second = world.legacy("alice").await;
    let cancel = second
        .notify("notifications/cancelled", json!({ "requestId": "mine" }))
        .await
        .unwrap();
    assert_eq!(cancel.status, 202);
    assert!(world.cancelled.try_recv().is_err(), "the call runs on");
    world.upstream.release();
    assert_eq!(
        call.next_message().await.unwrap().unwrap()["result"]["content"][0]["text"],
        "waited"
    );
}
