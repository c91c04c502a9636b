//! Large results: they stream through at any size, for fast and for slow clients.

use serde_json::{Value, json};
use weir_testkit::MockBehaviour;
use weir_wire::Revision;

use super::{BOTH, both_eras, own_error, weir_over};
use crate::harness::{CheckedClient, CheckedStream, Weir, within_test_timeout};

const HUGE: usize = 50 << 20;
/// The memory that weir may need beyond that for small calls, in bytes. It is far below the result,
/// and far above the measured need.
const ALLOWANCE: usize = 40 << 20;

/// Reads an answer to its end without keeping it; returns the number of its filler bytes, and its
/// last bytes.
async fn read_without_keeping(mut call: CheckedStream) -> (usize, Vec<u8>) {
    let (mut filler, mut tail) = (0, Vec::new());
    while let Some(bytes) = within_test_timeout("more of the result", call.exchange.next_bytes())
        .await
        .unwrap()
    {
        filler += bytes.iter().filter(|byte| **byte == b'x').count();
        tail.extend_from_slice(&bytes);
        tail.drain(..tail.len().saturating_sub(64));
    }
    (filler, tail)
}

// Proves E07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_of_50_mib_streams_through_with_bounded_memory() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("json", MockBehaviour::huge(HUGE))
            .tool("sse", MockBehaviour::huge(HUGE).as_events())
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        // The forms alternate between clients; smaller results take every path below.
        let tools = if era.is_modern() {
            ["one__json", "one__sse"]
        } else {
            ["one__sse", "one__json"]
        };
        for (revision, tool) in BOTH.into_iter().zip(tools) {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for _ in 0..20 {
                client.call("one__tool_0000", json!({})).await;
            }
            let before = weir.peak_memory();
            let call = client.start_call(tool, json!({}), None).await;
            assert_eq!(call.exchange.status, 200);
            let (filler, tail) = read_without_keeping(call).await;
            let tail = String::from_utf8_lossy(&tail).into_owned();
            // A few more may be in names.
            assert!(
                (HUGE..HUGE + 64).contains(&filler),
                "{era:?} {revision:?} {tool}: {filler}"
            );
            assert!(
                tail.trim_end().ends_with('}'),
                "{era:?} {revision:?} {tool}: {tail}"
            );
            let grown = weir.peak_memory().saturating_sub(before);
            assert!(
                grown < ALLOWANCE,
                "{era:?} {revision:?}: {} MiB more",
                grown >> 20
            );
        }
    }
}

// Proves E07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_are_still_whole_json() {
    for (_, builder) in both_eras() {
        let size = 3 << 20;
        let upstream = builder
            .tool("json", MockBehaviour::huge(size))
            .tool("sse", MockBehaviour::huge(size).as_events())
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for tool in ["one__json", "one__sse"] {
                assert_eq!(client.call(tool, json!({})).await.text().len(), size);
            }
        }
    }
}

// Proves D09.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_client_uses_bounded_memory_and_delays_no_other_call() {
    for (_, builder) in both_eras() {
        let upstream = builder
            .tool("json", MockBehaviour::huge(HUGE))
            .tool("sse", MockBehaviour::huge(HUGE).as_events())
            .tools(1)
            .start()
            .await;
        let weir = weir_over(&[("one", &upstream)]);
        let client = CheckedClient::open(&weir.url("/mcp"), Revision::MODERN).await;
        for _ in 0..20 {
            client.call("one__tool_0000", json!({})).await;
        }
        let before = weir.peak_memory();
        let stalled = [
            client.start_call("one__json", json!({}), None).await,
            client.start_call("one__sse", json!({}), None).await,
        ];
        for n in 0..200 {
            let answer = client.call("one__tool_0000", json!({ "n": n })).await;
            assert_eq!(answer.text(), format!(r#"{{"n":{n}}}"#));
        }
        let grown = weir.peak_memory().saturating_sub(before);
        assert!(grown < ALLOWANCE, "{} MiB more", grown >> 20);
        for tool in ["json", "sse"] {
            assert_eq!(
                upstream.counts(tool).completed,
                0,
                "the upstream waits for the client"
            );
        }
        let [json, sse] = stalled;
        let (filler, _) = read_without_keeping(json).await;
        assert!(filler >= HUGE);
        drop(sse);
        upstream
            .wait_until("the other one was given up", |mock_server| {
                mock_server.counts("sse").abandoned == 1
            })
            .await;
    }
}

// Proves E07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_beyond_the_limit_is_cut_off_and_never_called_whole() {
    for (era, builder) in both_eras() {
        let upstream = builder
            .tool("json", MockBehaviour::huge(8 << 20))
            .tool("sse", MockBehaviour::huge(8 << 20).as_events())
            .start()
            .await;
        let weir = Weir::with_upstreams(
            json!({ "one": { "url": upstream.url(), "limits": { "max_reply": "1MiB" } } }),
        );
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            for tool in ["one__json", "one__sse"] {
                // If the limit is reached before any byte was sent, the client gets an error. After
                // that weir can only cut the stream off, so that no client takes the result for
                // complete.
                let call = client.raw().call(tool, json!({})).await;
                if let Ok(answer) = call {
                    assert!(
                        answer
                            .messages
                            .iter()
                            .all(|message| message.get("result").is_none_or(Value::is_object))
                    );
                    assert_eq!(
                        own_error(&answer)["code"],
                        1003,
                        "{era:?} {revision:?} {tool}"
                    );
                }
            }
        }
    }
}

// Proves R134.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uris_in_results_too_large_to_be_held_are_renamed_as_they_pass() {
    let link = json!({ "type": "resource_link", "uri": "memo:1", "name": "memo" });
    let content = json!([{ "type": "text", "text": "x".repeat(300_000) }, link]);
    let big = MockBehaviour::result(json!({ "content": content }));
    for (_, builder) in both_eras() {
        let upstream = builder.tool("big", big.clone()).start().await;
        let weir = weir_over(&[("one", &upstream)]);
        for revision in BOTH {
            let client = CheckedClient::open(&weir.url("/mcp"), revision).await;
            let answer = client.call("one__big", json!({})).await;
            assert_eq!(
                answer.result()["content"][1]["uri"],
                "one+memo:1",
                "{revision:?}"
            );
            assert_eq!(answer.text().len(), 300_000);
            let client = CheckedClient::open(&weir.url("/mcp/one"), revision).await;
            assert_eq!(
                client.call("big", json!({})).await.result()["content"][1]["uri"],
                "memo:1"
            );
        }
    }
}
