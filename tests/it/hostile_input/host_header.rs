//! `StdioHost` (A17, R003): weir refuses a request that does not name it by one of its own names.
//! Names of loopback protect a listener on loopback from web pages that rebind their own name to
//! it.

use serde_json::json;

use super::WeirWithUpstream;
use super::raw_connection::{modern_request_parts, send_and_read_all};

/// Returns a good call of `echo` with these `StdioHost` lines instead of the usual one, and this
/// request target.
fn call(target: &str, hosts: &[String]) -> String {
    let (mut lines, body) = modern_request_parts("tools/call", Some("echo"), "by-host");
    lines.extend(hosts.iter().map(|host| format!("Host: {host}")));
    lines.extend(
        [
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Connection: close",
        ]
        .map(String::from),
    );
    lines.push(format!("Content-Length: {}", body.len()));
    format!(
        "POST {target} HTTP/1.1\r\n{}\r\n\r\n{body}",
        lines.join("\r\n")
    )
}

async fn status(stage: &WeirWithUpstream, target: &str, hosts: &[String]) -> u16 {
    let replies = send_and_read_all(stage, call(target, hosts).as_bytes()).await;
    assert_eq!(replies.len(), 1, "{target} {hosts:?}: {replies:?}");
    if replies[0].status != 200 {
        assert!(
            !replies[0].body.contains("jsonrpc"),
            "{target} {hosts:?}: {replies:?}"
        );
    }
    replies[0].status
}

async fn stage() -> (WeirWithUpstream, String) {
    let config = json!({ "public_url": "https://mcp.example.com", "allowed_hosts": ["weir.internal", "exact.internal:8443"] });
    let stage = WeirWithUpstream::with_config(config).await;
    let port = stage.authority().rsplit(':').next().unwrap().to_owned();
    (stage, port)
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn own_names_are_served() {
    let (mut stage, port) = stage().await;
    for host in [
        "127.0.0.1:PORT",
        "localhost:PORT",
        "LocalHost:PORT",
        "[::1]:PORT",
        "mcp.example.com",
        "MCP.Example.COM",
        "weir.internal",
        "weir.internal:9999",
        "exact.internal:8443",
    ] {
        assert_eq!(
            status(&stage, "/mcp", &[host.replace("PORT", &port)]).await,
            200,
            "{host}"
        );
        assert_eq!(stage.take_client_requests().len(), 1, "{host}");
    }
    stage.assert_still_serving("own names").await;
}

// Proves A17, R003.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_names_are_403() {
    let (mut stage, port) = stage().await;
    for host in [
        "evil.example",
        "evil.example:PORT",
        "127.0.0.1.evil.example",
        "localhost.evil.example:PORT",
        "evil-localhost",
        "xlocalhost:PORT",
        "localhostx:PORT",
        "mcp.example.com.evil.example",
        "xmcp.example.com",
        "sub.mcp.example.com",
        "example.com",
        "weir.internal.evil.example",
        "exact.internal:8444",
        "127.0.0.2:PORT",
        "127.1:PORT",
        "0.0.0.0:PORT",
        "2130706433:PORT",
        "0x7f000001:PORT",
        "017700000001:PORT",
        "[::]:PORT",
        "[::ffff:10.0.0.1]:PORT",
        "[2001:db8::1]:PORT",
        "10.0.0.1",
        "169.254.169.254",
    ] {
        let host = host.replace("PORT", &port);
        assert_eq!(
            status(&stage, "/mcp", std::slice::from_ref(&host)).await,
            403,
            "{host}"
        );
        stage.assert_still_serving(&host).await;
    }
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_names_are_400() {
    let (mut stage, port) = stage().await;
    for host in [
        "",
        "127.0.0.1:PORT/mcp",
        "127.0.0.1/",
        "127.0.0.1?x",
        "127.0.0.1#x",
        "user@127.0.0.1:PORT",
        "user:password@127.0.0.1",
        "127.0.0.1:PORT, evil.example",
        "127.0.0.1 evil.example",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        "127.0.0.1:http",
        "127.0.0.1:PORT:PORT",
        ":PORT",
        "::1",
        "[::1",
        "::1]:PORT",
        "[::1]x",
        "[fe80::1%25eth0]:PORT",
        "[fe80::1%eth0]:PORT",
        "[127.0.0.1]:PORT",
        "[]:PORT",
        "http://127.0.0.1:PORT",
        "127.0.0.1\\@evil.example",
        "local\"host",
        "<localhost>",
        "localhost%00",
        "loc\u{e4}lhost",
        "localhost;x",
    ] {
        let host = host.replace("PORT", &port);
        assert_eq!(
            status(&stage, "/mcp", std::slice::from_ref(&host)).await,
            400,
            "{host:?}"
        );
        stage.assert_still_serving(&host).await;
    }
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn no_host_or_two_are_400() {
    let (mut stage, _) = stage().await;
    let own = stage.authority();
    let evil = "evil.example".to_owned();
    for hosts in [
        vec![],
        vec![own.clone(), evil.clone()],
        vec![evil, own.clone()],
        vec![own.clone(), own.clone()],
    ] {
        assert_eq!(status(&stage, "/mcp", &hosts).await, 400, "{hosts:?}");
        stage.assert_still_serving(&format!("{hosts:?}")).await;
    }
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn an_absolute_target_must_agree_with_host() {
    let (mut stage, _) = stage().await;
    let own = stage.authority();
    let evil = "evil.example".to_owned();
    for (target, host, expected) in [
        (format!("http://{own}/mcp"), &own, 200),
        (format!("http://{evil}/mcp"), &own, 400),
        (format!("http://{own}/mcp"), &evil, 400),
        (format!("http://{evil}/mcp"), &evil, 403),
        (format!("http://user@{own}/mcp"), &own, 400),
        (format!("http://{own}@{evil}/mcp"), &own, 400),
    ] {
        assert_eq!(
            status(&stage, &target, std::slice::from_ref(host)).await,
            expected,
            "{target} with Host {host}"
        );
        assert_eq!(
            stage.take_client_requests().len(),
            usize::from(expected == 200),
            "{target} with Host {host}"
        );
        stage.assert_still_serving(&target).await;
    }
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn an_authority_of_http_2_must_agree_with_host() {
    let (mut stage, _) = stage().await;
    for (host, expected) in [("evil.example".to_owned(), 400), (stage.authority(), 200)] {
        let client = stage
            .modern_client()
            .with_http2()
            .with_header("host", &host);
        let answer = client.call("echo", json!({})).await.unwrap();
        assert_eq!(answer.status, expected, "{host}: {:?}", answer.body);
        assert_eq!(
            stage.take_client_requests().len(),
            usize::from(expected == 200),
            "{host}"
        );
        stage.assert_still_serving(&host).await;
    }
}

/// No URL is built from `StdioHost`: with every allowed name the upstream is the configured one and
/// receives its own name.
// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn upstream_receives_its_own_host_header() {
    let (mut stage, _) = stage().await;
    let own = stage.up.address().to_string();
    assert_eq!(
        status(&stage, "/mcp", &["weir.internal".to_owned()]).await,
        200
    );
    let heard = stage.take_client_requests();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].header("host"), Some(own.as_str()));
    assert_eq!(heard[0].path, "/mcp");
}
