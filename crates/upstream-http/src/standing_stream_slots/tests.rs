//! The bound on standing streams while sessions open theirs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use super::*;
use crate::tests::test_upstream::{STREAM_HEAD, TestUpstream, stream_server};

#[tokio::test]
async fn stream_that_opens_after_its_session_lost_the_slot_is_not_read() {
    let (server, mut asked) = stream_server(|id| match id {
        "one" => b"",
        _ => STREAM_HEAD,
    })
    .await;
    let upstream = TestUpstream::new(&server);
    let slots = Arc::new(StandingStreamSlots::new(1));
    let [one, two] = ["one", "two"].map(|id| upstream.session(id, false));
    let (late, its_slots) = (one.clone(), slots.clone());
    let opening = tokio::spawn(async move { late.open_standing_stream(&its_slots).await });
    assert_eq!(asked.recv().await.as_deref(), Some("one"));
    two.open_standing_stream(&slots).await;
    server.write_to_all(STREAM_HEAD).await;
    opening.await.unwrap();
    assert!(two.channel().is_reading() && !one.channel().is_reading());
    assert!(!upstream.hears_lists(0));
}

#[tokio::test]
async fn session_without_a_call_yet_is_as_recent_as_its_opening() {
    let (server, _asked) = stream_server(|_| STREAM_HEAD).await;
    let upstream = TestUpstream::new(&server);
    let slots = StandingStreamSlots::new(2);
    let mut sessions = Vec::new();
    for id in ["one", "two", "three"] {
        upstream.clock.advance(Duration::from_secs(1));
        let session = upstream.session(id, false);
        session.open_standing_stream(&slots).await;
        if id == "one" {
            let now = upstream.site.clock.millis();
            session.channel().record_call(now);
        }
        sessions.push(session);
    }
    let reading = sessions
        .iter()
        .map(|session| session.channel().is_reading());
    assert_eq!(reading.collect::<Vec<_>>(), [false, true, true]);
}
