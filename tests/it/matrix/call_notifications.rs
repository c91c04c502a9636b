//! Notifications before an answer: progress and logs.

use serde_json::{Value, json};
use weir_testkit::ClientAnswer;
use weir_wire::LogLevel;

use super::pairing::ScenarioPairing;
use super::support_report::FeatureSupport;
use crate::harness::CheckedClient;

/// Returns the notifications before the answer; asserts that no message follows it.
fn notes<'a>(answer: &'a ClientAnswer, method: &str) -> Vec<&'a Value> {
    let (last, before) = answer.messages.split_last().unwrap();
    assert!(
        last.get("method").is_none(),
        "the answer comes last: {:?}",
        answer.messages
    );
    before
        .iter()
        .filter(|message| message["method"] == method)
        .collect()
}

// Proves R207, R208.
pub async fn progress_carries_the_clients_own_token(world: &ScenarioPairing) -> FeatureSupport {
    let client = world.client().await;
    for token in [json!("tok \u{1F980}"), json!(7), json!(0)] {
        let answer = client
            .call_with_token("shop__progress", json!({ "count": 3 }), &token)
            .await;
        let notes = notes(&answer, "notifications/progress");
        let seen: Vec<_> = notes
            .iter()
            .map(|note| note["params"]["progress"].as_f64().unwrap())
            .collect();
        assert_eq!(seen, [1.0, 2.0, 3.0], "R208");
        for note in notes {
            assert_eq!(note["params"]["progressToken"], token, "in value and type");
        }
        assert!(answer.result()["content"].is_array());
    }
    let silent = client.call("shop__progress", json!({ "count": 3 })).await;
    assert_eq!(
        silent.messages.len(),
        1,
        "nobody asked: {:?}",
        silent.messages
    );
    FeatureSupport::Carried
}

async fn logs(client: &CheckedClient, tool: &str) -> Vec<String> {
    let answer = client.call(tool, json!({})).await;
    let notes = notes(&answer, "notifications/message");
    assert!(
        answer.result()["content"].is_array(),
        "{:?}",
        answer.messages
    );
    let is_labelled = |note: &&Value| {
        note["params"]["logger"]
            .as_str()
            .is_some_and(|logger| logger.starts_with("shop"))
    };
    assert!(
        notes.iter().all(is_labelled),
        "they say which server's they are: {notes:?}"
    );
    notes
        .iter()
        .map(|note| note["params"]["level"].as_str().unwrap().to_owned())
        .collect()
}

// Proves R215, R216, R218.
pub async fn logs_come_at_the_level_asked_for(world: &ScenarioPairing) -> FeatureSupport {
    let silent = world.client().await;
    let (unset, shared) = logs_without_level(world);
    assert_eq!(logs(&silent, "shop__log").await, unset, "R215");
    let informed = world.client().await.with_log_level(LogLevel::Info).await;
    let alarmed = world.client().await.with_log_level(LogLevel::Error).await;
    assert_eq!(logs(&informed, "shop__log").await, ["info", "error"]);
    assert_eq!(
        logs(&alarmed, "shop__log").await,
        ["error"],
        "R218: each session its own level"
    );
    assert_eq!(logs(&informed, "shop__log").await, ["info", "error"]);
    let chatty: &[&str] = if world.client.is_modern() {
        &[]
    } else {
        &["info"]
    };
    assert_eq!(logs(&silent, "shop__chatty").await, chatty, "R215");
    assert_eq!(
        logs(&silent, "shop__log").await,
        shared,
        "R216: another's level is not mine"
    );
    FeatureSupport::Carried
}

/// Returns the levels of the log messages that a client without a level gets of `shop__log`: in a
/// session of its own at the upstream, and where another client has set a level in that session.
fn logs_without_level(
    world: &ScenarioPairing,
) -> (&'static [&'static str], &'static [&'static str]) {
    const CHOICE_OF_WEIR: &[&str] = &["info", "error"];
    const CHOICE_OF_SERVER: &[&str] = &["debug", "info", "error"];
    if world.client.is_modern() {
        (&[], &[])
    } else if world.upstream.is_modern() {
        (CHOICE_OF_WEIR, CHOICE_OF_WEIR)
    } else if world.transport.is_single_stream() {
        (CHOICE_OF_SERVER, CHOICE_OF_WEIR)
    } else {
        (CHOICE_OF_SERVER, CHOICE_OF_SERVER)
    }
}

// Proves R217.
pub async fn a_level_that_is_none_is_refused(world: &ScenarioPairing) -> FeatureSupport {
    if world.client.is_modern() {
        let meta = json!({ weir_wire::meta::LOG_LEVEL: "loud" });
        let params = json!({ "name": "shop__tool_0000", "arguments": {}, "_meta": meta });
        let refused = world.client().await.ask("tools/call", params).await;
        assert_eq!(refused.code(), -32602, "{}", refused.last());
        return FeatureSupport::Carried;
    }
    let client = world.client().await;
    let refused = client
        .ask("logging/setLevel", json!({ "level": "loud" }))
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (200, -32602),
        "{}",
        refused.last()
    );
    FeatureSupport::Carried
}
