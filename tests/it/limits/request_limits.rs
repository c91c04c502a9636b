//! Requests that are refused by their head alone.

use serde_json::json;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer, RawSocket};

use super::{config, from, weir_over, weir_with};
use crate::harness::wait_until_async;

/// Returns a rate of five requests an hour: no test lasts until the next one.
fn five_an_hour() -> serde_json::Value {
    json!({ "rate": "5/h" })
}

// Proves F01, R048.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_over_its_rate_gets_429_and_others_are_served() {
    let (_upstream, weir) = weir_with(json!({ "address": five_an_hour() })).await;
    let (flood, other) = (from(&weir, "203.0.113.7"), from(&weir, "198.51.100.1"));
    for _ in 0..5 {
        assert_eq!(
            flood
                .call("one__tool_0000", json!({}))
                .await
                .unwrap()
                .status,
            200
        );
    }
    for _ in 0..20 {
        let refused = flood.call("one__tool_0000", json!({})).await.unwrap();
        assert_eq!(refused.status, 429);
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!(
            (1..=720).contains(&wait),
            "a fifth of an hour at most: {wait}"
        );
        assert_eq!(
            refused.header("ratelimit"),
            Some(&*format!(r#""address";r=0;t={wait}"#))
        );
        assert_eq!(
            refused.header("ratelimit-policy"),
            Some(r#""address";q=5;w=3600"#)
        );
        assert!(
            refused
                .header("content-type")
                .unwrap()
                .starts_with("text/plain")
        );
        assert!(refused.messages.is_empty());
    }
    // A neighbour in the same network shares its budget; a header of the client's own does not give
    // it another.
    assert_eq!(
        from(&weir, "203.0.113.200")
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        429
    );
    assert_eq!(
        from(&weir, "198.51.100.9, 203.0.113.7")
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        429
    );
    assert_eq!(
        other
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        200
    );
    assert_eq!(
        weir.metric(
            "weir_limit_decisions_total",
            &[r#"limit="address""#, r#"outcome="refused""#]
        ),
        22.0
    );
}

// Proves F01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_refusal_comes_before_the_body() {
    let (_upstream, weir) = weir_with(json!({ "address": { "rate": "1/h" } })).await;
    assert_eq!(
        from(&weir, "203.0.113.7").list_tools().await.unwrap().len(),
        2
    );
    let mut socket = RawSocket::connect(&weir.url("/mcp")).await.unwrap();
    let host = weir.url("").replace("http://", "");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 203.0.113.8\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: 500000\r\n\r\n"
    );
    socket.write(head.as_bytes()).await.unwrap();
    let answer = socket.read_until("\r\n\r\n").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_counts_of_limits_that_stay_and_drops_no_call() {
    let gate = CallGate::new();
    let (upstream, weir) = weir_over(
        MockServer::modern()
            .tools(2)
            .tool("wait", MockBehaviour::gated(&gate)),
        json!({ "address": five_an_hour(), "upstreams": { "one": { "rate": "3/h" } } }),
    )
    .await;
    let (client, other) = (from(&weir, "203.0.113.7"), from(&weir, "198.51.100.1"));
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.call("one__wait", json!({})).await.unwrap() }
    });
    upstream
        .wait_until("the call to run", |mock_server| {
            mock_server.executions("wait") == 1
        })
        .await;
    for _ in 0..5 {
        assert_eq!(
            client.ask("tools/list", json!({})).await.unwrap().status,
            200
        );
    }
    assert_eq!(
        client.ask("tools/list", json!({})).await.unwrap().status,
        429
    );
    // Two calls of three are left; the new limit has two.
    weir.rewrite_config(config(
        &upstream,
        json!({ "address": five_an_hour(), "upstreams": { "one": { "rate": "2/h" } } }),
    ));
    wait_until_async("the reload", async || {
        (weir.metric("weir_config_reloads_total", &[r#"result="ok""#]) > 0.0).then_some(())
    })
    .await;
    assert_eq!(
        client.ask("tools/list", json!({})).await.unwrap().status,
        429,
        "what was counted still counts"
    );
    let mut admitted = 0;
    for _ in 0..4 {
        let answer = other.call("one__tool_0000", json!({})).await.unwrap();
        admitted += usize::from(answer.result()["isError"] != true);
    }
    assert_eq!(admitted, 2, "other numbers begin anew");
    gate.open();
    assert_ne!(waiting.await.unwrap().result()["isError"], true);
}
