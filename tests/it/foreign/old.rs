//! HTTP+SSE, the transport of 2024-11-05, with the clients and servers of the SDKs; and resource
//! updates of servers over stdio.

use serde_json::json;

use crate::harness::{Client, Process, Server, Weir, needs_peers};

/// Runs a client that speaks HTTP+SSE to weir, in front of servers of both eras.
fn client(client: Client) {
    if !needs_peers() {
        return;
    }
    let (_fast, fast) = Server::FastMcp.over_http();
    let (_shop, shop) = Server::RmcpModern.over_http();
    let weir = Weir::over(json!({ "fast": { "url": fast }, "shop": { "url": shop } }));
    weir.until_listed("/mcp", &["fast__add", "shop__sum"]);
    let url = weir.url("/mcp/sse");
    let listed = client.run(&url, &["list", "--sse"]);
    assert!(
        listed.names().contains(&"fast__add") && listed.names().contains(&"shop__sum"),
        "{listed:?}"
    );
    for tool in ["fast__add", "shop__sum"] {
        let called = client.run(&url, &["call", tool, r#"{"a":2,"b":3}"#, "--sse"]);
        assert!(
            called.one("result")["result"]["content"][0]["text"]
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
        matches!(client, Client::TypeScript1) || !called.all("progress").is_empty(),
        "{called:?}"
    );
    let refused = client.run(&url, &["unknown-tool", "--sse"]);
    assert_eq!(refused.all("refused").len(), 1, "{refused:?}");
}

#[test]
fn r107_the_typescript_client_of_http_sse() {
    client(Client::TypeScript1);
}

#[test]
fn r107_the_python_client_of_http_sse() {
    client(Client::Python1);
}

/// Runs a server of HTTP+SSE alone behind weir, found by the probe, for clients of each era.
fn server((_running, url): (Process, String), (tool, arguments, says): (&str, &str, &str)) {
    let weir = Weir::over(json!({ "old": { "url": url } }));
    weir.until_listed("/mcp/old", &[tool]);
    let url = weir.url("/mcp/old");
    for client in [
        Client::TypeScript1,
        Client::TypeScript2("modern"),
        Client::Python2As("modern"),
    ] {
        let called = client.run(&url, &["call", tool, arguments]);
        assert!(
            called.one("result").to_string().contains(says),
            "{client:?}: {called:?}"
        );
    }
}

#[test]
fn r078_server_everything_over_http_sse() {
    if needs_peers() {
        server(
            Server::Everything.over_sse(),
            ("get-sum", r#"{"a":2,"b":3}"#, "5"),
        );
    }
}

#[test]
fn r078_fastmcp_over_http_sse() {
    if needs_peers() {
        server(Server::FastMcp.over_sse(), ("add", r#"{"a":2,"b":3}"#, "5"));
    }
}

/// server-everything over stdio: a subscribed client gets updates, on a stream of its own beside
/// the calls.
#[test]
fn r205_updates_of_a_child_reach_clients_of_both_eras() {
    if !needs_peers() {
        return;
    }
    let weir = Weir::over(json!({ "peer": Server::Everything.as_child() }));
    weir.until_listed("/mcp/peer", &["toggle-subscriber-updates"]);
    let uri = "demo://resource/dynamic/text/1";
    for (client, endpoint, name) in [
        (Client::TypeScript1, "/mcp/peer", uri.to_owned()),
        (Client::TypeScript2("modern"), "/mcp", format!("peer+{uri}")),
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
        assert_eq!(seen.one("updated")["uri"], name, "{client:?}: {seen:?}");
        weir.call("/mcp/peer", "toggle-subscriber-updates", &json!({}));
    }
}
