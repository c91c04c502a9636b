//! The legacy server, seen by a client that speaks raw HTTP.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};
use tokio::net::TcpListener;
use weir_demo::RunningServer;
use weir_testkit::RawClient;
use weir_wire::Revision;

async fn start() -> RunningServer {
    weir_demo::start_notes(TcpListener::bind("127.0.0.1:0").await.unwrap())
        .await
        .unwrap()
}

async fn client(server: &RunningServer, revision: Revision) -> RawClient {
    RawClient::new(&server.url())
        .legacy(revision)
        .initialize()
        .await
        .unwrap()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

// Proves R059, R060, R061.
#[tokio::test]
async fn versions_are_echoed_or_counter_offered() {
    let server = start().await;
    for (asked, offered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0.0", "2025-11-25"),
    ] {
        let client = RawClient::new(&server.url()).legacy(Revision::NEWEST_LEGACY);
        let answer = client
            .ask(
                "initialize",
                json!({"protocolVersion": asked, "capabilities": {}}),
            )
            .await
            .unwrap();
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.result()["protocolVersion"].as_str().unwrap()
            ),
            (200, offered)
        );
        assert!(answer.header("mcp-session-id").is_some());
    }
}

#[tokio::test]
async fn notes_are_added_listed_and_found_in_every_revision() {
    for revision in Revision::LEGACY {
        let server = start().await;
        let client = client(&server, revision).await;
        assert_eq!(
            names(&client.list_tools().await.unwrap()),
            ["add_note", "list_notes", "search_notes"]
        );
        let added = client
            .call("add_note", json!({"text": "Buy Milk", "tags": ["shop"]}))
            .await
            .unwrap();
        assert_eq!(
            (added.text(), added.header("content-type")),
            ("Note 1 added.", Some("application/json"))
        );
        client
            .call("add_note", json!({"text": "Call Ann"}))
            .await
            .unwrap();
        let listed = client.call("list_notes", json!({})).await.unwrap();
        assert_eq!(listed.text(), "2. Call Ann\n1. Buy Milk");
        let found = client
            .call("search_notes", json!({"query": "milk"}))
            .await
            .unwrap();
        let note = json!({"notes": [{"id": 1, "text": "Buy Milk", "tags": ["shop"]}], "total": 1});
        let structured = revision.has_structured_content().then_some(&note);
        assert_eq!(
            found.result().get("structuredContent"),
            structured,
            "{revision:?}"
        );
    }
}

#[tokio::test]
async fn fields_that_a_revision_does_not_know_are_left_out_of_its_list() {
    let server = start().await;
    let oldest = client(&server, Revision::V2024_11_05)
        .await
        .list_tools()
        .await
        .unwrap();
    let newest = client(&server, Revision::V2025_11_25)
        .await
        .list_tools()
        .await
        .unwrap();
    for field in ["outputSchema", "annotations", "title"] {
        assert!(
            oldest.iter().all(|tool| tool.get(field).is_none()),
            "{field}"
        );
        assert!(
            newest.iter().all(|tool| tool.get(field).is_some()),
            "{field}"
        );
    }
}

#[tokio::test]
async fn progress_and_logs_come_before_the_answer_on_a_stream() {
    let server = start().await;
    let client = client(&server, Revision::V2025_06_18).await;
    assert_eq!(
        client
            .ask("logging/setLevel", json!({"level": "info"}))
            .await
            .unwrap()
            .result(),
        &json!({})
    );
    for number in 0..12 {
        let answer = client
            .call("add_note", json!({"text": format!("note {number}")}))
            .await
            .unwrap();
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!(answer.notes("notifications/message").count(), 1);
    }
    let search = client
        .start_call("search_notes", json!({"query": "note 11"}), json!("t-1"))
        .await
        .unwrap();
    let answer = search.finish().await.unwrap();
    let progress: Vec<_> = answer
        .notes("notifications/progress")
        .map(|note| note["params"].clone())
        .collect();
    let expected =
        [10, 12].map(|done| json!({"progressToken": "t-1", "progress": done, "total": 12}));
    assert_eq!(progress, expected);
    assert_eq!(answer.result()["structuredContent"]["total"], 1);
    client
        .ask("logging/setLevel", json!({"level": "error"}))
        .await
        .unwrap();
    let quiet = client
        .call("add_note", json!({"text": "quiet"}))
        .await
        .unwrap();
    assert_eq!(quiet.messages.len(), 1);
    let wrong = client
        .ask("logging/setLevel", json!({"level": "loud"}))
        .await
        .unwrap();
    assert_eq!((wrong.status.as_u16(), wrong.code()), (200, -32602));
}

// Proves R083, R084, R087.
#[tokio::test]
async fn sessions_begin_and_end() {
    let server = start().await;
    let bare = RawClient::new(&server.url())
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!((bare.status.as_u16(), bare.code()), (400, -32600));
    let client = client(&server, Revision::V2025_06_18).await;
    assert_eq!(
        client.ask("ping", json!({})).await.unwrap().result(),
        &json!({})
    );
    assert_eq!(client.delete().await.unwrap().status, 204);
    for answer in [
        client.ask("ping", json!({})).await.unwrap(),
        client.delete().await.unwrap(),
    ] {
        assert_eq!((answer.status.as_u16(), answer.code()), (404, -32600));
    }
    assert_eq!(client.get_stream().await.unwrap().status, 404);
}

// Proves R065.
#[tokio::test]
async fn a_version_header_that_is_not_served_is_400() {
    let server = start().await;
    for version in ["1999-01-01", "2026-07-28"] {
        let client = client(&server, Revision::V2025_11_25)
            .await
            .with_header("mcp-protocol-version", version);
        let answer = client.ask("ping", json!({})).await.unwrap();
        assert_eq!(answer.status, 400, "{version}");
    }
}

#[tokio::test]
async fn get_stream_notifies_revealed_tool_and_ends_with_session() {
    let server = start().await;
    let client = client(&server, Revision::V2025_03_26).await;
    let mut older = client.get_stream().await.unwrap();
    let mut stream = client.get_stream().await.unwrap();
    assert_eq!((stream.status.as_u16(), stream.is_stream()), (200, true));
    assert_eq!(
        older.next_message().await.unwrap(),
        None,
        "r090: one stream a session"
    );
    assert!(!server.hide() && server.reveal() && !server.reveal());
    let told = stream.next_message().await.unwrap().unwrap();
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    );
    assert!(names(&client.list_tools().await.unwrap()).contains(&"clear_notes"));
    client
        .call("add_note", json!({"text": "gone"}))
        .await
        .unwrap();
    assert_eq!(
        client.call("clear_notes", json!({})).await.unwrap().text(),
        "1 notes cleared."
    );
    client.delete().await.unwrap();
    assert_eq!(stream.next_message().await.unwrap(), None);
}

// Proves R099, R100, R101.
#[tokio::test]
async fn batches_are_answered_in_2025_03_26_alone() {
    let server = start().await;
    let client = client(&server, Revision::V2025_03_26).await;
    let session = client.session().unwrap().to_owned();
    let post = async |session: &str, batch: Value| {
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-session-id", session),
        ];
        client
            .post_raw(&headers, batch.to_string())
            .await
            .unwrap()
            .finish()
            .await
            .unwrap()
    };
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let initialize = json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {}});
    let answer = post(
        &session,
        json!([ping(json!(1)), notification, ping(json!("b")), initialize]),
    )
    .await;
    let ids: Vec<_> = answer
        .messages
        .iter()
        .map(|message| message["id"].clone())
        .collect();
    assert_eq!(ids, [json!(1), json!("b"), json!("i")]);
    assert_eq!(answer.code(), -32600);
    let quiet = post(&session, json!([notification])).await;
    assert_eq!((quiet.status.as_u16(), quiet.body.len()), (202, 0));
    assert_eq!(post(&session, json!([])).await.status, 400);
    let other = RawClient::new(&server.url())
        .legacy(Revision::V2025_06_18)
        .initialize()
        .await
        .unwrap();
    let refused = post(other.session().unwrap(), json!([ping(json!(1))])).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (400, -32600));
}

// Proves R123.
#[tokio::test]
async fn unknown_tools_and_bad_arguments_are_refused_as_the_revision_says() {
    let server = start().await;
    for revision in Revision::LEGACY {
        let client = client(&server, revision).await;
        let unknown = client.call("clear_notes", json!({})).await.unwrap();
        assert_eq!((unknown.status.as_u16(), unknown.code()), (200, -32602));
        let bad = client.call("add_note", json!({"text": 7})).await.unwrap();
        if revision.has_tool_error_for_bad_arguments() {
            assert_eq!(bad.result()["isError"], true);
        } else {
            assert_eq!(bad.code(), -32602);
        }
        let failed = client.call("add_note", json!({"text": " "})).await.unwrap();
        assert_eq!(
            (&failed.result()["isError"], failed.text()),
            (&json!(true), "`text` must not be empty.")
        );
        assert_eq!(
            client.ask("prompts/list", json!({})).await.unwrap().code(),
            -32601
        );
    }
}

// Proves R068.
#[tokio::test]
async fn a_modern_probe_meets_an_old_server() {
    let server = start().await;
    let answer = RawClient::new(&server.url())
        .modern()
        .ask("server/discover", Value::Null)
        .await
        .unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (400, -32600));
}

#[tokio::test]
async fn shutdown_ends_open_streams_and_refuses_new_connections() {
    let server = start().await;
    let client = client(&server, Revision::V2025_06_18).await;
    let mut stream = client.get_stream().await.unwrap();
    server.shutdown().await;
    assert_eq!(stream.next_message().await.unwrap(), None);
    assert!(client.ask("ping", json!({})).await.is_err());
}
