//! HTTP/2 from clients that write frames by hand: waiting bytes are bounded, stalled streams end,
//! and a flood ends only its own connection (A10 to A12).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_core::upstream::CallDeadlines;
use weir_front::FrontSettings;
use weir_listen::ListenerLimits;
use weir_testkit::H2Client;
use weir_testkit::h2_client::{
    self, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS,
    INITIAL_WINDOW_SIZE, NO_ERROR, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};

use crate::drain::LONG_DRAIN;
use crate::test_front::{TestFront, settings};

/// Settings with a short stall time.
fn short_stall_settings() -> FrontSettings {
    let mut settings = settings();
    settings.limits.listener.stall_time = Duration::from_millis(300);
    settings
}

async fn connect(world: &TestFront, window: u32) -> H2Client {
    H2Client::connect(&world.url(), &[(INITIAL_WINDOW_SIZE, window)])
        .await
        .unwrap()
}

/// Changes the window of all streams, also of those to come.
async fn set_window(client: &mut H2Client, window: u32) {
    let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    setting.extend(window.to_be_bytes());
    client.send(SETTINGS, 0, 0, &setting).await.unwrap();
}

/// Sends a modern request; returns its stream.
async fn ask(world: &TestFront, client: &mut H2Client, method: &str, params: Value) -> u32 {
    let (headers, message) = world.client().modern().envelope(method, params);
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    client
        .post("/mcp", &headers, message.to_string().as_bytes())
        .await
        .unwrap()
}

async fn echo(world: &TestFront, client: &mut H2Client, size: usize) -> u32 {
    ask(
        world,
        client,
        "tools/call",
        json!({"name": "echo", "arguments": {"size": size}}),
    )
    .await
}

async fn listen(world: &TestFront, client: &mut H2Client) -> u32 {
    ask(
        world,
        client,
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    )
    .await
}

/// A body would break the client's stream (RFC 9110, section 9.3.2).
#[tokio::test]
async fn answer_to_head_has_no_body() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = connect(&world, 65_535).await;
    for path in ["/mcp", "/elsewhere"] {
        let stream = client.next_stream();
        let block = client.block("HEAD", path, &[]);
        let flags = END_HEADERS | END_STREAM;
        client.send(HEADERS, flags, stream, &block).await.unwrap();
        let answer = client
            .until(|frame| frame.stream == stream && frame.kind == HEADERS)
            .await
            .unwrap();
        assert!(answer.status() >= Some(400), "{path}");
        assert!(answer.ends_stream(), "{path}");
    }
    assert_others_served(&world).await;
}

/// Checks that another client is served as usual.
async fn assert_others_served(world: &TestFront) {
    assert_eq!(
        world
            .client()
            .modern()
            .with_http2()
            .list_tools()
            .await
            .unwrap()
            .len(),
        4
    );
    assert_eq!(world.client().modern().list_tools().await.unwrap().len(), 4);
}

// Proves A12.
#[tokio::test]
async fn a_stream_without_window_is_reset_and_its_connection_goes_on() {
    let world = TestFront::anonymous(short_stall_settings()).await;
    let mut client = connect(&world, 1 << 16).await;
    let listening = listen(&world, &mut client).await;
    client
        .until(|frame| frame.stream == listening && frame.kind == DATA)
        .await
        .unwrap();
    // The window of the open stream stays, and that of streams to come is empty.
    client.grant(listening, 1 << 16).await.unwrap();
    set_window(&mut client, 0).await;
    for size in [0, 100_000] {
        let stuck = echo(&world, &mut client, size).await;
        let reset = client
            .until(|frame| frame.kind == RST_STREAM || frame.kind == GOAWAY)
            .await
            .unwrap();
        assert_eq!(
            (reset.stream, reset.error_code()),
            (stuck, Some(CANCEL)),
            "{size} bytes"
        );
    }
    // The same for a window that is used up, before the end of the answer.
    let some = echo(&world, &mut client, 1000).await;
    client.grant(some, 10).await.unwrap();
    let reset = client
        .until(|frame| frame.kind == RST_STREAM || frame.kind == GOAWAY)
        .await
        .unwrap();
    assert_eq!((reset.stream, reset.error_code()), (some, Some(CANCEL)));
    // The connection still works, and so does the idle stream.
    set_window(&mut client, 1 << 16).await;
    let good = echo(&world, &mut client, 0).await;
    assert_eq!(client.response(good).await.unwrap().0, 200);
    client
        .send(RST_STREAM, 0, listening, &CANCEL.to_be_bytes())
        .await
        .unwrap();
}

// Proves A12.
#[tokio::test]
async fn slow_stream_with_growing_window_is_served_to_its_end() {
    let mut settings = settings();
    let stall_time = Duration::from_secs(4);
    settings.limits.listener.stall_time = stall_time;
    let world = TestFront::anonymous(settings).await;
    let mut client = connect(&world, 0).await;
    let slow = echo(&world, &mut client, 1000).await;
    let (mut body, mut ended) = (0, false);
    let begin = Instant::now();
    while !ended {
        tokio::time::sleep(stall_time / 8).await;
        client.grant(slow, 100).await.unwrap();
        let part = client
            .until(|frame| frame.stream == slow && frame.kind != HEADERS)
            .await
            .unwrap();
        assert_eq!(part.kind, DATA, "{part:?}");
        body += part.payload.len();
        ended = part.ends_stream();
    }
    assert!(body > 1000, "{body}");
    assert!(begin.elapsed() > stall_time, "only a pause is a stall");
}

// Proves A12.
#[tokio::test]
async fn connection_with_a_stalled_window_ends() {
    let world = TestFront::anonymous(short_stall_settings()).await;
    let mut client = connect(&world, 1 << 20).await;
    let large = echo(&world, &mut client, 100_000).await;
    let mut got = 0;
    // The window of the connection is the protocol's 65,535 bytes, and never grows.
    let ended = loop {
        match client.next_frame().await {
            Ok(Some(frame)) if frame.stream == large && frame.kind == DATA => {
                got += frame.payload.len()
            }
            Ok(Some(frame)) => assert!(
                [HEADERS, GOAWAY, WINDOW_UPDATE].contains(&frame.kind),
                "{frame:?}"
            ),
            ended => break ended,
        }
    };
    assert!(matches!(ended, Ok(None) | Err(_)), "{ended:?}");
    assert_eq!(got, 65_535);
    assert_others_served(&world).await;
}

// Proves A12.
#[tokio::test]
async fn waiting_bytes_of_a_connection_are_bounded() {
    let mut settings = short_stall_settings();
    // No answer becomes a stream, because its head would be sent before any part of its result.
    settings.limits.stream_after = Duration::from_secs(3600);
    let world = TestFront::anonymous(settings).await;
    let mut client = connect(&world, 0).await;
    // Each is read whole before it is sent.
    for _ in 0..20 {
        echo(&world, &mut client, 500_000).await;
    }
    let (mut begun, mut reset) = (0, 0);
    while reset < 20 {
        let frame = client
            .until(|frame| matches!(frame.kind, HEADERS | RST_STREAM))
            .await
            .unwrap();
        match frame.kind {
            HEADERS => begun += 1,
            _ => reset += 1,
        }
        // Waiting answers take 4 MiB at most: eight.
        assert!(begun - reset <= 8, "{begun} begun, {reset} reset");
    }
    assert_others_served(&world).await;
}

#[tokio::test]
async fn an_old_connection_ends_its_streams_gracefully_and_then_itself() {
    let mut settings = settings();
    // The streams have to begin within the first time, and the subscription to end in the second.
    settings.limits.listener.h2.age = Duration::from_secs(3);
    settings.limits.listener.h2.last_streams = Duration::from_secs(3);
    let mut world = TestFront::anonymous(settings).await;
    let mut client = connect(&world, 1 << 20).await;
    let waiting = ask(
        &world,
        &mut client,
        "tools/call",
        json!({"name": "wait", "_meta": {"progressToken": 1}}),
    )
    .await;
    client
        .until(|frame| frame.stream == waiting && frame.kind == DATA)
        .await
        .unwrap();
    let listening = listen(&world, &mut client).await;
    let mut told = Vec::new();
    loop {
        let frame = client
            .until(|frame| frame.stream == listening || frame.kind == GOAWAY)
            .await
            .unwrap();
        told.extend_from_slice(if frame.kind == DATA {
            &frame.payload
        } else {
            b""
        });
        if frame.ends_stream() {
            assert_eq!(frame.kind, DATA, "{frame:?}");
            break;
        }
    }
    let told = String::from_utf8(told).unwrap();
    assert!(
        told.contains("acknowledged") && told.contains(r#""resultType":"complete""#),
        "{told}"
    );
    // The call that still runs is cancelled with the connection.
    while let Ok(Some(frame)) = client.next_frame().await {
        assert!(frame.kind == GOAWAY || frame.stream == waiting, "{frame:?}");
    }
    world.cancelled.recv().await.unwrap();
}

#[test]
fn old_connection_leaves_its_calls_their_own_time_limit() {
    let limits = ListenerLimits::default();
    assert!(limits.h2.last_streams > CallDeadlines::CALL.hard);
}

// Proves A26.
#[tokio::test]
async fn drain_does_not_wait_for_an_idle_connection_whose_peer_answers_no_pings() {
    let mut settings = settings();
    settings.limits.listener.drain_idle = Duration::from_millis(100);
    let world = TestFront::anonymous(settings).await;
    let mut silent = connect(&world, 1 << 16).await;
    let answered = echo(&world, &mut silent, 0).await;
    assert_eq!(silent.response(answered).await.unwrap().0, 200);
    // The client answers no ping before it reads the next frame.
    let draining = world.front.drain(LONG_DRAIN, std::future::ready(()));
    tokio::time::timeout(LONG_DRAIN / 6, draining)
        .await
        .unwrap();
    let closing = silent.until(|frame| frame.kind == GOAWAY).await.unwrap();
    assert_eq!(closing.error_code(), Some(NO_ERROR));
}

/// Writes `flood`; returns the code of the GOAWAY that answers it.
async fn goaway_code_after_flood(
    world: &TestFront,
    name: &str,
    flood: impl Fn(&mut H2Client) -> Vec<u8>,
) -> Option<u32> {
    let mut client = connect(world, 1 << 16).await;
    // The bytes that weir discards when it closes: more would reset the connection, and its GOAWAY
    // would be lost.
    let mut written = 0;
    while written < 50_000 {
        let bytes = flood(&mut client);
        written += bytes.len();
        client.send_raw(&bytes).await.unwrap();
    }
    let mut code = None;
    while let Ok(Some(frame)) = client.next_frame().await {
        code = frame.error_code().filter(|_| frame.kind == GOAWAY).or(code);
    }
    assert!(code.is_some(), "{name} is no flood");
    code
}

// Proves A10.
#[tokio::test]
async fn every_flood_of_frames_ends_its_connection_and_the_others_are_served() {
    let world = TestFront::anonymous(settings()).await;
    let many = |one: Vec<u8>| move |_: &mut H2Client| one.repeat(100);
    let request = |client: &mut H2Client, flags| {
        let (stream, block) = (client.next_stream(), client.block("GET", "/mcp", &[]));
        (stream, frame(HEADERS, flags, stream, &block))
    };
    type Flood<'a> = Box<dyn Fn(&mut H2Client) -> Vec<u8> + 'a>;
    let floods: Vec<(&str, Flood<'_>)> = vec![
        ("pings", Box::new(many(frame(PING, 0, 0, &[7; 8])))),
        ("settings", Box::new(many(frame(SETTINGS, 0, 0, b"")))),
        (
            "priorities",
            Box::new(many(frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 1]))),
        ),
        (
            "window updates",
            Box::new(many(frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()))),
        ),
        ("unknown frames", Box::new(many(frame(0x7f, 0, 0, b"")))),
        (
            "empty data",
            Box::new(|client| {
                let (stream, head) = request(client, END_HEADERS);
                [head, frame(DATA, 0, stream, b"").repeat(100)].concat()
            }),
        ),
        (
            "rapid resets",
            Box::new(|client| {
                let both = |client: &mut H2Client| {
                    let (stream, head) = request(client, END_HEADERS | END_STREAM);
                    [head, frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
                };
                (0..50).flat_map(|_| both(client)).collect()
            }),
        ),
        (
            "resets that the client provokes",
            Box::new(|client| {
                let both = |client: &mut H2Client| {
                    let (stream, head) = request(client, END_HEADERS);
                    [
                        head,
                        frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffffu32.to_be_bytes()),
                    ]
                    .concat()
                };
                (0..50).flat_map(|_| both(client)).collect()
            }),
        ),
        (
            "a head without end",
            Box::new(|client| {
                let mut bytes = frame(HEADERS, 0, 1, &client.block("GET", "/mcp", &[]));
                for number in 0..100 {
                    let mut block = Vec::new();
                    h2_client::literal(&mut block, &format!("x-{number}"), "");
                    bytes.extend(frame(CONTINUATION, 0, 1, &block));
                }
                bytes
            }),
        ),
    ];
    for (name, flood) in floods {
        assert_eq!(
            goaway_code_after_flood(&world, name, flood).await,
            Some(ENHANCE_YOUR_CALM),
            "{name}"
        );
        assert_others_served(&world).await;
    }
}

/// Sends the head of a POST whose body does not come; gives its stream.
async fn begin_post(client: &mut H2Client, headers: &[(&str, &str)]) -> u32 {
    let usual = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let headers: Vec<_> = usual.iter().chain(headers).copied().collect();
    let (stream, block) = (client.next_stream(), client.block("POST", "/mcp", &headers));
    client
        .send_raw(&h2_client::head(stream, 0, &block))
        .await
        .unwrap();
    stream
}

#[tokio::test]
async fn expected_continue_comes_when_the_body_is_waited_for_and_not_before_a_refusal() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = connect(&world, 65_535).await;
    let (headers, message) = world.client().modern().envelope("tools/list", json!({}));
    let mut headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .filter(|(name, _)| !["content-type", "accept"].contains(name))
        .collect();
    headers.push(("expect", "100-continue"));
    let stream = begin_post(&mut client, &headers).await;
    let first = client.until(|frame| frame.stream == stream).await.unwrap();
    assert_eq!((first.kind, first.status()), (HEADERS, Some(100)));
    let body = message.to_string();
    client
        .send(DATA, END_STREAM, stream, body.as_bytes())
        .await
        .unwrap();
    assert_eq!(client.response(stream).await.unwrap().0, 200);
    let refused = client.next_stream();
    let block = client.block(
        "POST",
        "/mcp",
        &[("expect", "100-continue"), ("content-type", "text/plain")],
    );
    client
        .send_raw(&h2_client::head(refused, 0, &block))
        .await
        .unwrap();
    let first = client.until(|frame| frame.stream == refused).await.unwrap();
    assert_eq!(first.status(), Some(415));
}

#[tokio::test]
async fn memory_of_large_heads_is_reserved() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = connect(&world, 65_535).await;
    // Room for the connection and for a few streams of usual size.
    world.budgets.connections.set_limit(400 << 10);
    let large = "v".repeat(28 << 10);
    for _ in 0..10 {
        begin_post(&mut client, &[("x-large", &large)]).await;
    }
    let last = ask(&world, &mut client, "tools/list", json!({})).await;
    let mut refused = 0;
    loop {
        let frame = client.next_frame().await.unwrap().unwrap();
        if frame.kind == RST_STREAM {
            assert_eq!(frame.error_code(), Some(h2_client::REFUSED_STREAM));
            refused += 1;
        }
        if frame.stream == last {
            assert_eq!(frame.status(), Some(200), "a usual head has room");
            break;
        }
    }
    assert!(refused >= 5, "{refused} streams refused");
}

// Proves A11.
#[tokio::test]
async fn too_many_headers_answer_431_and_the_connection_goes_on() {
    let world = TestFront::anonymous(settings()).await;
    let mut client = connect(&world, 1 << 16).await;
    let names: Vec<String> = (0..101).map(|number| format!("x-{number}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let many = client.get("/mcp", &headers).await.unwrap();
    assert_eq!(client.response(many).await.unwrap().0, 431);
    // Few lines, but too large.
    let large = "v".repeat(8000);
    let large = client
        .get(
            "/mcp",
            &[
                ("x-1", &large),
                ("x-2", &large),
                ("x-3", &large),
                ("x-4", &large),
                ("x-5", &large),
            ],
        )
        .await;
    let large = large.unwrap();
    let end = client
        .until(|frame| frame.stream == large && frame.kind == HEADERS)
        .await
        .unwrap();
    assert_eq!(end.status(), Some(431));
    let good = ask(&world, &mut client, "tools/list", json!({})).await;
    assert_eq!(client.response(good).await.unwrap().0, 200);
}

// Proves D09.
#[tokio::test]
async fn listen_stream_without_a_reader_is_reset_and_others_go_on() {
    let world = TestFront::anonymous(short_stall_settings()).await;
    let (mut deaf, mut good) = (connect(&world, 0).await, connect(&world, 1 << 16).await);
    let unread = listen(&world, &mut deaf).await;
    let read = listen(&world, &mut good).await;
    good.until(|frame| frame.stream == read && frame.kind == DATA)
        .await
        .unwrap();
    let reset = deaf
        .until(|frame| matches!(frame.kind, RST_STREAM | GOAWAY))
        .await
        .unwrap();
    assert_eq!((reset.stream, reset.error_code()), (unread, Some(CANCEL)));
    // Its connection may listen again, and reads this time.
    let again = listen(&world, &mut deaf).await;
    deaf.grant(again, 1 << 16).await.unwrap();
    let told = deaf
        .until(|frame| frame.stream == again && frame.kind != HEADERS)
        .await
        .unwrap();
    assert_eq!(told.kind, DATA, "{told:?}");
    assert_others_served(&world).await;
}
