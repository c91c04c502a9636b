//! Lists and their changes.

use std::collections::HashSet;

use serde_json::json;
use weir_testkit::mock_server::MockTool;

use super::pairing::{FILLERS, RICH_SCHEMA, ScenarioPairing};
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, wait_until_async, within_test_timeout};

// Proves R119, R148.
pub async fn all_pages_are_listed_once_and_byte_for_byte(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = world.client().await;
    let (tools, pages) = client.list_tool_pages().await;
    let names: HashSet<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), tools.len(), "each once: {names:?}");
    assert!(
        names.len() > FILLERS && pages == tools.len().div_ceil(4),
        "{} tools, {pages} pages",
        tools.len()
    );
    assert!(
        names.iter().all(|name| name.starts_with("shop__")),
        "{names:?}"
    );
    let direct = world.direct().await.list_tool_names().await;
    assert!(
        direct
            .iter()
            .all(|name| names.contains(&*format!("shop__{name}"))),
        "{direct:?} of {names:?}"
    );
    assert_eq!(direct.len(), names.len());
    let first = client.ask("tools/list", json!({})).await;
    let body = String::from_utf8(first.body.to_vec()).unwrap();
    assert!(body.contains(RICH_SCHEMA), "{body}");
    assert!(body.contains(r#""name":"shop__rich""#), "{body}");
    FeatureSupport::Carried
}

// Proves R201.
pub async fn upstream_list_change_is_announced_and_then_listed(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let client = world.client().await;
    let before = client.list_tool_names().await;
    let mut stream = client.open_change_stream().await;
    let mock_server = &world.mock_server;
    mock_server
        .wait_until("weir listens", |mock_server| {
            mock_server.listeners() >= world.weir.processes()
        })
        .await;
    mock_server.set_tools(
        MockTool::numbered(FILLERS)
            .into_iter()
            .chain([MockTool::new("added_0")]),
    );
    mock_server.notify_list_changed();
    stream.expect_list_changed().await;
    if world.weir.processes() > 1 {
        // Other replicas fetch the new list on their own, a little earlier or later.
        wait_until_listed_everywhere(world, "shop__added_0").await;
    }
    wait_until_async("the new list", async || {
        let names = client.list_tool_names().await;
        assert_ne!(names, before, "the list is new once its change is told");
        names.contains(&"shop__added_0".to_owned()).then_some(())
    })
    .await;
    let called = client.call("shop__added_0", json!({ "a": 1 })).await;
    assert_eq!(called.text(), r#"{"a":1}"#);
    drop(stream);
    within_test_timeout(
        "weir goes on listening",
        mock_server.wait_until("it listens", |mock_server| mock_server.listeners() > 0),
    )
    .await;
    FeatureSupport::Carried
}

async fn wait_until_listed_everywhere(world: &ScenarioPairing, tool: &str) {
    for url in world.weir.urls_of_each("/mcp") {
        let client = CheckedClient::open(&url, world.client).await;
        wait_until_async("the new list at each replica", async || {
            let names = client.list_tool_names().await;
            names.iter().any(|name| name == tool).then_some(())
        })
        .await;
    }
}
