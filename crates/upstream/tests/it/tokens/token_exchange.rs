//! Calls in the names of their callers.

use std::collections::HashSet;

use serde_json::json;
use weir_core::CapabilityClass;
use weir_core::upstream::ListKind;
use weir_testkit::mock_server::{MockServerBuilder, RecordedRequest};
use weir_testkit::{MockBehaviour, MockServer};
use weir_wire::Revision;

use super::*;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

// Proves C20, R250, R254.
#[tokio::test]
async fn each_caller_has_its_own_exchanged_token_and_its_first_one_is_not_sent() {
    let legacy = MockServer::legacy(weir_wire::Revision::NEWEST_LEGACY);
    for builder in [MockServer::modern(), legacy] {
        let scene = TokenScene::new(builder.tool("echo", MockBehaviour::echo()), exchanging).await;
        // Lists and probes use weir's own account.
        let mut watch = scene
            .upstream
            .clone()
            .watch(CapabilityClass::BASE)
            .await
            .unwrap();
        watch.list(ListKind::Tools, None).await.unwrap();
        assert_eq!(
            scene.token_request_members("grant_type"),
            ["client_credentials"]
        );

        let (ada, bob) = (
            caller("ada", "CANARY-ada").await,
            caller("bob", "CANARY-bob").await,
        );
        for one in [&ada, &bob, &ada, &bob] {
            text(scene.ask_as(one).await).await;
        }
        let shown = [
            "Bearer token-2",
            "Bearer token-3",
            "Bearer token-2",
            "Bearer token-3",
        ];
        assert_eq!(scene.authorizations("tools/call"), shown);
        assert_eq!(
            scene.token_request_members("subject_token"),
            ["", "CANARY-ada", "CANARY-bob"],
            "each once"
        );
        assert_eq!(
            scene.token_request_members("grant_type")[1..],
            [EXCHANGE; 2]
        );
        let request = &scene.authority.requests()[1];
        for (name, value) in [
            ("subject_token_type", TokenExchange::ACCESS_TOKEN),
            ("requested_token_type", TokenExchange::ACCESS_TOKEN),
            ("resource", &scene.mock.url()),
            ("audience", "tools"),
            ("scope", "tools"),
        ] {
            assert_eq!(
                request.form.get(name).map(String::as_str),
                Some(value),
                "{name}"
            );
        }
        assert!(
            request
                .authorization
                .as_deref()
                .is_some_and(|shown| shown.starts_with("Basic "))
        );
        // A narrower token of the same caller does not get the permissions of a wider one.
        let narrow = caller("ada", "CANARY-narrow").await;
        text(scene.ask_as(&narrow).await).await;
        assert_eq!(
            scene.authorizations("tools/call").last().unwrap(),
            "Bearer token-4"
        );

        drop(watch);
        scene.upstream.clone().retire(Duration::from_secs(5)).await;
        let ended = scene.authorizations("DELETE");
        assert!(
            ended.iter().all(|shown| shown.starts_with("Bearer token-")),
            "{ended:?}"
        );
        assert_eq!(scene.mock.requests_with("CANARY").len(), 0);
    }
}

// Proves R270.
#[tokio::test]
async fn caller_without_token_does_not_get_weirs_own() {
    let scene = TokenScene::new(
        MockServer::modern().tool("echo", MockBehaviour::echo()),
        exchanging,
    )
    .await;
    let failed = failure(scene.ask().await).await;
    assert_eq!(failed.reason(), "denied");
    assert!(failed.message().contains("OAuth access token"), "{failed}");
    assert_eq!(scene.mock.executions("echo"), 0);
    assert_eq!(scene.authority.requests().len(), 0);
}

// Proves R251.
#[tokio::test]
async fn failed_exchange_fails_only_its_caller() {
    for mock in [
        MockServer::modern(),
        MockServer::legacy(Revision::NEWEST_LEGACY),
        MockServer::dual(),
    ] {
        refuse_exchange_of_one(mock.tool("echo", MockBehaviour::echo())).await;
    }
}

async fn refuse_exchange_of_one(mock: MockServerBuilder) {
    let scene = TokenScene::new(mock, exchanging).await;
    let (ada, bob) = (
        caller("ada", "CANARY-ada").await,
        caller("bob", "CANARY-bob").await,
    );
    text(scene.ask_as(&bob).await).await;
    scene.authority.queue_answer(
        400,
        &json!({ "error": "invalid_grant", "error_description": "CANARY" }),
    );
    for _ in 0..5 {
        let failed = failure(scene.ask_as(&ada).await).await;
        assert_eq!(failed.reason(), "unavailable");
        assert!(
            failed
                .message()
                .contains("does not exchange the caller's token"),
            "{failed}"
        );
        assert!(!format!("{failed:?}").contains("CANARY"));
        // Each call of another session opens one at the server, if that has sessions.
        text(scene.ask_in_new_session(&bob).await).await;
    }
    assert_eq!(
        scene
            .token_request_members("subject_token")
            .iter()
            .filter(|token| *token == "CANARY-ada")
            .count(),
        1
    );
    assert!(!scene.upstream.health().down, "the server is well");
}

// Proves R251.
#[tokio::test]
async fn caller_that_the_server_refuses_does_not_keep_others_from_opening_sessions() {
    for mock in [
        MockServer::legacy(Revision::NEWEST_LEGACY),
        MockServer::dual(),
    ] {
        let mock = mock.tool("echo", MockBehaviour::echo());
        let scene = TokenScene::new(mock, exchanging).await;
        let (ada, bob) = (
            caller("ada", "CANARY-ada").await,
            caller("bob", "CANARY-bob").await,
        );
        text(scene.ask_in_new_session(&bob).await).await;
        let bobs = scene.authorizations("tools/call").pop().unwrap();
        scene.mock.accept_only(&["Bearer token-1", &bobs]);
        for _ in 0..5 {
            let failed = failure(scene.ask_in_new_session(&ada).await).await;
            assert_eq!(failed.reason(), "unavailable", "{failed}");
            text(scene.ask_in_new_session(&bob).await).await;
        }
        assert!(!scene.upstream.health().down, "the server is well");
    }
}

// Proves R251.
#[tokio::test]
async fn a_callers_refused_token_is_exchanged_anew_once() {
    let scene = TokenScene::new(
        MockServer::modern().tool("echo", MockBehaviour::echo()),
        exchanging,
    )
    .await;
    let ada = caller("ada", "CANARY-ada").await;
    text(scene.ask_as(&ada).await).await;
    scene
        .mock
        .accept_only(&["Bearer token-1", "Bearer token-3"]);
    text(scene.ask_as(&ada).await).await;
    assert_eq!(
        scene.authorizations("tools/call"),
        ["Bearer token-2", "Bearer token-2", "Bearer token-3"]
    );
    assert_eq!(scene.mock.executions("echo"), 2);
}

// Proves C20.
#[tokio::test]
async fn callers_session_is_not_used_with_weirs_own_token_after_a_restart() {
    let mock = MockServer::legacy(Revision::NEWEST_LEGACY).tool("echo", MockBehaviour::echo());
    let mut scene = TokenScene::new(mock, exchanging).await;
    let bob = caller("bob", "CANARY-bob").await;
    text(scene.ask_in_session(&bob, 1).await).await;
    text(scene.ask_in_session(&bob, 2).await).await;
    scene.hand_over().await;
    // The next process finds out the server's era with weir's own account.
    let _watch = scene.upstream.clone().watch(CapabilityClass::BASE).await;
    let _watch = _watch.unwrap();
    text(scene.ask_in_session(&bob, 1).await).await;
    let calls = scene.mock.requests_of("tools/call");
    let of_calls: HashSet<_> = calls.iter().filter_map(RecordedRequest::session).collect();
    assert_eq!(of_calls.len(), 2);
    let in_sessions = |mock: &MockServer, kind: &str| -> Vec<RecordedRequest> {
        let mut requests = mock.requests_of(kind);
        requests.retain(|request| request.session().is_some_and(|own| of_calls.contains(own)));
        requests
    };
    // Two streams before the restart, and that of the session in which a call was made after it.
    let is_open = |mock: &MockServer| in_sessions(mock, "GET").len() == 3;
    scene.mock.wait_until("the stream", is_open).await;
    scene.upstream.clone().retire(Duration::from_secs(5)).await;
    let of_bob = scene.authorizations("tools/call");
    for kind in ["GET", "DELETE"] {
        for request in in_sessions(&scene.mock, kind) {
            let shown = request.header("authorization").unwrap();
            assert!(of_bob.iter().any(|own| own == shown), "{request:?}");
        }
    }
}
