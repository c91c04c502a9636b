//! Calls over a limit: the error that a model reads.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{ClientAnswer, MockBehaviour, MockServer, RawClient};
use weir_wire::{Revision, meta};

use super::{config, weir_over, weir_with};
use crate::harness::{CheckedClient, wait_until_async};

/// Returns weir's own error in a result that a model reads.
fn refusal(answer: &ClientAnswer) -> serde_json::Value {
    let result = answer.result();
    assert_eq!(
        (answer.status.as_u16(), &result["isError"]),
        (200, &json!(true)),
        "{result}"
    );
    result["_meta"][meta::WEIR_ERROR].clone()
}

// Proves F01, R048, R140.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_over_a_tool_limit_names_limit_and_retry_time() {
    for revision in [
        Revision::MODERN,
        Revision::NEWEST_LEGACY,
        Revision::V2025_06_18,
    ] {
        let (upstream, weir) =
            weir_with(json!({ "tools": { "one/tool_0000": { "rate": "2/h" } } })).await;
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        for _ in 0..2 {
            assert_eq!(client.call("one__tool_0000", json!({})).await.text(), "{}");
        }
        let refused = client.call("one__tool_0000", json!({})).await;
        let error = refusal(&refused);
        assert_eq!(
            (&error["code"], &error["reason"]),
            (&json!(1005), &json!("limit"))
        );
        let limit = json!({ "policy": "tool:one/tool_0000", "quota": false, "limit": 2, "windowSeconds": 3600 });
        assert_eq!(error["limit"], limit);
        let wait = error["retryAfterMs"].as_u64().unwrap();
        assert!(
            (1..=1_800_000).contains(&wait),
            "half an hour at most: {wait}"
        );
        let text = refused.text();
        assert!(
            text.contains("at most 2 in 60 min") && text.contains("Wait 30 min"),
            "{text}"
        );
        // The same tool by its other name, on the transparent endpoint.
        let alone = CheckedClient::open(&weir.url("/mcp/one"), revision).await;
        assert_eq!(
            refusal(&alone.call("tool_0000", json!({})).await)["code"],
            1005
        );
        assert_eq!(
            alone.call("tool_0001", json!({})).await.text(),
            "{}",
            "another tool"
        );
        assert_eq!(
            upstream.executions("tool_0000"),
            2,
            "what was refused never ran"
        );
    }
}

/// A batch is one request, and as many calls as it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_pays_for_each_of_its_calls() {
    let (upstream, weir) = weir_with(json!({ "upstreams": { "one": { "rate": "3/h" } } })).await;
    let client = RawClient::new(&weir.url("/mcp"))
        .legacy(Revision::V2025_03_26)
        .initialize()
        .await
        .unwrap();
    let call = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "one__tool_0000", "arguments": {} } });
    let items: Vec<_> = (0..10).map(call).collect();
    let (headers, _) = client.envelope("tools/call", json!({}));
    let answer = client
        .send(http::Method::POST, headers, json!(items).to_string())
        .await
        .unwrap();
    let answer = answer.finish().await.unwrap();
    assert_eq!(answer.messages.len(), 10);
    let refused = answer
        .messages
        .iter()
        .filter(|message| message["result"]["isError"] == true)
        .count();
    assert_eq!((refused, upstream.executions("tool_0000")), (7, 3));
}

/// Sleeps over the end of the UTC day if it comes within a minute: a daily quota begins anew there.
async fn avoid_end_of_day() {
    const DAY: u64 = 24 * 60 * 60;
    let passed = UNIX_EPOCH.elapsed().unwrap().as_secs() % DAY;
    let left = Duration::from_secs(DAY - passed);
    if left < Duration::from_secs(60) {
        tokio::time::sleep(left).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daily_quotas_are_named_and_survive_a_reload() {
    avoid_end_of_day().await;
    let (upstream, weir) = weir_with(json!({ "upstreams": { "one": { "daily": 3 } } })).await;
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    for _ in 0..3 {
        assert_eq!(client.call("one__tool_0000", json!({})).await.text(), "{}");
    }
    let quota =
        json!({ "policy": "upstream:one", "quota": true, "limit": 3, "windowSeconds": 86_400 });
    let refused = client.call("one__tool_0001", json!({})).await;
    assert_eq!(refusal(&refused)["limit"], quota);
    assert!(refused.text().contains("3 a day"), "{}", refused.text());
    for (outcome, count) in [("allowed", 3.0), ("quota", 1.0)] {
        let labels = [
            r#"limit="upstream:one""#,
            &format!(r#"outcome="{outcome}""#),
        ];
        assert_eq!(
            weir.metric("weir_limit_decisions_total", &labels),
            count,
            "{outcome}"
        );
    }
    weir.rewrite_config(config(
        &upstream,
        json!({ "upstreams": { "one": { "daily": 3 } }, "concurrency": { "queue": 5 } }),
    ));
    wait_until_async("the reload", async || {
        (weir.metric("weir_config_reloads_total", &[r#"result="ok""#]) > 0.0).then_some(())
    })
    .await;
    assert_eq!(
        refusal(&client.call("one__tool_0001", json!({})).await)["limit"],
        quota
    );
    assert_eq!(upstream.total_executions(), 3);
}

/// More calls than an upstream accepts wait for each other for a short time instead of being
/// refused.
// Proves R282.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_calls_get_a_turn_or_an_error() {
    let gate = CallGate::new();
    let slow = MockServer::modern().tool("slow", MockBehaviour::gated(&gate));
    let (upstream, weir) = weir_over(
        slow,
        json!({ "concurrency": { "queue": 1, "wait": "60s" } }),
    )
    .await;
    let mut narrow = config(
        &upstream,
        json!({ "concurrency": { "queue": 1, "wait": "60s" } }),
    );
    narrow["upstreams"]["one"]["limits"] = json!({ "in_flight": 1 });
    weir.rewrite_config(narrow);
    wait_until_async("the reload", async || {
        (weir.metric("weir_config_reloads_total", &[r#"result="ok""#]) > 0.0).then_some(())
    })
    .await;
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let call = |client: &CheckedClient| {
        let client = client.clone();
        tokio::spawn(async move { client.call("one__slow", json!({})).await })
    };
    let first = call(&client);
    upstream
        .wait_until("the call to run", |mock_server| {
            mock_server.executions("slow") == 1
        })
        .await;
    let second = call(&client);
    wait_until_async("the second to wait", async || {
        (weir.metric(
            "weir_limit_queue",
            &[r#"limit="concurrency:upstream""#, r#"upstream="one""#],
        ) == 1.0)
            .then_some(())
    })
    .await;
    let refused = client.call("one__slow", json!({})).await;
    let error = refusal(&refused);
    assert_eq!(
        (&error["code"], &error["upstream"]),
        (&json!(1006), &json!("one")),
        "the queue is full"
    );
    assert_eq!(
        error["limit"],
        json!({ "policy": "concurrency:upstream", "quota": false, "limit": 1 })
    );
    gate.open();
    for call in [first, second] {
        assert_ne!(call.await.unwrap().result()["isError"], true);
    }
    assert_eq!(upstream.executions("slow"), 2);
    wait_until_async("an empty queue", async || {
        (weir.metric("weir_limit_queue", &[]) == 0.0).then_some(())
    })
    .await;
}
