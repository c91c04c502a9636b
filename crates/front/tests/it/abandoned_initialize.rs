//! Clients that leave before `initialize` is answered.

use http::StatusCode;
use serde_json::json;
use weir_testkit::RawSocket;
use weir_wire::Revision;

use crate::test_front::{TestFront, settings};

/// Attempts of a client that waits too short a time, and tries again.
const ATTEMPTS: usize = 5;

#[tokio::test]
async fn client_that_leaves_before_initialize_is_answered_leaves_no_session() {
    let world = TestFront::with_held_lists(settings()).await;
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
    for _ in 0..ATTEMPTS {
        let mut client = RawSocket::connect(&world.url()).await.unwrap();
        client.write(request.as_bytes()).await.unwrap();
        // Meanwhile the request comes as far as it can.
        for _ in 0..10 {
            let ping = world.client().ask("ping", json!({})).await.unwrap();
            assert_eq!(ping.status, StatusCode::OK);
        }
        drop(client);
        assert_eq!(world.front.overview().sessions(0).0, 0);
    }
}
