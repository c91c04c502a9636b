//! Updates of single resources.

use serde_json::json;
use weir_testkit::MockServer;

use super::pairing::ScenarioPairing;
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, CheckedStream};

const UPDATED: &str = "notifications/resources/updated";

/// Returns a stream with updates of these resources, once the client is subscribed.
async fn subscribe(client: &CheckedClient, uris: &[&str]) -> CheckedStream {
    if client.revision.is_modern() {
        let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
        let mut stream = client.start("subscriptions/listen", filter).await;
        let first = stream.next().await.unwrap();
        assert_eq!(
            first["method"], "notifications/subscriptions/acknowledged",
            "R194"
        );
        assert_eq!(
            first["params"]["notifications"],
            json!({ "resourceSubscriptions": uris }),
            "R197"
        );
        return stream;
    }
    let stream = client.open_change_stream().await;
    for uri in uris {
        let subscribed = client
            .ask("resources/subscribe", json!({ "uri": uri }))
            .await;
        assert_eq!(subscribed.result(), &json!({}), "{:?}", subscribed.last());
    }
    stream
}

/// Returns the URI in the next message, which must be an update.
async fn next_updated_uri(stream: &mut CheckedStream) -> String {
    let message = stream
        .next()
        .await
        .unwrap_or_else(|| panic!("the stream ended, and no update came"));
    assert_eq!(message["method"], UPDATED, "{message}");
    message["params"]["uri"].as_str().unwrap().to_owned()
}

/// Ends the client and with it its subscriptions. Those of a session outlive its streams.
async fn leave(client: &CheckedClient) {
    if !client.revision.is_modern() {
        let ended = client.raw().delete().await.unwrap();
        assert!(ended.status.is_success(), "{:?}", ended.status);
    }
}

// Proves R194, R197, R205.
pub async fn resource_updates_reach_only_subscribers(world: &ScenarioPairing) -> FeatureSupport {
    let mock_server = &world.mock_server;
    let clients = [
        world.client().await,
        world.direct().await,
        world.direct().await,
    ];
    let mut many = subscribe(&clients[0], &["shop+memo:1", "shop+memo:2"]).await;
    let mut one = subscribe(&clients[1], &["memo:1"]).await;
    let mut none = subscribe(&clients[2], &["memo:9"]).await;
    // While a set is subscribed anew, it is there twice for a moment.
    let once = |mock_server: &MockServer| {
        world.subscribed_resources(mock_server) == ["memo:1", "memo:2", "memo:9"]
    };
    mock_server
        .wait_until("many clients are one subscription", once)
        .await;
    mock_server.notify_resource_updated("memo:1");
    assert_eq!(
        (
            next_updated_uri(&mut many).await,
            next_updated_uri(&mut one).await
        ),
        ("shop+memo:1".into(), "memo:1".into())
    );
    mock_server.notify_resource_updated("memo:2");
    mock_server.notify_resource_updated("memo:2/part");
    assert_eq!(
        [
            next_updated_uri(&mut many).await,
            next_updated_uri(&mut many).await
        ],
        ["shop+memo:2", "shop+memo:2/part"]
    );
    // This is the next message for the others, without one before it.
    mock_server.notify_resource_updated("memo:9");
    mock_server.notify_resource_updated("memo:1");
    assert_eq!(
        (
            next_updated_uri(&mut none).await,
            next_updated_uri(&mut one).await
        ),
        ("memo:9".into(), "memo:1".into())
    );
    for client in &clients {
        leave(client).await;
    }
    FeatureSupport::Carried
}

// Proves R197.
pub async fn unsupported_resource_subscriptions_are_refused_or_omitted(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let mock_server = &world.mock_server;
    let client = world.direct().await;
    // The server announces no updates of the first, and the second does not exist.
    let odd = ["ui://panel/main", "other+memo:1"];
    if world.client.is_modern() {
        let filter = json!({ "resourceSubscriptions": [odd[0], "memo:5", odd[1]], "toolsListChanged": true });
        let mut stream = client
            .start("subscriptions/listen", json!({ "notifications": filter }))
            .await;
        let honoured = json!({ "resourceSubscriptions": ["memo:5"], "toolsListChanged": true });
        let said = stream.next().await.unwrap();
        assert_eq!(said["params"]["notifications"], honoured, "{said}");
        for bad in [
            json!({ "resourceSubscriptions": "memo:1" }),
            json!({ "resourceSubscriptions": [7] }),
        ] {
            let refused = client
                .ask("subscriptions/listen", json!({ "notifications": bad }))
                .await;
            assert_eq!(refused.code(), -32602, "{}", refused.last());
        }
        return FeatureSupport::Carried;
    }
    for uri in odd {
        let refused = client
            .ask("resources/subscribe", json!({ "uri": uri }))
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.code()),
            (200, -32602),
            "{uri}: {}",
            refused.last()
        );
    }
    let refused = client.ask("resources/subscribe", json!({})).await;
    assert_eq!(refused.code(), -32602);
    let never = client
        .ask("resources/unsubscribe", json!({ "uri": "memo:77" }))
        .await;
    assert_eq!(never.result(), &json!({}));
    assert!(
        mock_server
            .subscriptions()
            .iter()
            .all(|uri| !odd.contains(&uri.as_str()))
    );
    FeatureSupport::Carried
}

// Proves R205, R206.
pub async fn subscriptions_end_with_their_clients(world: &ScenarioPairing) -> FeatureSupport {
    let mock_server = &world.mock_server;
    mock_server
        .wait_until("those before are gone", |mock_server| {
            mock_server.subscriptions().is_empty()
        })
        .await;
    let (staying, leaving) = (world.direct().await, world.direct().await);
    let mut stays = subscribe(&staying, &["memo:1"]).await;
    let leaves = subscribe(&leaving, &["memo:1", "memo:2"]).await;
    mock_server
        .wait_until("both are told of", |mock_server| {
            world.subscribed_resources(mock_server) == ["memo:1", "memo:2"]
        })
        .await;
    if world.client.is_modern() {
        drop(leaves);
    } else {
        let told = leaving
            .ask("resources/unsubscribe", json!({ "uri": "memo:1" }))
            .await;
        assert_eq!(told.result(), &json!({}));
        drop(leaves);
        leave(&leaving).await;
    }
    mock_server
        .wait_until("the other is not told any more", |mock_server| {
            world.subscribed_resources(mock_server) == ["memo:1"]
        })
        .await;
    mock_server.notify_resource_updated("memo:2");
    mock_server.notify_resource_updated("memo:1");
    assert_eq!(next_updated_uri(&mut stays).await, "memo:1");
    leave(&staying).await;
    FeatureSupport::Carried
}

// Proves R204.
pub async fn a_lost_upstream_session_is_subscribed_again(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let mock_server = &world.mock_server;
    if world.upstream.is_modern() || world.transport.is_single_stream() || world.has_both_eras {
        // There are no sessions to lose; weir gets updates of a server of both eras in the modern
        // one.
        return FeatureSupport::NotInRevision;
    }
    mock_server
        .wait_until("those before are gone", |mock_server| {
            mock_server.subscriptions().is_empty()
        })
        .await;
    let client = world.direct().await;
    let mut stream = subscribe(&client, &["memo:3"]).await;
    mock_server.drop_sessions();
    mock_server
        .wait_until("weir subscribed again", |mock_server| {
            world.subscribed_resources(mock_server) == ["memo:3"]
        })
        .await;
    // weir cannot know of updates in between, so it announces one.
    assert_eq!(next_updated_uri(&mut stream).await, "memo:3");
    mock_server.notify_resource_updated("memo:3");
    assert_eq!(next_updated_uri(&mut stream).await, "memo:3");
    FeatureSupport::Carried
}
