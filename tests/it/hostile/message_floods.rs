//! Floods: messages that the receiver does not read, and their cost in descriptors and memory.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use weir_testkit::scripted_server::ServerAct;
use weir_testkit::{MockBehaviour, MockServer, RawClient, ScriptedServer};
use weir_wire::Revision;

use super::flooding_server::{FloodCallHandling, FloodPlan, FloodingServer};
use crate::harness::{Bystander, Weir, wait_until, wait_until_async};

/// The number of connections that one upstream may have for posts, listen streams and single
/// requests, far below the number that floods once took.
const MAX_UPSTREAM_CONNECTIONS: usize = 24;

/// Starts weir in front of a hostile upstream at `/bad` and a good one at `/good`.
async fn stage(plan: FloodPlan) -> (FloodingServer, MockServer, Weir) {
    staged(plan, 300, json!({})).await
}

/// Starts the same with this many MiB of memory and these limits.
async fn staged(
    plan: FloodPlan,
    mebibytes: usize,
    limits: serde_json::Value,
) -> (FloodingServer, MockServer, Weir) {
    let bad = FloodingServer::start(plan).await;
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": {
            "bad": { "url": bad.url(), "protocol": "legacy" },
            "good": { "url": good.url() },
        },
        "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
        "limits": limits,
    });
    let weir = tokio::task::block_in_place(|| Weir::with_memory_limit(mebibytes, config));
    (bad, good, weir)
}

/// Starts a good client of the good upstream.
fn beside(weir: &Weir) -> Bystander {
    Bystander::start_beside(weir, RawClient::new(&weir.url("/good")).modern())
}

/// Returns the number of weir's file descriptors.
fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.process.id()))
        .unwrap()
        .count()
}

async fn is_well(weir: &Weir) {
    let answer = RawClient::new(&weir.url("/good"))
        .modern()
        .call("echo", json!({ "n": 1 }))
        .await
        .unwrap();
    assert_eq!(answer.text(), r#"{"n":1}"#);
    assert!(
        tokio::task::block_in_place(|| weir.get_admin_page("/healthz")).starts_with("HTTP/1.1 200")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_thousand_pings_on_a_watch_stream_take_one_connection() {
    let ping = |nth: usize| format!(r#"{{"jsonrpc":"2.0","id":{nth},"method":"ping"}}"#);
    let plan = FloodPlan {
        get_stream_messages: Some((Arc::new(ping), 6000)),
        hangs_on_messages: true,
        ..FloodPlan::default()
    };
    let (bad, _good, weir) = stage(plan).await;
    let bystander = beside(&weir);
    wait_until_async("the flood", async || {
        (bad.sent_messages() >= 6000 && bad.received_messages() >= 1).then_some(())
    })
    .await;
    is_well(&weir).await;
    bystander
        .finish("6,000 pings on a watch stream")
        .await
        .assert_none_refused();
    assert!(
        bad.most_connections() <= MAX_UPSTREAM_CONNECTIONS,
        "{} connections",
        bad.most_connections()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_does_not_take_256_answers_ends_and_another_is_opened() {
    // Each is answered with an error that the server has to receive.
    let ask = |nth: usize| format!(r#"{{"jsonrpc":"2.0","id":{nth},"method":"no/such"}}"#);
    let plan = FloodPlan {
        get_stream_messages: Some((Arc::new(ask), 1000)),
        hangs_on_messages: true,
        ..FloodPlan::default()
    };
    let (bad, _good, weir) = stage(plan).await;
    let bystander = beside(&weir);
    wait_until_async("the end of the session", async || {
        (bad.ended() >= 1).then_some(())
    })
    .await;
    wait_until_async("another session", async || {
        (bad.sessions() >= 2).then_some(())
    })
    .await;
    let ended = || {
        weir.metric(
            "weir_upstream_sessions_ended_total",
            &["bad", "posts_waiting"],
        )
    };
    tokio::task::block_in_place(|| wait_until("the metric", || (ended() >= 1.0).then_some(())));
    is_well(&weir).await;
    bystander
        .finish("a session that takes no answers")
        .await
        .assert_none_refused();
    assert!(
        bad.most_connections() <= MAX_UPSTREAM_CONNECTIONS,
        "{} connections",
        bad.most_connections()
    );
}

/// Starts a server of HTTP+SSE that asks twenty questions at a time on its stream, and accepts no
/// answer.
async fn asks_and_takes_no_answer() -> ScriptedServer {
    // One result that serves `initialize` and a list, under each of weir's first ids: the stream
    // was opened before they came.
    let result = json!({
        "protocolVersion": "2024-11-05", "serverInfo": { "name": "deaf", "version": "1" },
        "capabilities": { "tools": {} }, "tools": [{ "name": "t", "inputSchema": { "type": "object" } }],
    });
    let answers = (1..40).map(move |id| json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    let questions =
        (0..20).map(|id| json!({ "jsonrpc": "2.0", "id": format!("q{id}"), "method": "no/such" }));
    let events = answers
        .chain(questions)
        .map(|message| format!("data: {message}\n\n"))
        .collect::<String>();
    ScriptedServer::start(move |request| {
        if request.head.starts_with("GET") {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /mcp\n\n";
            return vec![ServerAct::Write(head.into()), ServerAct::Drip(events.clone().into(), Duration::from_millis(20))];
        }
        if request.method().is_empty() {
            return vec![ServerAct::Hang];
        }
        vec![ServerAct::Write("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".into())]
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_sse_connection_ends_after_256_untaken_answers_and_is_reopened() {
    let bad = asks_and_takes_no_answer().await;
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": {
            // A post that hangs ends the stream, too, and not before 256 messages wait.
            "bad": { "url": bad.url(), "protocol": "sse", "deadlines": { "list": "60s" } },
            "good": { "url": good.url() },
        },
        "endpoints": { "/bad": { "upstream": "bad" }, "/good": { "upstream": "good" } },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_memory_limit(300, config));
    let bystander = beside(&weir);
    let lines = || {
        bad.requests()
            .iter()
            .filter(|request| request.head.starts_with("GET"))
            .count()
    };
    let ended = || {
        weir.metric(
            "weir_upstream_sessions_ended_total",
            &["bad", "posts_waiting"],
        )
    };
    tokio::task::block_in_place(|| {
        wait_until("the end of the line", || (ended() >= 1.0).then_some(()))
    });
    // The first two are of the probe and of the stream that ended.
    wait_until_async("another line", async || (lines() >= 3).then_some(())).await;
    is_well(&weir).await;
    bystander
        .finish("a server of HTTP+SSE that takes no answers")
        .await
        .assert_none_refused();
    let answers = bad
        .requests()
        .iter()
        .filter(|request| request.body.get("error").is_some())
        .count();
    assert!(
        answers <= lines(),
        "{answers} answers on {} lines: each is posted alone",
        lines()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_changes_of_roots_are_a_few_posts() {
    let (bad, _good, weir) = stage(FloodPlan {
        hangs_on_messages: true,
        ..FloodPlan::default()
    })
    .await;
    let bystander = beside(&weir);
    let client = RawClient::new(&weir.url("/bad")).legacy(Revision::V2025_11_25);
    let (client, _) = client
        .initialize_with(json!({ "roots": { "listChanged": true } }))
        .await
        .unwrap();
    client.call("echo", json!({})).await.unwrap();
    for _ in 0..50 {
        let mut told = JoinSet::new();
        for _ in 0..100 {
            let client = client.clone();
            told.spawn(async move {
                client
                    .notify("notifications/roots/list_changed", json!({}))
                    .await
                    .unwrap()
            });
        }
        for answer in told.join_all().await {
            assert_eq!(answer.status.as_u16(), 202);
        }
    }
    wait_until_async("the first", async || {
        (bad.received_messages() >= 1).then_some(())
    })
    .await;
    is_well(&weir).await;
    bystander
        .finish("5,000 changes of roots")
        .await
        .assert_none_refused();
    assert!(
        bad.most_connections() <= MAX_UPSTREAM_CONNECTIONS,
        "{} connections",
        bad.most_connections()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_calls_to_a_hung_upstream_leave_no_connections_behind() {
    let plan = FloodPlan {
        hangs_on_messages: true,
        calls: FloodCallHandling::Hang,
        ..FloodPlan::default()
    };
    let (bad, _good, weir) = stage(plan).await;
    let bystander = beside(&weir);
    let before = descriptors(&weir);
    let at_once = 60;
    for wave in 1..=10 {
        let client = RawClient::new(&weir.url("/bad")).modern();
        let calls: Vec<_> = (0..at_once)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.call("echo", json!({})).await.is_ok() })
            })
            .collect();
        wait_until_async("the calls", async || {
            (bad.calls() >= wave * at_once).then_some(())
        })
        .await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
    }
    wait_until_async("a cancel", async || {
        (bad.received_messages() >= 1).then_some(())
    })
    .await;
    is_well(&weir).await;
    bystander
        .finish("dropped calls to a hung upstream")
        .await
        .assert_none_refused();
    let most = before + 40;
    wait_until_async("descriptors to be given back", async || {
        (descriptors(&weir) <= most).then_some(())
    })
    .await;
    assert!(
        bad.most_connections() <= 3 * at_once + MAX_UPSTREAM_CONNECTIONS,
        "{} connections",
        bad.most_connections()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_flooded_beside_a_stalled_large_result_are_not_kept() {
    let text = "x".repeat(4 << 10);
    let ask = move |nth: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{nth},"method":"elicitation/create","params":{{"message":"{text}","requestedSchema":{{"type":"object","properties":{{}}}}}}}}"#
        )
    };
    let questions = 40_000;
    let plan = FloodPlan {
        get_stream_messages: Some((Arc::new(ask), questions)),
        after_call: true,
        calls: FloodCallHandling::Large(24 << 20),
        ..FloodPlan::default()
    };
    let (bad, _good, weir) = stage(plan).await;
    let bystander = beside(&weir);
    let client = RawClient::new(&weir.url("/bad")).legacy(Revision::V2025_11_25);
    let (client, _) = client
        .initialize_with(json!({ "elicitation": {} }))
        .await
        .unwrap();
    let before = weir.memory();
    // The client does not read its body.
    let stalled = client
        .start_call("echo", json!({}), json!(1))
        .await
        .unwrap();
    wait_until_async("the flood", async || {
        (bad.sent_messages() >= questions || bad.ended() >= 1).then_some(())
    })
    .await;
    is_well(&weir).await;
    bystander
        .finish("40,000 questions beside a stalled result")
        .await
        .assert_none_refused();
    let grown = weir.peak_memory().saturating_sub(before) >> 20;
    assert!(grown <= 48, "{grown} MiB for what nobody waits for");
    drop(stalled);
}

/// Sends a request of 1 MB except for its last byte; returns the first line of the answer, if one
/// comes.
async fn half_a_request(address: String) -> Option<String> {
    let mut stream = TcpStream::connect(&address).await.ok()?;
    let head = format!(
        "POST /good HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: 1000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    let chunk = [b' '; 9999];
    for _ in 0..100 {
        // A refused client need not send the rest.
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 512];
    let read = stream.read(&mut answer).await.ok()?;
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    let (head, _) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    head.to_ascii_lowercase()
        .contains("retry-after")
        .then(|| head.lines().next().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hundred_megabytes_of_bodies_stay_within_the_memory_of_the_process() {
    let (_bad, _good, weir) = staged(FloodPlan::default(), 160, json!({ "body_time": "3s" })).await;
    let address = weir.url("").trim_start_matches("http://").to_owned();
    let mut senders = JoinSet::new();
    for _ in 0..400 {
        senders.spawn(half_a_request(address.clone()));
    }
    let refused = || weir.metric("weir_memory_refused_total", &["bodies"]);
    tokio::task::block_in_place(|| wait_until("refusals", || (refused() >= 100.0).then_some(())));
    // Small requests do not need the memory that the large ones compete for.
    is_well(&weir).await;
    let answers = senders.join_all().await;
    let shed = answers
        .iter()
        .flatten()
        .filter(|line| line.contains(" 503 "))
        .count();
    assert!(
        shed >= 1,
        "those who are refused are told when to come back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_take_every_descriptor_leave_some_to_operators_and_reloads() {
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": { "good": { "url": good.url() } },
        "endpoints": { "/good": { "upstream": "good" } },
    });
    let most = 300;
    let wrapper = format!("--nofile={most}:{most}");
    let weir = tokio::task::block_in_place(|| {
        Weir::start_with_wrapper(&["prlimit", &wrapper], config.clone())
    });
    let address = weir.url("").trim_start_matches("http://").to_owned();
    let mut held = Vec::new();
    for _ in 0..most + 100 {
        held.push(TcpStream::connect(&address).await.unwrap());
    }
    let closed = || weir.metric("weir_connections_closed_total", &["no_files"]);
    tokio::task::block_in_place(|| wait_until("refusals", || (closed() >= 100.0).then_some(())));
    let left = most - descriptors(&weir);
    assert!(left >= 60, "{left} descriptors are left");
    assert!(
        tokio::task::block_in_place(|| weir.get_admin_page("/healthz")).starts_with("HTTP/1.1 200")
    );
    let reloads = || weir.metric("weir_config_reloads_total", &["ok"]);
    let before = reloads();
    let mut other = config;
    other["endpoints"]["/other"] = json!({ "upstream": "good" });
    weir.rewrite_config(other);
    tokio::task::block_in_place(|| wait_until("a reload", || (reloads() > before).then_some(())));
    // An upstream can be reached again as soon as weir has noticed that clients left.
    drop(held.split_off(most / 4));
    wait_until_async("descriptors to be given back", async || {
        (descriptors(&weir) <= most / 2).then_some(())
    })
    .await;
    is_well(&weir).await;
}
