//! Real clients in front of weir. Each lists all pages, calls, gets progress, gets a
//! `list_changed`, and sees an unknown tool refused, for upstreams of every era.

use serde_json::{Value, json};
use weir_testkit::MockServer;
use weir_testkit::mock_server::{MockServerBuilder, MockTool};
use weir_wire::Revision;

use crate::harness::{
    ForeignClient, ForeignServer, TestProcess, Weir, inspector, peers_are_enabled,
};

/// weir in front of servers of both eras, over HTTP and stdio.
struct WeirOverSdkServers {
    weir: Weir,
    _servers: Vec<TestProcess>,
}

fn town() -> WeirOverSdkServers {
    let (zoo, zoo_url) = ForeignServer::TypeScript1.over_http();
    let (modern, modern_url) = ForeignServer::RmcpModern.over_http();
    let weir = Weir::with_upstreams(json!({
        "zoo": { "url": zoo_url },
        "shop": { "url": modern_url },
        "fast": ForeignServer::FastMcp.as_child(),
        "low": ForeignServer::LowLevel.as_child(),
    }));
    weir.wait_until_listed(
        "/mcp",
        &["zoo__weigh", "shop__sum", "fast__add", "low__reverse"],
    );
    WeirOverSdkServers {
        weir,
        _servers: vec![zoo, modern],
    }
}

fn tour(client: ForeignClient) {
    if !peers_are_enabled() {
        return;
    }
    let town = town();
    let url = town.weir.url("/mcp");
    lists_and_calls(client, &url);
    hears_progress(client, &url);
    hears_of_changes(client, &url);
    let refused = client.run(&url, &["unknown-tool"]);
    assert_eq!(refused.lines_of("refused").len(), 1, "{refused:?}");
}

fn lists_and_calls(client: ForeignClient, url: &str) {
    let listed = client.run(url, &["list"]);
    let names = listed.names();
    for expected in [
        "zoo__weigh",
        "zoo__draw",
        "shop__sum",
        "fast__add",
        "fast__process_files",
        "low__reverse",
    ] {
        assert!(names.contains(&expected), "{expected} in {names:?}");
    }
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "nothing twice: {names:?}");
    for (tool, arguments, answer) in [
        ("zoo__weigh", json!({ "animal": "cat" }), "4.5"),
        ("shop__sum", json!({ "a": 20, "b": 22 }), "42"),
        ("fast__add", json!({ "a": 2, "b": 3 }), "5"),
        ("low__reverse", json!({ "text": "weir" }), "riew"),
    ] {
        let called = client.run(url, &["call", tool, &arguments.to_string()]);
        let result = &called.only_line("result")["result"];
        assert!(
            result["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .contains(answer),
            "{tool}: {result}"
        );
    }
}

fn hears_progress(client: ForeignClient, url: &str) {
    for (tool, arguments) in [
        ("fast__process_files", json!({ "files": ["a", "b", "c"] })),
        ("shop__saw", json!({ "steps": 3 })),
    ] {
        let called = client.run(url, &["call-progress", tool, &arguments.to_string()]);
        let notes = called.lines_of("progress");
        assert!(!notes.is_empty(), "{client:?} {tool}: {called:?}");
        let mut steps: Vec<f64> = notes
            .iter()
            .map(|note| note["progress"].as_f64().unwrap())
            .collect();
        if matches!(client, ForeignClient::Rmcp(_)) {
            // The client runs each notification in a task of its own, in any order: none may come
            // twice.
            steps.sort_unstable_by(f64::total_cmp);
        }
        assert!(
            steps.windows(2).all(|pair| pair[0] < pair[1]),
            "progress increases: {steps:?}"
        );
        called.only_line("result");
    }
}

fn hears_of_changes(client: ForeignClient, url: &str) {
    let watched = client.run(url, &["watch", "--trigger", "shop__grow"]);
    watched.only_line("list_changed");
    assert!(watched.names().contains(&"shop__plane"), "{watched:?}");
    let watched = client.run(url, &["watch", "--trigger", "zoo__add_tool"]);
    assert!(!watched.lines_of("list_changed").is_empty());
    assert!(watched.names().contains(&"zoo__grown_1"), "{watched:?}");
}

macro_rules! tours {
    ($($name:ident: $client:expr;)*) => {$(
        #[test]
        fn $name() {
            tour($client);
        }
    )*};
}

tours! {
    // Proves R059, R201.
    typescript_sdk_1: ForeignClient::TypeScript1;
    // Proves R059, R201.
    typescript_sdk_2_legacy: ForeignClient::TypeScript2("legacy");
    // Proves R051, R201.
    typescript_sdk_2_modern: ForeignClient::TypeScript2("modern");
    // Proves R062, R201.
    typescript_sdk_2_probing: ForeignClient::TypeScript2("auto");
    // Proves R059, R201.
    python_sdk_1: ForeignClient::Python1;
    // Proves R062, R201.
    python_sdk_2: ForeignClient::Python2;
    // Proves R059, R201.
    rust_sdk_legacy: ForeignClient::Rmcp("legacy");
    // Proves R051, R201.
    rust_sdk_modern: ForeignClient::Rmcp("modern");
    // Proves R062, R201.
    rust_sdk_probing: ForeignClient::Rmcp("auto");
}

/// The check of `outputSchema` in `callTool` passes a good result and rejects a bad one, under
/// prefixed names.
// Proves R128.
#[test]
fn structured_output_is_checked_by_the_clients_themselves() {
    if !peers_are_enabled() {
        return;
    }
    let weir = Weir::with_upstreams(json!({ "low": ForeignServer::LowLevel.as_child() }));
    weir.wait_until_listed("/mcp", &["low__count_words", "low__miscount"]);
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::TypeScript2("legacy"),
        ForeignClient::Python1,
    ] {
        let good = client.run(
            &weir.url("/mcp"),
            &["structured", "low__count_words", r#"{"text":"one two"}"#],
        );
        assert!(
            good.only_line("accepted")["structuredContent"].is_object(),
            "{client:?}: {good:?}"
        );
        let bad = client.run(
            &weir.url("/mcp"),
            &["structured", "low__miscount", r#"{"text":"one two"}"#],
        );
        bad.only_line("rejected");
    }
}

/// Clients check the form of a whole list at once, and the TypeScript client compiles all output
/// schemas of a list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_items_of_one_server_cost_no_client_the_list() {
    if !peers_are_enabled() {
        return;
    }
    let object = json!({ "type": "object" });
    let with = |name: &str, member: &str, value: Value| {
        let mut tool = json!({ "name": name, "inputSchema": object });
        tool[member] = value;
        MockTool::raw(&tool.to_string())
    };
    let output = |name: &str, schema: Value| with(name, "outputSchema", schema);
    let one_property = |name: &str| json!({ "$id": "https://x.example/out", "type": "object", "properties": { name: object }, "required": [name], "additionalProperties": false });
    let pattern = |pattern: &str| json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": pattern } } });
    let malformed = [
        MockTool::raw(r#"{"name":"bare"}"#),
        MockTool::raw(r#"{"name":"scalar","inputSchema":{"type":"string"}}"#),
        with("empty", "inputSchema", json!({})),
        with(
            "nulls",
            "inputSchema",
            json!({ "type": "object", "properties": null, "required": null }),
        ),
        with(
            "any",
            "inputSchema",
            json!({ "type": "object", "properties": { "a": true } }),
        ),
        with("no_description", "description", Value::Null),
        with("no_annotations", "annotations", Value::Null),
        with("icon", "icons", json!([{ "src": 5 }])),
        output(
            "foreign",
            json!({ "type": "object", "properties": { "a": { "$ref": "https://x.example/b" } } }),
        ),
        output(
            "draft",
            json!({ "type": "object", "properties": { "a": { "type": "number", "minimum": 0, "exclusiveMinimum": true } } }),
        ),
        output("python", pattern("(?P<y>a)")),
        output("escape", pattern(r"\@")),
        output(
            "nullable",
            json!({ "type": "object", "properties": { "a": { "nullable": true } } }),
        ),
        output("id_a", one_property("a")),
    ];
    let bad = MockServer::legacy(Revision::NEWEST_LEGACY);
    let bad = malformed.into_iter().fold(bad, MockServerBuilder::with);
    let (bad, good) = (
        bad.start().await,
        MockServer::modern()
            .with(output("id_b", one_property("b")))
            .tools(1)
            .start()
            .await,
    );
    let weir =
        Weir::with_upstreams(json!({ "bad": { "url": bad.url() }, "good": { "url": good.url() } }));
    weir.wait_until_listed("/mcp", &["bad__bare", "good__tool_0000"]);
    let url = weir.url("/mcp");
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::TypeScript2("legacy"),
        ForeignClient::Python1,
        ForeignClient::Python2,
    ] {
        let listed = tokio::task::block_in_place(|| client.run(&url, &["list"]));
        let names = listed.names();
        for expected in ["bad__bare", "bad__nulls", "bad__python", "good__tool_0000"] {
            assert!(
                names.contains(&expected),
                "{client:?}: {expected} in {names:?}"
            );
        }
        assert!(!names.contains(&"bad__scalar"), "{client:?}: {names:?}");
        assert_eq!(names.len(), 15, "{client:?}: {names:?}");
        if matches!(client, ForeignClient::Python2) {
            continue;
        }
        // Equal ids of two servers do not mix their schemas up.
        for (tool, arguments) in [("bad__id_a", r#"{"a":{}}"#), ("good__id_b", r#"{"b":{}}"#)] {
            let called = || client.run(&url, &["structured", tool, arguments]);
            tokio::task::block_in_place(called).only_line("accepted");
        }
    }
}

// Proves R215, R218.
#[test]
fn log_messages_come_at_the_level_asked_for() {
    if !peers_are_enabled() {
        return;
    }
    let town = town();
    let files = json!({ "files": ["a", "b"] }).to_string();
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::Python1,
        ForeignClient::Python2,
    ] {
        let heard = client.run(
            &town.weir.url("/mcp"),
            &["logs", "fast__process_files", &files, "--level", "info"],
        );
        assert!(!heard.lines_of("log").is_empty(), "{client:?}: {heard:?}");
        let quiet = client.run(
            &town.weir.url("/mcp"),
            &["logs", "fast__process_files", &files, "--level", "error"],
        );
        assert!(quiet.lines_of("log").is_empty(), "{client:?}: {quiet:?}");
    }
}

/// Before `logging/setLevel` the server decides, and FastMCP sends all messages.
#[test]
fn legacy_client_without_a_level_gets_the_log_messages_of_its_calls() {
    if !peers_are_enabled() {
        return;
    }
    let town = town();
    let files = json!({ "files": ["a", "b"] }).to_string();
    for (client, expected) in [
        (ForeignClient::TypeScript1, 2),
        (ForeignClient::TypeScript2("legacy"), 2),
        (ForeignClient::Python1, 2),
        (ForeignClient::TypeScript2("modern"), 0),
    ] {
        let heard = client.run(
            &town.weir.url("/mcp"),
            &["logs", "fast__process_files", &files, "--level", "none"],
        );
        assert_eq!(
            heard.lines_of("log").len(),
            expected,
            "{client:?}: {heard:?}"
        );
    }
}

// Proves R210, R212.
#[test]
fn a_cancelled_call_ends_and_the_connection_serves_on() {
    if !peers_are_enabled() {
        return;
    }
    let town = town();
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::TypeScript2("legacy"),
        ForeignClient::Python1,
    ] {
        let scenario = ["cancel", "fast__wait_for_ever", "{}", "--level", "info"];
        let cancelled = client.run(&town.weir.url("/mcp"), &scenario);
        cancelled.only_line("cancelled");
        assert!(!cancelled.names().is_empty());
    }
}

/// The stream of a call that the client gave up ends without an answer, so the client asks for the
/// rest of it.
#[test]
fn client_that_gave_a_call_up_keeps_its_one_standing_stream() {
    if !peers_are_enabled() {
        return;
    }
    let (_zoo, zoo_url) = ForeignServer::TypeScript1.over_http();
    let weir = Weir::with_config(json!({
        "upstreams": {
            "zoo": { "url": zoo_url },
            "fast": ForeignServer::FastMcp.as_child(),
        },
        "limits": { "retry": "10ms" },
    }));
    weir.wait_until_listed("/mcp", &["zoo__weigh", "fast__add"]);
    for client in [
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("legacy"),
    ] {
        let scenario = [
            "abandon",
            "fast__wait_for_ever",
            "{}",
            "--trigger",
            "zoo__add_tool",
        ];
        let seen = client.run(&weir.url("/mcp"), &scenario);
        seen.only_line("abandoned");
        assert!(!seen.lines_of("list_changed").is_empty(), "{seen:?}");
        let requests = seen.only_line("streams")["requests"].as_u64().unwrap();
        assert!(requests < 10, "the streams end each other: {seen:?}");
    }
}

// Proves R059.
#[test]
fn the_inspectors_command_line_lists_and_calls() {
    if !peers_are_enabled() {
        return;
    }
    let town = town();
    let listed = inspector(&town.weir.url("/mcp"), &["tools/list"]);
    let names: Vec<&Value> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(names.contains(&&json!("zoo__weigh")), "{names:?}");
    let call = [
        "tools/call",
        "--tool-name",
        "fast__add",
        "--tool-arg",
        "a=2",
        "--tool-arg",
        "b=3",
    ];
    let called = inspector(&town.weir.url("/mcp"), &call);
    assert_eq!(called["content"][0]["text"], "5", "{called}");
}
