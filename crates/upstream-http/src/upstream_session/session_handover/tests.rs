//! Sessions that come from one process and go on to a third one.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
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
