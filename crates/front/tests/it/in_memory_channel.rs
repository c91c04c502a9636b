//! Requests from inside the process.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::json;
use weir_front::{InMemoryBody, InMemoryChannel};

use crate::drain::LONG_DRAIN;
use crate::test_front::{TestFront, settings};

/// A modern call of a tool.
fn call(tool: &str, token: &str) -> Request<Bytes> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "t",
    });
    let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    Request::post("/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"))
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Bytes::from(message.to_string()))
        .unwrap()
}

/// Begins a call that waits, and reads its first message.
async fn begin_waiting_call(channel: &InMemoryChannel) -> InMemoryBody {
    let response = channel.send(call("wait", "alice")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    body
}

#[tokio::test]
async fn the_rules_of_the_listener_hold_and_dropping_a_response_cancels_its_call() {
    let mut world = TestFront::with_tokens(settings()).await;
    let channel = world.front.channel();
    let mut bare = call("wait", "alice");
    bare.headers_mut().remove("authorization");
    let refused = channel.send(bare).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let body = begin_waiting_call(&channel).await;
    drop(body);
    world.cancelled.recv().await.unwrap();
}

#[tokio::test]
async fn a_drain_waits_for_responses_and_ends_the_late_ones() {
    let world = TestFront::with_tokens(settings()).await;
    let channel = world.front.channel();
    let mut body = begin_waiting_call(&channel).await;
    let front = world.front.clone();
    let drained =
        tokio::spawn(async move { front.drain(LONG_DRAIN, std::future::ready(())).await });
    world.upstream.release();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        rest.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    assert!(String::from_utf8(rest).unwrap().contains("waited"));
    drop(body);
    drained.await.unwrap();
    assert!(
        channel.send(call("wait", "alice")).await.is_err(),
        "it has stopped"
    );

    let world = TestFront::with_tokens(settings()).await;
    let mut body = begin_waiting_call(&world.front.channel()).await;
    let front = world.front.clone();
    let drained = tokio::spawn(async move {
        front
            .drain(std::time::Duration::ZERO, std::future::ready(()))
            .await
    });
    let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let last = String::from_utf8(last.to_vec()).unwrap();
    assert!(last.contains("the call may have run"), "{last}");
    assert!(body.frame().await.is_none());
    drop(body);
    drained.await.unwrap();
}
