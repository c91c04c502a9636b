//! The page for a person that opens an endpoint in a browser: another body, with the same status
//! and headers.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockTool;

use crate::harness::{Weir, peers_are_enabled, render_page};

/// The `Accept` header of a browser.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const SECRET_NAMES: [&str; 2] = ["hidden-upstream", "hidden_tool"];

/// An answer: status, headers, body.
#[derive(Debug)]
struct BrowserAnswer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// Gets a path with these header lines; `StdioHost` is the listener's unless they have one.
fn get(weir: &Weir, target: &str, lines: &[&str]) -> BrowserAnswer {
    let authority = weir.url("").replace("http://", "");
    let mut stream = TcpStream::connect(&authority).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let host = if lines.iter().any(|line| line.starts_with("Host:")) {
        String::new()
    } else {
        format!("Host: {authority}\r\n")
    };
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    write!(
        stream,
        "GET {target} HTTP/1.1\r\n{host}{lines}Connection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut head = head.lines();
    let status = head
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    let headers = head
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    BrowserAnswer {
        status,
        headers: headers.collect(),
        body: body.to_owned(),
    }
}

fn accept(kinds: &str) -> String {
    format!("Accept: {kinds}")
}

async fn server() -> MockServer {
    MockServer::dual()
        .named("hidden-upstream")
        .with(MockTool::new("hidden_tool"))
        .start()
        .await
}

fn config(server: &MockServer, more: &Value) -> Value {
    let mut config = json!({ "upstreams": { "hidden-upstream": { "url": server.url() } } });
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    config
}

/// Asserts that it is the page about this URL, safe to show, without secrets.
fn assert_page(page: &BrowserAnswer, url: &str) {
    assert_eq!(
        page.headers["content-type"], "text/html; charset=utf-8",
        "{page:?}"
    );
    assert_eq!(
        (
            page.headers["cache-control"].as_str(),
            page.headers["vary"].as_str()
        ),
        ("no-store", "accept"),
        "{page:?}"
    );
    let policy = &page.headers["content-security-policy"];
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(page.body.contains(url), "{url}: {page:?}");
    for outside in [
        "<script", "<img", "<link", "src=", "href=", "url(", "@import",
    ] {
        assert!(!page.body.contains(outside), "{outside}: {}", page.body);
    }
    for client in [
        "Claude Desktop",
        "Claude Code",
        "Cursor",
        "VS Code",
        "Gemini CLI",
        "Windsurf",
        "Codex",
        "Zed",
    ] {
        assert!(
            page.body.contains(&format!("<summary>{client}</summary>")),
            "{client}: {}",
            page.body
        );
    }
    for name in SECRET_NAMES {
        assert!(!page.body.contains(name), "{name}: {}", page.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_gets_a_page_and_other_clients_the_same_refusal() {
    let server = server().await;
    let weir = Weir::with_config(config(&server, &json!({})));
    weir.wait_until_listed("/mcp", &["hidden-upstream__hidden_tool"]);
    let page = get(&weir, "/mcp", &[&accept(BROWSER)]);
    assert_page(&page, &weir.url("/mcp"));
    assert!(page.body.contains("No login is needed"), "{page:?}");
    let plain = get(&weir, "/mcp", &["Accept: */*"]);
    assert_eq!((page.status, plain.status), (405, 405));
    assert!(
        plain.body.starts_with("this endpoint takes POST"),
        "{plain:?}"
    );
    for (name, value) in &plain.headers {
        let changed = [
            "content-type",
            "content-length",
            "date",
            "cache-control",
            "vary",
            "x-request-id",
        ]
        .contains(&name.as_str());
        assert!(
            changed || page.headers.get(name) == Some(value),
            "{name}: {page:?}"
        );
    }
    assert!(page.headers["allow"].contains("POST"), "{page:?}");
    for kinds in [
        "text/html, text/event-stream",
        "application/json, text/event-stream",
        "text/html;q=0.1, application/json",
    ] {
        let other = get(&weir, "/mcp", &[&accept(kinds)]);
        assert_eq!(
            (other.status, other.body.as_str()),
            (405, plain.body.as_str()),
            "{kinds}"
        );
    }
    // A session without its stream is refused in another way, and that stays so.
    let session = "Mcp-Session-Id: nobody-knows-this-one";
    let page = get(&weir, "/mcp", &[&accept("text/html"), session]);
    assert_eq!(
        (page.status, page.body.contains("An MCP endpoint")),
        (406, true),
        "{page:?}"
    );
    // A path that is not an endpoint has no page.
    let none = get(&weir, "/mcp/other", &[&accept(BROWSER)]);
    assert_eq!((none.status, none.body.as_str()), (404, "no such endpoint"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_contains_no_text_of_the_request() {
    let server = server().await;
    let hostile = "<script>canary</script>";
    let weir = Weir::with_config(config(
        &server,
        &json!({ "public_url": "https://tools.example.com", "allowed_hosts": ["canary.example"] }),
    ));
    let target = format!("/mcp?q={}", hostile.replace('<', "%3C").replace('>', "%3E"));
    let page = get(
        &weir,
        &target,
        &[
            &accept(BROWSER),
            "Host: canary.example:81",
            &format!("Referer: http://{hostile}/"),
        ],
    );
    assert_eq!(page.status, 405, "{page:?}");
    assert_page(&page, "https://tools.example.com/mcp");
    assert!(
        !page.body.contains("canary") && !page.body.contains("127.0.0.1"),
        "{page:?}"
    );
    let foreign = get(&weir, "/mcp", &[&accept(BROWSER), "Host: evil.example"]);
    assert_eq!(
        (foreign.status, foreign.body.as_str()),
        (403, "this host is not served here")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_credential_keeps_its_challenge_and_is_not_shown() {
    let server = server().await;
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let auth = json!({ "mode": "required", "api_keys": [{ "id": "one", "subject": "ci", "sha256": digest }] });
    let weir = Weir::with_config(config(&server, &json!({ "auth": auth })));
    let lines = [
        &accept(BROWSER)[..],
        "Mcp-Session-Id: abc",
        "Authorization: Bearer canary-of-a-caller",
    ];
    let refused = get(
        &weir,
        "/mcp",
        &["Accept: text/event-stream", lines[1], lines[2]],
    );
    let page = get(&weir, "/mcp", &lines);
    assert_eq!((refused.status, page.status), (401, 401), "{page:?}");
    assert!(
        page.headers["www-authenticate"].starts_with("Bearer "),
        "{page:?}"
    );
    assert_eq!(
        page.headers["www-authenticate"],
        refused.headers["www-authenticate"]
    );
    assert!(!refused.body.contains("<html"), "{refused:?}");
    assert_page(&page, &weir.url("/mcp"));
    assert!(
        page.body.contains("An API key is required") && page.body.contains("${env:WEIR_TOKEN}"),
        "{page:?}"
    );
    assert!(
        !page.body.contains("canary") && !page.body.contains(digest),
        "{page:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_on_all_addresses_names_none_of_them() {
    let server = server().await;
    let mut config = config(
        &server,
        &json!({ "auth": { "mode": "none", "allow_anyone": true } }),
    );
    config["listen"] = json!("0.0.0.0:0");
    let weir = Weir::with_own_listen(config);
    let page = get(&weir, "/mcp", &[&accept(BROWSER), "Host: canary.example"]);
    assert!(
        page.body.contains("http://ADDRESS:") && !page.body.contains("canary"),
        "{page:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_browser_shows_the_page() {
    if !peers_are_enabled() {
        return;
    }
    let server = server().await;
    let weir = Weir::with_config(config(&server, &json!({})));
    let document = render_page(&weir.url("/mcp"));
    assert!(
        document.contains("<title>MCP endpoint - weir</title>")
            && document.contains(&weir.url("/mcp")),
        "{document}"
    );
}
