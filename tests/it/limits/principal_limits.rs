//! Two principals, known by their keys: the excess of one does not affect the other.

use serde_json::{Value, json};
use weir_testkit::mock_server::CallGate;
use weir_testkit::{MockBehaviour, MockServer, RawClient};

use super::config;
use crate::auth::api_key;
use crate::harness::{ForeignClient, Weir, wait_until_async};

/// Starts weir in front of one server, with clients of two principals: one that floods, and
/// another.
async fn two(
    upstream: &MockServer,
    rates: Value,
    in_flight: usize,
) -> (Weir, RawClient, RawClient) {
    let ((flood, flooding), (other, others)) = (api_key("flood"), api_key("other"));
    let mut config = config(upstream, rates);
    config["auth"] = json!({ "mode": "required", "api_keys": [flooding, others] });
    config["upstreams"]["one"]["limits"] = json!({ "in_flight": in_flight });
    let weir = Weir::with_config(config);
    let client = |key: &str| {
        RawClient::new(&weir.url("/mcp"))
            .modern()
            .with_header("X-API-Key", key)
    };
    let (flood, other) = (client(&flood), client(&other));
    (weir, flood, other)
}

// Proves F01, F12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_at_ten_times_its_rate_gets_429s_and_anothers_calls_all_succeed() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (weir, flood, other) =
        two(&upstream, json!({ "principal": { "rate": "20/h" } }), 256).await;
    let flooding = tokio::spawn(async move {
        let mut admitted = 0;
        for _ in 0..200 {
            let answer = flood.call("one__tool_0000", json!({})).await.unwrap();
            if answer.status == 200 {
                assert_eq!(answer.text(), "{}");
                admitted += 1;
            } else {
                assert_eq!(answer.status, 429);
                assert!(
                    answer
                        .header("ratelimit")
                        .unwrap()
                        .starts_with(r#""principal";r=0;t="#)
                );
            }
        }
        admitted
    });
    for number in 0..20 {
        let answer = other
            .call("one__tool_0000", json!({ "n": number }))
            .await
            .unwrap();
        assert_eq!(answer.text(), format!(r#"{{"n":{number}}}"#));
    }
    assert_eq!(flooding.await.unwrap(), 20, "exactly its rate");
    assert_eq!(
        other
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        429,
        "it has the same one"
    );
    assert_eq!(upstream.executions("tool_0000"), 40);
    for subject in ["flood", "other"] {
        let client = format!("client={subject:?}");
        let counted = weir.metric("weir_client_requests_total", &[&client]);
        assert!(counted > 0.0, "the subject of a key names its client");
    }
}

/// An upstream with one permit: the calls of both wait, and the permit goes round by principal.
// Proves F12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_permit_alternates_between_principals() {
    let gate = CallGate::new();
    let upstream = MockServer::modern()
        .tool("slow", MockBehaviour::gated(&gate))
        .start()
        .await;
    let (weir, flood, other) = two(&upstream, json!({ "concurrency": { "wait": "60s" } }), 1).await;
    let call = |client: &RawClient, who: &'static str| {
        let client = client.clone();
        tokio::spawn(async move {
            client
                .call("one__slow", json!({ "who": who }))
                .await
                .unwrap()
        })
    };
    let mut calls = vec![call(&flood, "flood")];
    upstream
        .wait_until("the first to run", |mock_server| {
            mock_server.executions("slow") == 1
        })
        .await;
    calls.extend((0..20).map(|_| call(&flood, "flood")));
    let waiting = async |count: f64| {
        wait_until_async("them to wait", async || {
            (weir.metric("weir_limit_queue", &[r#"limit="concurrency:upstream""#]) == count)
                .then_some(())
        })
        .await;
    };
    waiting(20.0).await;
    calls.push(call(&other, "other"));
    waiting(21.0).await;
    gate.open();
    for call in calls {
        assert_ne!(call.await.unwrap().result()["isError"], true);
    }
    let calls = upstream.requests_of("tools/call");
    let order: Vec<_> = calls
        .iter()
        .map(|call| &call.message["params"]["arguments"]["who"])
        .collect();
    assert_eq!(order.len(), 22);
    assert_eq!(
        order.iter().position(|who| **who == "other"),
        Some(2),
        "{order:?}"
    );
}

/// A client that probes for the era of a server must not take a refusal for a legacy server's
/// answer.
// Proves R048.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probing_client_does_not_take_429_for_a_legacy_server() {
    let upstream = MockServer::modern().tools(1).start().await;
    let (key, entry) = api_key("prober");
    let mut config = config(&upstream, json!({ "principal": { "rate": "1/h" } }));
    config["auth"] = json!({ "mode": "required", "api_keys": [entry] });
    let weir = Weir::with_config(config);
    let refused = || {
        weir.metric(
            "weir_limit_decisions_total",
            &[r#"limit="principal""#, r#"outcome="refused""#],
        )
    };
    let in_vain = async |scenario: &[&str]| {
        let (url, key) = (weir.url("/mcp"), key.clone());
        let words: Vec<_> = scenario.iter().map(|word| (*word).to_owned()).collect();
        let run = move || {
            let words: Vec<_> = words
                .iter()
                .map(String::as_str)
                .chain(["--bearer", &key])
                .collect();
            ForeignClient::Rmcp("auto").run_refused(&url, &words)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    // Refused in the middle: it stays modern.
    let seen = in_vain(&["call", "one__tool_0000", "{}"]).await;
    assert_eq!(seen.only_line("connected")["protocolVersion"], "2026-07-28");
    assert!(
        seen.only_line("error")["message"]
            .to_string()
            .contains("429"),
        "{seen:?}"
    );
    assert!(
        (refused() - 1.0).abs() < 0.1,
        "one request was refused, and none came after it: {}",
        refused()
    );
    // Refused at its first request: it reports the error, and does not retry with `initialize`.
    let seen = in_vain(&["list"]).await;
    assert!(seen.lines_of("connected").is_empty(), "{seen:?}");
    assert!(
        seen.only_line("error")["message"]
            .to_string()
            .contains("429"),
        "{seen:?}"
    );
    assert!(
        (refused() - 2.0).abs() < 0.1,
        "one request was refused, and none came after it: {}",
        refused()
    );
    assert_eq!(upstream.total_executions(), 0);
    // The refusal has no JSON-RPC, so it cannot be taken for a server's answer.
    let client = RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_header("X-API-Key", &key);
    for method in ["server/discover", "initialize"] {
        let answer = client.ask(method, json!({})).await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), &answer.messages[..]),
            (429, &[][..]),
            "{method}"
        );
    }
}
