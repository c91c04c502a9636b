//! Real servers behind weir: each is listed and called, prefixed on `/mcp` and bare on its transparent endpoint.

use serde_json::{Value, json};

use weir_wire::Revision;

use crate::harness::{Checked, Server, Weir, needs_peers, until_it};

struct Try {
    tool: &'static str,
    arguments: Value,
    /// What the answer's text must have in it.
    says: &'static str,
}

fn listed_and_called(upstream: Value, tries: &[Try]) {
    let weir = Weir::over(json!({ "peer": upstream }));
    let wanted: Vec<&str> = tries.iter().map(|one| one.tool).collect();
    weir.until_listed("/mcp/peer", &wanted);
    for one in tries {
        let bare = weir.call("/mcp/peer", one.tool, &one.arguments);
        assert!(bare["content"][0]["text"].as_str().unwrap_or_default().contains(one.says), "{bare}");
        let prefixed = format!("peer__{}", one.tool);
        weir.until_listed("/mcp", &[&prefixed]);
        let called = weir.call("/mcp", &prefixed, &one.arguments);
        assert!(called["content"][0]["text"].as_str().unwrap_or_default().contains(one.says), "{called}");
    }
}

macro_rules! servers {
    ($($name:ident: $server:expr, $how:ident, [$(($tool:literal, $arguments:tt, $says:literal)),+];)*) => {$(
        #[test]
        fn $name() {
            if needs_peers() {
                let tries = [$(Try { tool: $tool, arguments: json!($arguments), says: $says }),+];
                servers!(@$how $server, &tries);
            }
        }
    )*};
    (@child $server:expr, $tries:expr) => { listed_and_called($server.as_child(), $tries) };
    (@http $server:expr, $tries:expr) => {
        let (_running, url) = $server.over_http();
        listed_and_called(json!({ "url": url }), $tries);
    };
}

servers! {
    r075_server_everything_over_stdio: Server::Everything, child, [("echo", {"message": "weir"}, "weir")];
    r075_server_everything_over_http: Server::Everything, http, [("echo", {"message": "weir"}, "weir"), ("get-sum", {"a": 2, "b": 3}, "5")];
    r075_server_filesystem_over_stdio: Server::Filesystem, child, [("list_allowed_directories", {}, "Allowed directories")];
    r075_server_memory_over_stdio: Server::Memory, child, [("read_graph", {}, "entities")];
    r075_mcp_server_fetch_over_stdio: Server::Fetch, child, [("fetch", {"url": "http://127.0.0.1:9/"}, "127.0.0.1:9")];
    r075_fastmcp_over_stdio: Server::FastMcp, child, [("add", {"a": 2, "b": 3}, "5"), ("get_weather", {"city": "Riga"}, "Riga")];
    r075_fastmcp_over_http: Server::FastMcp, http, [("add", {"a": 2, "b": 3}, "5"), ("process_files", {"files": ["a", "b"]}, "2")];
    r128_low_level_server_over_stdio: Server::LowLevel, child, [("reverse", {"text": "weir"}, "riew"), ("fail", {}, "")];
    r128_low_level_server_over_http: Server::LowLevel, http, [("reverse", {"text": "weir"}, "riew")];
    r075_typescript_example_over_http: Server::Example("simpleStreamableHttp", "MCP_PORT"), http, [("greet", {"name": "weir"}, "weir")];
    r075_typescript_example_of_web_standards: Server::Example("honoWebStandardStreamableHttp", "MCP_PORT"), http, [("greet", {"name": "weir"}, "weir")];
    r075_typescript_example_of_output_schemas_over_stdio: Server::Example("mcpServerOutputSchema", ""), child, [("get_weather", {"city": "Riga", "country": "LV"}, "temperature")];
    r075_typescript_example_of_progress_over_stdio: Server::Example("progressExample", ""), child, [("count", {"n": 2}, "Counted to 2")];
    r075_typescript_example_that_answers_by_json: Server::Fixed("jsonResponseStreamableHttp"), http, [("greet", {"name": "weir"}, "weir")];
    r075_typescript_example_without_sessions: Server::Fixed("simpleStatelessStreamableHttp"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "every 10ms")];
    r078_typescript_example_of_http_sse_alone: Server::Fixed("simpleSseServer"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "2 notifications")];
    r078_typescript_example_of_both_transports: Server::Fixed("sseAndStreamableHttpCompatibleServer"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "every 10ms")];
    r096_r097_typescript_example_that_breaks_its_streams_off: Server::Fixed("ssePollingExample"), http, [("long-task", {}, "completed successfully")];
    r075_mcp_server_over_stdio: Server::TypeScript1, child, [("weigh", {"animal": "cat"}, "4.5")];
    r076_mcp_server_over_http: Server::TypeScript1, http, [("weigh", {"animal": "dog"}, "22"), ("draw", {"animal": "cat"}, "A cat")];
    r075_rmcp_legacy_over_stdio: Server::RmcpLegacy, child, [("sum", {"a": 2, "b": 3}, "5")];
    r070_rmcp_legacy_over_http_answers_discover_with_32022: Server::RmcpLegacy, http, [("sum", {"a": 2, "b": 3}, "5")];
    r071_rmcp_modern_over_stdio: Server::RmcpModern, child, [("sum", {"a": 2, "b": 3}, "5")];
    r071_rmcp_modern_over_http: Server::RmcpModern, http, [("sum", {"a": 2, "b": 3}, "5")];
    r071_typescript_2_modern_over_http: Server::Fixture("modern"), http, [("test_simple_text", {}, "")];
    r075_typescript_2_legacy_over_http: Server::Fixture("legacy"), http, [("test_simple_text", {}, "")];
}

/// A server that has another resource every few seconds, and says so on its standing stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r201_typescript_example_that_tells_of_resources_beside_its_calls() {
    if !needs_peers() {
        return;
    }
    let (_running, url) = Server::Fixed("standaloneSseWithGetStreamableHttp").over_http();
    let weir = Weir::over(json!({ "peer": { "url": url } }));
    let client = Checked::open(&weir.url("/mcp/peer"), Revision::MODERN).await;
    let count = async || {
        let listed = client.ask("resources/list", json!({})).await;
        listed.last()["result"]["resources"].as_array().map_or(0, Vec::len)
    };
    let before = until_it("the first list", async || Some(count().await).filter(|count| *count > 0)).await;
    let filter = json!({ "notifications": { "resourcesListChanged": true } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/resources/list_changed");
    assert!(count().await > before);
}

/// Content of every type, annotations, `_meta` and `structuredContent` arrive as the server wrote them.
#[test]
fn r119_content_meta_and_structure_pass_unchanged() {
    if !needs_peers() {
        return;
    }
    let (_running, url) = Server::TypeScript1.over_http();
    let weir = Weir::over(json!({ "zoo": { "url": url } }));
    weir.until_listed("/mcp", &["zoo__draw", "zoo__weigh"]);
    let drawn = weir.call("/mcp", "zoo__draw", &json!({ "animal": "cat" }));
    assert_eq!(drawn["content"][0]["annotations"], json!({ "audience": ["user"], "priority": 0.5 }));
    assert_eq!(drawn["content"][1]["type"], "image");
    assert_eq!(drawn["content"][1]["mimeType"], "image/png");
    assert_eq!(drawn["content"][2]["uri"], "zoo+zoo://animals/cat", "a client may ask weir for it");
    assert_eq!(drawn["_meta"]["example.org/brush"], "thin");
    let weighed = weir.call("/mcp", "zoo__weigh", &json!({ "animal": "elephant" }));
    assert_eq!(weighed["structuredContent"], json!({ "animal": "elephant", "weight": 5400, "unit": "kg" }));
}

/// An exception in a low-level Python server is an `isError` result, and stays one.
#[test]
fn r128_a_tools_own_failure_stays_an_is_error_result() {
    if !needs_peers() {
        return;
    }
    let weir = Weir::over(json!({ "low": Server::LowLevel.as_child(), "zoo": Server::TypeScript1.as_child() }));
    weir.until_listed("/mcp", &["low__fail", "zoo__escape"]);
    for (tool, says) in [("low__fail", ""), ("zoo__escape", "the lion escaped")] {
        let failed = weir.call("/mcp", tool, &json!({}));
        assert_eq!(failed["isError"], true, "{failed}");
        assert!(failed["content"][0]["text"].as_str().unwrap().contains(says), "{failed}");
        assert!(failed["_meta"]["dev.weir/error"].is_null(), "the failure is the tool's, not weir's: {failed}");
    }
}
