//! Tests of a server that refuses a token: with 401, with 403, and with hostile challenges.

use serde_json::json;
use weir_testkit::{MockBehaviour, MockServer};
use weir_upstream::SecretHeader;

use super::*;

fn echo() -> weir_testkit::mock_server::MockServerBuilder {
    MockServer::modern().tool("echo", MockBehaviour::echo())
}

// Proves R251.
#[tokio::test]
async fn a_refused_token_is_replaced_once_and_the_call_sent_again() {
    let legacy =
        MockServer::legacy(weir_wire::Revision::NEWEST_LEGACY).tool("echo", MockBehaviour::echo());
    for builder in [echo(), legacy] {
        let scene = TokenScene::new(builder, client).await;
        scene.call_successfully().await;
        scene.mock.accept_only(&["Bearer token-2"]);
        scene.call_successfully().await;
        assert_eq!(
            scene.authorizations("tools/call"),
            ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
        );
        assert_eq!(
            scene.mock.executions("echo"),
            2,
            "what was refused did not run"
        );

        scene.mock.accept_only(&[]);
        scene.advance(60);
        for _ in 0..10 {
            let failed = failure(scene.ask().await).await;
            assert_eq!(failed.reason(), "unavailable", "{failed}");
            assert!(
                failed.message().contains("refuses weir's credentials"),
                "{failed}"
            );
            assert_eq!(failed.upstream().unwrap().as_str(), "mock");
        }
        assert_eq!(
            scene.authority.requests().len(),
            3,
            "a server that refuses everything does not storm the authority"
        );
    }
}

// Proves R251.
#[tokio::test]
async fn many_refusals_at_once_are_one_request() {
    let scene = TokenScene::new(echo(), client).await;
    scene.call_successfully().await;
    scene.mock.accept_only(&["Bearer token-2"]);
    let calls = (0..20).map(|_| async { text(scene.ask().await).await });
    futures_util::future::join_all(calls).await;
    assert_eq!(scene.authority.requests().len(), 2);
}

// Proves C18, C19, C25.
#[tokio::test]
async fn nothing_of_a_hostile_challenge_is_opened_or_shown() {
    let canary = MockServer::modern().start().await;
    let at = canary.address();
    let giant = format!("Bearer realm=\"CANARY{}\"", "x".repeat(1 << 20));
    let challenges: [Vec<u8>; 8] = [
        format!("Bearer resource_metadata=\"{}\"", canary.url()).into(),
        format!(
            "Bearer resource_metadata=\"https://localhost:{}/x\", error=\"invalid_token\"",
            at.port()
        )
        .into(),
        format!(
            "Bearer resource_metadata=\"https://user:pw@{at}/\", authorization_uri=\"http://{at}/\""
        )
        .into(),
        b"Bearer resource_metadata=\"javascript:alert('CANARY')\"".to_vec(),
        b"Bearer resource_metadata=\"file:///etc/passwd\", scope=\"CANARY\"".to_vec(),
        b"Bearer realm=\"\xff\x80 CANARY\x09\", error_description=\"\xc2\x9b31mCANARY\"".to_vec(),
        b"CANARY".to_vec(),
        giant.into(),
    ];
    for challenge in challenges {
        let scene = TokenScene::new(echo(), client).await;
        scene.mock.accept_only(&[]);
        scene.mock.set_challenge(&challenge);
        hostile(&scene.upstream).await;
        // The same without an authority: headers of the operator's own.
        let key = SecretHeader::new("Bearer CONFIGURED".parse().unwrap());
        let url = scene.mock.url().parse().unwrap();
        let headers = vec![(http::header::AUTHORIZATION, key)];
        let http = HttpUpstreamSettings {
            instances: Vec::new(),
            url,
            headers,
            auth: None,
            ca_file: None,
            h2c: false,
        };
        hostile(&build(UpstreamSettings {
            transport: TransportSettings::Http(http),
            ..settings(&scene.mock.url())
        }))
        .await;
    }
    assert_eq!(canary.connections(), 0);
}

async fn hostile(upstream: &Arc<dyn Upstream>) {
    let failed = failure(call_anonymously(upstream, "echo", json!({})).await).await;
    // A head that is too large to be read does not even count as a refusal.
    assert!(
        ["unavailable", "result_unknown"].contains(&failed.reason()),
        "{failed:?}"
    );
    let told = format!("{failed:?} {:?}", upstream.health());
    for bad in [
        "CANARY",
        "javascript",
        "passwd",
        "CONFIGURED",
        "\u{9b}",
        "token-1",
    ] {
        assert!(!told.contains(bad), "{bad}: {told}");
    }
}

// Proves R254, R262.
#[tokio::test]
async fn a_server_that_moves_to_another_authority_gets_no_more_tokens_and_no_credentials_go_there()
{
    let scene = TokenScene::new(echo(), client).await;
    let thief = TokenServer::start().await;
    let well_known = "/.well-known/oauth-protected-resource/mcp";
    scene.mock.serve_document(
        well_known,
        &resource(&scene.mock, &[&scene.authority.issuer()]),
    );
    scene.call_successfully().await;
    scene
        .mock
        .serve_document(well_known, &resource(&scene.mock, &[&thief.issuer()]));
    scene.mock.accept_only(&[]);
    scene.advance(60);
    let failed = failure(scene.ask().await).await;
    assert_eq!(failed.reason(), "unavailable");
    assert!(
        failed
            .message()
            .contains("belongs to another authorization server"),
        "{failed}"
    );
    assert!(
        !failed.message().contains(&thief.issuer()),
        "what it says is not repeated"
    );
    assert_eq!(
        (scene.authority.requests().len(), thief.requests().len()),
        (1, 0)
    );
    assert_eq!(scene.mock.executions("echo"), 1);
}
