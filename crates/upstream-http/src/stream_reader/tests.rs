//! Standing streams that a server does not open now.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use weir_testkit::ScriptedServer;

use super::*;
use crate::standing_stream_slots::StandingStreamSlots;
use crate::tests::test_upstream::{NO_STREAM, STREAM_HEAD, TestUpstream, stream_server};
use crate::upstream_session::UpstreamSession;

/// A stream that ends at once.
const ENDED_STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
const STREAM_IN_USE: &[u8] = b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n";

/// The longest wait for a request.
const REQUEST_WAIT: Duration = Duration::from_secs(30);

/// Starts a server that gives these answers to GET in turn, and the last one to all further ones.
async fn server_of(answers: &'static [&'static [u8]]) -> (ScriptedServer, mpsc::Receiver<String>) {
    let next = AtomicUsize::new(0);
    stream_server(move |_| {
        let nth = next.fetch_add(1, Ordering::Relaxed);
        answers[nth.min(answers.len() - 1)]
    })
    .await
}

async fn next_request(requests: &mut mpsc::Receiver<String>) {
    let request = tokio::time::timeout(REQUEST_WAIT, requests.recv()).await;
    assert!(request.expect("the stream is requested again").is_some());
}

async fn wait_until_heard(upstream: &TestUpstream) {
    let heard = async {
        while !upstream.hears_lists(0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(REQUEST_WAIT, heard).await.unwrap();
}

/// Opens a session and its GET stream.
async fn session_with_stream(upstream: &TestUpstream) -> Arc<UpstreamSession> {
    let session = upstream.session("one", false);
    session
        .open_standing_stream(&StandingStreamSlots::new(1))
        .await;
    session
}

#[tokio::test]
async fn stream_that_ended_is_requested_until_the_server_opens_it_again() {
    let (server, mut requests) = server_of(&[ENDED_STREAM, BUSY, STREAM_IN_USE, STREAM_HEAD]).await;
    let upstream = TestUpstream::new(&server);
    let _session = session_with_stream(&upstream).await;
    for _ in 0..4 {
        next_request(&mut requests).await;
    }
    wait_until_heard(&upstream).await;
}

#[tokio::test]
async fn stream_that_is_refused_at_first_is_requested_again() {
    let (server, mut requests) = server_of(&[BUSY, STREAM_HEAD]).await;
    let upstream = TestUpstream::new(&server);
    let session = session_with_stream(&upstream).await;
    for _ in 0..2 {
        next_request(&mut requests).await;
    }
    wait_until_heard(&upstream).await;
    assert!(session.channel().is_reading());
}

#[tokio::test]
async fn stream_that_the_server_does_not_have_is_requested_once() {
    let (server, mut requests) = server_of(&[NO_STREAM]).await;
    let upstream = TestUpstream::new(&server);
    let session = session_with_stream(&upstream).await;
    next_request(&mut requests).await;
    assert!(!session.channel().is_reading());
}

#[tokio::test]
async fn stream_of_a_session_that_is_over_is_not_requested_again() {
    let (server, mut requests) = server_of(&[BUSY]).await;
    let upstream = TestUpstream::new(&server);
    let session = session_with_stream(&upstream).await;
    next_request(&mut requests).await;
    session.channel().stop_reading();
    tokio::time::pause();
    tokio::time::sleep(LAST_WAIT * 4).await;
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn change_in_a_session_without_a_client_is_a_change_of_the_shared_lists() {
    let (server, mut requests) = server_of(&[STREAM_HEAD]).await;
    let upstream = TestUpstream::new(&server);
    let mut changes = upstream.context.list_changes.reader();
    let session = upstream.clientless_session("one");
    session
        .open_standing_stream(&StandingStreamSlots::new(1))
        .await;
    next_request(&mut requests).await;
    let event = b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
    server.write_to_all(event).await;
    let changed = tokio::time::timeout(REQUEST_WAIT, changes.changed()).await;
    let tools = ListKinds::default().with(weir_core::upstream::ListKind::Tools);
    assert_eq!(changed.expect("the change is noted").unwrap(), tools);
}
