//! Names of tools: too long for a model's API, the same twice, changed by an unrelated server.

use std::collections::HashSet;

use serde_json::json;
use weir_testkit::mock_server::MockTool;
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, mock_server, weir_over};
use crate::admin::OperatorClient;
use crate::harness::{CheckedClient, Weir, wait_until_async};

fn is_legal(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

// Proves R112.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_name_of_200_characters_and_odd_ones_are_exposed_legally_and_called_by_it() {
    let long = "n".repeat(200);
    let other_long = format!("{}x", "n".repeat(199));
    let natives = [
        &*long,
        &*other_long,
        "with space",
        "sl/ash",
        "d\u{e9}j\u{e0}",
        "dots.are.fine",
        "\u{1F980}",
        "UPPER",
        "upper",
    ];
    for revision in BOTH {
        let upstream = mock_server(revision).start().await;
        upstream.set_tools(natives.map(|name| MockTool::new(name).does(MockBehaviour::text(name))));
        let weir = weir_over(&[("one", &upstream)]);
        for client in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), client).await;
            let names = client.list_tool_names().await;
            assert!(names.iter().all(|name| is_legal(name)), "{names:?}");
            assert_eq!(
                names.iter().collect::<HashSet<_>>().len(),
                natives.len(),
                "{names:?}"
            );
            for (exposed, native) in names.iter().zip(natives) {
                assert_eq!(
                    client.call(exposed, json!({})).await.text(),
                    native,
                    "{exposed}"
                );
            }
            assert_eq!(
                client.list_tool_names().await,
                names,
                "R113: the same again"
            );
            // Transparent: no name is changed.
            let direct = CheckedClient::open(&weir.url("/mcp/one"), client.revision).await;
            assert_eq!(direct.list_tool_names().await, natives);
            for native in natives {
                assert_eq!(direct.call(native, json!({})).await.text(), native);
            }
        }
    }
}

// Proves R111, B15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_equal_names_and_tools_are_distinguished_by_configured_id() {
    let east = mock_server(Revision::NEWEST_LEGACY)
        .named("shop")
        .tool("buy", MockBehaviour::text("east"))
        .start()
        .await;
    let west = MockServer::modern()
        .named("shop")
        .tool("buy", MockBehaviour::text("west"))
        .tool("only", MockBehaviour::echo())
        .start()
        .await;
    let weir = weir_over(&[("east", &east), ("west", &west)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        assert_eq!(
            client.list_tool_names().await,
            ["east__buy", "west__buy", "west__only"]
        );
        assert_eq!(client.call("east__buy", json!({})).await.text(), "east");
        assert_eq!(client.call("west__buy", json!({})).await.text(), "west");
        assert_eq!(
            client.call("only", json!({})).await.text(),
            "{}",
            "a native name that one tool has"
        );
        let ambiguous = client.call("buy", json!({})).await;
        assert_eq!(
            (ambiguous.status.as_u16(), ambiguous.code()),
            (200, -32602),
            "a native name that two tools have"
        );
    }
    assert_eq!((east.executions("buy"), west.executions("buy")), (2, 2));
}

/// A call by a native name once went to the other server while one of the two was disabled, or down
/// for longer than its grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_name_of_two_tools_stays_ambiguous_while_the_server_of_one_is_away() {
    let mut east = MockServer::modern()
        .tool("buy", MockBehaviour::text("east"))
        .start()
        .await;
    let west = MockServer::modern()
        .tool("buy", MockBehaviour::text("west"))
        .tool("only", MockBehaviour::text("west"))
        .start()
        .await;
    let weir = Weir::with_upstreams(json!({
        "east": { "url": east.url(), "grace": "100ms" },
        "west": { "url": west.url() },
    }));
    weir.wait_until_listed("/mcp", &["east__buy", "west__buy", "west__only"]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let operator = OperatorClient::of(&weir);
    let assert_ambiguous = async |state: &str| {
        let answer = client.call("buy", json!({})).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (200, -32602),
            "{state}: {}",
            answer.last()
        );
        assert_eq!(
            client.call("only", json!({})).await.text(),
            "west",
            "{state}"
        );
        for (tool, is_callable) in [("buy", false), ("only", true)] {
            let query = format!("endpoint=/mcp&tool={tool}");
            let explained = operator.get_json(&format!("/admin/explain?{query}")).await;
            assert_eq!(explained["callable"], is_callable, "{state}: {explained:#}");
        }
    };
    assert_ambiguous("both are there").await;
    let disable = "/admin/upstreams/east/disable";
    operator
        .change(disable, json!({ "reason": "a drill" }))
        .await;
    assert_ambiguous("one is disabled").await;
    operator
        .change("/admin/upstreams/east/enable", json!({}))
        .await;
    assert_ambiguous("both are there again").await;
    east.stop().await;
    wait_until_async("the end of the grace", async || {
        let listed = client.list_tool_names().await;
        (listed == ["west__buy", "west__only"]).then_some(())
    })
    .await;
    assert_ambiguous("one is down").await;
    assert_eq!(west.executions("buy"), 0);
}

// Proves R111.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_prefix_the_first_in_the_config_keeps_the_bare_name() {
    let east = MockServer::modern()
        .tool("buy", MockBehaviour::text("east"))
        .start()
        .await;
    let west = MockServer::modern()
        .tool("buy", MockBehaviour::text("west"))
        .tool("only", MockBehaviour::echo())
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "east": { "url": east.url() }, "west": { "url": west.url() } },
        "endpoints": {
            "/bare": { "upstreams": ["east", "west"], "naming": { "prefix": "none" } },
            "/other": { "upstreams": ["west", "east"], "naming": { "prefix": "none" } },
        },
    }));
    let client = CheckedClient::open(&weir.url("/bare"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await, ["buy", "west__buy", "only"]);
    assert_eq!(client.call("buy", json!({})).await.text(), "east");
    assert_eq!(client.call("west__buy", json!({})).await.text(), "west");
    let other = CheckedClient::open(&weir.url("/other"), Revision::MODERN).await;
    assert_eq!(other.call("buy", json!({})).await.text(), "west");
}

/// A call by a bare name once went to the next server in the config while its own was away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_prefix_a_server_that_is_away_keeps_its_names() {
    let mut east = MockServer::modern()
        .tool("buy", MockBehaviour::text("east"))
        .start()
        .await;
    let west = MockServer::modern()
        .tool("buy", MockBehaviour::text("west"))
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": {
            "east": { "url": east.url(), "grace": "100ms" },
            "west": { "url": west.url() },
        },
        "endpoints": {
            "/bare": { "upstreams": ["east", "west"], "naming": { "prefix": "none" } },
        },
    }));
    weir.wait_until_listed("/bare", &["buy", "west__buy"]);
    let client = CheckedClient::open(&weir.url("/bare"), Revision::MODERN).await;
    let operator = OperatorClient::of(&weir);
    let assert_away = async |state: &str| {
        wait_until_async(state, async || {
            let listed = client.list_tool_names().await;
            (listed == ["west__buy"]).then_some(())
        })
        .await;
        let refused = client.call("buy", json!({})).await;
        let error = &refused.result()["_meta"]["dev.weir/error"];
        assert_eq!(
            (&error["reason"], &error["upstream"]),
            (&json!("unavailable"), &json!("east")),
            "{state}: {}",
            refused.last()
        );
        let other = client.call("west__buy", json!({})).await;
        assert_eq!(other.text(), "west", "{state}");
        let query = "endpoint=/bare&tool=buy";
        let explained = operator.get_json(&format!("/admin/explain?{query}")).await;
        assert_eq!(explained["callable"], false, "{state}: {explained:#}");
        let text = explained.to_string();
        assert!(text.contains("`east`"), "{state}: {text}");
    };
    let disable = "/admin/upstreams/east/disable";
    operator
        .change(disable, json!({ "reason": "a drill" }))
        .await;
    assert_away("east is disabled").await;
    operator
        .change("/admin/upstreams/east/enable", json!({}))
        .await;
    weir.wait_until_listed("/bare", &["buy", "west__buy"]);
    east.stop().await;
    assert_away("east is down").await;
}
