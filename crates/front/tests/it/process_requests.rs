//! Requests that come from another process of a graceful restart: each goes on in its direction
//! alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use weir_listen::OtherProcess;
use weir_wire::Revision;

use crate::http_sse::UNKNOWN_PATH;
use crate::process_tasks::AnsweringProcess;
use crate::test_front::{TestFront, in_time, settings};

/// Posts a message for an unknown stream, as another process forwards it. Returns the answer.
async fn post_from(world: &TestFront, from: OtherProcess) -> String {
    let (mut own, other) = UnixStream::pair().unwrap();
    world.front.process_requests().serve(from, other);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let request = format!(
        "POST {UNKNOWN_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{ping}",
        ping.len()
    );
    own.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let reading = own.read_to_string(&mut answer);
    in_time("the answer", reading).await.unwrap();
    answer
}

#[tokio::test]
async fn request_of_another_process_never_goes_back_to_it() {
    let processes = [OtherProcess::Predecessor, OtherProcess::Successor];
    let [before, after] = processes.map(|_| Arc::new(AnsweringProcess::default()));
    let world = TestFront::between(settings(), before.clone(), after.clone()).await;
    let asked = || [&before, &after].map(|process| process.requests.lock().len());

    let answer = post_from(&world, OtherProcess::Predecessor).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(asked(), [0, 1]);
    let answer = post_from(&world, OtherProcess::Successor).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(asked(), [1, 1]);

    // The process that asks hears that the stream is not here: it may have another one to ask.
    let ends = [
        (&after, OtherProcess::Predecessor),
        (&before, OtherProcess::Successor),
    ];
    for (ended, from) in ends {
        ended.has_ended.store(true, Ordering::Relaxed);
        let answer = post_from(&world, from).await;
        assert!(answer.contains("weir-not-owner:"), "{answer}");
    }
    assert_eq!(asked(), [1, 1]);
}

#[tokio::test]
async fn request_of_a_client_is_asked_about_in_both_other_processes() {
    let [before, after] = [(), ()].map(|()| Arc::new(AnsweringProcess::default()));
    before.has_no_stream.store(true, Ordering::Relaxed);
    let world = TestFront::between(settings(), before.clone(), after.clone()).await;
    let client = world.client().with_url(&format!(
        "http://{}{UNKNOWN_PATH}",
        world.front.local_addr()
    ));
    let answer = client.ask("ping", json!({})).await.unwrap();
    assert_eq!(answer.result()["method"], "ping");
    assert_eq!(before.requests.lock().len(), 1);
    assert_eq!(after.requests.lock().len(), 1);
}

#[tokio::test]
async fn change_of_a_session_goes_to_the_next_process_from_the_move_on() {
    let after = Arc::new(AnsweringProcess::default());
    let world = TestFront::with_process(settings(), OtherProcess::Successor, after.clone()).await;
    let client = world.client().legacy(Revision::V2025_11_25);
    let client = client.initialize().await.unwrap();
    let level = json!({ "level": "error" });
    client.ask("logging/setLevel", level.clone()).await.unwrap();
    assert_eq!(after.requests.lock().len(), 0);
    // The drain begins later.
    world.front.moving_sessions().begin_move();
    let answer = client.ask("logging/setLevel", level).await.unwrap();
    assert_eq!(answer.result()["method"], "logging/setLevel");
    assert_eq!(after.requests.lock().len(), 1);
}
