//! Sessions that come from one process and go on to a third one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::standing_stream::RequestKind;
use crate::tests::test_upstream::{NO_STREAM, STREAM_HEAD, TestUpstream, stream_server};

#[tokio::test]
async fn session_that_goes_on_before_its_stream_is_open_is_still_one_with_a_stream() {
    let (server, _requests) = stream_server(|_| NO_STREAM).await;
    let upstream = TestUpstream::new(&server);
    let is_read = |session: Arc<UpstreamSession>| session.export().unwrap().is_read;
    assert!(is_read(upstream.session("one", true)));
    assert!(!is_read(upstream.session("two", false)));
}

#[tokio::test]
async fn session_that_has_gone_on_asks_for_no_stream() {
    let (server, mut requests) = stream_server(|_| NO_STREAM).await;
    let upstream = TestUpstream::new(&server);
    let session = upstream.session("one", true);
    let slots = StandingStreamSlots::new(1);
    session.clone().reopen_standing_stream(&slots).await;
    assert_eq!(requests.recv().await.as_deref(), Some("one"));
    session.export().unwrap();
    tokio::time::pause();
    tokio::time::sleep(4 * LAST_STREAM_WAIT).await;
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn stream_that_opens_after_the_session_has_gone_on_is_not_read() {
    let (server, mut requests) = stream_server(|_| b"").await;
    let upstream = TestUpstream::new(&server);
    let session = upstream.session("one", true);
    let late = session.clone();
    let opening = tokio::spawn(async move {
        let slots = StandingStreamSlots::new(1);
        late.reopen_standing_stream(&slots).await;
    });
    assert_eq!(requests.recv().await.as_deref(), Some("one"));
    session.export().unwrap();
    server.write_to_all(STREAM_HEAD).await;
    opening.await.unwrap();
    assert!(!session.channel().is_reading());
}

#[tokio::test]
async fn lists_of_an_imported_session_are_open_once_and_may_have_changed() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let session = upstream.session("one", true);
    session.continue_lists();
    assert_eq!(upstream.list_calls(), [1]);
    session
        .reopen_standing_stream(&StandingStreamSlots::new(1))
        .await;
    assert_eq!(upstream.list_calls(), [1]);
    assert!(upstream.hears_lists(0));
}

/// A server without a second stream answers a request for it in many ways.
#[tokio::test]
async fn stream_of_a_long_drain_is_requested_until_the_server_opens_it() {
    let asked = AtomicUsize::new(0);
    let (server, mut requests) =
        stream_server(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
            0..10 => NO_STREAM,
            _ => STREAM_HEAD,
        })
        .await;
    let upstream = TestUpstream::new(&server);
    let session = upstream.session("one", true);
    let slots = StandingStreamSlots::new(1);
    session.clone().reopen_standing_stream(&slots).await;
    tokio::time::pause();
    let mut count = 0;
    while !session.channel().is_reading() {
        // The answers of the server need no time.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        count += std::iter::from_fn(|| requests.try_recv().ok()).count();
    }
    assert_eq!(count, 11);
}

#[tokio::test]
async fn stream_of_a_session_that_has_gone_on_ends_with_the_last_call() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let session = upstream.asked_session("one");
    session
        .open_standing_stream(&StandingStreamSlots::new(1))
        .await;
    let standing = session.standing.clone().unwrap();
    let [first, last] = [1, 2].map(|id| standing.register(id, RequestKind::AskingCall));
    assert!(session.export().unwrap().is_read);
    drop(first);
    assert!(session.channel().is_reading());
    assert!(last.pass_questions_on(Vec::new()).is_empty());
    assert!(!session.channel().is_reading());
    assert!(!upstream.hears_lists(0));
}
