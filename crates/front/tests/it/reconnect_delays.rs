//! The delay that listening streams ask their clients to keep before they connect again.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::json;
use weir_testkit::HttpExchange;
use weir_wire::Revision;

use crate::test_front::{TestFront, settings};

/// The streams of each kind.
const COUNT: usize = 8;

/// The delay at the beginning of a stream: a process that is killed states none at the end.
async fn first_delay(mut stream: HttpExchange) -> u64 {
    let event = stream.next_event().await.unwrap().unwrap();
    event.retry.unwrap_or_else(|| panic!("{event:?}"))
}

/// Checks that clients which lose their streams together come back over a range, up to `most`.
fn expect_spread(delays: &[u64], most: u64) {
    assert!(
        delays.iter().all(|delay| (1000..=most).contains(delay)),
        "{delays:?}"
    );
    let different: BTreeSet<_> = delays.iter().collect();
    assert!(different.len() > COUNT / 2, "{delays:?}");
}

#[tokio::test]
async fn listening_streams_begin_with_a_random_delay() {
    let world = TestFront::anonymous(settings()).await;
    let client = world.client().modern();
    assert_eq!(client.list_tools().await.unwrap().len(), 4);
    let mut modern = Vec::new();
    for _ in 0..COUNT {
        let filter = json!({ "toolsListChanged": true });
        // In one event with the acknowledgment.
        modern.push(first_delay(client.listen(filter).await.unwrap()).await);
    }
    expect_spread(&modern, 10_000);
    let mut legacy = Vec::new();
    for _ in 0..COUNT {
        let client = world.client().legacy(Revision::V2025_11_25);
        let client = client.initialize().await.unwrap();
        legacy.push(first_delay(client.get_stream().await.unwrap()).await);
    }
    expect_spread(&legacy, 10_000);
}

/// It is short: a message that its client posts without a stream gets 404.
#[tokio::test]
async fn http_sse_streams_begin_with_a_short_random_delay() {
    let world = TestFront::anonymous(settings()).await;
    let client = world.client();
    let client = client.with_url(&world.url().replace("/mcp", "/mcp/sse"));
    let mut delays = Vec::new();
    for _ in 0..COUNT {
        let mut accept = HeaderMap::new();
        let events = HeaderValue::from_static("text/event-stream");
        accept.insert(header::ACCEPT, events);
        let stream = client.send(Method::GET, accept, "").await.unwrap();
        delays.push(first_delay(stream).await);
    }
    expect_spread(&delays, 2000);
}
