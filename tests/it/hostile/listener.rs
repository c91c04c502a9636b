//! Clients that open much and read nothing: what they may hold is bounded, and the others are served.

use serde_json::json;
use weir_testkit::h2::{END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, frame};
use weir_testkit::{H2Client, RawClient};

use crate::abuse::{Stage, in_time};

/// Requests of `connections` connections, 100 each, whose answers have no window to be sent in.
async fn without_window(stage: &Stage, connections: usize, path: &str) -> Vec<H2Client> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut client = H2Client::connect(&stage.url(), &[(INITIAL_WINDOW_SIZE, 0)]).await.unwrap();
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
            in_time("an answer's head", client.until(|frame| frame.kind == HEADERS)).await.unwrap();
        }
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_answers_without_window_hold_no_place_in_flight() {
    let stage = Stage::new().await;
    let open = without_window(&stage, 120, "/x").await;
    let other: RawClient = stage.modern();
    for number in 0..20 {
        let answer = in_time("a call", other.call("echo", json!({ "n": number }))).await.unwrap();
        assert_eq!(answer.status, 200, "call {number}: {:?}", answer.body);
    }
    drop(open);
}
