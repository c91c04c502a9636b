//! Requests that count as in flight, and streams, which have a limit of their own.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;
use weir_testkit::{ClientAnswer, RawClient, RawSocket};

use crate::test_front::{TestFront, settings};

// Proves F11.
#[tokio::test]
async fn requests_are_in_flight_until_their_answer_begins() {
    let mut settings = settings();
    settings.limits.in_flight = 2;
    settings.limits.in_flight_wait = Duration::from_millis(20);
    let world = TestFront::with_tokens(settings).await;
    let (alice, session) = (world.modern("alice"), world.legacy("alice").await);
    // Many more streams than requests may be in flight.
    let mut open = vec![session.get_stream().await.unwrap()];
    for _ in 0..6 {
        open.push(
            alice
                .listen(json!({"toolsListChanged": true}))
                .await
                .unwrap(),
        );
    }
    assert!(
        open.iter()
            .all(|stream| stream.status == StatusCode::OK && stream.is_stream())
    );
    assert_eq!(
        alice.list_tools().await.unwrap().len(),
        4,
        "and requests are served beside them"
    );
    // Calls with a begun answer are not in flight either: their principal's and upstream's permits
    // bound them.
    let mut calls = Vec::new();
    for number in 0..3 {
        let mut call = alice
            .start_call("wait", json!({}), json!(number))
            .await
            .unwrap();
        assert_eq!(
            call.next_message().await.unwrap().unwrap()["method"],
            "notifications/progress"
        );
        calls.push(call);
    }
    assert_eq!(alice.list_tools().await.unwrap().len(), 4);
    // Two calls without the beginning of an answer are two in flight.
    let silent = silent_calls(&alice, 2);
    let third = refused_list(&alice).await;
    assert_eq!(
        (third.status, third.header("retry-after")),
        (StatusCode::SERVICE_UNAVAILABLE, Some("1"))
    );
    let another = alice
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert_eq!(
        another.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "to open a stream is a request, too"
    );
    // Their ends release both permits, once front sees them.
    drop(silent);
    let mut tries = 0;
    while alice.ask("tools/list", json!({})).await.unwrap().status != StatusCode::OK {
        tries += 1;
        assert!(tries < 10_000, "the places never came back");
    }
    for mut call in calls {
        world.upstream.release();
        let last = call.next_message().await.unwrap().unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "waited", "{last}");
    }
    drop(open);
}

// Proves F11.
#[tokio::test]
async fn request_beyond_the_limit_waits_for_a_permit() {
    let mut settings = settings();
    settings.limits.in_flight = 1;
    settings.limits.in_flight_wait = Duration::from_secs(3600);
    let world = TestFront::with_tokens(settings).await;
    let alice = world.modern("alice");
    let first = silent_calls(&alice, 1);
    while world.upstream.waits() == 0 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn({
        let alice = alice.clone();
        async move { alice.list_tools().await.unwrap().len() }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished(), "there is no place for it");
    drop(first);
    assert_eq!(second.await.unwrap(), 4);
}

// Proves F12.
#[tokio::test]
async fn requests_whose_bodies_do_not_come_hold_no_permits() {
    let mut settings = settings();
    settings.limits.in_flight = 2;
    settings.limits.in_flight_wait = Duration::from_millis(20);
    let world = TestFront::with_tokens(settings).await;
    let mut halves = Vec::new();
    for _ in 0..4 {
        halves.push(request_without_body(&world).await);
    }
    let alice = world.modern("alice");
    assert_eq!(alice.list_tools().await.unwrap().len(), 4);
    // A body that is whole is in flight again.
    let silent = silent_calls(&alice, 2);
    refused_list(&alice).await;
    let mut late = halves.pop().unwrap();
    late.write(b"{\"a\": \"b\"}").await.unwrap();
    late.read_until("HTTP/1.1 503 ").await.unwrap();
    drop(silent);
    while alice.ask("tools/list", json!({})).await.unwrap().status != StatusCode::OK {}
    let mut late = halves.pop().unwrap();
    late.write(b"{\"a\": \"b\"}").await.unwrap();
    late.read_until("HTTP/1.1 400 ").await.unwrap();
}

/// Calls whose answers do not begin, until they are dropped.
fn silent_calls(client: &RawClient, number: usize) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    for _ in 0..number {
        let client = client.clone();
        calls.spawn(async move {
            let call = || client.call("wait", json!({"silent": true}));
            while call()
                .await
                .is_ok_and(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE)
            {}
        });
    }
    calls
}

/// The first refusal once all permits are taken.
async fn refused_list(client: &RawClient) -> ClientAnswer {
    loop {
        let answer = client.ask("tools/list", json!({})).await.unwrap();
        if answer.status != StatusCode::OK {
            return answer;
        }
    }
}

/// A request without its body.
async fn request_without_body(world: &TestFront) -> RawSocket {
    let mut half = RawSocket::connect(&world.url()).await.unwrap();
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\nExpect: 100-continue\r\n\
                Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                Content-Length: 10\r\n\r\n";
    half.write(head.as_bytes()).await.unwrap();
    half.read_until("100 Continue").await.unwrap();
    half
}

/// Posts a message to an HTTP+SSE connection; returns the head of the answer.
async fn post(world: &TestFront, path: &str, message: &serde_json::Value) -> String {
    let mut socket = RawSocket::connect(&world.url()).await.unwrap();
    let body = message.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write(head.as_bytes()).await.unwrap();
    socket.read_until("\r\n\r\n").await.unwrap()
}

// Proves F11.
#[tokio::test]
async fn posts_of_http_sse_are_in_flight_until_their_answer_begins_on_the_stream() {
    let mut settings = settings();
    settings.limits.in_flight = 3;
    settings.limits.in_flight_wait = Duration::from_millis(20);
    let world = TestFront::with_tokens(settings).await;
    let mut line = RawSocket::connect(&world.url()).await.unwrap();
    let open = "GET /mcp/sse HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\nAccept: text/event-stream\r\n\r\n";
    line.write(open.as_bytes()).await.unwrap();
    let first = line.read_until("\n\n\r\n").await.unwrap();
    let path = first
        .split("data: ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let taken = post(&world, &path, &initialize).await;
    assert!(taken.contains(" 202 "), "{path}: {taken}");
    line.read_until("serverInfo").await.unwrap();
    let alice = world.modern("alice");
    for number in 0..3 {
        let call = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call",
            "params": {"name": "wait", "arguments": {"silent": true}}});
        // The previous request may not have ended yet.
        while !post(&world, &path, &call).await.contains(" 202 ") {}
    }
    let refused = alice.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    for _ in 0..3 {
        world.upstream.release();
    }
    line.read_until("waited").await.unwrap();
    let mut tries = 0;
    while alice.ask("tools/list", json!({})).await.unwrap().status != StatusCode::OK {
        tries += 1;
        assert!(tries < 10_000, "the permits never came back");
    }
}
