//! Legacy sessions end when they should, and cannot be guessed (R082 to R085, R087).

use http::Method;
use serde_json::json;
use weir_testkit::ClientAnswer;
use weir_wire::Revision;

use super::{RequestDraft, WeirWithUpstream};
use crate::harness::wait_until;

/// Returns every part of an answer by which a client could tell it apart.
fn shape(answer: &ClientAnswer) -> (u16, Vec<String>, Vec<serde_json::Value>) {
    let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
    names.sort();
    let mut messages = answer.messages.clone();
    for message in &mut messages {
        if let Some(data) = message["error"]
            .get_mut("data")
            .and_then(|data| data.as_object_mut())
        {
            data.remove("requestId");
        }
        message["id"] = json!("the same");
    }
    (answer.status.as_u16(), names, messages)
}

// Proves R084, R087.
#[tokio::test(flavor = "multi_thread")]
async fn delete_ends_a_session_for_good() {
    let mut stage = WeirWithUpstream::new().await;
    for revision in Revision::LEGACY {
        let client = stage.legacy_client(revision).await;
        let other = stage.legacy_client(revision).await;
        let mut listening = client.get_stream().await.unwrap();
        assert_eq!(listening.status, 200);
        let deleted = client.delete().await.unwrap();
        assert!(
            deleted.status.is_success() && deleted.body.is_empty(),
            "{}: {:?}",
            deleted.status,
            deleted.body
        );
        assert_eq!(
            super::weir_with_upstream::within_timeout(
                "the stream to end",
                listening.next_message()
            )
            .await
            .unwrap(),
            None
        );
        for method in ["tools/call", "tools/list", "ping", "no/such"] {
            let answer = client
                .ask(method, json!({ "name": "smuggled", "arguments": {} }))
                .await
                .unwrap();
            assert_eq!(
                answer.status, 404,
                "{revision:?} {method}: {:?}",
                answer.body
            );
        }
        assert_eq!(
            client
                .notify("notifications/initialized", json!({}))
                .await
                .unwrap()
                .status,
            404
        );
        assert_eq!(client.get_stream().await.unwrap().status, 404);
        assert_eq!(client.delete().await.unwrap().status, 404);
        assert_eq!(
            other.ask("ping", json!({})).await.unwrap().status,
            200,
            "another session lives"
        );
        stage.assert_still_serving(revision.as_str()).await;
    }
}

// Proves R085.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ended_and_one_that_never_was_look_the_same() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let ended = client.session().unwrap().to_owned();
    client.delete().await.unwrap();
    // The same alphabet and length, but never issued.
    let never: String = ended
        .bytes()
        .map(|byte| if byte == b'A' { 'B' } else { 'A' })
        .collect();
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let mut seen = Vec::new();
        for session in [ended.as_str(), never.as_str(), "x", "no-such-session"] {
            let mut draft = RequestDraft::of(
                &stage.bare_client().with_header("mcp-session-id", session),
                "tools/list",
                json!({}),
            );
            let body = if method == Method::POST {
                draft.body.to_string()
            } else {
                String::new()
            };
            draft.set_header("accept", "application/json, text/event-stream");
            seen.push(shape(
                &stage.send(method.clone(), draft.headers, body).await,
            ));
        }
        assert_eq!(seen[0].0, 404, "{method}");
        assert!(seen.iter().all(|one| *one == seen[0]), "{method}: {seen:?}");
    }
    stage.assert_still_serving("unknown sessions").await;
}

// Proves R085.
#[tokio::test(flavor = "multi_thread")]
async fn two_session_headers_are_no_session() {
    let mut stage = WeirWithUpstream::new().await;
    let (one, two) = (
        stage.legacy_client(Revision::V2025_11_25).await,
        stage.legacy_client(Revision::V2025_11_25).await,
    );
    for second in [two.session().unwrap(), "no-such-session"] {
        let mut draft = RequestDraft::of(
            &one,
            "tools/call",
            json!({ "name": "smuggled", "arguments": {} }),
        );
        draft.add_header("mcp-session-id", second);
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 400, "{:?}", answer.body);
        assert_eq!(answer.last()["error"]["data"]["reason"], "session_repeated");
        stage.assert_still_serving("two session headers").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_version_headers_of_a_legacy_request_are_refused() {
    let mut stage = WeirWithUpstream::new().await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    for second in ["2025-11-25", "2025-06-18"] {
        let mut draft = RequestDraft::of(&client, "tools/list", json!({}));
        draft.add_header("mcp-protocol-version", second);
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 400, "{:?}", answer.body);
        stage.assert_still_serving("two version headers").await;
    }
}

// Proves R109.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_not_used_expires() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "session_idle": "1s" })).await;
    let client = stage.legacy_client(Revision::V2025_11_25).await;
    let idle = client.session().unwrap().to_owned();
    // A request would keep it alive, so the test waits for the count of sessions.
    wait_until("the session to expire", || {
        let metrics = stage.weir.get_admin_page("/metrics");
        let count = metrics
            .lines()
            .find(|line| line.starts_with("weir_sessions"))?;
        (count.rsplit(' ').next()?.parse::<f64>().ok()? == 0.0).then_some(())
    });
    let answer = stage
        .post(
            &[("mcp-session-id", &idle)],
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        )
        .await;
    assert_eq!(answer.status, 404, "{:?}", answer.body);
    stage.assert_still_serving("an expired session").await;
}

// Proves D07.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_cap_are_refused_and_live_ones_stay() {
    // A network without credentials has at most half of the sessions.
    let mut stage = WeirWithUpstream::with_limits(json!({ "sessions": 10 })).await;
    let mut live = Vec::new();
    for _ in 0..5 {
        live.push(stage.legacy_client(Revision::V2025_11_25).await);
    }
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "six", "version": "1" } });
    for _ in 0..3 {
        let answer = stage
            .bare_client()
            .ask("initialize", params.clone())
            .await
            .unwrap();
        // By status alone: a client would read a JSON-RPC error here as another protocol.
        assert!(
            [429, 503].contains(&answer.status.as_u16()),
            "{}: {:?}",
            answer.status,
            answer.body
        );
        assert!(
            answer.messages.is_empty() && answer.header("retry-after").is_some(),
            "{:?}",
            answer.headers
        );
        assert!(
            String::from_utf8_lossy(&answer.body).contains("too many sessions open"),
            "{:?}",
            answer.body
        );
    }
    for client in &live {
        assert_eq!(client.ask("ping", json!({})).await.unwrap().status, 200);
    }
    live[0].delete().await.unwrap();
    assert_eq!(
        stage
            .bare_client()
            .ask("initialize", params)
            .await
            .unwrap()
            .status,
        200,
        "there is room again"
    );
    stage.assert_still_serving("too many sessions").await;
}
