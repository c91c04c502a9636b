//! Servers that write without end, or that read no data.

use super::*;

/// Many of these frames at a time, so that the server is not the slow part.
fn endless(frame: &[u8]) -> H2Act {
    H2Act::Endless(frame.repeat((16 << 10) / frame.len() + 1).into())
}

/// Sends frames without end once a call has come, and makes the call wait.
async fn flood(name: &str, of: impl Fn(&H2Request) -> Vec<u8> + Send + Sync + 'static) {
    // Otherwise the idle timeout would end the call first.
    let scene = Http2Scene::with(
        H2Plan::on_calls(move |request| vec![endless(&of(request))]),
        "15s",
    )
    .await;
    let answers = scene.attacked(name, json!({})).await;
    answers.iter().for_each(|answer| failed(name, answer));
    // One connection for each call, and those for lists.
    assert!(
        scene.bad.accepted() <= 2 * (AT_ONCE + AFTER) + 8,
        "{name}: {} connections",
        scene.bad.accepted()
    );
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn interim_answers_without_end_are_no_answer() {
    flood("interim answers", |request| {
        let hints = "<https://example.com/style.css>; rel=preload; as=style".repeat(8);
        answer_head(request.stream, "103", &[("link", &hints)])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn small_interim_answers_without_end_are_no_answer() {
    flood("small interim answers", |request| {
        answer_head(request.stream, "100", &[])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn a_header_block_without_end_is_no_answer() {
    let block = answer_block("200", &[("x", &"y".repeat(1000))]);
    fails(
        "a header block without end",
        H2Plan::on_calls(move |request| {
            let more = frame(CONTINUATION, 0, request.stream, &block);
            vec![
                write(frame(HEADERS, 0, request.stream, &block)),
                H2Act::Endless(more.into()),
            ]
        }),
    )
    .await;
    fails(
        "empty continuations without end",
        H2Plan::on_calls(|request| {
            let first = frame(HEADERS, 0, request.stream, &answer_block("200", &[]));
            vec![
                write(first),
                endless(&frame(CONTINUATION, 0, request.stream, b"")),
            ]
        }),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn pings_without_end_end_the_connection() {
    flood("pings", |_| frame(PING, 0, 0, b"attacker")).await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn settings_without_end_end_the_connection() {
    flood("settings", |_| {
        frame(SETTINGS, 0, 0, b"\x00\x04\x00\x01\x00\x00")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn window_updates_without_end_end_the_connection() {
    flood("window updates", |request| {
        [
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            frame(WINDOW_UPDATE, 0, request.stream, &[0, 0, 0, 1]),
        ]
        .concat()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn frames_of_no_meaning_without_end_end_the_connection() {
    flood("frames of unknown types", |_| {
        frame(0xfa, 0xff, 0, b"unknown")
    })
    .await;
    flood("priorities", |request| {
        frame(PRIORITY, 0, request.stream + 2, &[0, 0, 0, 0, 7])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn empty_data_without_end_end_the_connection() {
    flood("empty DATA", |request| frame(DATA, 0, request.stream, b"")).await;
    let begun = |request: &H2Request| {
        let begin = answer_head(
            request.stream,
            "200",
            &[("content-type", "application/json")],
        );
        // The flag PADDED: a length, and that much padding behind no data.
        vec![
            write(begin),
            endless(&frame(DATA, 8, request.stream, b"\x01\x00")),
        ]
    };
    let scene = Http2Scene::with(H2Plan::on_calls(begun), "15s").await;
    let name = "padding alone";
    scene
        .attacked(name, json!({}))
        .await
        .iter()
        .for_each(|answer| failed(name, answer));
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn resets_of_streams_without_end_end_the_connection() {
    flood("resets", |request| {
        frame(RST_STREAM, 0, request.stream, &CANCEL.to_be_bytes())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn every_request_reset_is_sent_at_most_three_times() {
    for (name, code) in [
        ("each request refused", REFUSED_STREAM),
        ("each request cancelled", CANCEL),
        ("each request calmed", ENHANCE_YOUR_CALM),
        ("each request reset without error", 0),
    ] {
        let reset = move |request: &H2Request| {
            vec![write(frame(
                RST_STREAM,
                0,
                request.stream,
                &code.to_be_bytes(),
            ))]
        };
        let scene = fails(name, H2Plan::on_calls(reset)).await;
        let most = if code == REFUSED_STREAM { 3 } else { 1 } * (AT_ONCE + AFTER);
        assert!(
            scene.bad.calls() <= most,
            "{name}: {} requests for {} calls",
            scene.bad.calls(),
            AT_ONCE + AFTER
        );
    }
}

fn goaway(last: u32, code: u32) -> Vec<u8> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend(code.to_be_bytes());
    payload.extend(b"\x1b[2Jgo away\r\n");
    frame(GOAWAY, 0, 0, &payload)
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn server_that_sends_goaway_to_every_call_gets_bounded_connections() {
    for (name, last, code, closes) in [
        ("sent away and closed", 0, 0, true),
        ("sent away and kept", 0, 0, false),
        ("sent away after the stream", 0x7fff_ffff, 0, false),
        ("sent away for flooding", 0, ENHANCE_YOUR_CALM, true),
    ] {
        let away = move |_: &H2Request| {
            let mut acts = vec![write(goaway(last, code))];
            acts.extend(closes.then_some(H2Act::Close));
            acts
        };
        let scene = fails(name, H2Plan::on_calls(away)).await;
        let most = 4 * (AT_ONCE + AFTER) + 8;
        assert!(
            scene.bad.accepted() <= most,
            "{name}: {} connections",
            scene.bad.accepted()
        );
    }
    // From the first byte on, so that weir's own requests meet it, too.
    let name = "sent away at once";
    let scene = Http2Scene::new(H2Plan::greeting(vec![write(goaway(0, 0))])).await;
    for answer in scene.attacked(name, json!({})).await {
        // A call that the server accepts and answers all the same succeeds.
        if answer.last()["result"]["content"][0]["text"] != "own" {
            failed(name, &answer);
        }
    }
    let before = scene.bad.accepted();
    let bystander = Bystander::start_beside(&scene.weir, scene.client("/good"));
    // At least a second.
    bystander.wait_for_calls(200).await;
    bystander
        .finish("an upstream over HTTP/2: sent away at once, and not called")
        .await
        .assert_none_refused();
    let more = scene.bad.accepted() - before;
    assert!(more <= 30, "{more} connections that nobody asked for");
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn server_that_accepts_no_streams_leaves_no_memory_of_calls() {
    let none = [
        MAX_CONCURRENT_STREAMS.to_be_bytes().as_slice(),
        &0u32.to_be_bytes(),
    ]
    .concat();
    // Once its tools are known: a server that accepts no stream from the beginning has no tools.
    let refuse = move |request: &H2Request| {
        let cancel = CANCEL.to_be_bytes();
        vec![write(
            [
                frame(SETTINGS, 0, 0, &none),
                frame(RST_STREAM, 0, request.stream, &cancel),
            ]
            .concat(),
        )]
    };
    let scene = fails("no streams at once", H2Plan::on_calls(refuse)).await;
    // Callers that leave, each with a large request: a request without a caller is not kept.
    let before = scene.weir.memory();
    let arguments = json!({ "text": "x".repeat(1 << 20) });
    for _ in 0..20 {
        let mut calls = JoinSet::new();
        for _ in 0..10 {
            let (client, arguments) = (scene.client("/bad"), arguments.clone());
            calls.spawn(async move {
                let leaving = client.call("t", arguments);
                let _left = tokio::time::timeout(Duration::from_millis(300), leaving).await;
            });
        }
        calls.join_all().await;
    }
    let most = before + (64 << 20);
    let memory = || scene.weir.memory();
    tokio::task::block_in_place(|| {
        wait_until("memory to be given back", || {
            (memory() <= most).then_some(())
        })
    });
}

#[tokio::test(flavor = "multi_thread")]
pub(super) async fn a_server_that_gives_no_window_gets_a_call_no_further_than_its_deadline() {
    let none = [
        INITIAL_WINDOW_SIZE.to_be_bytes().as_slice(),
        &0u32.to_be_bytes(),
    ]
    .concat();
    let name = "no window";
    let scene = Http2Scene::new(H2Plan::on_calls(move |request| {
        vec![write(
            [
                frame(SETTINGS, 0, 0, &none),
                frame(RST_STREAM, 0, request.stream, &CANCEL.to_be_bytes()),
            ]
            .concat(),
        )]
    }))
    .await;
    let answers = scene
        .attacked(name, json!({ "text": "x".repeat(200_000) }))
        .await;
    answers.iter().for_each(|answer| failed(name, answer));
}
