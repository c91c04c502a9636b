#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;
use tokio::net::TcpListener;
use weir_core::upstream::ListKind;
use weir_demo::RunningServer;
use weir_testkit::{MockBehaviour, MockServer};

use super::*;

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn notes() -> RunningServer {
    weir_demo::start_notes(listener().await).await.unwrap()
}

async fn desk() -> RunningServer {
    weir_demo::start_desk(listener().await).await.unwrap()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

fn raw(arguments: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(arguments).unwrap()
}

#[test]
fn arguments_are_sent_as_they_are_written() {
    let text = r#"{"n": 12345678901234567890.10, "a": {"b": 1e400}}"#;
    let arguments: &RawValue = serde_json::from_str(text).unwrap();
    assert_eq!(
        with_arguments(&json!({ "name": "t\"" }), Some(arguments)),
        format!(r#"{{"name":"t\"","arguments":{text}}}"#)
    );
    assert_eq!(
        with_arguments(&json!({ "uri": "u" }), None),
        r#"{"uri":"u"}"#
    );
}

// Proves R068.
#[tokio::test]
async fn a_modern_server_is_spoken_to_without_a_session() {
    let desk = desk().await;
    let mut client = Client::connect(&desk.url(), None, None).await.unwrap();
    assert_eq!(client.revision(), Revision::MODERN);
    assert_eq!(
        names(&client.list(ListKind::Tools).await.unwrap().items),
        ["calculate", "countdown", "now"]
    );
    let result = client
        .call(
            "calculate",
            &raw(&json!({ "expression": "6 * 7" })),
            &mut |_| {},
        )
        .await
        .unwrap();
    assert_eq!(result["structuredContent"]["value"], 42.0);
    client.close().await;
}

// Proves R068.
#[tokio::test]
async fn client_detects_a_legacy_server_by_its_probe() {
    let notes = notes().await;
    let mut client = Client::connect(&notes.url(), None, None).await.unwrap();
    assert_eq!(client.revision(), Revision::NEWEST_LEGACY);
    assert_eq!(
        names(&client.list(ListKind::Tools).await.unwrap().items),
        ["add_note", "list_notes", "search_notes"]
    );
    let refused = client
        .call("no_such_tool", &raw(&json!({})), &mut |_| {})
        .await;
    assert!(
        matches!(refused, Err(ClientError::Refused { code: -32602, .. })),
        "{refused:?}"
    );
    client.close().await;
}

#[tokio::test]
async fn client_receives_increasing_progress_during_a_call() {
    let desk = desk().await;
    let mut client = Client::connect(&desk.url(), None, None).await.unwrap();
    let mut seen = Vec::new();
    let mut on_note = |note| {
        if let Note::Progress {
            progress, total, ..
        } = note
        {
            seen.push((progress, total));
        }
    };
    client
        .call(
            "countdown",
            &raw(&json!({ "from": 3, "interval_ms": 1 })),
            &mut on_note,
        )
        .await
        .unwrap();
    assert!(!seen.is_empty());
    assert!(
        seen.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "{seen:?}"
    );
    assert_eq!(seen.last().unwrap().1, Some(3.0));
}

#[tokio::test]
async fn part_of_a_list_is_not_taken_for_the_whole() {
    let mock = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .start()
        .await;
    let page = |list: &str, cursor: Value| {
        MockBehaviour::result(json!({ list: [{ "name": "one" }], "nextCursor": cursor }))
    };
    let unknown = || MockBehaviour::error(-32601, "Method not found", json!({}));
    mock.add_rule("tools/list", 1, page("tools", json!(7)));
    mock.add_rule("prompts/list", 1, page("prompts", json!("second")));
    mock.add_rule("prompts/list", 1, unknown());
    mock.add_rule("resources/list", 1, page("resources", Value::Null));
    mock.add_rule("resources/templates/list", 1, unknown());
    let mut client = Client::connect(&mock.url(), None, None).await.unwrap();
    let odd_cursor = client.list(ListKind::Tools).await;
    assert!(matches!(odd_cursor, Err(ClientError::NotMcp { .. })));
    let cut = client.list(ListKind::Prompts).await;
    assert!(matches!(cut, Err(ClientError::Refused { .. })));
    let whole = client.list(ListKind::Resources).await.unwrap();
    assert_eq!(whole.items.len(), 1);
    let none = client.list(ListKind::Templates).await.unwrap();
    assert!(none.items.is_empty());
}

// Proves R201.
#[tokio::test]
async fn changes_are_heard_from_servers_of_both_eras() {
    for running in [desk().await, notes().await] {
        let mut client = Client::connect(&running.url(), None, None).await.unwrap();
        let before = client.list(ListKind::Tools).await.unwrap().items.len();
        let mut stream = Some(client.listen().await.unwrap());
        assert!(running.reveal());
        client.changed(&mut stream).await.unwrap();
        assert_eq!(
            client.list(ListKind::Tools).await.unwrap().items.len(),
            before + 1
        );
    }
}

#[tokio::test]
async fn refused_connection_and_invalid_url_are_clear_client_errors() {
    let free = listener().await.local_addr().unwrap();
    let refused = Client::connect(&format!("http://{free}/mcp"), None, None)
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("cannot reach http://127.0.0.1:"),
        "{refused}"
    );
    assert!(
        refused
            .to_string()
            .contains("connection refused by 127.0.0.1:"),
        "{refused}"
    );
    for bad in ["", "localhost", "ftp://x/", "http://"] {
        assert!(
            matches!(
                Client::connect(bad, None, None).await,
                Err(ClientError::Url(_))
            ),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn credentials_in_a_url_are_refused_or_not_shown() {
    let free = listener().await.local_addr().unwrap();
    for url in [
        format!("http://canary@{free}/mcp"),
        format!("http://user:canary@{free}/mcp?token=canary"),
    ] {
        let error = Client::connect(&url, None, None).await.unwrap_err();
        assert!(matches!(error, ClientError::UserInfo(_)), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
    for url in [
        format!("http://{free}/mcp?token=canary"),
        "ftp://user:canary@h/mcp?token=canary".to_owned(),
    ] {
        let error = Client::connect(&url, None, None).await.unwrap_err();
        assert!(!error.to_string().contains("canary"), "{error}");
        assert!(error.to_string().contains("/mcp"), "{error}");
    }
}

#[test]
fn arguments_are_one_object() {
    assert!(arguments("{\"a\": [1, 2]}").is_ok());
    for bad in ["", "[]", "5", "{\"a\": 1", "{\"a\": 1, \"a\": 2}"] {
        assert!(arguments(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_token_does_not_print() {
    assert_eq!(format!("{:?}", Token::new(" canary \n")), "Some(<secret>)");
    assert!(Token::new("a\nb").is_none());
}
