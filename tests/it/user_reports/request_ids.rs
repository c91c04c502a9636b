//! Request ids: an answer must not go to another client that happens to use the same id
//! (CVE-2026-25536).

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_wire::Revision;

use super::{BOTH, both_eras, mock_server, weir_over};
use crate::harness::{CheckedClient, Weir, within_test_timeout};

/// Enough clients that ids and tokens collide at every moment.
const CLIENTS: usize = 100;

// Proves B07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_ids_from_many_clients_are_answered_to_the_right_one() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("echo", MockBehaviour::progress(2))
            .start()
            .await;
        let weir = Weir::with_config(json!({
            "upstreams": { "one": { "url": upstream.url() } },
            "limits": { "sessions_per_principal": 1000, "progress_interval": "0ms" },
        }));
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..CLIENTS {
            // Every client counts its ids from 1, and uses the same progress tokens: B21, R207.
            let url = weir.url("/mcp");
            clients.spawn(async move {
                let client = CheckedClient::open(&url, BOTH[number % 2]).await;
                for round in 0..5 {
                    let arguments = json!({ "client": number, "round": round });
                    let answer = client
                        .call_with_token("one__echo", arguments.clone(), &json!("t"))
                        .await;
                    assert_eq!(
                        serde_json::from_str::<Value>(answer.text()).unwrap(),
                        arguments
                    );
                    assert_eq!(
                        answer.notes("notifications/progress").count(),
                        2,
                        "{:?}",
                        answer.messages
                    );
                }
            });
        }
        while let Some(client) = clients.join_next().await {
            client.unwrap();
        }
        assert_eq!(upstream.counts("echo").completed, CLIENTS * 5, "{era:?}");
    }
}

// Proves B07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_calls_in_flight_with_one_id_in_one_session_are_both_answered() {
    for (_, builder) in both_eras() {
        let upstream = builder
            .tool(
                "echo",
                MockBehaviour::slow(std::time::Duration::from_millis(100)),
            )
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let mut calls = tokio::task::JoinSet::new();
            for n in 0..10 {
                let raw = client.raw().clone();
                calls.spawn(async move {
                    let params = json!({ "name": "one__echo", "arguments": { "n": n } });
                    let (headers, mut message) = raw.envelope("tools/call", params);
                    message["id"] = json!("same");
                    let sent = raw
                        .send(http::Method::POST, headers, message.to_string())
                        .await
                        .unwrap();
                    let answer = within_test_timeout("an answer", sent.finish())
                        .await
                        .unwrap();
                    assert_eq!(answer.last()["id"], "same");
                    assert_eq!(answer.text(), format!(r#"{{"n":{n}}}"#));
                });
            }
            while let Some(call) = calls.join_next().await {
                call.unwrap();
            }
        }
        assert_eq!(upstream.counts("echo").completed, 20);
    }
}

// Proves B07, R035.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_request_ids_are_refused_and_odd_valid_ones_echoed() {
    let upstream = mock_server(Revision::MODERN).tools(1).start().await;
    let weir = weir_over(&[("one", &upstream)]);
    for revision in BOTH {
        let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
        let post = async |id: &str| {
            let (headers, message) = client.raw().envelope(
                "tools/call",
                json!({ "name": "one__tool_0000", "arguments": {} }),
            );
            let body = message.to_string().replacen(
                &format!(r#""id":{}"#, message["id"]),
                &format!(r#""id":{id}"#),
                1,
            );
            assert!(body.contains(&format!(r#""id":{id}"#)), "{body}");
            client
                .raw()
                .send(http::Method::POST, headers, body)
                .await
                .unwrap()
                .finish()
                .await
                .unwrap()
        };
        let ran = upstream.executions("tool_0000");
        for bad in [
            "null",
            "1.5",
            "{}",
            "[1]",
            "true",
            &format!("\"{}\"", "x".repeat(300)),
        ] {
            let answer = post(bad).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code()),
                (400, -32600),
                "{revision:?} {bad}: {}",
                answer.last()
            );
        }
        assert_eq!(
            upstream.executions("tool_0000"),
            ran,
            "bad input touches no upstream"
        );
        for odd in [
            "0",
            "-1",
            "9007199254740993",
            "\"\"",
            "\"1\"",
            r#""é \"\n""#,
        ] {
            let answer = post(odd).await;
            let id: Value = serde_json::from_str(odd).unwrap();
            assert_eq!(answer.last()["id"], id, "R034: {}", answer.last());
            assert!(answer.result().is_object());
        }
    }
}
