//! Streams that a client opens at another replica than that of its other requests.

use std::time::Duration;

use serde_json::json;
use weir_testkit::MockServer;
use weir_testkit::mock_server::MockTool;
use weir_wire::Revision;

use super::{at, open_at, replica_pairs, start};
use crate::harness::{CheckedStream, within_test_timeout};

/// The pause between two changes. A replica that begins to listen misses those before.
const PAUSE: Duration = Duration::from_millis(200);

/// Changes the list of tools again and again until a stream announces it. Announcements of other
/// lists are left out: a replica that took a session over announces all lists, in any order.
pub(super) async fn expect_list_change(upstream: &MockServer, stream: &mut CheckedStream) {
    let change = async {
        for count in 2.. {
            upstream.set_tools(MockTool::numbered(count));
            upstream.notify_list_changed();
            tokio::time::sleep(PAUSE).await;
        }
    };
    let announced = async {
        loop {
            let message = stream.next().await.expect("the stream goes on");
            let method = message["method"].as_str().unwrap_or_default();
            if method == "notifications/tools/list_changed" {
                return;
            }
            assert!(method.ends_with("/list_changed"), "{message}");
        }
    };
    tokio::select! {
        () = announced => {}
        () = change => {}
    }
}

/// Updates a resource again and again until a stream announces it. Announced list changes are left
/// out: a replica that took a session over announces all lists.
pub(super) async fn expect_update(upstream: &MockServer, stream: &mut CheckedStream, uri: &str) {
    let update = async {
        loop {
            upstream.notify_resource_updated(uri);
            tokio::time::sleep(PAUSE).await;
        }
    };
    let announced = async {
        loop {
            let message = stream.next().await.expect("the stream goes on");
            let method = message["method"].as_str().unwrap_or_default();
            if !method.ends_with("/list_changed") {
                return message;
            }
        }
    };
    let message = tokio::select! {
        message = announced => message,
        () = update => unreachable!("it never ends"),
    };
    assert_eq!(message["method"], "notifications/resources/updated");
    assert_eq!(message["params"]["uri"], uri);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_changes_are_heard_on_a_stream_at_any_replica() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    for [owner, streaming] in replica_pairs() {
        let client = open_at(&replicas, owner, Revision::NEWEST_LEGACY).await;
        let mut stream = at(&client, &replicas, streaming).open_change_stream().await;
        let heard = expect_list_change(&upstream, &mut stream);
        within_test_timeout(&format!("a change, {owner} {streaming}"), heard).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_a_resource_subscribed_at_one_replica_are_heard_at_another() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY)
        .tools(1)
        .with_library();
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    for [subscribing, streaming] in replica_pairs() {
        let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
        let mut stream = at(&client, &replicas, streaming).open_change_stream().await;
        let subscribed = at(&client, &replicas, subscribing)
            .ask("resources/subscribe", json!({ "uri": "memo:1" }))
            .await;
        assert_eq!(subscribed.result(), &json!({}));
        let heard = expect_update(&upstream, &mut stream, "memo:1");
        within_test_timeout(&format!("an update, {subscribing} {streaming}"), heard).await;
        drop(stream);
        super::delete(&at(&client, &replicas, subscribing)).await;
    }
}

/// An older stream ends when the client opens another, at whichever replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_stream_of_a_session_behaves_as_at_a_single_replica() {
    let upstream = MockServer::legacy(Revision::NEWEST_LEGACY).tools(1);
    let upstream = upstream.start().await;
    let replicas = start(&upstream).await;
    let client = open_at(&replicas, 0, Revision::NEWEST_LEGACY).await;
    let first = at(&client, &replicas, 1).open_change_stream().await;
    drop(first);
    let mut second = at(&client, &replicas, 2).open_change_stream().await;
    let heard = expect_list_change(&upstream, &mut second);
    within_test_timeout("a change on the second stream", heard).await;
}
