//! Unusual frames of a host, and the obstacles that a request can meet.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::{Revision, meta};

use super::stdio_host::{StdioConfigFile, StdioHost, command};
use crate::auth::opaque_credentials::api_key;
use crate::harness::within_test_timeout;

const NEWEST: Revision = Revision::NEWEST_LEGACY;

async fn shop() -> (MockServer, StdioConfigFile) {
    let server = MockServer::legacy(NEWEST)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({ "upstreams": { "shop": { "url": server.url() } } });
    let file = StdioConfigFile::new(&config);
    (server, file)
}

/// Runs `weir stdio` without input; returns its exit code, and standard error.
async fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = command(arguments).stdin(Stdio::null()).spawn().unwrap();
    let (mut out, mut log) = (String::new(), String::new());
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut out)
        .await
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .await
        .unwrap();
    assert_eq!(out, "", "standard output has messages alone");
    (
        within_test_timeout("the end", child.wait())
            .await
            .unwrap()
            .code(),
        log,
    )
}

#[tokio::test]
async fn invalid_stdio_line_gets_an_error_and_reading_continues() {
    let (_server, file) = shop().await;
    for revision in [NEWEST, Revision::MODERN] {
        let mut host = StdioHost::open(revision, &[file.path()]).await;
        host.line("garbage").await;
        assert_eq!(host.next().await.unwrap()["error"]["code"], -32700);
        host.line(r#"{"jsonrpc":"2.0"}"#).await;
        assert_eq!(host.next().await.unwrap()["error"]["code"], -32600);
        host.line(r#"{"jsonrpc":"2.0","id":8,"method":"ping""#)
            .await;
        let cut_off = host.next().await.unwrap();
        assert_eq!(
            (&cut_off["error"]["code"], &cut_off["id"]),
            (&json!(-32700), &json!(8))
        );
        host.line("").await;
        // Beyond `limits.body_bytes`.
        host.line(&format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"ping","params":{{"x":"{}"}}}}"#,
            "a".repeat(3 << 20)
        ))
        .await;
        let long = host.next().await.unwrap();
        assert_eq!(long["id"], 9, "the host waits for its answer");
        assert_eq!(long["error"]["code"], -32600);
        assert!(
            long["error"]["message"]
                .as_str()
                .unwrap()
                .contains("longer than 1048576 bytes"),
            "{long}"
        );
        // Responses without a request, and unknown notifications.
        host.say(&json!({ "jsonrpc": "2.0", "id": 77, "result": {} }))
            .await;
        host.say(&json!({ "jsonrpc": "2.0", "method": "notifications/nothing" }))
            .await;
        assert_eq!(
            host.call("shop__echo", json!({ "n": 1 })).await,
            r#"{"n":1}"#
        );
        host.end_well().await;
    }
}

#[tokio::test]
async fn batches_belong_to_one_revision() {
    let (_server, file) = shop().await;
    let batch = json!([
        { "jsonrpc": "2.0", "id": "a", "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "none" } },
        { "jsonrpc": "2.0", "id": "b", "method": "tools/call", "params": { "name": "shop__echo", "arguments": { "n": 2 } } },
    ]);
    let mut host = StdioHost::open(Revision::V2025_03_26, &[file.path()]).await;
    host.say(&batch).await;
    let answers = host.next().await.unwrap();
    let ids: Vec<&Value> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| &answer["id"])
        .collect();
    assert_eq!(ids, ["a", "b"], "{answers}");
    host.end_well().await;
    let mut host = StdioHost::open(NEWEST, &[file.path()]).await;
    host.say(&batch).await;
    let answer = host.next().await.unwrap();
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("2025-03-26"),
        "{answer}"
    );
    host.end_well().await;
}

#[tokio::test]
async fn stdio_requests_before_initialize_and_second_sessions_behave_as_over_http() {
    let (server, file) = shop().await;
    let mut host = StdioHost::start(NEWEST, &[file.path()]);
    assert_eq!(host.ask("ping", json!({})).await["result"], json!({}));
    let early = host.ask("tools/list", json!({})).await;
    assert!(
        early["error"]["message"]
            .as_str()
            .unwrap()
            .contains("initialize"),
        "{early}"
    );
    let unsupported =
        json!({ "_meta": { meta::PROTOCOL_VERSION: "2030-01-01", meta::CLIENT_CAPABILITIES: {} } });
    let answer = host.ask("server/discover", unsupported).await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    for _ in 0..2 {
        assert_eq!(
            host.initialize().await["result"]["protocolVersion"],
            NEWEST.as_str()
        );
        assert_eq!(
            host.call("shop__echo", json!({ "n": 1 })).await,
            r#"{"n":1}"#
        );
    }
    host.end_well().await;
    assert_eq!(server.executions("echo"), 2);
}

#[tokio::test]
async fn both_eras_are_served_at_the_same_time() {
    let (_server, file) = shop().await;
    let mut host = StdioHost::open(NEWEST, &[file.path()]).await.of_both_eras();
    let modern = json!({
        "name": "shop__echo", "arguments": { "era": "modern" },
        "_meta": { meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: {} },
    });
    host.say(
        &json!({ "jsonrpc": "2.0", "id": "modern", "method": "tools/call", "params": modern }),
    )
    .await;
    assert_eq!(
        host.call("shop__echo", json!({ "era": "legacy" })).await,
        r#"{"era":"legacy"}"#
    );
    let modern = match host.beside.iter().find(|message| message["id"] == "modern") {
        Some(message) => message.clone(),
        None => host.next().await.unwrap(),
    };
    assert_eq!(modern["result"]["resultType"], "complete", "{modern}");
    host.end_well().await;
}

#[tokio::test]
async fn an_id_is_taken_until_its_answer() {
    let server = MockServer::modern()
        .tool("hang", MockBehaviour::hang())
        .start()
        .await;
    let mut host = StdioHost::open(Revision::MODERN, &[&server.url()]).await;
    let id = host
        .begin("tools/call", json!({ "name": "hang", "arguments": {} }))
        .await;
    let meta = json!({ meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: {} });
    host.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "server/discover", "params": { "_meta": meta } })).await;
    let answer = host.answer(&id).await;
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("an id of its own"),
        "{answer}"
    );
    host.cancel(&id).await;
    host.end_well().await;
}

#[tokio::test]
async fn arguments_that_a_tool_wants_as_headers_are_the_servers_matter_alone() {
    let definition = r#"{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let server = MockServer::modern().tool_json(definition).start().await;
    let mut host = StdioHost::open(Revision::MODERN, &[&server.url()]).await;
    assert_eq!(
        host.call("echo", json!({ "region": "eu" })).await,
        r#"{"region":"eu"}"#
    );
    let call = server.requests_of("tools/call").pop().unwrap();
    assert_eq!(call.headers["mcp-param-region"], "eu");
    host.end_well().await;
}

#[tokio::test]
async fn stdio_opens_no_listening_socket() {
    let (_server, file) = shop().await;
    let mut host = StdioHost::open(NEWEST, &[file.path()]).await;
    assert!(!host.names().await.is_empty());
    let listening = std::fs::read_to_string(format!("/proc/{}/net/tcp", host.id())).unwrap();
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{}/fd", host.id()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    // Columns: the state (0A is LISTEN), and the inode.
    let open = listening
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = open
        .filter(|columns| columns[3] == "0A" && sockets.iter().any(|inode| inode == columns[9]));
    assert_eq!(own.count(), 0, "{listening}");
    host.end_well().await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_an_error_that_says_so_until_it_can() {
    let server = MockServer::legacy(NEWEST)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    for (kind, behaviour, words) in [
        (
            "*",
            MockBehaviour::status(401, "text/plain", "no"),
            "weir login",
        ),
        ("*", MockBehaviour::status(200, "text/html", "<html>"), ""),
    ] {
        server.add_rule(kind, usize::MAX, behaviour);
        let url = server.url();
        let mut host = StdioHost::start(NEWEST, &[&url]);
        let answer = host.initialize().await;
        let message = answer["error"]["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        assert!(
            message.contains(&url) && message.contains(words),
            "{message}"
        );
        let mut modern = StdioHost::start(Revision::MODERN, &[&url]);
        let answer = modern.ask("server/discover", json!({})).await;
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(&url),
            "{answer}"
        );
        server.clear_rules();
        // The same process finds the server once it runs.
        loop {
            let answer = host.initialize().await;
            if answer.get("result").is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(host.call("echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
        host.end_well().await;
        modern.end_well().await;
    }
    let closed = weir_testkit::ClosedPort::new();
    let mut host = StdioHost::start(NEWEST, &[&format!("http://{}/mcp", closed.address())]);
    let began = host.initialize().await;
    // A host that goes on all the same gets the same reason, and none about sessions.
    let listed = host.ask("tools/list", json!({})).await;
    for answer in [began, listed] {
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .contains("Connection refused"),
            "{answer}"
        );
    }
    host.end_well().await;
}

#[tokio::test]
async fn a_server_that_is_lost_later_is_an_error_that_says_so() {
    for revision in [NEWEST, Revision::MODERN] {
        let mut server = MockServer::dual()
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let url = server.url();
        let mut host = StdioHost::open(revision, &[&format!("{url}?token=canary")]).await;
        assert_eq!(host.call("echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
        server.stop().await;
        let answer = host
            .ask("tools/call", json!({ "name": "echo", "arguments": {} }))
            .await;
        let text = answer["result"]["content"][0]["text"]
            .as_str()
            .or(answer["error"]["message"].as_str())
            .unwrap_or_else(|| panic!("{answer}"));
        assert!(
            text.starts_with(&format!("{url}: ")) && text.contains("start the server"),
            "{text}"
        );
        assert!(!answer.to_string().contains("canary"), "{answer}");
        server.restart().await;
        host.end_well().await;
    }
}

#[tokio::test]
async fn stdio_sends_its_token_and_reports_a_later_refusal_to_the_host() {
    let server = MockServer::dual()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    for (revision, token) in [(NEWEST, None), (Revision::MODERN, Some("given-token-1"))] {
        let url = server.url();
        let arguments: Vec<&str> = [url.as_str()]
            .into_iter()
            .chain(token.into_iter().flat_map(|token| ["--token", token]))
            .collect();
        let mut host = StdioHost::open(revision, &arguments).await;
        assert_eq!(host.call("echo", json!({})).await, "{}");
        let shown = server
            .requests_of("tools/call")
            .pop()
            .unwrap()
            .headers
            .get("authorization")
            .cloned();
        assert_eq!(
            shown.map(|shown| shown.to_str().unwrap().to_owned()),
            token.map(|token| format!("Bearer {token}"))
        );
        // With a login, a refused token is replaced once.
        server.add_rule(
            "tools/call",
            2,
            MockBehaviour::status(401, "text/plain", "no"),
        );
        let refused = host
            .ask("tools/call", json!({ "name": "echo", "arguments": {} }))
            .await
            .to_string();
        assert!(
            refused.contains(&format!("weir login {url}")) && !refused.contains("given-token"),
            "{refused}"
        );
        server.clear_rules();
        assert_eq!(host.call("echo", json!({})).await, "{}");
        host.end_well().await;
    }
}

#[tokio::test]
async fn a_session_that_the_server_lost_is_begun_anew() {
    for status in [404, 400] {
        let server = MockServer::legacy(NEWEST)
            .lost_session_status(status)
            .tool("echo", MockBehaviour::echo())
            .start()
            .await;
        let mut host = StdioHost::open(NEWEST, &[&server.url()]).await;
        assert_eq!(host.call("echo", json!({ "n": 1 })).await, r#"{"n":1}"#);
        server.drop_sessions();
        assert_eq!(host.call("echo", json!({ "n": 2 })).await, r#"{"n":2}"#);
        assert_eq!(server.executions("echo"), 2);
        host.end_well().await;
    }
}

#[tokio::test]
async fn stdio_usage_error_exits_with_2_and_names_the_fix() {
    let (server, file) = shop().await;
    let several = StdioConfigFile::new(&json!({
        "upstreams": { "shop": { "url": server.url() } },
        "endpoints": { "/one": { "upstream": "shop" }, "/two": { "upstream": "shop" } },
    }));
    let broken = StdioConfigFile::new(&json!({ "upstrems": {} }));
    for (arguments, words) in [
        (&["/nonexistent/weir.yaml"][..], "/nonexistent/weir.yaml"),
        (&[broken.path()], "upstreams"),
        (&[several.path()], "--endpoint, of /one, /two"),
        (
            &[several.path(), "--endpoint", "/three"],
            "one of /one, /two",
        ),
        (
            &["http://127.0.0.1:1/mcp", "--endpoint", "/mcp"],
            "--endpoint is for a config file",
        ),
        (&["http:///mcp"], "not an http or https URL"),
        (&[], "FILE|URL"),
        (&[file.path(), "--log", "inof"], "inof"),
        (&[file.path(), "--token", "a\nb"], "not allowed in a header"),
    ] {
        let (code, log) = refused(arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {log}");
        assert!(log.contains(words), "{arguments:?}: {log}");
    }
    let mut host = StdioHost::open(NEWEST, &[several.path(), "--endpoint", "/two"]).await;
    assert_eq!(host.names().await, ["echo"]);
    host.end_well().await;
    let mut by_variable = command(&[]);
    by_variable.env("WEIR_CONFIG", file.path());
    for mut host in [
        StdioHost::spawn(NEWEST, by_variable),
        StdioHost::start(NEWEST, &["--config", file.path()]),
    ] {
        assert!(host.initialize().await.get("result").is_some());
        host.end_well().await;
    }
    let (code, log) = refused(&[file.path()]).await;
    assert_eq!(
        (code, log.as_str()),
        (Some(0), ""),
        "nothing to say and nothing to do"
    );
}

#[tokio::test]
async fn a_config_with_auth_wants_a_credential_like_every_client() {
    let server = MockServer::legacy(NEWEST)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let (key, entry) = api_key("laptop");
    let config = StdioConfigFile::new(&json!({
        "upstreams": { "shop": { "url": server.url() } }, "auth": { "mode": "required", "api_keys": [entry] },
    }));
    let (code, log) = refused(&[config.path()]).await;
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("WEIR_TOKEN"), "{log}");
    let mut with_key = command(&[config.path()]);
    with_key.env("WEIR_TOKEN", &key);
    let mut host = StdioHost::spawn(NEWEST, with_key);
    assert!(host.initialize().await.get("result").is_some());
    assert_eq!(
        host.call("shop__echo", json!({ "n": 1 })).await,
        r#"{"n":1}"#
    );
    host.end_well().await;
    for revision in [NEWEST, Revision::MODERN] {
        let mut host = StdioHost::start(revision, &[config.path(), "--token", "CANARY-token"]);
        let answer = if revision.is_modern() {
            host.ask("server/discover", json!({})).await
        } else {
            host.initialize().await
        };
        let message = answer["error"]["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        assert!(
            message.contains("WEIR_TOKEN") && !message.contains("CANARY"),
            "{message}"
        );
        host.end_well().await;
    }
}
