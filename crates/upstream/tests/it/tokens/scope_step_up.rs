//! Tests of scopes that are added when a server demands them with 403.

use serde_json::json;
use weir_testkit::mock_server::{AnswerStep, CallGate, MockServerBuilder};
use weir_testkit::{MockBehaviour, MockServer};

use super::*;

fn echo() -> MockServerBuilder {
    MockServer::modern().tool("echo", MockBehaviour::echo())
}

/// A 403 that demands these scopes.
fn wants(scopes: &str) -> MockBehaviour {
    wants_after([], scopes)
}

/// A 403 that demands these scopes after further steps.
fn wants_after(steps: impl IntoIterator<Item = AnswerStep>, scopes: &str) -> MockBehaviour {
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scopes}\"");
    let steps = steps.into_iter().chain([AnswerStep::Raw("no".to_owned())]);
    MockBehaviour::steps(steps)
        .as_json()
        .with_status(403)
        .with_header("www-authenticate", &challenge)
}

fn stepping(authority: &TokenServer) -> UpstreamOAuth {
    UpstreamOAuth {
        step_up: vec!["write".to_owned(), "delete".to_owned()],
        ..client(authority)
    }
}

/// Waits until the server got so many calls in all.
async fn wait_for_calls(scene: &TokenScene, calls: usize, what: &str) {
    let is_reached = |mock: &MockServer| mock.requests_of("tools/call").len() == calls;
    scene.mock.wait_until(what, is_reached).await;
}

/// Starts an anonymous call that goes on by itself.
fn spawn_call(scene: &TokenScene) -> tokio::task::JoinHandle<Reply> {
    let upstream = scene.upstream.clone();
    tokio::spawn(async move { call_anonymously(&upstream, "echo", json!({})).await })
}

// Proves R266.
#[tokio::test]
async fn scopes_are_added_at_a_servers_wish_only_as_the_operator_permits_and_each_is_tried_once() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    scene
        .mock
        .add_rule("tools/call", 1, wants("tools write admin"));
    scene.call_successfully().await;
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write"],
        "the union, without what no operator listed"
    );
    // The token has that scope already: another request would be useless.
    scene.mock.add_rule("tools/call", 1, wants("write"));
    let failed = failure(scene.ask().await).await;
    assert_eq!(
        (failed.message(), failed.reason()),
        (
            "The upstream requires scopes that weir's token does not have",
            "unavailable"
        )
    );
    assert!(
        failed
            .cause()
            .contains("it requires `write`: add it to `scopes`"),
        "{}",
        failed.cause()
    );
    // A scope that the authorization server denied is not requested again, and the previous token
    // is kept.
    scene.mock.add_rule("tools/call", 2, wants("delete"));
    scene
        .authority
        .queue_answer(400, &json!({ "error": "invalid_scope" }));
    for _ in 0..2 {
        let failed = failure(scene.ask().await).await;
        assert_eq!(failed.reason(), "unavailable");
        assert!(failed.cause().contains("`delete`"), "{}", failed.cause());
    }
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write", "tools write delete"]
    );
    scene.call_successfully().await;
    assert_eq!(
        scene.authorizations("tools/call").last().unwrap(),
        "Bearer token-2"
    );
    assert_eq!(scene.authority.requests().len(), 3);
}

#[tokio::test]
async fn a_step_up_that_is_refused_after_its_caller_left_leaves_the_account_usable() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    scene.authority.set_holding(true);
    scene
        .authority
        .queue_answer(400, &json!({ "error": "invalid_scope" }));
    scene.mock.add_rule("tools/call", 1, wants("write"));
    let left = spawn_call(&scene);
    scene.authority.wait_for_requests(2).await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    // The next call needs a new token. Whether it comes before or after the refusal, it gets one
    // without the refused scope.
    scene.advance(3600);
    scene.authority.set_holding(false);
    scene.call_successfully().await;
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write", "tools"]
    );
}

// Proves R266.
#[tokio::test]
async fn many_calls_that_need_a_scope_at_once_share_one_step_up() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    scene.authority.set_holding(true);
    scene.mock.add_rule("tools/call", 20, wants("write"));
    let calls: Vec<_> = (0..20).map(|_| spawn_call(&scene)).collect();
    wait_for_calls(&scene, 21, "all calls are refused").await;
    scene.authority.set_holding(false);
    for call in calls {
        text(call.await.unwrap()).await;
    }
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write"]
    );
    assert_eq!(
        scene.authorizations("tools/call")[21..],
        ["Bearer token-2"; 20]
    );
}

#[tokio::test]
async fn a_late_refusal_of_the_narrower_token_is_followed_by_a_call_with_the_held_one() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    let gate = CallGate::new();
    let late = wants_after([AnswerStep::Gate(gate.clone())], "write");
    scene.mock.add_rule("tools/call", 1, late);
    let slow = spawn_call(&scene);
    wait_for_calls(&scene, 2, "the slow call is sent").await;
    scene.mock.add_rule("tools/call", 1, wants("write"));
    scene.call_successfully().await;
    gate.open();
    text(slow.await.unwrap()).await;
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write"],
        "nothing is requested again"
    );
    assert_eq!(
        scene.authorizations("tools/call").last().unwrap(),
        "Bearer token-2"
    );
}

#[tokio::test]
async fn a_call_that_needs_a_scope_during_a_renewal_steps_up_after_it() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.authority.set_lifetime(json!(1000));
    scene.call_successfully().await;
    scene.authority.set_holding(true);
    scene.advance(860);
    scene.mock.add_rule("tools/call", 2, wants("write"));
    let calls = [spawn_call(&scene), spawn_call(&scene)];
    wait_for_calls(&scene, 3, "both calls are refused").await;
    scene.authority.wait_for_requests(2).await;
    scene.authority.set_holding(false);
    for call in calls {
        text(call.await.unwrap()).await;
    }
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools", "tools write"]
    );
    assert_eq!(
        scene.authorizations("tools/call")[3..],
        ["Bearer token-3"; 2]
    );
}

#[tokio::test]
async fn a_step_up_that_fails_for_now_is_tried_again_after_a_while() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    for (status, answer) in [
        (503, json!({})),
        (429, json!({ "error": "slow_down" })),
        (400, json!({ "error": "invalid_client" })),
    ] {
        let before = scene.authority.requests().len();
        scene.authority.queue_answer(status, &answer);
        scene.mock.add_rule("tools/call", 2, wants("write"));
        for _ in 0..2 {
            assert_eq!(failure(scene.ask().await).await.reason(), "unavailable");
        }
        assert_eq!(
            scene.authority.requests().len(),
            before + 1,
            "the next try waits"
        );
        scene.call_successfully().await;
        scene.advance(30);
    }
    scene.mock.add_rule("tools/call", 1, wants("write"));
    scene.call_successfully().await;
    assert_eq!(
        scene.token_request_members("scope").last().unwrap(),
        "tools write"
    );
    assert_eq!(
        scene.authorizations("tools/call").last().unwrap(),
        "Bearer token-2"
    );
}

#[tokio::test]
async fn added_scopes_that_are_withdrawn_are_left_out_of_the_next_request() {
    let scene = TokenScene::new(echo(), stepping).await;
    scene.call_successfully().await;
    scene.mock.add_rule("tools/call", 1, wants("write"));
    scene.call_successfully().await;
    scene.advance(3600);
    scene
        .authority
        .queue_answer(400, &json!({ "error": "invalid_scope" }));
    assert_eq!(failure(scene.ask().await).await.reason(), "unavailable");
    scene.advance(30);
    scene.call_successfully().await;
    assert_eq!(
        scene.token_request_members("scope"),
        ["tools", "tools write", "tools write", "tools"]
    );
}

// Proves R266.
#[tokio::test]
async fn a_step_up_without_configured_scopes_keeps_those_that_the_authorization_server_stated() {
    let cases: [(&[&str], Value, &str); 4] = [
        (&[], json!("read list"), "read list write"),
        (&[], json!("read write"), "read write"),
        (&[], json!(null), "write"),
        (&["tools"], json!("tools more"), "tools write"),
    ];
    for (configured, stated, expected) in cases {
        let with_scopes = |authority: &TokenServer| UpstreamOAuth {
            scopes: configured.iter().map(|&scope| scope.to_owned()).collect(),
            ..stepping(authority)
        };
        let scene = TokenScene::new(echo(), with_scopes).await;
        let first = json!({
            "access_token": "first", "token_type": "Bearer", "expires_in": 3600, "scope": stated,
        });
        scene.authority.queue_answer(200, &first);
        scene.call_successfully().await;
        scene.mock.add_rule("tools/call", 1, wants("write"));
        scene.call_successfully().await;
        scene.advance(3600);
        scene.call_successfully().await;
        assert_eq!(
            scene.token_request_members("scope"),
            [&*configured.join(" "), expected, expected],
            "{stated}"
        );
    }
}
