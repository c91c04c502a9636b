//! Upstreams that write comments without end on their event streams. The bytes that weir reads of
//! them are bounded, even if deadlines allow more: the call ends with a clear error, a stream
//! beside calls is opened again after a pause, and other clients are not affected.

use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::scripted_server::{ScriptedRequest, ServerAct, json_answer, modern_answer};
use weir_testkit::{MockBehaviour, MockServer, RawClient, ScriptedServer};

use crate::harness::{Bystander, Weir, wait_until_async, within_test_timeout};

/// The bytes that one connection may take: the buffers of its sockets, and weir's own bound of
/// about a mebibyte.
const MAX_TAKEN: usize = 12 << 20;
const MAX_GROWN: usize = 64 << 20;

/// Returns byte sequences without a message, in pieces of 16 KiB, to be repeated.
fn floods() -> [(&'static str, Vec<u8>); 5] {
    let many = |one: &str| one.repeat((16 << 10) / one.len() + 1).into_bytes();
    [
        ("short comments", many(": \n")),
        ("comments as events", many(": still there\n\n")),
        ("a comment without end", many("x")),
        ("empty events", many("data:\n\n")),
        ("wishes how to come back", many("retry: 1\n")),
    ]
}

/// The first bytes of an event stream. A comment begins, and one of the floods continues it.
const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n:\n";

fn stream(name: &str, flood: &[u8]) -> Vec<ServerAct> {
    let comment = if name == "a comment without end" {
        &b":"[..]
    } else {
        b""
    };
    vec![
        ServerAct::Write([STREAM, comment].concat().into()),
        ServerAct::Endless(flood.to_vec().into()),
    ]
}

/// Starts weir in front of this server at `/bad` and a good one at `/good`.
async fn staged(bad: &ScriptedServer, mut upstream: Value) -> (MockServer, Weir) {
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    if upstream.get("url").is_none() {
        upstream["url"] = json!(bad.url());
    }
    let config = json!({
        "upstreams": { "bad": upstream, "good": { "url": good.url() } },
        "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_memory_limit(300, config));
    (good, weir)
}

fn beside(weir: &Weir) -> Bystander {
    Bystander::start_beside(weir, RawClient::new(&weir.url("/good")).modern())
}

async fn ended(bystander: Bystander, attack: &str) {
    let figures = bystander.finish(attack).await;
    figures.assert_none_refused();
    assert!(
        figures.grown <= MAX_GROWN,
        "{attack}: {} MiB more",
        figures.grown >> 20
    );
}

/// The default deadlines hold: 5 minutes without activity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_without_end_on_a_calls_stream_end_the_call_at_their_bound() {
    for (name, flood) in floods() {
        let bad = ScriptedServer::start(move |request| {
            modern_answer(request, &["t"]).unwrap_or_else(|| stream(name, &flood))
        })
        .await;
        let (_good, weir) = staged(&bad, json!({ "protocol": "modern" })).await;
        let bystander = beside(&weir);
        bystander.wait_for_calls(4).await;
        for _ in 0..3 {
            let client = RawClient::new(&weir.url("/bad")).modern();
            let answer = within_test_timeout(name, client.call("t", json!({})))
                .await
                .unwrap();
            let text = answer.last().to_string();
            assert!(
                text.contains("bad_answer") && answer.result()["isError"] == true,
                "{name}: {text}"
            );
        }
        ended(
            bystander,
            &format!("events of an upstream: {name} on a call's stream"),
        )
        .await;
        assert!(
            bad.written() <= 3 * MAX_TAKEN,
            "{name}: weir took {} MiB",
            bad.written() >> 20
        );
    }
}

/// A modern server's answer to `subscriptions/listen`, a legacy server's answer to GET, and the
/// stream of HTTP+SSE.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comments_without_end_beside_calls_end_their_stream_which_is_opened_anew() {
    for (name, flood) in floods() {
        for protocol in ["modern", "legacy", "sse"] {
            let attack = format!("events of an upstream: {name} beside calls, {protocol}");
            let of_flood = flood.clone();
            let bad = ScriptedServer::start(move |request| match protocol {
                "modern" => modern(request, name, &of_flood),
                "legacy" => legacy(request, name, &of_flood),
                _ => sse(request, name, &of_flood),
            })
            .await;
            let streams = || {
                let is_one = |request: &&ScriptedRequest| {
                    request.head.starts_with("GET") || request.method() == "subscriptions/listen"
                };
                bad.requests().iter().filter(is_one).count()
            };
            let (_good, weir) = staged(&bad, json!({ "protocol": protocol })).await;
            let bystander = beside(&weir);
            // A stream that is read for ever would be opened once.
            wait_until_async(&attack, async || (streams() >= 3).then_some(())).await;
            bystander.wait_for_calls(20).await;
            ended(bystander, &attack).await;
            let most = (streams() + 1) * MAX_TAKEN;
            assert!(
                bad.written() <= most,
                "{attack}: weir took {} MiB of {}",
                bad.written() >> 20,
                streams()
            );
            // Streams are not opened without end either.
            let before = streams();
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(
                streams() - before <= 12,
                "{attack}: {} streams in a second",
                streams() - before
            );
        }
    }
}

fn modern(request: &ScriptedRequest, name: &str, flood: &[u8]) -> Vec<ServerAct> {
    match request.method() {
        "server/discover" => {
            let about = json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                "capabilities": { "tools": { "listChanged": true } },
            });
            vec![json_answer(
                200,
                &json!({ "jsonrpc": "2.0", "id": request.id(), "result": about }),
            )]
        }
        "subscriptions/listen" => stream(name, flood),
        _ => modern_answer(request, &["t"]).unwrap_or_default(),
    }
}

fn legacy(request: &ScriptedRequest, name: &str, flood: &[u8]) -> Vec<ServerAct> {
    if request.head.starts_with("GET") {
        return stream(name, flood);
    }
    let result = match request.method() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "comments", "version": "1" },
            "capabilities": { "tools": { "listChanged": true } },
        }),
        "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
        _ => {
            return vec![ServerAct::Write(
                "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".into(),
            )];
        }
    };
    vec![json_answer(
        200,
        &json!({ "jsonrpc": "2.0", "id": request.id(), "result": result }),
    )]
}

fn sse(request: &ScriptedRequest, name: &str, flood: &[u8]) -> Vec<ServerAct> {
    if !request.head.starts_with("GET") {
        return vec![ServerAct::Write(
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".into(),
        )];
    }
    let mut acts = stream(name, flood);
    let endpoint = b"event: endpoint\ndata: /mcp\n\n";
    if let Some(ServerAct::Write(first)) = acts.first_mut() {
        let comment = first.ends_with(b":\n:");
        let head = first.slice(..first.len() - usize::from(comment));
        *first = [&head[..], &endpoint[..], if comment { b":" } else { b"" }]
            .concat()
            .into();
    }
    acts
}
