//! Keep-alive comments of idle streams.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::test_front::{TestFront, settings};
use crate::test_ports::AdmitsOnce;

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
    let world = TestFront::with_authorizer(settings(), Arc::new(AdmitsOnce::default())).await;
    let mut stream = world
        .modern("alice")
        .listen(json!({"toolsListChanged": true}))
        .await
        .unwrap();
    assert_eq!(stream.status, 200, "it was let in");
    while stream.next_event().await.unwrap().is_some() {}
}
