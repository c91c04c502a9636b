//! The bound on standing streams while sessions open theirs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use super::*;
use crate::reading_state::ReadingTask;
use crate::tests::test_upstream::{STREAM_HEAD, TestUpstream, stream_server};
use crate::upstream_session::UpstreamSession;

/// A session with an open stream.
async fn open_session(upstream: &TestUpstream) -> Arc<UpstreamSession> {
    let session = upstream.session("one", false);
    let slots = StandingStreamSlots::new(1);
    session.open_standing_stream(&slots).await;
    session
}

#[tokio::test]
async fn stream_that_opens_after_its_session_lost_the_slot_is_not_read() {
    let (server, mut requests) = stream_server(|id| match id {
        "one" => b"",
        _ => STREAM_HEAD,
    })
    .await;
    let upstream = TestUpstream::new(&server);
    let slots = Arc::new(StandingStreamSlots::new(1));
    let [one, two] = ["one", "two"].map(|id| upstream.session(id, false));
    let (late, its_slots) = (one.clone(), slots.clone());
    let opening = tokio::spawn(async move { late.open_standing_stream(&its_slots).await });
    assert_eq!(requests.recv().await.as_deref(), Some("one"));
    two.open_standing_stream(&slots).await;
    server.write_to_all(STREAM_HEAD).await;
    opening.await.unwrap();
    assert!(two.channel().is_reading() && !one.channel().is_reading());
    assert!(!upstream.hears_lists(0));
}

#[tokio::test]
async fn session_without_a_call_yet_is_as_recent_as_its_opening() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let slots = StandingStreamSlots::new(2);
    let mut sessions = Vec::new();
    for id in ["one", "two", "three"] {
        upstream.clock.advance(Duration::from_secs(1));
        let session = upstream.session(id, false);
        session.open_standing_stream(&slots).await;
        if id == "one" {
            let now = upstream.context.clock.millis();
            session.channel().record_call(now);
        }
        sessions.push(session);
    }
    let reading = sessions
        .iter()
        .map(|session| session.channel().is_reading());
    assert_eq!(reading.collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn late_stream_leaves_the_reader_that_was_permitted_after_it() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let session = open_session(&upstream).await;
    let channel = session.channel();
    let late = channel.permit_reading();
    channel.stop_listening();
    let newer = channel.permit_reading();
    channel.set_hears_of_tasks();
    channel.set_reading(newer, Some(ReadingTask::new(None)));
    channel.set_lists_heard(newer, true);
    channel.set_lists_heard(late, false);
    channel.set_reading(late, Some(ReadingTask::new(None)));
    assert!(channel.is_reading() && channel.set_hears_of_tasks());
    assert!(upstream.hears_lists(0));
    // A further stream that the server does not give leaves the reader as it is.
    channel.set_reading(newer, None);
    assert!(channel.is_reading());
}

#[tokio::test]
async fn no_stream_is_read_in_a_session_of_another_process() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let session = TestUpstream::new(&server).session("one", false);
    let channel = session.channel();
    let permit = channel.permit_reading();
    channel.leave();
    channel.set_reading(permit, Some(ReadingTask::new(None)));
    assert!(!channel.is_reading());
    session
        .open_standing_stream(&StandingStreamSlots::new(1))
        .await;
    assert!(!channel.is_reading());
    assert!(!channel.set_hears_of_tasks(), "no stream is read for them");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn loss_of_a_stream_that_stays_open_beside_another_process_is_noted() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let session = open_session(&upstream).await;
    let channel = session.channel();
    let permit = channel.permit_reading();
    channel.leave();
    assert!(upstream.hears_lists(0));
    channel.set_lists_heard(permit, false);
    assert!(!upstream.hears_lists(0));
    channel.set_lists_heard(permit, true);
    assert!(!upstream.hears_lists(0), "no further stream is read here");
}

#[tokio::test]
async fn first_call_that_waited_for_the_opening_does_not_make_a_session_older() {
    let (server, _requests) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let before = upstream.context.clock.millis();
    upstream.clock.advance(Duration::from_secs(1));
    let session = upstream.session("one", false);
    session
        .open_standing_stream(&StandingStreamSlots::new(1))
        .await;
    let opened = session.channel().last_call();
    session.channel().record_call(before);
    assert_eq!(session.channel().last_call(), opened);
    session.channel().record_call(opened + 1);
    assert_eq!(session.channel().last_call(), opened + 1);
}
