//! Slow clients: heads and bodies that do not come, or come by the byte (A01 to A04). The limits
//! are set small; the tests wait for the close itself.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::WeirWithUpstream;
use super::raw_connection::{RawConnection, RawReply, good_request, head};
use super::weir_with_upstream::within_timeout;

/// The time between two bytes of a slow client. Slowness itself is tested, so there is no event to
/// wait on.
const PACE: Duration = Duration::from_millis(20);

/// The time of a head. The clients that are served well must also keep to it.
const HEAD_TIME: &str = "5s";

/// Asserts a close, with a 408 or without an answer.
fn closed_for_lateness(name: &str, replies: &[RawReply]) {
    assert!(replies.len() <= 1, "{name}: {replies:?}");
    assert!(
        replies.iter().all(|reply| reply.status == 408),
        "{name}: {replies:?}"
    );
}

/// Writes byte by byte until the connection is gone.
async fn drip(line: &mut RawConnection, bytes: &[u8]) {
    let dripping = async {
        for byte in bytes.iter().cycle() {
            if line.write(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(PACE).await;
        }
    };
    within_timeout("weir to close the connection", dripping).await;
}

// Proves A01.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_comes_by_the_byte_is_closed_and_others_are_served() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "head_time": HEAD_TIME })).await;
    let mut dripping = JoinSet::new();
    for _ in 0..100 {
        let mut line = RawConnection::to(&stage).await;
        dripping.spawn(async move {
            // The head is never complete: the name of a header goes on for ever.
            drip(&mut line, b"x").await;
            line.replies().await
        });
    }
    while !dripping.is_empty() {
        stage.assert_still_serving("a dripping head").await;
        let closed = dripping.try_join_next();
        if let Some(replies) = closed {
            closed_for_lateness("a dripping head", &replies.unwrap());
        }
    }
    assert!(
        stage
            .weir
            .get_admin_page("/metrics")
            .contains(r#"reason="head_timeout""#)
    );
}

// Proves A01.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_head_and_then_nothing_is_closed() {
    let mut stage = WeirWithUpstream::with_limits(json!({ "head_time": HEAD_TIME })).await;
    let whole = good_request(&stage, "tools/call", Some("smuggled"), false);
    let end = whole.find("\r\n\r\n").unwrap() + 3;
    let mut stalled = JoinSet::new();
    for cut in [1, 4, 10, 40, end / 2, end] {
        let mut line = RawConnection::to(&stage).await;
        line.write(&whole.as_bytes()[..cut]).await.unwrap();
        stalled.spawn(line.replies());
    }
    while let Some(replies) = stalled.join_next().await {
        closed_for_lateness("half a head", &replies.unwrap());
    }
    stage.assert_still_serving("half a head").await;
}

// Proves A01.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_second_head_on_a_kept_connection_is_closed() {
    let mut stage =
        WeirWithUpstream::with_limits(json!({ "head_time": HEAD_TIME, "idle_time": "1h" })).await;
    let whole = good_request(&stage, "server/discover", None, false);
    let mut line = RawConnection::to(&stage).await;
    line.write(whole.as_bytes()).await.unwrap();
    assert_eq!(line.reply().await.map(|reply| reply.status), Some(200));
    line.write(&whole.as_bytes()[..30]).await.unwrap();
    closed_for_lateness("half a second head", &line.replies().await);
    stage.assert_still_serving("half a second head").await;
}

// Proves A02.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connection_is_closed() {
    let mut stage =
        WeirWithUpstream::with_limits(json!({ "head_time": HEAD_TIME, "idle_time": "1h" })).await;
    let mut silent = JoinSet::new();
    for _ in 0..50 {
        silent.spawn(RawConnection::to(&stage).await.replies());
    }
    stage.assert_still_serving("silent connections").await;
    while let Some(replies) = silent.join_next().await {
        closed_for_lateness("silence", &replies.unwrap());
    }
    stage
        .assert_still_serving("silent connections were closed")
        .await;
}

// Proves A02.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_in_its_own_time() {
    let mut stage =
        WeirWithUpstream::with_limits(json!({ "head_time": "1h", "idle_time": "300ms" })).await;
    let mut line = RawConnection::to(&stage).await;
    line.write(good_request(&stage, "server/discover", None, false).as_bytes())
        .await
        .unwrap();
    assert_eq!(line.reply().await.map(|reply| reply.status), Some(200));
    assert_eq!(line.replies().await, []);
    stage.assert_still_serving("an idle connection").await;
}

// Proves A03.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_by_the_byte_is_closed_before_any_upstream_hears_of_it() {
    let limits = json!({ "body_rate": "1KiB", "body_rate_grace": "300ms", "body_time": "1h" });
    let mut stage = WeirWithUpstream::with_limits(limits).await;
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let (mut lines, _) =
            super::raw_connection::modern_request_parts("tools/call", Some("smuggled"), "slow");
        lines.push(framing.to_owned());
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let mut line = RawConnection::to(&stage).await;
        line.write(head(&stage, "POST /mcp HTTP/1.1", &lines).as_bytes())
            .await
            .unwrap();
        let bytes: &[u8] = if framing.starts_with('C') {
            b" "
        } else {
            b"1\r\n \r\n"
        };
        drip(&mut line, bytes).await;
        closed_for_lateness(framing, &line.replies().await);
        stage.assert_still_serving(framing).await;
    }
}

// Proves A04.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_is_never_reached_is_closed_and_costs_nothing_after() {
    let limits = json!({ "body_time": "300ms", "body_rate_grace": "1h", "in_flight": 2 });
    let mut stage = WeirWithUpstream::with_limits(limits).await;
    let whole = good_request(&stage, "tools/call", Some("smuggled"), false);
    let short = whole.replace("Content-Length: ", "Content-Length: 1");
    assert_ne!(whole, short);
    for _ in 0..8 {
        // A declared length beyond the bytes that are sent; the sent part alone would be a good
        // request.
        let mut line = RawConnection::to(&stage).await;
        line.write(short.as_bytes()).await.unwrap();
        closed_for_lateness("a short body", &line.replies().await);
    }
    // If one of them had kept its permit, no permit would be left.
    stage
        .assert_still_serving("bodies shorter than their length")
        .await;
}

// Proves A04.
#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_that_is_never_finished_is_closed() {
    let mut stage =
        WeirWithUpstream::with_limits(json!({ "body_time": "300ms", "body_rate_grace": "1h" }))
            .await;
    let (mut lines, body) =
        super::raw_connection::modern_request_parts("tools/call", Some("smuggled"), "unfinished");
    lines.push("Transfer-Encoding: chunked".to_owned());
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let mut line = RawConnection::to(&stage).await;
    // The message is complete, the body is not: its last chunk never comes.
    let sent =
        head(&stage, "POST /mcp HTTP/1.1", &lines) + &format!("{:x}\r\n{body}\r\n", body.len());
    line.write(sent.as_bytes()).await.unwrap();
    closed_for_lateness("an unfinished body", &line.replies().await);
    stage.assert_still_serving("an unfinished body").await;
}
