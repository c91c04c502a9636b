//! Clients that leave before `initialize` is answered.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use weir_testkit::RawSocket;
use weir_wire::Revision;

use crate::test_front::{TestFront, in_time, settings};

/// Attempts of a client that waits too short a time, and tries again.
const ATTEMPTS: usize = 5;

/// Sends `initialize` on a connection of its own.
async fn send_initialize(world: &TestFront) -> RawSocket {
    let body = json!({
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": Revision::NEWEST_LEGACY.as_str(),
            "capabilities": {},
            "clientInfo": { "name": "hasty", "version": "1" },
        },
    })
    .to_string();
    let host = world.front.local_addr();
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut client = RawSocket::connect(&world.url()).await.unwrap();
    client.write(request.as_bytes()).await.unwrap();
    client
}

/// Waits until this number of sessions is open.
async fn wait_for_sessions(world: &TestFront, count: usize) {
    let counted = async {
        while world.front.overview().sessions(0).0 != count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time("the number of sessions", counted).await;
}

#[tokio::test]
async fn client_that_leaves_before_initialize_is_answered_leaves_no_session() {
    let world = TestFront::with_held_lists(settings()).await;
    for _ in 0..ATTEMPTS {
        let client = send_initialize(&world).await;
        // Meanwhile the request comes as far as it can.
        for _ in 0..10 {
            let ping = world.client().ask("ping", json!({})).await.unwrap();
            assert_eq!(ping.status, StatusCode::OK);
        }
        drop(client);
        assert_eq!(world.front.overview().sessions(0).0, 0);
    }
}

#[tokio::test]
async fn client_that_leaves_while_its_session_is_written_leaves_no_session() {
    let world = TestFront::with_held_writes(settings()).await;
    for _ in 0..ATTEMPTS {
        let client = send_initialize(&world).await;
        wait_for_sessions(&world, 1).await;
        drop(client);
        wait_for_sessions(&world, 0).await;
    }
}
