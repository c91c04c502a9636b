//! Lists: no page is dropped, no tool is listed twice, and one broken server does not empty the
//! list of others.

use std::collections::HashSet;

use serde_json::{Value, json};
use weir_testkit::mock_server::{CursorBehaviour, MockTool};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::{BOTH, both_eras, missing_upstreams, mock_server, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until_async};
use crate::tenant_isolation::TENANTS;

// Proves R148, R160.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eleven_hundred_tools_over_twelve_pages_are_all_listed_and_nothing_twice() {
    for (era, builder) in both_eras() {
        // The list keeps, so that it is read once however long this test takes.
        let kept = Some((60 * 60 * 1000, "public"));
        let mock_server = builder
            .tools(1_100)
            .page_size(96)
            .cache_hints(kept)
            .start()
            .await;
        // Arbitrary sizes: one item, primes, more than all.
        let sizes = [1, 7, 97, 331, 1_000, 5_000];
        let mut endpoints = json!({ "/whole": { "upstream": "big" } });
        for size in sizes {
            endpoints[format!("/by/{size}")] =
                json!({ "upstreams": ["big"], "page": { "items": size } });
        }
        let weir = Weir::with_config(
            json!({ "upstreams": { "big": { "url": mock_server.url() } }, "endpoints": endpoints }),
        );
        for size in sizes {
            // Pages of one item cost as many requests as there are tools, so one era is enough.
            for revision in BOTH
                .into_iter()
                .filter(|revision| size > 1 || revision.is_modern())
            {
                let client = CheckedClient::open(&weir.url(&format!("/by/{size}")), revision).await;
                let (tools, pages) = client.list_tool_pages().await;
                let names: HashSet<_> = tools
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap())
                    .collect();
                assert_eq!(
                    (tools.len(), names.len()),
                    (1_100, 1_100),
                    "{era:?} {revision:?} by {size}"
                );
                assert_eq!(
                    pages,
                    1_100usize.div_ceil(size),
                    "{era:?} {revision:?} by {size}"
                );
            }
        }
        let client = CheckedClient::open(&weir.url("/whole"), Revision::MODERN).await;
        assert_eq!(
            client.list_tool_names().await,
            (0..1_100)
                .map(|n| format!("tool_{n:04}"))
                .collect::<Vec<_>>(),
            "R113"
        );
        assert_eq!(
            mock_server.requests_of("tools/list").len(),
            12,
            "one walk for everybody"
        );
    }
}

// Proves R146.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_cursor_is_a_cursor() {
    for (_, builder) in both_eras() {
        let mock_server = builder
            .tools(5)
            .page_size(2)
            .cursors(CursorBehaviour::Empty)
            .start()
            .await;
        let weir = weir_over(&[("one", &mock_server)]);
        assert_eq!(
            CheckedClient::open(&weir.url("/mcp"), Revision::MODERN)
                .await
                .list_tool_names()
                .await
                .len(),
            5
        );
        let cursors: Vec<_> = mock_server
            .requests_of("tools/list")
            .iter()
            .map(|r| r.message["params"]["cursor"].clone())
            .collect();
        assert_eq!(
            cursors,
            [Value::Null, json!(""), json!("from:4")],
            "R145: unaltered"
        );
    }
}

// Proves B18, R150.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_lists_are_truncated_and_reported() {
    let good = MockServer::modern().tools(3).start().await;
    let endless = MockServer::modern()
        .page_size(10)
        .cursors(CursorBehaviour::Endless)
        .start()
        .await;
    let same = mock_server(Revision::NEWEST_LEGACY)
        .tools(4)
        .page_size(10)
        .cursors(CursorBehaviour::Same)
        .start()
        .await;
    let weir = Weir::with_upstreams(json!({
        "endless": { "url": endless.url(), "walk": { "pages": 20 } },
        "same": { "url": same.url() },
        "good": { "url": good.url() },
    }));
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let list = client.ask("tools/list", json!({})).await;
        let names: Vec<_> = list.result()["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        let of = |id: &str| {
            names
                .iter()
                .filter(|name| name.starts_with(&format!("{id}__")))
                .count()
        };
        assert_eq!((of("endless"), of("same"), of("good")), (200, 4, 3));
        let told = missing_upstreams(&list);
        for cut in ["endless", "same"] {
            assert!(
                told.contains(&(cut.to_owned(), "truncated".to_owned())),
                "{told:?}"
            );
        }
        assert!(!told.iter().any(|(id, _)| id == "good"), "{told:?}");
        assert_eq!(own_text(&client, "good__tool_0000").await, "{}");
    }
    assert!(
        weir.metric("weir_catalog_truncated_total", &["endless"]) >= 1.0,
        "{}",
        weir.get_admin_page("/metrics")
    );
}

async fn own_text(client: &CheckedClient, tool: &str) -> String {
    client.call(tool, json!({})).await.text().to_owned()
}

// Proves R120, B23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_that_explode_or_point_elsewhere_are_listed_and_cost_nothing() {
    let canary = MockServer::modern().start().await;
    let mut doubling = json!({ "leaf": { "type": "string" } });
    for n in 0..40 {
        let next = if n == 39 {
            json!("#/$defs/leaf")
        } else {
            json!(format!("#/$defs/d{}", n + 1))
        };
        doubling[format!("d{n}")] = json!({ "allOf": [{ "$ref": next }, { "$ref": next }] });
    }
    let bomb = json!({ "type": "object", "$defs": doubling, "properties": { "s": { "$ref": "#/$defs/d0" } } });
    let elsewhere = json!({ "type": "object", "properties": { "s": { "$ref": canary.url() } } });
    let draft4 = json!({ "$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {} });
    let upstream = MockServer::modern()
        .with(MockTool::new("bomb").with("inputSchema", bomb))
        .with(MockTool::new("elsewhere").with("inputSchema", elsewhere))
        .with(MockTool::new("old").with("inputSchema", draft4))
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp/one"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await, ["bomb", "elsewhere", "old"]);
    for tool in ["bomb", "elsewhere", "old"] {
        // R122: an unknown dialect fails gracefully, R121: and a costly schema does not cost.
        assert_eq!(
            client.call(tool, json!({ "s": "text" })).await.text(),
            r#"{"s":"text"}"#
        );
    }
    assert_eq!(
        canary.connections(),
        0,
        "R120: nobody fetches what a schema names"
    );
    assert!(
        weir.metric("weir_validation_unchecked_total", &["one"]) >= 2.0,
        "{}",
        weir.get_admin_page("/metrics")
    );
}

// Proves E16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_are_down_the_list_is_empty_says_so_and_recovers() {
    let mut only = MockServer::modern().tools(2).start().await;
    only.stop().await;
    let weir = weir_over(&[("only", &only)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let list = client.ask("tools/list", json!({})).await;
    assert_eq!(list.result()["tools"], json!([]));
    assert_eq!(list.result()["ttlMs"], 0, "nothing to keep");
    assert_eq!(missing_upstreams(&list).len(), 1, "{}", list.last());
    only.restart().await;
    wait_until_async("its tools", async || {
        (client.list_tool_names().await.len() == 2).then_some(())
    })
    .await;
}

// Proves R165.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_went_away_stays_listed_for_a_while_and_its_calls_say_why() {
    let mut flaky = MockServer::modern().tools(2).start().await;
    let weir = weir_over(&[("flaky", &flaky)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await.len(), 2);
    flaky.stop().await;
    wait_until_async("the list to say that it is stale", async || {
        let list = client.ask("tools/list", json!({})).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 2);
        (missing_upstreams(&list) == [("flaky".to_owned(), "stale".to_owned())])
            .then(|| assert_eq!(list.result()["ttlMs"], 0))
    })
    .await;
    let call = client.call("flaky__tool_0000", json!({})).await;
    assert_eq!(
        super::own_error(&call)["code"],
        1002,
        "E01: {}",
        call.last()
    );
    assert_eq!(flaky.total_executions(), 0);
}

// Proves R116, R128.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_with_a_broken_item_keeps_the_others() {
    // One tool over the size limit: a megabyte of description.
    let huge = MockTool::new("huge").with("description", json!("x".repeat(1 << 20)));
    let upstream = MockServer::modern()
        .with(huge)
        .tool("fine", MockBehaviour::echo())
        .start()
        .await;
    let weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let list = client.ask("tools/list", json!({})).await;
    let names: Vec<_> = list.result()["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["one__fine"]);
    assert_eq!(
        missing_upstreams(&list),
        [("one".to_owned(), "truncated".to_owned())],
        "B25: and it is said"
    );
}

/// A shared cache between the callers and weir knows neither credentials nor permissions.
// Proves R152, D14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_public_for_callers_without_credentials_only() {
    let mock_server = MockServer::modern()
        .tools(1)
        .with_library()
        .cache_hints(Some((60_000, "public")))
        .start()
        .await;
    let tenant = &TENANTS[0];
    for (auth, scope) in [
        (json!({ "mode": "none" }), "public"),
        (
            json!({ "mode": "required", "api_keys": [tenant.api_key()] }),
            "private",
        ),
    ] {
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": mock_server.url() } },
            "auth": auth,
        }));
        let client =
            CheckedClient::open_with_header(&weir.url("/mcp"), Revision::MODERN, tenant.header())
                .await;
        wait_until_async("the list", async || {
            (client.list_tool_names().await.len() == 1).then_some(())
        })
        .await;
        let resources = client.ask("resources/list", json!({})).await;
        let resources = resources.result();
        let read = json!({ "uri": resources["resources"][0]["uri"] });
        let read = client.ask("resources/read", read).await;
        let tools = client.ask("tools/list", json!({})).await;
        for answer in [resources, tools.result(), read.result()] {
            assert_eq!(answer["cacheScope"], scope, "{answer}");
        }
    }
}
