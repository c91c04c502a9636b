//! Clients that open many connections or streams and do not read: the resources that they hold are
//! bounded, and other clients are served.

use std::io::Read as _;
use std::net::TcpStream;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use weir_testkit::h2_client::{
    DATA, END_HEADERS, END_STREAM, H2Frame, HEADERS, INITIAL_WINDOW_SIZE, NO_ERROR, RST_STREAM,
    WINDOW_UPDATE, frame, literal,
};
use weir_testkit::{H2Client, MockBehaviour, MockServer, MockStdio, RawClient, RawSocket};
use weir_wire::Revision;

use crate::harness::{Bystander, Weir};
use crate::hostile_input::{WeirWithUpstream, within_timeout};

/// Opens `connections` connections with 100 requests each, whose answers have no window to be sent
/// in.
async fn without_window(stage: &WeirWithUpstream, connections: usize, path: &str) -> Vec<H2Client> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut client = H2Client::connect(&stage.url(), &[(INITIAL_WINDOW_SIZE, 0)])
            .await
            .unwrap();
        let block = client.block("GET", path, &[]);
        let requests: Vec<u8> = (0..100)
            .flat_map(|_| {
                let stream = client.next_stream();
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
            })
            .collect();
        client.send_raw(&requests).await.unwrap();
        open.push(client);
    }
    // Every answer has begun: its status needs no window.
    for client in &mut open {
        for _ in 0..100 {
            within_timeout(
                "an answer's head",
                client.until(|frame| frame.kind == HEADERS),
            )
            .await
            .unwrap();
        }
    }
    open
}

// Proves A12.
#[tokio::test(flavor = "multi_thread")]
async fn http2_answers_without_window_hold_no_in_flight_permit() {
    let stage = WeirWithUpstream::new().await;
    let bystander = Bystander::start_beside(&stage.weir, stage.modern_client());
    let open = without_window(&stage, 120, "/x").await;
    let other: RawClient = stage.modern_client();
    for number in 0..20 {
        let answer = within_timeout("a call", other.call("echo", json!({ "n": number })))
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "call {number}: {:?}", answer.body);
    }
    drop(open);
    bystander
        .finish("12,000 answers without window")
        .await
        .assert_none_refused();
}

// Proves A12.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_gets_eight_large_answers_at_once() {
    let size = 3 << 20;
    let (command, args) = MockStdio::legacy(Revision::NEWEST_LEGACY).command();
    let far = MockServer::modern()
        .tool("huge", MockBehaviour::huge(size))
        .start()
        .await;
    let config = json!({ "upstreams": { "near": { "command": command, "args": args }, "far": { "url": far.url() } } });
    let weir = tokio::task::block_in_place(|| Weir::with_config(config));
    let client = RawClient::new(&weir.url("/mcp"))
        .modern()
        .with_http2()
        .keeping_connections();
    // The one connection of all later calls.
    assert_eq!(
        client.call("near__echo", json!({})).await.unwrap().text(),
        "{}"
    );
    for tool in ["near__huge", "far__huge"] {
        let mut calls = JoinSet::new();
        for _ in 0..8 {
            let client = client.clone();
            calls.spawn(async move { client.call(tool, json!({ "bytes": size })).await });
        }
        for answer in calls.join_all().await {
            assert_eq!(answer.unwrap().text().len(), size, "{tool}");
        }
    }
    assert!(weir.metric("weir_streams_reset_total", &[]) < 0.5);
}

// Proves A13.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_to_the_operators_listener_keep_no_probe_out() {
    let stage = WeirWithUpstream::new().await;
    let address = stage
        .weir
        .admin_url()
        .trim_start_matches("http://")
        .to_owned();
    // Twice the limit of connections, all from one address, as all on this machine are.
    let mut silent: Vec<TcpStream> = (0..128)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    for page in ["/healthz", "/readyz", "/metrics"] {
        assert!(
            stage.weir.get_admin_page(page).starts_with("HTTP/1.1 200"),
            "{page}"
        );
    }
    // The first were closed for later ones, and the last is still open.
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap_or(0), 0);
    let last = silent.last_mut().unwrap();
    last.set_nonblocking(true).unwrap();
    assert_eq!(
        last.read(&mut [0; 1]).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );
}

// Proves A17.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_a_host_is_digits_alone() {
    let stage = WeirWithUpstream::new().await;
    for (host, good) in [
        ("localhost:80", true),
        ("localhost:+80", false),
        ("[::1]:+80", false),
        ("localhost:-0", false),
    ] {
        let mut client = H2Client::connect(&stage.url(), &[]).await.unwrap();
        let mut block = Vec::new();
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/mcp"),
            (":authority", host),
        ] {
            literal(&mut block, name, value);
        }
        client
            .send_raw(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
            .await
            .unwrap();
        let answer = within_timeout("an answer", client.until(|frame| frame.stream == 1))
            .await
            .unwrap();
        // 405: a GET without a session.
        assert_eq!(
            answer.status(),
            Some(if good { 405 } else { 400 }),
            "{host}"
        );
        let head = format!("GET /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut socket = RawSocket::connect(&stage.url()).await.unwrap();
        socket.write(head.as_bytes()).await.unwrap();
        let answer = within_timeout("an answer", socket.read_to_end())
            .await
            .unwrap();
        assert!(
            answer.starts_with(if good { "HTTP/1.1 405" } else { "HTTP/1.1 400" }),
            "{host}: {answer}"
        );
    }
}

/// Returns the head of a request with a body of this length.
fn head(host: &str, body: usize) -> String {
    format!(
        "POST /good HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {body}\r\n\r\n"
    )
}

// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_large_body_gets_its_refusal_and_no_reset() {
    const BODY: usize = 1_000_000;
    let good = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": { "good": { "url": good.url() } },
        "endpoints": { "/good": { "upstream": "good" } },
        // A quarter of it is for bodies.
        "limits": { "memory": "160MiB", "body_rate_grace": "60s", "body_time": "60s" },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_config(config));
    let address = weir.url("").trim_start_matches("http://").to_owned();
    // Bodies that were announced, and do not come.
    let mut held = Vec::new();
    let refused = || weir.metric("weir_memory_refused_total", &["bodies"]);
    while refused() < 0.5 {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        stream
            .write_all(head(&address, BODY).as_bytes())
            .await
            .unwrap();
        held.push(stream);
        assert!(held.len() < 10_000, "the memory of bodies is bounded");
    }
    let mut senders = JoinSet::new();
    for _ in 0..8 {
        let address = address.clone();
        senders.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            stream
                .write_all(head(&address, BODY).as_bytes())
                .await
                .unwrap();
            stream.write_all(&vec![b' '; BODY]).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        });
    }
    for answer in senders.join_all().await {
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.to_lowercase().contains("retry-after"),
            "{answer}"
        );
    }
}

// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn http2_refusal_before_the_body_comes_without_a_reset() {
    const BODY: usize = 500_000;
    let stage = WeirWithUpstream::with_limits(json!({ "body_bytes": "64KiB" })).await;
    let length = BODY.to_string();
    let too_large = [
        ("content-length", length.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    for (method, path, headers, status) in [
        ("POST", "/nowhere", &[][..], 404),
        ("PUT", "/mcp", &[], 405),
        ("POST", "/mcp", &too_large, 413),
    ] {
        let mut client = H2Client::connect(&stage.url(), &[]).await.unwrap();
        let stream = client.next_stream();
        let block = client.block(method, path, headers);
        client
            .send_raw(&frame(HEADERS, END_HEADERS, stream, &block))
            .await
            .unwrap();
        let answer = within_timeout("the refusal", client.response(stream)).await;
        assert_eq!(answer.unwrap().0, status);
        // The body comes afterwards, as fast as the window of the stream allows. That of the
        // connection is larger than the body.
        let (mut left, mut window) = (BODY, 65_535);
        while left > 0 {
            let part = left.min(window).min(16 << 10);
            if part == 0 {
                let wanted = |frame: &H2Frame| frame.stream == stream;
                let update = within_timeout("a window", client.until(wanted)).await;
                let update = update.unwrap();
                assert_eq!(update.kind, WINDOW_UPDATE, "{path}: {left} bytes are left");
                let bytes: [u8; 4] = update.payload[..4].try_into().unwrap();
                window += u32::from_be_bytes(bytes) as usize;
                continue;
            }
            (left, window) = (left - part, window - part);
            let flags = if left == 0 { END_STREAM } else { 0 };
            let sent = client.send(DATA, flags, stream, &vec![b' '; part]).await;
            sent.unwrap();
        }
        let next = client.get("/nowhere", &[]).await.unwrap();
        let wanted = |frame: &H2Frame| frame.ends_stream();
        let end = within_timeout("the next answer", client.until(wanted)).await;
        let end = end.unwrap();
        assert_eq!((end.stream, end.kind != RST_STREAM), (next, true), "{path}");
    }
}

// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn http2_body_that_does_not_come_is_reset_after_its_refusal() {
    let stage = WeirWithUpstream::new().await;
    for (path, length, status) in [("/nowhere", "1000", 404), ("/mcp", "1000000000", 413)] {
        let mut client = H2Client::connect(&stage.url(), &[]).await.unwrap();
        let stream = client.next_stream();
        let headers = [
            ("content-length", length),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let block = client.block("POST", path, &headers);
        client
            .send_raw(&frame(HEADERS, END_HEADERS, stream, &block))
            .await
            .unwrap();
        let answer = within_timeout("the refusal", client.response(stream)).await;
        assert_eq!(answer.unwrap().0, status, "{path}");
        let is_reset = |frame: &H2Frame| frame.stream == stream && frame.kind == RST_STREAM;
        let reset = within_timeout("the reset", client.until(is_reset)).await;
        assert_eq!(reset.unwrap().error_code(), Some(NO_ERROR), "{path}");
    }
}

/// A GET of a live session whose client announces a body, sends half of it and closes its half of
/// the connection. Behind an unread body weir would not see the close, and the stream would stay
/// for as long as the client likes. So weir refuses such a GET.
// Proves A09.
#[tokio::test(flavor = "multi_thread")]
async fn get_with_an_unfinished_body_is_refused_and_holds_no_stream() {
    const ROUNDS: usize = 60;
    let good = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let config = json!({
        "upstreams": { "good": { "url": good.url() } },
        "endpoints": { "/good": { "upstream": "good" } },
        // Far fewer than the rounds.
        "limits": { "streams": 8 },
    });
    let weir = tokio::task::block_in_place(|| Weir::with_config(config));
    let address = weir.url("").trim_start_matches("http://").to_owned();
    let client = RawClient::new(&weir.url("/good"))
        .legacy(Revision::NEWEST_LEGACY)
        .initialize()
        .await
        .unwrap();
    let session = client.session().unwrap().to_owned();
    let bystander = Bystander::start_beside(&weir, client.clone());
    let open = || weir.metric("weir_streams", &[]);
    for round in 0..ROUNDS {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "GET /good HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nmcp-session-id: {session}\r\n\
             mcp-protocol-version: 2025-11-25\r\ncontent-length: 100\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&[b' '; 50]).await.unwrap();
        // Every second client leaves before it has seen an answer.
        let mut answer = vec![0; 4096];
        if round % 2 == 0 {
            let read = within_timeout("the head of the stream", stream.read(&mut answer))
                .await
                .unwrap();
            let head = String::from_utf8_lossy(&answer[..read]).into_owned();
            assert!(head.starts_with("HTTP/1.1 400"), "round {round}: {head}");
        }
        stream.shutdown().await.unwrap();
        // weir closes its half, too.
        let closing = async { while stream.read(&mut answer).await.is_ok_and(|read| read > 0) {} };
        within_timeout("the end of the connection", closing).await;
    }
    crate::harness::wait_until_async("all streams to be over", async || {
        (open() == 0.0).then_some(())
    })
    .await;
    let own = within_timeout("a stream", client.get_stream())
        .await
        .unwrap();
    assert!(
        own.status.is_success() && own.is_stream(),
        "the session is alive: {:?}",
        own.headers
    );
    let figures = bystander
        .finish("streams whose clients half-close within a body")
        .await;
    figures.assert_none_refused();
    assert!(
        figures.descriptors < 60,
        "{} descriptors",
        figures.descriptors
    );
}
