//! All messages of both servers, checked against the official schemas if the environment has them
//! (`MCP_SCHEMAS`).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir_testkit::{MessageRecorder, ModernEnvelope, ProtocolSchemas, RawClient};
use weir_wire::Revision;

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Fails if a message breaks its schema, or if fewer messages came than the test meant to check.
fn check(recorder: &MessageRecorder, at_least: usize) {
    assert!(
        recorder.messages().len() >= at_least,
        "only {} messages",
        recorder.messages().len()
    );
    if let Some(schemas) = ProtocolSchemas::from_environment() {
        assert_eq!(recorder.violations(&schemas), Vec::<String>::new());
    }
}

#[tokio::test]
async fn notes_obeys_the_schema_of_each_revision() {
    for revision in Revision::LEGACY {
        let server = weir_demo::start_notes(listener().await).await.unwrap();
        let recorder = MessageRecorder::new();
        let client = RawClient::new(&server.url())
            .with_recorder(&recorder)
            .legacy(revision)
            .initialize()
            .await
            .unwrap();
        client
            .ask("logging/setLevel", json!({"level": "debug"}))
            .await
            .unwrap();
        client
            .call("add_note", json!({"text": "one", "tags": ["a"]}))
            .await
            .unwrap();
        client.call("add_note", json!({"text": ""})).await.unwrap();
        client.call("list_notes", json!({})).await.unwrap();
        let search = client
            .start_call("search_notes", json!({"query": "o"}), json!(7))
            .await
            .unwrap();
        search.finish().await.unwrap();
        client.call("nobody", json!({})).await.unwrap();
        client.ask("ping", json!({})).await.unwrap();
        let mut stream = client.get_stream().await.unwrap();
        server.reveal();
        stream.next_message().await.unwrap().unwrap();
        client.list_tools().await.unwrap();
        check(&recorder, 12);
    }
}

#[tokio::test]
async fn desk_obeys_the_schema_of_its_revision() {
    let server = weir_demo::start_desk(listener().await).await.unwrap();
    let recorder = MessageRecorder::new();
    let modern = ModernEnvelope {
        log_level: Some("debug".to_owned()),
        ..ModernEnvelope::default()
    };
    let client = RawClient::new(&server.url())
        .with_recorder(&recorder)
        .modern_with(modern);
    let mut stream = client
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    stream.next_message().await.unwrap().unwrap();
    server.reveal();
    stream.next_message().await.unwrap().unwrap();
    client.ask("server/discover", Value::Null).await.unwrap();
    client.list_tools().await.unwrap();
    for (tool, arguments) in [
        ("now", json!({})),
        ("calculate", json!({"expression": "1+1"})),
        ("calculate", json!({"expression": "1+"})),
        ("coin_flip", json!({})),
        ("nobody", json!({})),
    ] {
        client.call(tool, arguments).await.unwrap();
    }
    let countdown = client
        .start_call(
            "countdown",
            json!({"from": 2, "interval_ms": 1}),
            json!("t"),
        )
        .await
        .unwrap();
    countdown.finish().await.unwrap();
    client.ask("ping", json!({})).await.unwrap();
    let future = ModernEnvelope {
        version: "2099-01-01".to_owned(),
        ..ModernEnvelope::default()
    };
    client
        .clone()
        .modern_with(future)
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    server.shutdown().await;
    stream.next_message().await.unwrap().unwrap();
    check(&recorder, 15);
}
