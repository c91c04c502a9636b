//! Connections lost in the middle of a call, on either side of weir: a call runs at most once, and
//! leaves no resources behind.

use serde_json::json;
use weir_testkit::mock_server::CallGate;
use weir_testkit::{FaultProxy, MockBehaviour, MockServer, ProxyDirection, Toxic};
use weir_wire::Revision;

use super::{BOTH, both_eras, mock_server, own_error, wait_until_called, weir_over};
use crate::harness::{CheckedClient, Weir, begin_gated_call, resume_to_end, wait_until_async};

/// Asserts that a call has left no connection, no stream and no internal error in weir.
async fn assert_no_leaks(weir: &Weir) {
    let metrics = weir.get_admin_page("/metrics");
    assert!(
        metrics.contains("\nweir_connections "),
        "the gauge is there: {metrics}"
    );
    wait_until_async("every connection to be closed", async || {
        (weir.metric("weir_connections", &[]) <= 0.0).then_some(())
    })
    .await;
    assert_eq!(weir.metric("weir_streams", &[]), 0.0);
    assert_eq!(weir.metric("weir_panics_total", &[]), 0.0);
    assert!(
        !weir.process.output().contains("panicked"),
        "{}",
        weir.process.output()
    );
}

// Proves A24, R210.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_modern_client_that_vanishes_takes_its_call_with_it() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("silent", MockBehaviour::hang())
            .tool("talking", MockBehaviour::hang_after_progress())
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        for round in 1..=5 {
            // Before weir has sent any byte, and in the middle of a stream.
            let calling = client.clone();
            let waiting =
                tokio::spawn(
                    async move { calling.start_call("one__silent", json!({}), None).await },
                );
            upstream
                .wait_until("it runs", |mock_server| {
                    mock_server.executions("silent") == round
                })
                .await;
            waiting.abort();
            let mut call = client
                .start_call("one__talking", json!({}), Some(&json!(1)))
                .await;
            call.next().await.unwrap();
            drop(call);
            for tool in ["silent", "talking"] {
                let told = |mock_server: &MockServer| {
                    mock_server.counts(tool).abandoned + mock_server.counts(tool).cancelled
                };
                upstream
                    .wait_until(&format!("{era:?} {tool} was given up"), |mock_server| {
                        told(mock_server) == round
                    })
                    .await;
            }
        }
        assert_eq!(
            (
                upstream.executions("silent"),
                upstream.executions("talking")
            ),
            (5, 5)
        );
        assert!(
            client
                .call("one__tool_0000", json!({}))
                .await
                .result()
                .is_object()
        );
        assert_no_leaks(&weir).await;
    }
}

// Proves R091.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_legacy_client_that_vanishes_leaves_a_call_that_ends_and_leaks_nothing() {
    for (era, builder) in both_eras() {
        let gate = CallGate::new();
        let upstream = builder
            .tool("silent", MockBehaviour::gated(&gate))
            .tool("talking", MockBehaviour::gated_after_progress(&gate))
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for round in 1..=5 {
            let client = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
            let calling = client.clone();
            let waiting =
                tokio::spawn(
                    async move { calling.start_call("one__silent", json!({}), None).await },
                );
            upstream
                .wait_until("it runs", |mock_server| {
                    mock_server.executions("silent") == round
                })
                .await;
            waiting.abort();
            let mut call = client
                .start_call("one__talking", json!({}), Some(&json!(1)))
                .await;
            call.next().await.unwrap();
            drop(call);
            // The session goes on.
            assert!(
                client
                    .call("one__tool_0000", json!({}))
                    .await
                    .result()
                    .is_object()
            );
            gate.admit(2);
            for tool in ["silent", "talking"] {
                upstream
                    .wait_until(&format!("{era:?} {tool} is done"), |mock_server| {
                        mock_server.counts(tool).completed == round
                    })
                    .await;
                let counts = upstream.counts(tool);
                assert_eq!(
                    (counts.started, counts.abandoned, counts.cancelled),
                    (round, 0, 0),
                    "{tool}"
                );
            }
        }
        assert_no_leaks(&weir).await;
    }
}

// Proves R109.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ending_a_session_ends_the_calls_that_run_on_in_it() {
    for (_, builder) in both_eras() {
        let upstream = builder
            .tool("talking", MockBehaviour::hang_after_progress())
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
        let mut call = client
            .start_call("one__talking", json!({}), Some(&json!(1)))
            .await;
        call.next().await.unwrap();
        drop(call);
        assert!(client.raw().delete().await.unwrap().status.is_success());
        let told = |mock_server: &MockServer| {
            mock_server.counts("talking").abandoned + mock_server.counts("talking").cancelled
        };
        upstream
            .wait_until("the call was given up", |mock_server| {
                told(mock_server) == 1
            })
            .await;
        assert_no_leaks(&weir).await;
    }
}

/// The upstream's connection is reset at every tenth byte of its answer. A call runs at most once,
/// and its client gets either the result or an error that it may have run.
// Proves E06, R142.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_at_any_byte_of_an_answer_never_runs_a_call_twice() {
    for (era, builder) in both_eras() {
        let mut tool = weir_testkit::mock_server::MockTool::new("pay");
        let last = 600;
        let resets = (0..=last / 10).map(|n| MockBehaviour::reset_after(n * 10));
        tool = tool.does_in_turn(resets);
        let upstream = builder.with(tool).tools(1).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        let (mut unknown, mut done) = (0, 0);
        for at in (0..=last).step_by(10) {
            let client = CheckedClient::open(&weir.url("/mcp"), BOTH[at / 10 % 2]).await;
            let ran = upstream.executions("pay");
            let answer = client.call("one__pay", json!({ "amount": at })).await;
            // Zero if the reset of the answer before came only with this request.
            let runs = upstream.executions("pay") - ran;
            assert!(
                runs <= 1,
                "{era:?}: reset after {at} bytes: {runs} executions"
            );
            if own_error(&answer).is_null() {
                assert_eq!(
                    (answer.text(), runs),
                    (&*format!(r#"{{"amount":{at}}}"#), 1)
                );
                done += 1;
            } else {
                assert_eq!(
                    own_error(&answer)["code"],
                    1004,
                    "reset after {at} bytes: {}",
                    answer.last()
                );
                unknown += 1;
            }
            // A lost answer does not open the circuit breaker. A reset that is still to come may
            // hit a call in between.
            wait_until_called(&client, "one__tool_0000").await;
        }
        assert!(
            unknown > 10 && done > 10,
            "{unknown} unknown, {done} done: the resets hit the answers"
        );
    }
}

// Proves E05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_while_idle_costs_no_call() {
    for (_, builder) in both_eras() {
        let upstream = builder.tools(1).start().await;
        let proxy = FaultProxy::start(upstream.address()).await;
        let weir = Weir::with_upstreams(json!({ "one": { "url": proxy.url("/mcp") } }));
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        for n in 0..10 {
            let ran = upstream.executions("tool_0000");
            let answer = client.call("one__tool_0000", json!({ "n": n })).await;
            let executions = upstream.executions("tool_0000") - ran;
            if own_error(&answer).is_null() {
                assert_eq!(
                    (answer.text(), executions),
                    (&*format!(r#"{{"n":{n}}}"#), 1)
                );
            } else {
                // The reset came as the request went out: it is never sent twice, and never
                // reported as a success.
                assert!(executions <= 1, "{}", answer.last());
                assert!(
                    [1002, 1004].contains(&own_error(&answer)["code"].as_i64().unwrap()),
                    "{}",
                    answer.last()
                );
            }
            proxy.reset_all();
        }
    }
}

// Proves R142.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_never_arrives_whole_runs_nothing() {
    let upstream = mock_server(Revision::MODERN).tools(1).start().await;
    let proxy = FaultProxy::start(upstream.address()).await;
    let weir = Weir::with_upstreams(json!({ "one": { "url": proxy.url("/mcp") } }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    assert_eq!(client.list_tool_names().await.len(), 1);
    proxy.reset_all();
    proxy.add_toxic(ProxyDirection::Up, Toxic::ResetAfter(200));
    let answer = client
        .call("one__tool_0000", json!({ "pad": "x".repeat(4_000) }))
        .await;
    assert!(
        [1002, 1004].contains(&own_error(&answer)["code"].as_i64().unwrap()),
        "{}",
        answer.last()
    );
    assert_eq!(upstream.total_executions(), 0);
    proxy.clear_toxics();
    wait_until_called(&client, "one__tool_0000").await;
}

// Proves E06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_requests_are_retried_transparently() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .with_library()
            .tool("safe", MockBehaviour::echo())
            .tool("other", MockBehaviour::echo())
            .start()
            .await;
        let weir = Weir::with_upstreams(json!({
            "one": { "url": upstream.url(), "tools": { "safe": { "safe_to_repeat": true }, "gone": { "safe_to_repeat": true } } },
        }));
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let before = upstream.requests().len();
            upstream.add_rule("tools/call", 1, MockBehaviour::reset_after(30));
            assert_eq!(
                client.call("one__safe", json!({ "n": 1 })).await.text(),
                r#"{"n":1}"#,
                "{era:?} {revision}"
            );
            upstream.add_rule("tools/call", 1, MockBehaviour::reset_after(30));
            assert_eq!(
                own_error(&client.call("one__other", json!({})).await)["code"],
                1004,
                "{era:?} {revision}"
            );
            for (method, params) in [
                ("resources/read", json!({ "uri": "one+memo:1" })),
                (
                    "prompts/get",
                    json!({ "name": "one__greet", "arguments": { "who": "you" } }),
                ),
                (
                    "completion/complete",
                    json!({ "ref": { "type": "ref/prompt", "name": "one__greet" }, "argument": { "name": "who", "value": "y" } }),
                ),
            ] {
                upstream.add_rule(method, 1, MockBehaviour::reset_after(30));
                let answer = client.ask(method, params).await;
                assert!(
                    answer.result().is_object(),
                    "{era:?} {revision} {method}: {}",
                    answer.last()
                );
            }
            let sent = upstream.requests().split_off(before);
            let count = |method: &str| {
                sent.iter()
                    .filter(|request| request.message["method"] == method)
                    .count()
            };
            assert_eq!(
                [
                    "tools/call",
                    "resources/read",
                    "prompts/get",
                    "completion/complete"
                ]
                .map(count),
                [3, 2, 2, 2]
            );
        }
        let repeated = weir.metric(
            "weir_upstream_retries_total",
            &["reason=\"connection_lost\""],
        );
        assert_eq!(repeated, 8.0, "{era:?}");
        let said = weir.process.output();
        assert!(
            said.contains("configured tools not listed by upstream") && said.contains("gone"),
            "{said}"
        );
    }
}

// Proves E06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_http_sse_connection_is_reopened_and_a_repeatable_call_retried() {
    let gate = CallGate::new();
    let upstream = mock_server(Revision::V2025_11_25)
        .tool("slow", MockBehaviour::gated(&gate))
        .start()
        .await;
    let old = weir_over(&[("one", &upstream)]);
    let address = old
        .url("")
        .trim_start_matches("http://")
        .trim_end_matches('/')
        .parse()
        .unwrap();
    let proxy = FaultProxy::start(address).await;
    let far = json!({ "url": proxy.url("/mcp/one/sse"), "protocol": "sse", "tools": { "slow": { "safe_to_repeat": true } } });
    let weir = Weir::with_upstreams(json!({ "far": far }));
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let calling = tokio::spawn(async move { client.call("far__slow", json!({ "n": 1 })).await });
    upstream
        .wait_until("it runs", |mock_server| mock_server.executions("slow") == 1)
        .await;
    proxy.reset_all();
    upstream
        .wait_until("it runs again", |mock_server| {
            mock_server.executions("slow") == 2
        })
        .await;
    gate.open();
    assert_eq!(calling.await.unwrap().text(), r#"{"n":1}"#);
}

// Proves R093.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_may_not_run_on_without_its_connection_has_an_answer_to_resume() {
    let gate = CallGate::new();
    let upstream = mock_server(Revision::V2025_11_25)
        .tool("gated", MockBehaviour::gated_after_progress(&gate))
        .start()
        .await;
    let weir = Weir::with_config(json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "endpoints": { "/mcp": { "upstream": "one" } },
        "limits": { "detached_per_session": 1 },
    }));
    weir.wait_until_listed("/mcp", &["gated"]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::V2025_11_25).await;
    let (first, first_id) = begin_gated_call(client.raw()).await;
    let (second, second_id) = begin_gated_call(client.raw()).await;
    drop((first, second));
    upstream
        .wait_until("one call to be cancelled", |mock_server| {
            let counts = mock_server.counts("gated");
            counts.cancelled + counts.abandoned == 1
        })
        .await;
    gate.open();
    let mut texts = Vec::new();
    for id in [first_id, second_id] {
        texts.push(resume_to_end(client.raw(), &id).await.text().to_owned());
    }
    texts.sort_unstable_by_key(String::len);
    assert_eq!(texts[0], r#"{"n":1}"#);
    assert!(texts[1].contains("it may have run"), "{}", texts[1]);
}
