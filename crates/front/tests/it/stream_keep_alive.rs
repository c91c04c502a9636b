//! Keep-alive comments of idle streams.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::json;
use weir_testkit::HttpExchange;

use crate::test_front::{TestFront, in_time, settings};
use crate::test_ports::{ChangingAccess, EntranceGate, Validity};

/// A front with this access and frequent comments, and a stream of each kind that waits.
async fn open_streams(access: &Arc<ChangingAccess>) -> (TestFront, [HttpExchange; 3]) {
    let mut settings = settings();
    settings.limits.keep_alive = Duration::from_millis(5);
    let world = TestFront::with_access(settings, access.clone()).await;
    let modern = world.modern("alice");
    let legacy = world.legacy("alice").await;
    let events = HeaderValue::from_static("text/event-stream");
    let accept: HeaderMap = [(header::ACCEPT, events)].into_iter().collect();
    let sse = modern.clone().with_url(&format!("{}/sse", world.url()));
    let mut streams = [
        modern
            .listen(json!({"toolsListChanged": true}))
            .await
            .unwrap(),
        legacy.get_stream().await.unwrap(),
        sse.send(Method::GET, accept, "").await.unwrap(),
    ];
    for stream in &mut streams {
        assert_eq!(stream.status, 200);
        assert!(
            in_time("a first event", stream.next_event())
                .await
                .unwrap()
                .is_some()
        );
    }
    (world, streams)
}

// Proves C12.
#[tokio::test]
async fn open_stream_ends_when_its_credentials_are_no_longer_valid_at_the_endpoint() {
    for change in [
        Validity::Revoked,
        Validity::Reassigned,
        Validity::Regrouped,
        Validity::NotAdmitted,
    ] {
        let access = ChangingAccess::new();
        let (_world, streams) = open_streams(&access).await;
        access.set(change);
        for mut stream in streams {
            let end = async { while stream.next_event().await.unwrap().is_some() {} };
            in_time("the end of a stream", end).await;
        }
    }
}

#[tokio::test]
async fn open_stream_goes_on_while_its_credentials_cannot_be_checked() {
    let access = ChangingAccess::new();
    let (_world, streams) = open_streams(&access).await;
    access.set(Validity::Unavailable);
    let mut unavailable = access.unavailable.subscribe();
    let checks = unavailable.wait_for(|count| *count >= streams.len());
    in_time("a check of each stream", checks).await.unwrap();
    for mut stream in streams {
        let mut comments = 0;
        while comments < 3 {
            let event = in_time("a comment", stream.next_event()).await;
            comments += event.unwrap().unwrap().comments.len();
        }
    }
}

// Proves R039, R041, D22.
#[tokio::test]
async fn idle_streams_send_comments_without_ids() {
    let mut settings = settings();
    settings.limits.keep_alive = Duration::from_millis(5);
    settings.limits.stream_after = Duration::from_millis(5);
    let world = TestFront::anonymous(settings).await;
    assert_eq!(world.client().modern().list_tools().await.unwrap().len(), 4);
    let modern = world.client().modern();
    let legacy = world.legacy("alice").await;
    let open = [
        modern
            .listen(json!({"toolsListChanged": true}))
            .await
            .unwrap(),
        legacy.get_stream().await.unwrap(),
        // No progress token: the call sends no notification before its end.
        modern
            .request("tools/call", json!({"name": "wait"}))
            .await
            .unwrap(),
        legacy
            .request("tools/call", json!({"name": "wait"}))
            .await
            .unwrap(),
    ];
    for mut stream in open {
        assert_eq!(stream.headers["x-accel-buffering"], "no");
        let (mut comments, mut is_first) = (0, true);
        while comments < 3 {
            let event = stream.next_event().await.unwrap().unwrap();
            assert_eq!(event.id, None, "{event:?}");
            // A listening stream begins with the delay before its client connects again.
            assert!(is_first || event.retry.is_none(), "{event:?}");
            comments += event.comments.len();
            is_first = false;
        }
    }
}

// Proves R286.
#[tokio::test]
async fn a_stream_that_opens_while_its_principal_is_blocked_ends() {
    let world = TestFront::with_authorizer(settings(), EntranceGate::once()).await;
    let mut stream = world
        .modern("alice")
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert_eq!(stream.status, 200, "it was let in");
    while stream.next_event().await.unwrap().is_some() {}
}
