//! Real servers behind weir: each is listed and called, prefixed on `/mcp` and unprefixed on its
//! transparent endpoint.

use serde_json::{Value, json};

use weir_testkit::scripted_server::ServerAct;
use weir_testkit::{ScriptedServer, TestFolder};
use weir_wire::Revision;

use crate::harness::{
    CheckedClient, ForeignClient, ForeignServer, Weir, peers_are_enabled, wait_until_async,
};

struct ToolTry {
    tool: &'static str,
    arguments: Value,
    /// A part of the answer's text.
    says: &'static str,
}

fn listed_and_called(upstream: &Value, tries: &[ToolTry]) {
    let weir = Weir::with_upstreams(json!({ "peer": upstream }));
    let wanted: Vec<&str> = tries.iter().map(|one| one.tool).collect();
    weir.wait_until_listed("/mcp/peer", &wanted);
    for one in tries {
        let bare = weir.call_tool("/mcp/peer", one.tool, &one.arguments);
        assert!(
            bare["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .contains(one.says),
            "{bare}"
        );
        let prefixed = format!("peer__{}", one.tool);
        weir.wait_until_listed("/mcp", &[&prefixed]);
        let called = weir.call_tool("/mcp", &prefixed, &one.arguments);
        assert!(
            called["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .contains(one.says),
            "{called}"
        );
    }
}

macro_rules! servers {
    ($($name:ident: $server:expr, $how:ident, [$(($tool:literal, $arguments:tt, $says:literal)),+];)*) => {$(
        #[test]
        fn $name() {
            if peers_are_enabled() {
                let tries = [$(ToolTry { tool: $tool, arguments: json!($arguments), says: $says }),+];
                servers!(@$how $server, &tries);
            }
        }
    )*};
    (@child $server:expr, $tries:expr) => { listed_and_called(&$server.as_child(), $tries) };
    (@http $server:expr, $tries:expr) => {
        let (_running, url) = $server.over_http();
        listed_and_called(&json!({ "url": url }), $tries);
    };
}

servers! {
    // Proves R075.
    server_everything_over_stdio: ForeignServer::Everything, child, [("echo", {"message": "weir"}, "weir")];
    // Proves R075.
    server_everything_over_http: ForeignServer::Everything, http, [("echo", {"message": "weir"}, "weir"), ("get-sum", {"a": 2, "b": 3}, "5")];
    // Proves R075.
    server_memory_over_stdio: ForeignServer::Memory, child, [("read_graph", {}, "entities")];
    // Proves R075.
    fastmcp_over_stdio: ForeignServer::FastMcp, child, [("add", {"a": 2, "b": 3}, "5"), ("get_weather", {"city": "Riga"}, "Riga")];
    // Proves R075.
    fastmcp_over_http: ForeignServer::FastMcp, http, [("add", {"a": 2, "b": 3}, "5"), ("process_files", {"files": ["a", "b"]}, "2")];
    // Proves R128.
    low_level_server_over_stdio: ForeignServer::LowLevel, child, [("reverse", {"text": "weir"}, "riew"), ("fail", {}, "")];
    // Proves R128.
    low_level_server_over_http: ForeignServer::LowLevel, http, [("reverse", {"text": "weir"}, "riew")];
    // Proves R075.
    typescript_example_over_http: ForeignServer::Example("simpleStreamableHttp", "MCP_PORT"), http, [("greet", {"name": "weir"}, "weir")];
    // Proves R075.
    typescript_example_of_web_standards: ForeignServer::Example("honoWebStandardStreamableHttp", "MCP_PORT"), http, [("greet", {"name": "weir"}, "weir")];
    // Proves R075.
    typescript_example_of_output_schemas_over_stdio: ForeignServer::Example("mcpServerOutputSchema", ""), child, [("get_weather", {"city": "Riga", "country": "LV"}, "temperature")];
    // Proves R075.
    typescript_example_of_progress_over_stdio: ForeignServer::Example("progressExample", ""), child, [("count", {"n": 2}, "Counted to 2")];
    // Proves R075.
    typescript_example_that_answers_by_json: ForeignServer::Fixed("jsonResponseStreamableHttp"), http, [("greet", {"name": "weir"}, "weir")];
    // Proves R075.
    typescript_example_without_sessions: ForeignServer::Fixed("simpleStatelessStreamableHttp"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "every 10ms")];
    // Proves R078.
    typescript_example_of_http_sse_alone: ForeignServer::Fixed("simpleSseServer"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "2 notifications")];
    // Proves R078.
    typescript_example_of_both_transports: ForeignServer::Fixed("sseAndStreamableHttpCompatibleServer"), http, [("start-notification-stream", {"interval": 10, "count": 2}, "every 10ms")];
    // Proves R096, R097.
    typescript_example_that_breaks_its_streams_off: ForeignServer::Fixed("ssePollingExample"), http, [("long-task", {}, "completed successfully")];
    // Proves R075.
    mcp_server_over_stdio: ForeignServer::TypeScript1, child, [("weigh", {"animal": "cat"}, "4.5")];
    // Proves R076.
    mcp_server_over_http: ForeignServer::TypeScript1, http, [("weigh", {"animal": "dog"}, "22"), ("draw", {"animal": "cat"}, "A cat")];
    // Proves R075.
    rmcp_legacy_over_stdio: ForeignServer::RmcpLegacy, child, [("sum", {"a": 2, "b": 3}, "5")];
    // Proves R070.
    rmcp_legacy_over_http_answers_discover_with_32022: ForeignServer::RmcpLegacy, http, [("sum", {"a": 2, "b": 3}, "5")];
    // Proves R071.
    rmcp_modern_over_stdio: ForeignServer::RmcpModern, child, [("sum", {"a": 2, "b": 3}, "5")];
    // Proves R071.
    rmcp_modern_over_http: ForeignServer::RmcpModern, http, [("sum", {"a": 2, "b": 3}, "5")];
    // Proves R071.
    typescript_2_modern_over_http: ForeignServer::Fixture("modern"), http, [("test_simple_text", {}, "")];
    // Proves R075.
    typescript_2_legacy_over_http: ForeignServer::Fixture("legacy"), http, [("test_simple_text", {}, "")];
}

/// A server that changes its resources every few seconds, and notifies on its GET stream.
// Proves R201.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn typescript_example_that_tells_of_resources_beside_its_calls() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::Fixed("standaloneSseWithGetStreamableHttp").over_http();
    let weir = Weir::with_upstreams(json!({ "peer": { "url": url } }));
    let client = CheckedClient::open(&weir.url("/mcp/peer"), Revision::MODERN).await;
    let count = async || {
        let listed = client.ask("resources/list", json!({})).await;
        listed.last()["result"]["resources"]
            .as_array()
            .map_or(0, Vec::len)
    };
    let before = wait_until_async("the first list", async || {
        Some(count().await).filter(|count| *count > 0)
    })
    .await;
    let filter = json!({ "notifications": { "resourcesListChanged": true } });
    let mut stream = client.start("subscriptions/listen", filter).await;
    assert_eq!(
        stream.next().await.unwrap()["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        stream.next().await.unwrap()["method"],
        "notifications/resources/list_changed"
    );
    assert!(count().await > before);
}

/// Content of every type, annotations, `_meta` and `structuredContent` arrive as the server wrote
/// them.
// Proves R119.
#[test]
fn content_meta_and_structure_pass_unchanged() {
    if !peers_are_enabled() {
        return;
    }
    let (_running, url) = ForeignServer::TypeScript1.over_http();
    let weir = Weir::with_upstreams(json!({ "zoo": { "url": url } }));
    weir.wait_until_listed("/mcp", &["zoo__draw", "zoo__weigh"]);
    let drawn = weir.call_tool("/mcp", "zoo__draw", &json!({ "animal": "cat" }));
    assert_eq!(
        drawn["content"][0]["annotations"],
        json!({ "audience": ["user"], "priority": 0.5 })
    );
    assert_eq!(drawn["content"][1]["type"], "image");
    assert_eq!(drawn["content"][1]["mimeType"], "image/png");
    assert_eq!(
        drawn["content"][2]["uri"], "zoo+zoo://animals/cat",
        "a client may ask weir for it"
    );
    assert_eq!(drawn["_meta"]["example.org/brush"], "thin");
    let weighed = weir.call_tool("/mcp", "zoo__weigh", &json!({ "animal": "elephant" }));
    assert_eq!(
        weighed["structuredContent"],
        json!({ "animal": "elephant", "weight": 5400, "unit": "kg" })
    );
}

/// An exception in a low-level Python server is an `isError` result, and stays one.
// Proves R128.
#[test]
fn a_tools_own_failure_stays_an_is_error_result() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(
        json!({ "low": ForeignServer::LowLevel.as_child(), "zoo": ForeignServer::TypeScript1.as_child() }),
    );
    weir.wait_until_listed("/mcp", &["low__fail", "zoo__escape"]);
    for (tool, says) in [("low__fail", ""), ("zoo__escape", "the lion escaped")] {
        let failed = weir.call_tool("/mcp", tool, &json!({}));
        assert_eq!(failed["isError"], true, "{failed}");
        assert!(
            failed["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains(says),
            "{failed}"
        );
        assert!(
            failed["_meta"]["dev.weir/error"].is_null(),
            "the failure is the tool's, not weir's: {failed}"
        );
    }
}

/// The reference server reads a real file. It declares an output schema, and clients of the SDKs
/// validate the result against it themselves.
// Proves R075, R128.
#[test]
fn server_filesystem_reads_a_file_as_its_output_schema_says() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(json!({ "files": ForeignServer::Filesystem.as_child() }));
    weir.wait_until_listed(
        "/mcp",
        &["files__read_text_file", "files__list_allowed_directories"],
    );
    // The server's folder is the one for temporary files.
    let folder = TestFolder::new("poem");
    let text = "Two roads diverged \u{1F332}\nin a yellow wood,\n";
    let file = folder.write("poem.txt", text);
    let arguments = json!({ "path": file });
    let read = weir.call_tool("/mcp", "files__read_text_file", &arguments);
    assert_eq!(read["content"][0]["text"], text, "{read}");
    assert_eq!(
        read["structuredContent"],
        json!({ "content": text }),
        "{read}"
    );
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::Python1,
    ] {
        let seen = client.run(
            &weir.url("/mcp"),
            &[
                "structured",
                "files__read_text_file",
                &arguments.to_string(),
            ],
        );
        assert_eq!(
            seen.only_line("accepted")["structuredContent"],
            json!({ "content": text }),
            "{client:?}: {seen:?}"
        );
    }
    std::fs::remove_file(&file).unwrap();
    let gone = weir.call_tool("/mcp", "files__read_text_file", &arguments);
    assert_eq!(
        (&gone["isError"], gone.get("structuredContent")),
        (&json!(true), None),
        "{gone}"
    );
    assert!(
        gone["_meta"]["dev.weir/error"].is_null(),
        "the failure is the server's: {gone}"
    );
    let outside = weir.call_tool(
        "/mcp",
        "files__read_text_file",
        &json!({ "path": "/etc/hostname" }),
    );
    assert_eq!(outside["isError"], true, "{outside}");
}

/// The definition of a tool as a client sees it still has the output schema.
// Proves R119.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_filesystem_shows_its_output_schemas() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(json!({ "files": ForeignServer::Filesystem.as_child() }));
    weir.wait_until_listed("/mcp/files", &["read_text_file"]);
    for revision in [
        Revision::V2025_06_18,
        Revision::V2025_11_25,
        Revision::MODERN,
    ] {
        let (tools, _) = CheckedClient::open(&weir.url("/mcp/files"), revision)
            .await
            .list_tool_pages()
            .await;
        let shown = tools
            .iter()
            .find(|tool| tool["name"] == "read_text_file")
            .unwrap();
        assert_eq!(
            shown["outputSchema"]["properties"]["content"]["type"], "string",
            "{revision:?}: {shown}"
        );
    }
}

/// Starts the web site of a test, with a page and a `robots.txt`.
async fn site() -> ScriptedServer {
    ScriptedServer::start(|request| {
        let (kind, body) = if request.head.starts_with("GET /robots.txt ") {
            ("text/plain", "User-agent: *\nDisallow: /private\n")
        } else if request.head.starts_with("GET /page ") {
            (
                "text/html",
                "<html><body><article><h1>Weirs</h1><p>A low dam across a <b>river</b>.</p></article></body></html>",
            )
        } else {
            ("text/plain", "nothing for programs")
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        vec![ServerAct::Write((head + body).into())]
    })
    .await
}

/// The reference server fetches a page of this test. It refuses addresses that are not public
/// unless a flag allows them, and asks a host for its `robots.txt` first.
// Proves R075.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_server_fetch_fetches_a_page() {
    if !peers_are_enabled() {
        return;
    }
    let site = site().await;
    let mut open = ForeignServer::Fetch.as_child();
    open["args"]
        .as_array_mut()
        .unwrap()
        .push(json!("--allow-private-ips"));
    let weir =
        Weir::with_upstreams(json!({ "web": open, "strict": ForeignServer::Fetch.as_child() }));
    weir.wait_until_listed("/mcp", &["web__fetch", "strict__fetch"]);
    let fetch = |tool: &str, path: &str| {
        weir.call_tool(
            "/mcp",
            tool,
            &json!({ "url": format!("{}{path}", site.origin()) }),
        )
    };
    let text = |result: &Value| {
        result["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let page = fetch("web__fetch", "/page");
    assert_ne!(page["isError"], true, "{page}");
    assert!(
        text(&page).contains("A low dam across a **river**."),
        "as Markdown: {page}"
    );
    let private = fetch("web__fetch", "/private/page");
    assert!(
        private["isError"] == true && text(&private).contains("robots.txt"),
        "{private}"
    );
    let refused = fetch("strict__fetch", "/page");
    assert!(
        refused["isError"] == true && text(&refused).contains("not a public address"),
        "{refused}"
    );
    let asked: Vec<_> = site
        .requests()
        .iter()
        .map(|request| request.head.lines().next().unwrap().to_owned())
        .collect();
    assert!(
        asked.iter().any(|line| line.starts_with("GET /page ")),
        "{asked:?}"
    );
    assert!(
        !asked.iter().any(|line| line.contains("/private")),
        "{asked:?}"
    );
}
