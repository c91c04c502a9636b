//! Subscriptions of a session that came from another process, or began with other claims of its
//! client. The server consents slowly to their renewal.

use std::time::Duration;

use serde_json::json;
use weir_front::MovedSession;
use weir_testkit::{HttpExchange, RawClient};
use weir_wire::Revision;

use crate::test_front::{TestFront, in_time, settings};
use crate::test_ports::{ChangingAccess, Validity};

const BOTH: [&str; 2] = ["memo:1", "memo:2"];

/// A client whose session has inherited both subscriptions, and its open stream. The server is
/// asked for the first one.
async fn renewing(world: &TestFront) -> (RawClient, HttpExchange) {
    let client = world.client().legacy(Revision::V2025_11_25);
    let client = client.initialize().await.unwrap();
    let listed = client.ask("resources/list", json!({})).await.unwrap();
    assert_eq!(listed.result()["resources"].as_array().unwrap().len(), 2);
    let moving = world.front.moving_sessions();
    for session in moving.copy_all() {
        moving.take_over(MovedSession {
            subscriptions: BOTH.map(str::to_owned).into(),
            ..session
        });
    }
    let stream = client.get_stream().await.unwrap();
    world.upstream.wait_for_request(&["memo:1"]).await;
    (client, stream)
}

/// The subscriptions that a further process would take over.
fn moved(world: &TestFront) -> Vec<String> {
    let sessions = world.front.moving_sessions().copy_all();
    let mut uris: Vec<String> = sessions
        .into_iter()
        .flat_map(|session| session.subscriptions)
        .collect();
    uris.sort();
    uris
}

async fn next_updated(stream: &mut HttpExchange) -> String {
    let message = stream.next_message().await.unwrap().unwrap();
    assert_eq!(message["method"], "notifications/resources/updated");
    message["params"]["uri"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn further_process_takes_over_subscriptions_that_are_not_renewed_yet() {
    let world = TestFront::anonymous(settings()).await;
    let (_client, mut stream) = renewing(&world).await;
    assert_eq!(moved(&world), BOTH);
    world.upstream.consent(1);
    assert_eq!(next_updated(&mut stream).await, "memo:1");
    world.upstream.wait_for_request(&BOTH).await;
    assert_eq!(moved(&world), BOTH);
    world.upstream.consent(1);
    assert_eq!(next_updated(&mut stream).await, "memo:2");
    assert_eq!(moved(&world), BOTH);
}

#[tokio::test]
async fn unsubscribe_during_the_renewal_is_not_undone() {
    let world = TestFront::anonymous(settings()).await;
    let (client, _stream) = renewing(&world).await;
    for uri in BOTH {
        let unsubscribe = client.ask("resources/unsubscribe", json!({ "uri": uri }));
        assert_eq!(*unsubscribe.await.unwrap().result(), json!({}));
    }
    assert!(moved(&world).is_empty());
    world.upstream.consent(1);
    let asked = world.upstream.wait_for_request(&[]).await;
    assert_eq!(asked, [vec!["memo:1".into()], vec![]]);
    assert!(moved(&world).is_empty());
}

#[tokio::test]
async fn subscription_of_the_client_outlives_the_renewal_of_an_ended_one() {
    let world = TestFront::anonymous(settings()).await;
    let (client, mut stream) = renewing(&world).await;
    let params = json!({ "uri": "memo:1" });
    client
        .ask("resources/unsubscribe", params.clone())
        .await
        .unwrap();
    let subscriber = client.clone();
    let subscribing =
        tokio::spawn(async move { subscriber.ask("resources/subscribe", params).await });
    // The request waits at the server beside the renewal by then. The order is of no consequence.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    world.upstream.consent(16);
    let subscribed = subscribing.await.unwrap().unwrap();
    assert_eq!(*subscribed.result(), json!({}));
    assert_eq!(next_updated(&mut stream).await, "memo:2");
    assert_eq!(moved(&world), BOTH);
}

#[tokio::test]
async fn inherited_subscriptions_count_towards_the_limit_of_the_client() {
    let mut settings = settings();
    settings.limits.subscriptions_per_client = 2;
    let world = TestFront::anonymous(settings).await;
    let (client, mut stream) = renewing(&world).await;
    let subscribe = |uri: &str| client.ask("resources/subscribe", json!({ "uri": uri }));
    let refused = subscribe("memo:3").await.unwrap();
    assert_eq!(refused.error()["data"]["reason"], "busy");
    world.upstream.consent(16);
    for uri in BOTH {
        assert_eq!(next_updated(&mut stream).await, uri);
    }
    for uri in BOTH {
        assert_eq!(*subscribe(uri).await.unwrap().result(), json!({}));
    }
}

#[tokio::test]
async fn subscription_is_renewed_with_the_claims_of_the_next_stream() {
    let mut settings = settings();
    settings.limits.keep_alive = Duration::from_millis(5);
    let access = ChangingAccess::new();
    let world = TestFront::with_access(settings, access.clone()).await;
    world.upstream.consent(16);
    let client = world.legacy("alice").await;
    let subscribe = client.ask("resources/subscribe", json!({ "uri": "memo:1" }));
    assert_eq!(*subscribe.await.unwrap().result(), json!({}));
    let mut stream = client.get_stream().await.unwrap();
    access.set(Validity::Regrouped);
    let end = async { while stream.next_event().await.unwrap().is_some() {} };
    in_time("the end of the stream", end).await;
    let mut stream = client.get_stream().await.unwrap();
    let updated = in_time("the update of the renewal", next_updated(&mut stream));
    assert_eq!(updated.await, "memo:1");
    assert_eq!(moved(&world), ["memo:1"]);
}
