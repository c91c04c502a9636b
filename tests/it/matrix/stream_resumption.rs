//! Resumed streams.

use serde_json::json;
use weir_testkit::HttpExchange;
use weir_wire::Revision;

use super::pairing::ScenarioPairing;
use super::support_report::FeatureSupport;
use crate::harness::{CheckedClient, begin_gated_call, within_test_timeout};

fn has_ids(revision: Revision) -> bool {
    revision.has_event_ids()
}

/// Asks for the rest of a stream after this event.
async fn request_resumption(client: &CheckedClient, id: &str) -> HttpExchange {
    let raw = client.raw().clone().with_header("last-event-id", id);
    within_test_timeout("GET", raw.get_stream()).await.unwrap()
}

/// Resumes a stream after this event.
async fn resume(client: &CheckedClient, id: &str) -> HttpExchange {
    let exchange = request_resumption(client, id).await;
    assert!(
        exchange.status.is_success() && exchange.is_stream(),
        "{:?}",
        exchange.status
    );
    exchange
}

// Proves R092, R094, R095.
pub async fn streams_of_calls_begin_with_an_id_where_the_revision_has_them(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let gate = &world.gate;
    gate.admit(1);
    let client = world.direct().await;
    let answer = client.call_with_token("gated", json!({}), &json!(1)).await;
    let ids: Vec<_> = answer
        .events
        .iter()
        .filter_map(|event| event.id.clone())
        .collect();
    if !has_ids(world.client) {
        assert_eq!(ids, [""; 0]);
        return FeatureSupport::NotInRevision;
    }
    let first = answer
        .events
        .iter()
        .find(|event| event.id.is_some())
        .unwrap();
    if world.client.has_stream_polling() {
        assert_eq!(first.data, "", "R094");
        let wait = first.retry.unwrap_or_default();
        assert!((1000..=2000).contains(&wait), "R095: {wait}");
    } else {
        assert!(!first.data.is_empty(), "an empty event is of 2025-11-25");
    }
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "R092");
    let stream = |id: &String| id.split('-').next().unwrap_or_default().to_owned();
    assert!(
        ids.iter().all(|id| stream(id) == stream(&ids[0])),
        "R092: an id names its stream: {ids:?}"
    );
    FeatureSupport::Carried
}

// Proves R093.
pub async fn result_is_resumed_after_a_lost_connection(world: &ScenarioPairing) -> FeatureSupport {
    let (mock_server, gate) = (&world.mock_server, &world.gate);
    if !has_ids(world.client) {
        return FeatureSupport::NotInRevision;
    }
    let client = world.direct().await;
    let (lost, id) = begin_gated_call(client.raw()).await;
    let (other, _) = begin_gated_call(client.raw()).await;
    drop(lost);
    let before = mock_server.counts("gated").completed;
    gate.admit(2);
    mock_server
        .wait_until("both are done", |mock_server| {
            mock_server.counts("gated").completed == before + 2
        })
        .await;
    // A result that is ready and one that comes later make no difference.
    for _ in 0..2 {
        let rest = within_test_timeout("the rest", resume(&client, &id).await.finish())
            .await
            .unwrap();
        assert_eq!(
            rest.messages.len(),
            1,
            "only this stream's, and only what came after: {:?}",
            rest.messages
        );
        assert_eq!(rest.text(), r#"{"n":1}"#);
    }
    let own = within_test_timeout("its own", other.finish())
        .await
        .unwrap();
    assert_eq!(own.text(), r#"{"n":1}"#);
    // A running call can be resumed, too; the older stream ends then.
    let (mut first, id) = begin_gated_call(client.raw()).await;
    let second = resume(&client, &id).await;
    assert_eq!(
        within_test_timeout("the end", first.next_message())
            .await
            .unwrap(),
        None,
        "R090: one stream at a time"
    );
    gate.admit(1);
    assert_eq!(
        within_test_timeout("the rest", second.finish())
            .await
            .unwrap()
            .text(),
        r#"{"n":1}"#
    );
    assert_eq!(
        mock_server.counts("gated").abandoned + mock_server.counts("gated").cancelled,
        0
    );
    FeatureSupport::Carried
}

// Proves R093, D06.
pub async fn streams_of_other_sessions_cannot_be_resumed(
    world: &ScenarioPairing,
) -> FeatureSupport {
    let gate = &world.gate;
    if !has_ids(world.client) {
        return FeatureSupport::NotInRevision;
    }
    let (client, other) = (world.direct().await, world.direct().await);
    let (lost, id) = begin_gated_call(client.raw()).await;
    gate.admit(1);
    drop(lost);
    let rest = within_test_timeout("the rest", resume(&client, &id).await.finish())
        .await
        .unwrap();
    assert_eq!(rest.text(), r#"{"n":1}"#);
    let stream = id.split('-').next().unwrap();
    let mut standing = within_test_timeout("GET", client.raw().get_stream())
        .await
        .unwrap();
    for (who, id) in [
        (&other, id.clone()),
        (&client, format!("{}-1", "0".repeat(16))),
        (&client, format!("{stream}-999")),
    ] {
        let refused = request_resumption(who, &id).await;
        assert_eq!(refused.status, 204, "{id}: no further events");
    }
    // None of them took the place of the standing stream.
    tokio::select! {
        biased;
        heard = standing.next_message() => panic!("{heard:?}"),
        () = tokio::task::yield_now() => {}
    }
    let mut fresh = resume(&client, "nonsense").await;
    // A stream of its own, still without a message.
    let event = within_test_timeout("a comment", fresh.next_event())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((event.data.as_str(), event.id), ("", None));
    FeatureSupport::Carried
}
