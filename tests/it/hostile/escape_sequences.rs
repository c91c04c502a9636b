//! Servers that write escape sequences: a terminal shows them as text, or not at all.

use std::process::Output;

use serde_json::{Value, json};
use weir_testkit::mock_server::{AnswerStep, MockBehaviour, MockServerBuilder, MockTool};
use weir_testkit::{MockServer, TestFolder};

use crate::harness::Weir;

/// Clears the screen (C0), sets a color (C1), rings, returns to the line's begin, deletes, and
/// turns the reading direction.
const HOSTILE: &str = "seen\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\u{7f}\u{202e}text";

fn is_harmless(output: &Output, name: &str) -> String {
    let mut all = String::new();
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let steering = text
            .chars()
            .find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || *c == '\u{202e}');
        assert_eq!(steering, None, "{name}: {text:?}");
        all.push_str(text);
    }
    assert!(
        all.contains("seen"),
        "{name}: the text itself is shown: {all:?}"
    );
    all
}

fn hostile_server() -> MockServerBuilder {
    let says = |method: &str, params: Value| {
        AnswerStep::Send(
            json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string(),
        )
    };
    let content = json!([
        { "type": "text", "text": HOSTILE },
        { "type": "image", "mimeType": HOSTILE, "data": "AAAA" },
        { "type": "resource_link", "uri": "file:///x", "name": HOSTILE },
    ]);
    MockServer::dual()
        .named(HOSTILE)
        .with(MockTool::new("listed").with("description", json!(HOSTILE)))
        .tool("text", MockBehaviour::result(json!({ "content": content })))
        .tool(
            "structured",
            MockBehaviour::result(json!({ "content": [], "structuredContent": { "a": HOSTILE } })),
        )
        .tool(
            "error",
            MockBehaviour::error(-32000, HOSTILE, json!(HOSTILE)),
        )
        .tool(
            "plain",
            MockBehaviour::steps([AnswerStep::Raw(HOSTILE.to_owned())]).with_status(500),
        )
        .tool(
            "noisy",
            MockBehaviour::steps([
                says(
                    "notifications/message",
                    json!({ "level": "error", "logger": HOSTILE, "data": HOSTILE }),
                ),
                AnswerStep::Result(json!({ "content": [{ "type": "text", "text": HOSTILE }] })),
            ]),
        )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_call_and_weir_tools_print_no_escape_of_a_server() {
    let server = hostile_server().start().await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": server.url() } }));
    let through = weir.url("/mcp/one");
    weir.wait_until_listed("/mcp/one", &["listed"]);
    for url in [server.url(), through] {
        for tool in ["text", "structured", "error", "noisy"] {
            is_harmless(&Weir::run_cli(&["call", &url, tool, "{}"]), tool);
            if tool != "error" {
                let output = Weir::run_cli(&["call", &url, tool, "{}", "--json"]);
                is_harmless(&output, tool);
                // The JSON has the same value after parsing.
                let result: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(result.to_string().contains("\u{202e}"), "{result}");
            }
        }
        is_harmless(&Weir::run_cli(&["tools", &url]), "the list");
        is_harmless(
            &Weir::run_cli(&["tools", &url, "--json"]),
            "the list as JSON",
        );
    }
    // A server that does not speak MCP at all.
    let broken = Weir::run_cli(&["call", &server.url(), "plain", "{}"]);
    is_harmless(&broken, "what is no MCP");
    for command in [
        vec!["admin", "upstreams"],
        vec!["admin", "catalog", "--endpoint", "/mcp/one"],
    ] {
        for json in [&[][..], &["--json"]] {
            let admin = ["--admin", &weir.admin_url()].map(str::to_owned);
            let arguments: Vec<&str> = command
                .iter()
                .copied()
                .chain(admin.iter().map(String::as_str))
                .chain(json.iter().copied())
                .collect();
            let output = Weir::run_cli(&arguments);
            assert!(output.status.success(), "{output:?}");
            assert!(!output.stdout.contains(&0x1b), "{output:?}");
        }
    }
}

#[test]
fn a_config_that_is_refused_writes_no_escape() {
    let folder = TestFolder::new("escapes");
    let config = json!({
        "listen": HOSTILE,
        "log": { "level": HOSTILE, "format": HOSTILE },
        "allowed_hosts": [HOSTILE],
        HOSTILE: 1,
        "upstreams": { HOSTILE: { "url": HOSTILE }, "a": { "url": "http://127.0.0.1:1/", "headers": { HOSTILE: HOSTILE } } },
        "policy": { "inline": HOSTILE },
    });
    // YAML accepts no raw control character.
    let escape = |c: char| {
        if c > '~' {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    let text: String = config.to_string().chars().map(escape).collect();
    let file = folder.write("weir.json", &text);
    for command in [
        ["check"].as_slice(),
        &["serve", "--config"],
        &["explain", "--tool", "x", "--config"],
    ] {
        let file = file.display().to_string();
        let arguments: Vec<&str> = command.iter().copied().chain([file.as_str()]).collect();
        let output = Weir::run_cli(&arguments);
        assert!(!output.status.success(), "{output:?}");
        is_harmless(&output, command[0]);
    }
}
