//! Drain: running calls end, streams end with a message, and no client sees half a message.

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_testkit::mock_server::CallGate;
use weir_wire::{Revision, meta};

use super::{BOTH, both_eras, mock_server, weir_over};
use crate::harness::{CheckedClient, Weir, wait_until, wait_until_async, within_test_timeout};

// Proves G06, R110, R199.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_streams_gracefully_and_lets_calls_finish() {
    for (era, builder) in both_eras() {
        let gate = CallGate::new();
        let upstream = builder
            .tool("silent", MockBehaviour::gated(&gate))
            .tool("talking", MockBehaviour::gated_after_progress(&gate))
            .start()
            .await;
        let mut weir = weir_over(&[("one", &upstream)]);
        let modern = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        let legacy = CheckedClient::open(&weir.url("/mcp"), Revision::NEWEST_LEGACY).await;
        let listen = modern.open_change_stream().await;
        let get = legacy.open_change_stream().await;
        let mut calls = tokio::task::JoinSet::new();
        for (n, client) in [&modern, &legacy, &modern, &legacy].into_iter().enumerate() {
            let (client, tool) = (
                client.clone(),
                if n < 2 { "one__silent" } else { "one__talking" },
            );
            calls.spawn(async move {
                (
                    n,
                    client
                        .call_with_token(tool, json!({ "n": n }), &json!(n))
                        .await,
                )
            });
        }
        upstream
            .wait_until("all calls run", |mock_server| {
                mock_server.total_executions() == 4
            })
            .await;
        weir.process.signal("TERM");
        // R199: the modern stream ends with an answer, R110: the legacy one with a whole event or
        // without one.
        let last = listen.read_rest().await;
        assert_eq!(last.len(), 1, "{era:?}: {last:?}");
        assert_eq!(last[0]["result"]["resultType"], "complete");
        assert!(last[0]["result"]["_meta"][meta::SUBSCRIPTION_ID].is_i64());
        assert_eq!(get.read_rest().await, Vec::<Value>::new());
        wait_until("new connections to be refused", || {
            std::net::TcpStream::connect(weir.url("").trim_start_matches("http://"))
                .is_err()
                .then_some(())
        });
        gate.open();
        while let Some(call) = calls.join_next().await {
            let (n, answer) = call.unwrap();
            assert_eq!(
                answer.text(),
                format!(r#"{{"n":{n}}}"#),
                "{era:?}: a call in flight is finished"
            );
        }
        assert_eq!(
            weir.process.wait_for_exit(),
            Some(0),
            "{}",
            weir.process.output()
        );
        assert_eq!(upstream.total_executions(), 4, "one execution each");
    }
}

// Proves G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readyz_is_503_while_weir_drains() {
    let gate = CallGate::new();
    let upstream = mock_server(Revision::MODERN)
        .tool("slow", MockBehaviour::gated_after_progress(&gate))
        .start()
        .await;
    let mut weir = weir_over(&[("one", &upstream)]);
    let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
    let mut call = client
        .start_call("one__slow", json!({}), Some(&json!(1)))
        .await;
    call.next().await.unwrap();
    weir.process.signal("TERM");
    wait_until("readyz to say no", || {
        weir.get_admin_page("/readyz")
            .starts_with("HTTP/1.1 503")
            .then_some(())
    });
    assert!(weir.get_admin_page("/healthz").starts_with("HTTP/1.1 200"));
    gate.open();
    assert!(call.read_rest().await.last().unwrap()["result"].is_object());
    assert_eq!(weir.process.wait_for_exit(), Some(0));
}

// Proves G07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_do_not_end_are_cut_off_at_the_deadline_or_by_a_second_signal() {
    for second_signal in [false, true] {
        let upstream = mock_server(Revision::MODERN)
            .tool("hang", MockBehaviour::hang_after_progress())
            .start()
            .await;
        let drain = if second_signal { "10m" } else { "1s" };
        let config = json!({ "upstreams": { "one": { "url": upstream.url() } }, "drain": drain });
        let mut weir = Weir::with_config(config);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        let mut call = client
            .start_call("one__hang", json!({}), Some(&json!(1)))
            .await;
        call.next().await.unwrap();
        weir.process.signal("TERM");
        if second_signal {
            wait_until("weir to be stopping", || {
                weir.get_admin_page("/readyz")
                    .starts_with("HTTP/1.1 503")
                    .then_some(())
            });
            weir.process.signal("TERM");
        }
        within_test_timeout("weir to end", async {
            wait_until_async("its end", async || weir.process.has_exited().then_some(())).await;
        })
        .await;
        // All messages are whole: an error with the reason, or the end of the stream.
        while let Ok(Some(message)) = call.exchange.next_message().await {
            assert!(message.is_object(), "R110");
        }
        upstream
            .wait_until("the call was given up", |mock_server| {
                mock_server.counts("hang").abandoned == 1
            })
            .await;
    }
}

/// Calls without a pause while weir is stopped: each is either answered or was never run.
// Proves A26, G06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_in_a_stop() {
    let upstream = mock_server(Revision::MODERN).tools(1).start().await;
    let mut weir = weir_over(&[("one", &upstream)]);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..8 {
        let client = CheckedClient::open(&weir.url("/mcp"), BOTH[number % 2]).await;
        clients.spawn(async move {
            let mut answered = 0;
            for _ in 0..100_000 {
                match client.raw().call("one__tool_0000", json!({})).await {
                    // 503: refused unread while draining.
                    Ok(answer) if answer.status == 200 => {
                        assert!(answer.result()["isError"].is_null(), "{}", answer.last());
                        answered += 1;
                    }
                    Ok(answer) => assert_eq!(answer.status, 503, "{:?}", answer.body),
                    Err(_) => break,
                }
            }
            answered
        });
    }
    upstream
        .wait_until("calls flow", |mock_server| {
            mock_server.executions("tool_0000") > 200
        })
        .await;
    weir.process.signal("TERM");
    let mut answered = 0;
    while let Some(client) = clients.join_next().await {
        answered += client.unwrap();
    }
    assert_eq!(
        weir.process.wait_for_exit(),
        Some(0),
        "{}",
        weir.process.output()
    );
    assert_eq!(
        upstream.executions("tool_0000"),
        answered,
        "what ran was answered, and what was answered ran once"
    );
}
