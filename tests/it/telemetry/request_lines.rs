//! The log lines of requests and calls: found by the request id, with the reason of a refusal and
//! the names of the tool and its upstream.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use crate::harness::{CheckedClient, Weir, wait_until};

/// Posts a body to a target, and returns the request id of the answer.
fn post(weir: &Weir, target: &str, lines: &[&str], body: &str) -> String {
    let authority = weir.url("").replace("http://", "");
    let mut stream = TcpStream::connect(&authority).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let host = format!("Host: {authority}");
    let own_host = lines.iter().any(|line| line.starts_with("Host:"));
    let lines: String = lines
        .iter()
        .copied()
        .chain((!own_host).then_some(host.as_str()))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let length = body.len();
    write!(
        stream,
        "POST {target} HTTP/1.1\r\n{lines}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let id = answer
        .lines()
        .find_map(|line| line.strip_prefix("x-request-id: "));
    id.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Waits for the line with this message that has all members of `wanted`.
fn line_with(weir: &Weir, message: &str, wanted: &Value) -> Value {
    wait_until(&format!("{message} {wanted}"), || {
        let said = weir.process.output();
        let mut lines = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| {
            let has = |(name, value): (&String, &Value)| line[name] == *value;
            line["message"] == message && wanted.as_object().unwrap().iter().all(has)
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_id_leads_to_a_line_with_the_reason_and_calls_name_their_tool() {
    let upstream = MockServer::modern()
        .tool("ok", MockBehaviour::text("done"))
        .tool("denied", MockBehaviour::text("done"))
        .start()
        .await;
    let config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "policy": { "inline": "permit(principal, action, resource);
            forbid(principal, action == Action::\"call\", resource == Tool::\"one/denied\");" },
        "log": { "format": "json" },
    });
    let weir = Weir::with_log_filter(config, "weir_layers=debug,audit=debug");
    weir.wait_until_listed("/mcp", &["one__ok"]);
    let accept = "Accept: application/json, text/event-stream";
    let json_body = "Content-Type: application/json";
    for (target, lines, reason) in [
        (
            "/nope?token=canary",
            &[accept, json_body][..],
            "no such endpoint",
        ),
        ("/mcp", &["Host: evil.example", accept, json_body], "host"),
        ("/mcp", &["Accept: text/plain", json_body], "accept"),
        ("/mcp", &[accept, json_body], "parse_error"),
    ] {
        let id = post(&weir, target, lines, "{");
        let line = line_with(&weir, "request completed", &json!({ "request": id }));
        let path = target.split('?').next().unwrap();
        assert_eq!(
            (&line["reason"], &line["path"], &line["http_method"]),
            (&json!(reason), &json!(path), &json!("POST")),
            "{line}"
        );
        assert_eq!(line["peer"], "127.0.0.1", "{line}");
    }
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    for tool in ["one__ok", "one__denied", "one__nosuch"] {
        client.call(tool, json!({})).await;
    }
    for (message, item, upstream) in [
        ("call ended", "one__ok", json!("one")),
        ("call refused", "one__denied", json!("one")),
        ("call refused", "one__nosuch", Value::Null),
    ] {
        let line = line_with(&weir, message, &json!({ "item": item }));
        assert_eq!(line["upstream"], upstream, "{line}");
        assert!(line["request"].is_string(), "{line}");
    }
    assert!(!weir.process.output().contains("canary"));
}
