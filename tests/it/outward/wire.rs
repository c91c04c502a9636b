//! Requests as bytes, and the bytes that weir answers to the client and sends to the upstream.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_testkit::{MockBehaviour, MockServer, RawSocket};
use weir_wire::Revision;

use super::compare;
use crate::harness::{Weir, within_test_timeout};

/// Headers whose values differ from run to run.
const VARYING: [&str; 3] = ["date", "x-request-id", "mcp-session-id"];

/// The time after which weir answers a call of 2025-11-25 with a stream that a client can resume.
const RESUMABLE_STREAM_AFTER: Duration = Duration::from_millis(50);
const MAX_ATTEMPTS: usize = 100;

/// The names of the tools that are called; the last one is of no server.
const TOOL_NAMES: [&str; 8] = [
    "echo",
    "fails",
    "notes",
    "bad_json",
    "unauthorized",
    "busy",
    "structured",
    "absent",
];

/// A response as text whose varying values are words in angle brackets.
fn settled(response: &str, ports: &[(u16, &str)]) -> String {
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
    let mut text = String::new();
    let mut ids = Vec::new();
    for line in head.lines() {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        if VARYING.contains(&name.to_ascii_lowercase().as_str()) {
            if value.len() > 8 {
                ids.push((value.to_owned(), format!("<{}>", name.to_ascii_lowercase())));
            }
            let _ = writeln!(text, "{name}: <varies>");
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    let mut body = body.to_owned();
    for (value, word) in ids {
        body = body.replace(&value, &word);
    }
    for (port, word) in ports {
        body = body.replace(&format!("127.0.0.1:{port}"), word);
        text = text.replace(&format!("127.0.0.1:{port}"), word);
    }
    text + "\n" + &body.replace("\r\n", "\n") + "\n"
}

struct Transcript {
    weir: Weir,
    ports: Vec<(u16, &'static str)>,
    text: String,
}

impl Transcript {
    /// Sends bytes on a connection of their own and writes down the whole response.
    async fn exchange(&mut self, title: &str, head: &str, body: &str) -> String {
        let url = self.weir.url("/mcp");
        let mut socket = RawSocket::connect(&url).await.unwrap();
        let host = url.trim_start_matches("http://").trim_end_matches("/mcp");
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request = format!("{head}\r\nHost: {host}\r\nConnection: close\r\n{length}\r\n{body}");
        socket.write(request.as_bytes()).await.unwrap();
        let response = within_test_timeout(title, socket.read_to_end())
            .await
            .unwrap();
        let _ = writeln!(
            self.text,
            "## {title}\n\n{head}\n\n{body}\n\n->\n\n{}",
            settled(&response, &self.ports)
        );
        response
    }

    /// A POST to `/mcp` with the headers of a client that follows the specification.
    async fn post(&mut self, title: &str, headers: &str, body: &Value) -> String {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream{headers}"
        );
        self.exchange(title, &head, &body.to_string()).await
    }

    /// A request of 2026-07-28.
    async fn modern(&mut self, method: &str, params: Value) -> String {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "recorder", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        let name = name
            .map(|name| format!("\r\nMcp-Name: {name}"))
            .unwrap_or_default();
        let headers = format!("\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}{name}");
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.post(
            &format!("2026-07-28 {method} {}", params["name"]),
            &headers,
            &body,
        )
        .await
    }

    /// Opens a session of a legacy revision; gives the header that names it.
    async fn initialize(&mut self, revision: &str) -> String {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {}, "clientInfo": { "name": "recorder", "version": "1" },
        } });
        let response = self
            .post(&format!("{revision} initialize"), "", &body)
            .await;
        let session = response
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("mcp-session-id: ")
                    .map(|_| line[16..].to_owned())
            })
            .unwrap();
        format!("\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: {revision}")
    }

    /// A request in a legacy session. The session's id does not stand in the transcript.
    async fn legacy(&mut self, revision: &str, session: &str, method: &str, params: Value) {
        let body = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params });
        let begun = self.text.len();
        let title = format!("{revision} {method} {}", params["name"]);
        for attempt in 1.. {
            let sent = Instant::now();
            self.post(&title, session, &body).await;
            if sent.elapsed() < RESUMABLE_STREAM_AFTER {
                break;
            }
            // The response may be a stream only because this machine is busy.
            assert!(attempt < MAX_ATTEMPTS, "{title}: never answered at once");
            self.text.truncate(begun);
        }
        let id = session
            .trim_start_matches("\r\nMcp-Session-Id: ")
            .lines()
            .next()
            .unwrap_or_default();
        let told = self.text.split_off(begun).replace(id, "<session>");
        self.text.push_str(&told);
    }

    /// Records requests of 2026-07-28: each kind of list and item, and each tool.
    async fn modern_requests(&mut self) {
        for method in [
            "server/discover",
            "tools/list",
            "prompts/list",
            "resources/list",
            "no/such",
            "ping",
        ] {
            self.modern(method, json!({})).await;
        }
        for upstream in ["new", "old"] {
            for tool in TOOL_NAMES {
                let params =
                    json!({ "name": format!("{upstream}__{tool}"), "arguments": { "n": 1 } });
                self.modern("tools/call", params).await;
            }
        }
        self.modern("tools/list", json!({ "cursor": "forged" }))
            .await;
        self.modern("resources/read", json!({ "uri": "file:///absent" }))
            .await;
        self.modern("prompts/get", json!({ "name": "absent" }))
            .await;
    }

    /// Records requests of each legacy revision.
    async fn legacy_requests(&mut self) {
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let session = self.initialize(revision).await;
            for method in ["ping", "tools/list", "no/such"] {
                self.legacy(revision, &session, method, json!({})).await;
            }
            for upstream in ["new", "old"] {
                for tool in TOOL_NAMES {
                    let params =
                        json!({ "name": format!("{upstream}__{tool}"), "arguments": { "n": 1 } });
                    self.legacy(revision, &session, "tools/call", params).await;
                }
            }
        }
    }

    /// Records requests that are refused before they are a call.
    async fn malformed_requests(&mut self) {
        let json_head =
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
        for (title, head, body) in [
            ("an unknown path", "GET /absent HTTP/1.1".to_owned(), ""),
            ("an unknown method", "PUT /mcp HTTP/1.1".to_owned(), ""),
            ("GET without Accept", "GET /mcp HTTP/1.1".to_owned(), ""),
            ("no JSON", format!("POST /mcp HTTP/1.1\r\n{json_head}"), "{"),
            (
                "no message",
                format!("POST /mcp HTTP/1.1\r\n{json_head}"),
                "[]",
            ),
            (
                "no such session",
                format!("POST /mcp HTTP/1.1\r\n{json_head}\r\nMcp-Session-Id: forged"),
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            ),
            (
                "an unknown revision",
                format!("POST /mcp HTTP/1.1\r\n{json_head}\r\nMCP-Protocol-Version: 1999-01-01"),
                r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            ),
            (
                "another media type",
                "POST /mcp HTTP/1.1\r\nContent-Type: text/plain".to_owned(),
                "x",
            ),
            (
                "another Accept",
                "POST /mcp HTTP/1.1\r\nContent-Type: application/json\r\nAccept: text/html"
                    .to_owned(),
                "{}",
            ),
            (
                "a foreign origin",
                format!("POST /mcp HTTP/1.1\r\n{json_head}\r\nOrigin: http://evil.example"),
                "{}",
            ),
            (
                "metadata",
                "GET /.well-known/oauth-protected-resource/mcp HTTP/1.1".to_owned(),
                "",
            ),
        ] {
            self.exchange(title, &head, body).await;
        }
        let large = "x".repeat(70 << 10);
        let begun = self.text.len();
        self.exchange(
            "a body that is too large",
            &format!("POST /mcp HTTP/1.1\r\n{json_head}"),
            &large,
        )
        .await;
        let settled = self.text.split_off(begun).replace(&large, "<70 KiB>");
        self.text.push_str(&settled);
    }

    /// Records the requests that an upstream got, each once.
    fn upstream_requests(&mut self, name: &str, upstream: &MockServer) {
        let mut seen = std::collections::BTreeSet::new();
        for request in upstream.requests() {
            let mut headers: Vec<String> = request
                .headers
                .iter()
                .filter(|(name, _)| {
                    !["host", "content-length", "mcp-session-id", "traceparent"]
                        .contains(&name.as_str())
                })
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
                .collect();
            headers.sort();
            let mut message = request.message.clone();
            if let Some(object) = message.as_object_mut() {
                object.remove("id");
            }
            seen.insert(format!(
                "{} {}\n{}\n{message}\n\n",
                request.verb,
                request.path,
                headers.join("\n")
            ));
        }
        let _ = writeln!(self.text, "# What the upstream `{name}` is sent\n");
        self.text.extend(seen);
    }
}

/// One tool for each way in which a call ends.
fn tools() -> [(&'static str, MockBehaviour); 7] {
    let structured = json!({
        "content": [{ "type": "text", "text": "3" }],
        "structuredContent": { "n": 3 },
        "resultType": "complete",
    });
    [
        ("echo", MockBehaviour::echo()),
        (
            "fails",
            MockBehaviour::error(-32000, "it is broken", json!({ "detail": 1 })),
        ),
        ("notes", MockBehaviour::progress(2)),
        ("bad_json", MockBehaviour::bad_json()),
        ("unauthorized", MockBehaviour::unauthorized()),
        ("busy", MockBehaviour::retry_after(503, 7)),
        ("structured", MockBehaviour::result(structured)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_and_upstream_requests_are_those_of_the_record() {
    let (mut modern, mut legacy) = (
        MockServer::modern(),
        MockServer::legacy(Revision::V2025_06_18),
    );
    for (name, behaviour) in tools() {
        modern = modern.tool(name, behaviour.clone());
        legacy = legacy.tool(name, behaviour);
    }
    let (modern, legacy) = (modern.start().await, legacy.start().await);
    let weir = Weir::with_config(json!({
        "upstreams": { "new": { "url": modern.url() }, "old": { "url": legacy.url() } },
        "limits": { "body_bytes": "64KiB" },
    }));
    let (modern_url, legacy_url) = (modern.address().port(), legacy.address().port());
    let own: u16 = weir
        .url("")
        .rsplit(':')
        .next()
        .unwrap()
        .trim_matches('/')
        .parse()
        .unwrap();
    let ports = vec![
        (modern_url, "<new>"),
        (legacy_url, "<old>"),
        (own, "<weir>"),
    ];
    let mut record = Transcript {
        weir,
        ports,
        text: String::new(),
    };
    record.modern_requests().await;
    record.legacy_requests().await;
    record.malformed_requests().await;
    record.upstream_requests("new", &modern);
    record.upstream_requests("old", &legacy);
    compare("wire.txt", &record.text);
}
