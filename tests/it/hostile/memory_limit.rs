//! Memory: the memory that clients and upstreams make weir hold stays within 1.1 times
//! `limits.memory`, and is given back.
//!
//! [`Weir::bounded`] checks the peak of the process when each test is over. The limits leave room
//! for a debug build, which has some 35 MiB to begin with.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use weir_testkit::h2_client::{self, H2Client, INITIAL_WINDOW_SIZE};
use weir_testkit::scripted_server::{LargeAnswer, ServerAct, modern_answer};
use weir_testkit::{MockBehaviour, MockServer, MockStdio, RawClient, ScriptedServer};

use super::mismatched_answers::sizes_of_32_results;
use crate::harness::{TEST_TIMEOUT, Weir, wait_until, wait_until_async};

const MIB: usize = 1 << 20;
/// Receive buffers of clients that read slowly, in bytes: unread answers must not hide in the
/// kernel.
const NARROW: u32 = 4 << 10;

fn start(mebibytes: usize, config: Value) -> Weir {
    tokio::task::block_in_place(|| Weir::with_memory_limit(mebibytes, config))
}

fn address(weir: &Weir) -> SocketAddr {
    weir.url("").trim_start_matches("http://").parse().unwrap()
}

/// Returns a request in HTTP/1.1.
fn request(weir: &Weir, path: &str, method: &str, params: Value) -> Vec<u8> {
    let (headers, message) = RawClient::new(&weir.url(path))
        .modern()
        .envelope(method, params);
    let body = message.to_string();
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n",
        address(weir),
        body.len()
    );
    for (name, value) in headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "host" | "content-length"))
    {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    [head.as_bytes(), b"\r\n", body.as_bytes()].concat()
}

fn call(weir: &Weir, path: &str, tool: &str, arguments: Value) -> Vec<u8> {
    let mut params = json!({ "name": tool });
    params["arguments"] = arguments;
    request(weir, path, "tools/call", params)
}

/// Reads the head of an answer; the part of the body that comes with it is dropped.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut more = [0; 1024];
        match stream.read(&mut more).await {
            Ok(0) | Err(_) => return None,
            Ok(length) => read.extend_from_slice(&more[..length]),
        }
    }
    Some(String::from_utf8_lossy(&read).to_ascii_lowercase())
}

/// Repeats a small call of another client until it succeeds: the budget may be used by others for a
/// while.
async fn is_well(weir: &Weir, path: &str, tool: &str) {
    let client = RawClient::new(&weir.url(path)).modern();
    let calls = async || {
        let answer = client.call(tool, json!({ "n": 1 })).await.ok()?;
        let message = answer.messages.last()?;
        message["result"]
            .to_string()
            .contains(r#"{\"n\":1}"#)
            .then_some(())
    };
    wait_until_async("a small call", calls).await;
    assert!(
        tokio::task::block_in_place(|| weir.get_admin_page("/healthz")).starts_with("HTTP/1.1 200")
    );
}

fn refused(weir: &Weir, budget: &str) -> f64 {
    tokio::task::block_in_place(|| weir.metric("weir_memory_refused_total", &[budget]))
}

/// Makes calls with bodies of 1 MB to a server that never answers, at the same time; each client
/// learns the outcome of its own.
async fn bodies(mebibytes: usize, count: usize) {
    let hangs = MockServer::modern()
        .tool("hang", MockBehaviour::hang())
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": {
            "hangs": { "url": hangs.url(), "deadlines": { "idle": "5s", "hard": "5s" } },
            "good": { "url": good.url() },
        },
        "endpoints": { "/hangs": { "upstream": "hangs" }, "/good": { "upstream": "good" } },
        "rates": { "concurrency": { "principal": 10_000 } },
        "limits": { "connections": count + 100 },
    });
    let weir = start(mebibytes, config);
    let text = "x".repeat(1_000_000);
    let large = std::sync::Arc::new(call(&weir, "/hangs", "hang", json!({ "text": text })));
    let mut senders = JoinSet::new();
    for _ in 0..count {
        let (large, address) = (large.clone(), address(&weir));
        senders.spawn(async move {
            let mut stream = TcpStream::connect(address).await.ok()?;
            // A refused client need not send the rest.
            let _closed = stream.write_all(&large).await;
            head(&mut stream).await
        });
    }
    wait_until_async("refusals", async || {
        (refused(&weir, "bodies") >= count as f64 / 10.0).then_some(())
    })
    .await;
    is_well(&weir, "/good", "echo").await;
    let answers = senders.join_all().await;
    let shed = answers
        .iter()
        .flatten()
        .filter(|head| head.starts_with("http/1.1 503") && head.contains("retry-after"));
    assert!(
        shed.count() >= 1,
        "those who are refused are told when to come back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_bodies_of_1_mb_of_calls_that_hang_stay_within_the_memory_of_the_process() {
    bodies(160, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "sends 4 GB: cargo xtask hostile runs it"]
async fn four_thousand_bodies_of_1_mb_stay_within_300_mib() {
    bodies(300, 4000).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "moves 3.2 GB: cargo xtask hostile runs it"]
async fn thirty_two_results_of_50_mib_stay_within_300_mib() {
    for events in [false, true] {
        let large = LargeAnswer::new(events, 50 * MIB).last();
        let server = ScriptedServer::start(move |request| {
            modern_answer(request, &["t"]).unwrap_or_else(|| large.acts(request))
        })
        .await;
        let config = json!({ "upstreams": { "up": { "url": server.url() } }, "endpoints": { "/mcp": { "upstream": "up" } } });
        let weir = start(300, config);
        let sizes = sizes_of_32_results(&weir).await;
        assert!(sizes.iter().all(|size| *size > 50 * MIB), "{sizes:?}");
    }
}

/// Starts weir in front of a child that sends large results whole, and of a healthy server.
async fn over_lines(mebibytes: usize) -> (MockServer, Weir) {
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let (command, args) = MockStdio::modern().command();
    let config = json!({
        "upstreams": { "lines": { "command": command, "args": args }, "good": { "url": good.url() } },
        "endpoints": { "/lines": { "upstream": "lines" }, "/good": { "upstream": "good" } },
        "rates": { "concurrency": { "principal": 10_000 } },
        "limits": { "connections": 2000 },
    });
    (good, start(mebibytes, config))
}

/// Opens clients of HTTP/1.1 that do not read their answers of 4 MiB: more than the kernel holds
/// for them.
async fn unread_answers(mebibytes: usize, count: usize) {
    let (_good, weir) = over_lines(mebibytes).await;
    let large = call(&weir, "/lines", "huge", json!({ "bytes": 4 * MIB }));
    let mut unread = Vec::new();
    for _ in 0..count {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(NARROW).unwrap();
        let mut stream = socket.connect(address(&weir)).await.unwrap();
        stream.write_all(&large).await.unwrap();
        unread.push(stream);
    }
    wait_until_async("refusals", async || {
        (refused(&weir, "results") >= 10.0).then_some(())
    })
    .await;
    is_well(&weir, "/good", "echo").await;
    drop(unread);
    wait_until_async("a large answer", async || {
        let answer = RawClient::new(&weir.url("/lines"))
            .modern()
            .call("huge", json!({ "bytes": MIB }))
            .await
            .ok()?;
        let message = answer.messages.last()?;
        (message["result"]["content"][0]["text"].as_str()?.len() == MIB).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits for 100 answers of 4 MiB: cargo xtask hostile runs it"]
async fn answers_of_4_mib_that_100_clients_do_not_read_stay_within_300_mib() {
    unread_answers(300, 100).await;
}

fn fields(bytes: &[u8]) -> (Vec<(String, String)>, Vec<u8>) {
    let end = bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let fields = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "));
    let fields = fields
        .filter(|(name, _)| *name != "host")
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    (fields.collect(), bytes[end + 4..].to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_wait_for_many_streams_without_window_stay_within_the_memory_of_the_process() {
    let (_good, weir) = over_lines(128).await;
    let (fields, body) = fields(&call(&weir, "/lines", "huge", json!({ "bytes": MIB })));
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let mut unread = Vec::new();
    for _ in 0..60 {
        let mut client = H2Client::connect(&weir.url(""), &[(INITIAL_WINDOW_SIZE, 0)])
            .await
            .unwrap();
        for _ in 0..20 {
            client.post("/lines", &fields, &body).await.unwrap();
        }
        unread.push(client);
    }
    wait_until_async("refusals", async || {
        (refused(&weir, "results") >= 5.0).then_some(())
    })
    .await;
    is_well(&weir, "/good", "echo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_that_are_filled_behind_unread_answers_stay_within_the_memory_of_the_process() {
    let mut server = MockServer::modern().tool("echo", MockBehaviour::echo());
    for nth in 0..100 {
        let description = "d".repeat(400);
        server = server.tool_json(
            &json!({ "name": format!("t{nth}"), "description": description, "inputSchema": { "type": "object" } })
                .to_string(),
        );
    }
    let server = server.start().await;
    let config = json!({
        "upstreams": { "up": { "url": server.url() } },
        "endpoints": { "/mcp": { "upstream": "up" } },
        "limits": { "connections": 2000 },
    });
    let weir = start(160, config);
    is_well(&weir, "/mcp", "echo").await;
    let (list, list_body) = fields(&request(&weir, "/mcp", "tools/list", json!({})));
    let list: Vec<_> = list
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    let filler = vec![b' '; 16_000];
    let mut unread = JoinSet::new();
    for _ in 0..300 {
        let (url, list_body, filler) = (weir.url(""), list_body.clone(), filler.clone());
        let list: Vec<_> = list
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        unread.spawn(async move {
            let list: Vec<_> = list
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect();
            let mut client = H2Client::connect(&url, &[(INITIAL_WINDOW_SIZE, 0)])
                .await
                .ok()?;
            for _ in 0..40 {
                client.post("/mcp", &list, &list_body).await.ok()?;
            }
            // Every granted window is filled, with requests that are never completed.
            let filling = async {
                for _ in 0..59 {
                    let (stream, block) =
                        (client.next_stream(), client.block("POST", "/mcp", &list));
                    client.send_raw(&h2_client::head(stream, 0, &block)).await?;
                    client.send(h2_client::DATA, 0, stream, &filler).await?;
                }
                std::io::Result::Ok(())
            };
            // weir may instead close a client that breaks the flow control.
            let _filled = tokio::time::timeout(TEST_TIMEOUT, filling).await;
            Some(client)
        });
    }
    let unread = unread.join_all().await;
    is_well(&weir, "/mcp", "echo").await;
    drop(unread);
}

/// Starts a server of HTTP+SSE that never ends one event.
async fn endless_event() -> ScriptedServer {
    ScriptedServer::start(|request| {
        if request.head.starts_with("GET") {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /mcp\n\ndata: ";
            let text = vec![b'x'; 64 << 10];
            return vec![ServerAct::Write(head.into()), ServerAct::Endless(text.into())];
        }
        vec![ServerAct::Write("HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n".into())]
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_sse_servers_that_never_end_stay_within_the_memory_of_the_process() {
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let mut servers = Vec::new();
    let mut upstreams = json!({ "good": { "url": good.url() } });
    for nth in 0..6 {
        let server = endless_event().await;
        upstreams[format!("sse{nth}")] = json!({ "url": server.url(), "protocol": "sse" });
        servers.push(server);
    }
    let config =
        json!({ "upstreams": upstreams, "endpoints": { "/good": { "upstream": "good" } } });
    let weir = start(160, config);
    wait_until_async("the memory of results to be used up", async || {
        (refused(&weir, "results") >= 3.0).then_some(())
    })
    .await;
    is_well(&weir, "/good", "echo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_for_which_there_is_no_memory_fails_its_call_alone() {
    let (_good, weir) = over_lines(96).await;
    let client = RawClient::new(&weir.url("/lines")).modern();
    let calls = async {
        let large = client
            .call("huge", json!({ "bytes": 40 * MIB }))
            .await
            .unwrap();
        assert!(
            large
                .last()
                .to_string()
                .contains("There was no memory for the result"),
            "{:?}",
            large.last()["error"]
        );
        assert_eq!(
            client
                .call("huge", json!({ "bytes": MIB }))
                .await
                .unwrap()
                .text()
                .len(),
            MIB
        );
    };
    tokio::join!(calls, is_well(&weir, "/lines", "echo"));
}

/// Opens this many connections at once, makes a call on each, and closes them.
async fn wave(weir: &Weir, count: usize) {
    let call = std::sync::Arc::new(call(weir, "/mcp", "echo", json!({ "n": 1 })));
    let mut open = Vec::new();
    while open.len() < count {
        let mut some = JoinSet::new();
        for _ in 0..100.min(count - open.len()) {
            let (call, address) = (call.clone(), address(weir));
            some.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&call).await.unwrap();
                let head = head(&mut stream).await.unwrap();
                assert!(head.starts_with("http/1.1 200"), "{head}");
                stream
            });
        }
        open.extend(some.join_all().await);
    }
    let connections = || weir.metric("weir_connections", &[]);
    tokio::task::block_in_place(|| {
        assert!(connections() >= count as f64);
        drop(open);
        wait_until("the connections to be closed", || {
            (connections() < 10.0).then_some(())
        });
    });
}

/// Checks that memory is given back after `count` connections. The baseline is taken before the
/// first of them, after some calls on others.
async fn gives_back(count: usize) {
    let server = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": { "up": { "url": server.url() } },
        "endpoints": { "/mcp": { "upstream": "up" } },
        "limits": { "connections": count + 100 },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_log_filter(config, "warn"));
    wave(&weir, 100).await;
    // The first calls' permanent memory is allocated now, and their temporary memory is freed.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = weir.memory();
    wave(&weir, count).await;
    let most = before / 10 * 12;
    let given_back = async || (weir.memory() <= most).then_some(());
    let waited = tokio::time::timeout(
        Duration::from_secs(30),
        wait_until_async("memory to be given back", given_back),
    )
    .await;
    let after = weir.memory();
    eprintln!(
        "{} MiB, at most {}, then {}",
        before >> 20,
        weir.peak_memory() >> 20,
        after >> 20
    );
    assert!(
        waited.is_ok(),
        "{} MiB of {} MiB before",
        after >> 20,
        before >> 20
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "opens 12,000 connections: cargo xtask hostile runs it"]
async fn memory_after_12_000_connections_is_within_a_fifth_of_the_start() {
    gives_back(12_000).await;
}
