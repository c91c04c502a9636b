//! Tests of token requests: one at a time, early, and with backoff after failures.

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};

use super::*;

fn echo() -> weir_testkit::mock_server::MockServerBuilder {
    MockServer::modern().tool("echo", MockBehaviour::echo())
}

// Proves R267.
#[tokio::test]
async fn waiting_calls_share_one_token_request_that_outlives_the_first() {
    let scene = TokenScene::new(echo(), client).await;
    scene.authority.set_holding(true);
    let first = tokio::spawn({
        let upstream = scene.upstream.clone();
        async move { call_anonymously(&upstream, "echo", json!({})).await }
    });
    scene.authority.wait_for_requests(1).await;
    let others: Vec<_> = (0..20)
        .map(|_| {
            let upstream = scene.upstream.clone();
            tokio::spawn(
                async move { text(call_anonymously(&upstream, "echo", json!({})).await).await },
            )
        })
        .collect();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    scene.authority.set_holding(false);
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(scene.authority.requests().len(), 1);
    assert_eq!(scene.mock.executions("echo"), 20);
}

#[tokio::test]
async fn a_token_is_renewed_early_while_the_old_one_serves() {
    let scene = TokenScene::new(echo(), client).await;
    scene.authority.set_lifetime(json!(1000));
    scene.call_successfully().await;
    scene.advance(740);
    scene.call_successfully().await;
    assert_eq!(
        scene.authority.requests().len(),
        1,
        "not before three quarters of its life"
    );
    scene.authority.set_holding(true);
    scene.advance(120);
    for _ in 0..5 {
        scene.call_successfully().await;
    }
    scene.authority.wait_for_requests(2).await;
    assert_eq!(
        scene.authorizations("tools/call"),
        ["Bearer token-1"; 7],
        "nobody waits for the next one"
    );
    scene.authority.set_holding(false);
    scene
        .mock
        .wait_until("the next token comes", |_| {
            scene.authority.requests().len() == 2
        })
        .await;
    until_shown(&scene, "Bearer token-2").await;
    assert_eq!(scene.authority.requests().len(), 2, "asked for once");
}

/// Calls until the token is in use: it arrives in the background.
async fn until_shown(scene: &TokenScene, token: &str) {
    for _ in 0..10_000 {
        scene.call_successfully().await;
        if scene
            .authorizations("tools/call")
            .last()
            .is_some_and(|shown| shown == token)
        {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{token} is never used");
}

#[tokio::test]
async fn expired_token_is_not_used_and_token_requests_back_off() {
    let scene = TokenScene::new(echo(), client).await;
    scene.authority.set_lifetime(json!(1000));
    scene.call_successfully().await;
    for _ in 0..50 {
        scene
            .authority
            .queue_answer(503, &json!({ "error_description": "CANARY" }));
    }
    scene.advance(860);
    scene.call_successfully().await;
    assert_eq!(
        scene.authorizations("tools/call"),
        ["Bearer token-1"; 2],
        "the old one serves to its end"
    );
    scene.advance(120);
    let before = scene.authority.requests().len();
    for _ in 0..10 {
        let failed = failure(scene.ask().await).await;
        assert_eq!(failed.reason(), "unavailable");
        assert_eq!(failed.upstream().unwrap().as_str(), "mock");
        assert!(
            failed.message().contains("no tokens now (HTTP 503)"),
            "{failed}"
        );
        assert!(failed.retry_delay().is_some() || scene.authority.requests().len() <= before + 1);
    }
    assert!(
        scene.authority.requests().len() <= before + 1,
        "the next try waits"
    );
    assert_eq!(scene.mock.executions("echo"), 2);
}
