//! Clients with names: a session, a state and a limit belong to one of them.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use weir_testkit::{ClientAnswer, RawClient};

use crate::test_front::{TestFront, settings};
use crate::test_ports::RefusedSenders;

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Sends a list request, or one of another method, with these headers besides the usual ones.
async fn send(
    world: &TestFront,
    method: &Method,
    headers: &[(&'static str, &str)],
) -> ClientAnswer {
    let usual = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let mut map = HeaderMap::new();
    for (name, value) in usual.iter().chain(headers) {
        map.append(*name, value.parse().unwrap());
    }
    // A GET has no body.
    let body = if *method == Method::GET { "" } else { LIST };
    world
        .client()
        .send(method.clone(), map, body)
        .await
        .unwrap()
        .finish()
        .await
        .unwrap()
}

const METHODS: [Method; 3] = [Method::POST, Method::GET, Method::DELETE];

// Proves R086, D03.
#[tokio::test]
async fn a_session_is_no_authentication_and_outlives_its_refusal() {
    let world = TestFront::with_tokens(settings()).await;
    let alice = world.legacy("alice").await;
    for method in METHODS {
        let answer = send(
            &world,
            &method,
            &[("mcp-session-id", alice.session().unwrap())],
        )
        .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method}");
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"weir\""),
            "{method}"
        );
    }
    assert_eq!(alice.list_tools().await.unwrap().len(), 4);
}

// Proves R085, D02.
#[tokio::test]
async fn foreign_session_answers_like_an_unknown_one() {
    let world = TestFront::with_tokens(settings()).await;
    let alice = world.legacy("alice").await;
    let mut stream = alice.get_stream().await.unwrap();
    assert_eq!(stream.next_event().await.unwrap().unwrap().comments, [""]);
    let own = alice.session().unwrap().to_owned();
    let never = "A".repeat(own.len());
    let mut seen = Vec::new();
    for session in [&own, &never] {
        for method in METHODS {
            let answer = send(
                &world,
                &method,
                &[
                    ("authorization", "Bearer mallory"),
                    ("mcp-session-id", session),
                ],
            )
            .await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method}");
            let body = String::from_utf8_lossy(&answer.body)
                .replace(answer.header("x-request-id").unwrap(), "");
            seen.push((method, body));
        }
    }
    assert_eq!(seen[..3], seen[3..]);
    // Neither the session nor its stream was affected.
    assert_eq!(alice.list_tools().await.unwrap().len(), 4);
    alice.delete().await.unwrap();
    while stream.next_event().await.unwrap().is_some() {}
}

// Proves D05.
#[tokio::test]
async fn a_missing_session_is_never_guessed_though_only_one_is_alive() {
    let world = TestFront::with_tokens(settings()).await;
    let alice = world.legacy("alice").await;
    let answer = send(&world, &Method::POST, &[("authorization", "Bearer alice")]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(alice.list_tools().await.unwrap().len(), 4);
}

// Proves C01.
#[tokio::test]
async fn two_tokens_are_a_bad_request() {
    let world = TestFront::with_tokens(settings()).await;
    let tokens = [
        ("authorization", "Bearer alice"),
        ("authorization", "Bearer bob"),
    ];
    let answer = send(&world, &Method::POST, &tokens).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

// Proves R244.
#[tokio::test]
async fn token_in_the_query_is_refused_and_audited() {
    let audit = Arc::new(RefusedSenders::default());
    let world = TestFront::with_audit(settings(), audit.clone()).await;
    let status = async |query: &str| {
        let client = RawClient::new(&format!("{}?{query}", world.url())).modern();
        let answer = client.ask("tools/list", json!({})).await.unwrap();
        answer.status
    };
    for query in ["my_access_token=1", "a=access_token=1"] {
        assert_eq!(status(query).await, StatusCode::OK, "{query}");
    }
    assert!(audit.reasons().is_empty(), "{:?}", audit.reasons());
    for query in ["access_token=x", "a=1&access%5Ftoken=x"] {
        assert_eq!(status(query).await, StatusCode::BAD_REQUEST, "{query}");
    }
    assert_eq!(audit.reasons(), ["malformed"; 2]);
}

// Proves D07.
#[tokio::test]
async fn stream_limit_binds_one_principal_alone() {
    let mut settings = settings();
    settings.limits.streams_per_principal = 2;
    let world = TestFront::with_tokens(settings).await;
    let filter = || json!({"toolsListChanged": true});
    let alice = world.modern("alice");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = alice.listen(filter()).await.unwrap();
        assert_eq!(stream.status, StatusCode::OK);
        let first = stream.next_message().await.unwrap().unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        open.push(stream);
    }
    let third = alice.listen(filter()).await.unwrap();
    assert_eq!(
        (third.status, &third.headers["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"1".parse().unwrap())
    );
    assert_eq!(
        world.modern("bob").listen(filter()).await.unwrap().status,
        StatusCode::OK
    );
    // A closed stream releases its permit, once front sees the close.
    open.pop();
    let mut tries = 0;
    while alice.listen(filter()).await.unwrap().status != StatusCode::OK {
        tries += 1;
        assert!(tries < 10_000, "the place never came back");
    }
}

#[tokio::test]
async fn anonymous_principal_has_no_stream_limit_of_its_own() {
    let mut settings = settings();
    settings.limits.streams_per_principal = 1;
    settings.limits.streams = 3;
    let world = TestFront::anonymous(settings).await;
    let client = world.client().modern();
    let mut open = Vec::new();
    for _ in 0..3 {
        let stream = client.listen(json!({})).await.unwrap();
        assert_eq!(stream.status, StatusCode::OK);
        open.push(stream);
    }
    let refused = client.listen(json!({})).await.unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let body = refused.finish().await.unwrap().body;
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("streams"), "{text}");
}
