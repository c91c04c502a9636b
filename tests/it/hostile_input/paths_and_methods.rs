//! Paths, methods, media types and headers that clients may not choose (A19 to A21, R005, R006,
//! R047).

use http::{Method, StatusCode};
use serde_json::json;

use super::raw_connection::{
    RawReply, good_request, head, modern_request_parts, send_and_read_all,
};
use super::request_draft::assert_refused_unread;
use super::{RequestDraft, WeirWithUpstream};

impl WeirWithUpstream {
    /// Returns the one response to a request without a body, on a connection that ends with it.
    pub async fn weir_answers(&self, first: &str, lines: &[&str]) -> RawReply {
        let mut replies = send_and_read_all(self, head(self, first, lines).as_bytes()).await;
        assert_eq!(replies.len(), 1, "{first}: {replies:?}");
        replies.remove(0)
    }
}

/// Headers by which a client could pretend to be a proxy, a person or a part of weir.
const PRETENCE: [&str; 18] = [
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-User",
    "X-Real-IP",
    "X-User",
    "X-Auth-Request-User",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Weir-Principal",
    "Forwarded",
    "Via",
    "mcp-init-host",
    "Proxy-Authorization",
    "Authorization",
    "Cookie",
    "Mcp-Param-Region",
];

// Proves A19.
#[tokio::test(flavor = "multi_thread")]
async fn no_header_of_a_client_reaches_the_upstream() {
    let mut stage = WeirWithUpstream::new().await;
    for name in PRETENCE {
        let mut draft = stage.draft_call();
        draft.set_header(name, "CANARY-of-a-client");
        let answer = draft.post(&stage).await;
        assert_eq!(answer.status, 200, "{name}: {:?}", answer.body);
        let heard = stage.take_client_requests();
        assert_eq!(heard.len(), 1, "{name}");
        let told = heard[0]
            .headers
            .values()
            .any(|value| String::from_utf8_lossy(value.as_bytes()).contains("CANARY"));
        assert!(
            !told && !String::from_utf8_lossy(&heard[0].body).contains("CANARY"),
            "{name}: {:?}",
            heard[0].headers
        );
    }
    stage.assert_still_serving("pretence").await;
    assert!(
        !stage.weir.process.output().contains("CANARY-of-a-client"),
        "nor the log"
    );
}

// Proves A19.
#[tokio::test(flavor = "multi_thread")]
async fn names_with_underscores_are_400() {
    let mut stage = WeirWithUpstream::new().await;
    for name in [
        "Mcp_Session_Id",
        "MCP_Protocol_Version",
        "X_Forwarded_For",
        "Mcp-Session_Id",
        "_",
        "Authorization_",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header(name, "x");
        assert_refused_unread(name, &draft.post(&stage).await, StatusCode::BAD_REQUEST);
        stage.assert_still_serving(name).await;
    }
}

// Proves A20.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_path_itself_is_the_endpoint() {
    let mut stage = WeirWithUpstream::new().await;
    let (lines, body) = modern_request_parts("tools/call", Some("smuggled"), "elsewhere");
    for path in [
        "/",
        "//",
        "//mcp",
        "/mcp/",
        "/mcp//",
        "/MCP",
        "/Mcp",
        "/mcp.",
        "/mcp%20",
        "/mcp%00",
        "/mcp;x=1",
        "/mcp%2f",
        "/mcp/up",
        "/%6dcp",
        "/mcp%3fx",
        "/./mcp",
        "/../mcp",
        "/mcp/../mcp",
        "/x/../mcp",
        "/x/%2e%2e/mcp",
        "/mcp/..;/admin",
        "/mcp/%2e%2e/metrics",
        "/mcp\\",
        "/mcp/..%5c",
        "/.mcp",
        "/mcp/.",
        "/mcp~",
        "mcp",
        "/mcp/%",
        "/mcp/%zz",
        "*",
    ] {
        let lines: Vec<_> = lines
            .iter()
            .map(String::as_str)
            .chain(["Connection: close"])
            .collect();
        let text = super::raw_connection::post(&stage, &lines, &body).replacen("/mcp", path, 1);
        let replies = send_and_read_all(&stage, text.as_bytes()).await;
        assert_eq!(replies.len(), 1, "{path}: {replies:?}");
        assert!(
            [400, 404].contains(&replies[0].status),
            "{path}: {replies:?}"
        );
        assert!(!replies[0].body.contains("jsonrpc"), "{path}: {replies:?}");
        stage.assert_still_serving(path).await;
    }
    // A query is not part of the path.
    let text = good_request(&stage, "tools/call", Some("echo"), true).replacen(
        "/mcp",
        "/mcp?x=%2e%2e/y",
        1,
    );
    assert_eq!(
        send_and_read_all(&stage, text.as_bytes()).await[0].status,
        200
    );
    assert_eq!(stage.take_client_requests()[0].path, "/mcp");
}

// Proves A20.
#[tokio::test(flavor = "multi_thread")]
async fn admin_paths_are_404_for_clients() {
    let mut stage = WeirWithUpstream::new().await;
    for path in [
        "/metrics",
        "/healthz",
        "/readyz",
        "/livez",
        "/admin",
        "/admin/upstreams",
        "/debug/pprof",
        "/.well-known/mcp.json",
    ] {
        let reply = stage
            .weir_answers(&format!("GET {path} HTTP/1.1"), &["Connection: close"])
            .await;
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
        assert!(!reply.body.contains("weir_"), "{path}: {reply:?}");
        stage.assert_still_serving(path).await;
    }
}

// Proves A21, R006.
#[tokio::test(flavor = "multi_thread")]
async fn other_methods_answer_405_with_allow() {
    let mut stage = WeirWithUpstream::new().await;
    for method in [
        "GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "PROPFIND", "post", "BREW",
    ] {
        // GET and DELETE are for sessions, and this request names no session.
        for lines in [
            vec!["Connection: close"],
            vec!["Connection: close", "MCP-Protocol-Version: 2026-07-28"],
        ] {
            let request = head(&stage, &format!("{method} /mcp HTTP/1.1"), &lines);
            let text = if method == "HEAD" {
                request.replace("Content-Type: application/json\r\n", "")
            } else {
                request
            };
            let mut line = super::raw_connection::RawConnection::to(&stage).await;
            line.write(text.as_bytes()).await.unwrap();
            let reply = if method == "HEAD" {
                headless(line).await
            } else {
                line.replies().await.remove(0)
            };
            assert_eq!(reply.status, 405, "{method}: {reply:?}");
            let allowed = reply.header("allow").unwrap_or_default();
            assert!(
                ["POST", "GET", "DELETE"]
                    .iter()
                    .all(|method| allowed.contains(method)),
                "{method}: {reply:?}"
            );
            assert!(!reply.body.contains("jsonrpc"), "{method}: {reply:?}");
        }
        stage.assert_still_serving(method).await;
    }
}

/// Reads the response to HEAD: it may declare a length, and has no body.
async fn headless(line: super::raw_connection::RawConnection) -> RawReply {
    use tokio::io::AsyncReadExt as _;
    let (mut stream, mut text) = (line.stream, String::new());
    super::weir_with_upstream::within_timeout("the end", stream.read_to_string(&mut text))
        .await
        .unwrap();
    super::raw_connection::RawReply::of_head(&text)
}

// Proves A21, R047.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_types_are_415() {
    let mut stage = WeirWithUpstream::new().await;
    let kinds = [
        None,
        Some("text/plain"),
        Some("text/json"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=x"),
        Some("application/jsonx"),
        Some("application/json-seq"),
        Some("application/xml"),
        Some("application"),
        Some("json"),
        Some(""),
        Some("text/plain; application/json"),
        Some("text/plain, application/json"),
    ];
    for kind in kinds {
        let mut draft = stage.draft_call();
        match kind {
            Some(kind) => draft.set_header("content-type", kind),
            None => draft.remove_header("content-type"),
        }
        let name = kind.unwrap_or("no content type");
        assert_refused_unread(
            name,
            &draft.post(&stage).await,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        );
        stage.assert_still_serving(name).await;
    }
    let mut two = stage.draft_call();
    two.add_header("content-type", "text/plain");
    let answer = two.post(&stage).await;
    assert!(
        [400, 415].contains(&answer.status.as_u16()),
        "{}",
        answer.status
    );
    stage.assert_still_serving("two content types").await;
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("content-type", kind);
        assert_eq!(draft.post(&stage).await.status, 200, "{kind}");
        assert_eq!(stage.take_client_requests().len(), 1, "{kind}");
    }
}

// Proves A21, R047.
#[tokio::test(flavor = "multi_thread")]
async fn an_accept_without_either_type_is_406() {
    let mut stage = WeirWithUpstream::new().await;
    for accept in [
        "text/html",
        "image/png, text/plain;q=0.5",
        "application/xml",
        "application/json;q=0, text/event-stream;q=0",
        "text/*;q=0",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("accept", accept);
        assert_refused_unread(
            accept,
            &draft.post(&stage).await,
            StatusCode::NOT_ACCEPTABLE,
        );
        stage.assert_still_serving(accept).await;
    }
    for accept in [
        "application/json, text/event-stream",
        "text/event-stream, application/json",
        "application/json;q=0.9, text/event-stream;q=0.1",
        "application/json,text/event-stream,*/*;q=0.1",
        "Application/JSON, Text/Event-Stream",
        "*/*",
    ] {
        let mut draft = stage.draft_call();
        draft.set_header("accept", accept);
        assert_eq!(draft.post(&stage).await.status, 200, "{accept}");
        assert_eq!(stage.take_client_requests().len(), 1, "{accept}");
    }
}

// Proves A21.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_come_in_a_fixed_order() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "body_bytes": "16KiB" })).await;
    let large = " ".repeat(20 << 10);
    type SpoilDraft = fn(&mut RequestDraft);
    let origin: SpoilDraft = |draft| draft.set_header("origin", "https://evil.example");
    let media: SpoilDraft = |draft| draft.set_header("content-type", "text/plain");
    let accept: SpoilDraft = |draft| draft.set_header("accept", "text/html");
    for (name, method, wrongs, body, expected) in [
        (
            "403 before 405",
            Method::PUT,
            vec![origin, media],
            &large,
            403,
        ),
        (
            "405 before 413",
            Method::PUT,
            vec![media, accept],
            &large,
            405,
        ),
        (
            "413 before 415",
            Method::POST,
            vec![media, accept],
            &large,
            413,
        ),
        (
            "415 before 406",
            Method::POST,
            vec![media, accept],
            &"{".to_owned(),
            415,
        ),
        (
            "406 before the JSON",
            Method::POST,
            vec![accept],
            &"{".to_owned(),
            406,
        ),
    ] {
        let mut draft = stage.draft_call();
        for wrong in wrongs {
            wrong(&mut draft);
        }
        let answer = stage.send(method, draft.headers, body.clone()).await;
        assert_refused_unread(name, &answer, StatusCode::from_u16(expected).unwrap());
        stage.assert_still_serving(name).await;
    }
}
