//! HTTP+SSE, the transport of 2024-11-05, with the clients and servers of the SDKs; and resource
//! updates of servers over stdio.

use serde_json::json;

use crate::harness::{ForeignClient, ForeignServer, Weir, peers_are_enabled};

/// Runs a client that speaks HTTP+SSE to weir, in front of servers of both eras.
fn client(client: ForeignClient) {
    if !peers_are_enabled() {
        return;
    }
    let (_fast, fast) = ForeignServer::FastMcp.over_http();
    let (_shop, shop) = ForeignServer::RmcpModern.over_http();
    let weir = Weir::with_upstreams(json!({ "fast": { "url": fast }, "shop": { "url": shop } }));
    weir.wait_until_listed("/mcp", &["fast__add", "shop__sum"]);
    let url = weir.url("/mcp/sse");
    let listed = client.run(&url, &["list", "--sse"]);
    assert!(
        listed.names().contains(&"fast__add") && listed.names().contains(&"shop__sum"),
        "{listed:?}"
    );
    for tool in ["fast__add", "shop__sum"] {
        let called = client.run(&url, &["call", tool, r#"{"a":2,"b":3}"#, "--sse"]);
        assert!(
            called.only_line("result")["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains('5'),
            "{called:?}"
        );
    }
    let arguments = r#"{"files":["a","b","c"]}"#;
    let called = client.run(
        &url,
        &["call-progress", "fast__process_files", arguments, "--sse"],
    );
    // The TypeScript client drops progress that it reads together with the response, as in this
    // tool's case.
    assert!(
        matches!(client, ForeignClient::TypeScript1) || !called.lines_of("progress").is_empty(),
        "{called:?}"
    );
    let refused = client.run(&url, &["unknown-tool", "--sse"]);
    assert_eq!(refused.lines_of("refused").len(), 1, "{refused:?}");
}

// Proves R107.
#[test]
fn the_typescript_client_of_http_sse() {
    client(ForeignClient::TypeScript1);
}

// Proves R107.
#[test]
fn the_python_client_of_http_sse() {
    client(ForeignClient::Python1);
}

/// Runs a server of HTTP+SSE alone behind weir, found by the probe, for clients of each era.
fn server(url: &str, tool: &str, arguments: &str, says: &str) {
    let weir = Weir::with_upstreams(json!({ "old": { "url": url } }));
    weir.wait_until_listed("/mcp/old", &[tool]);
    let url = weir.url("/mcp/old");
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::Python2As("modern"),
    ] {
        let called = client.run(&url, &["call", tool, arguments]);
        assert!(
            called.only_line("result").to_string().contains(says),
            "{client:?}: {called:?}"
        );
    }
}

// Proves R078.
#[test]
fn server_everything_over_http_sse() {
    if peers_are_enabled() {
        let (_running, url) = ForeignServer::Everything.over_sse();
        server(&url, "get-sum", r#"{"a":2,"b":3}"#, "5");
    }
}

// Proves R078.
#[test]
fn fastmcp_over_http_sse() {
    if peers_are_enabled() {
        let (_running, url) = ForeignServer::FastMcp.over_sse();
        server(&url, "add", r#"{"a":2,"b":3}"#, "5");
    }
}

/// server-everything over stdio: a subscribed client gets updates, on a stream of its own beside
/// the calls.
// Proves R205.
#[test]
fn updates_of_a_child_reach_clients_of_both_eras() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(json!({ "peer": ForeignServer::Everything.as_child() }));
    weir.wait_until_listed("/mcp/peer", &["toggle-subscriber-updates"]);
    let uri = "demo://resource/dynamic/text/1";
    for (client, endpoint, name) in [
        (ForeignClient::TypeScript1, "/mcp/peer", uri.to_owned()),
        (
            ForeignClient::TypeScript2("modern"),
            "/mcp",
            format!("peer+{uri}"),
        ),
    ] {
        // The tool turns the updates on and off again; once on, the first update comes at once.
        let tool = if endpoint == "/mcp" {
            "peer__toggle-subscriber-updates"
        } else {
            "toggle-subscriber-updates"
        };
        let seen = client.run(
            &weir.url(endpoint),
            &["subscribe", &name, "--trigger", tool],
        );
        assert_eq!(
            seen.only_line("updated")["uri"],
            name,
            "{client:?}: {seen:?}"
        );
        weir.call_tool("/mcp/peer", "toggle-subscriber-updates", &json!({}));
    }
}
