//! Tests of a token keeper in the process: no token is requested of an authorization server.

use parking_lot::Mutex;

use http::HeaderValue;
use weir_core::port::BoxFuture;
use weir_testkit::{MockBehaviour, MockServer, TokenServer};
use weir_upstream::{ProvidedToken, SharedTokenProvider, TokenProvider};

use super::*;

/// A keeper that gives these tokens one after the other, each until it is refused, and then the
/// last.
struct ProviderSequence(Mutex<Vec<Option<&'static str>>>);

impl TokenProvider for ProviderSequence {
    fn token(&self, is_refused: bool) -> BoxFuture<'_, Result<Option<ProvidedToken>, String>> {
        let mut left = self.0.lock();
        if is_refused && left.len() > 1 {
            left.remove(0);
        }
        let token = left[0].map(|token| ProvidedToken {
            header: HeaderValue::from_static(token),
            lifetime: None,
        });
        Box::pin(std::future::ready(Ok(token)))
    }

    fn advice(&self) -> String {
        "log in anew".to_owned()
    }
}

#[tokio::test]
async fn provider_is_asked_again_after_a_refusal_and_its_advice_reaches_callers() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let keeper = ProviderSequence(Mutex::new(vec![
        None,
        Some("Bearer first"),
        Some("Bearer second"),
    ]));
    let auth = UpstreamOAuth::from_provider(SharedTokenProvider(Arc::new(keeper)));
    let scene = TokenScene::of(mock, auth, TokenServer::start().await);
    scene.call_successfully().await;
    scene.mock.accept_only(&["Bearer first"]);
    scene.call_successfully().await;
    assert_eq!(
        scene.authorizations("tools/call"),
        ["nothing", "nothing", "Bearer first"]
    );
    scene.mock.accept_only(&["Bearer second"]);
    scene.advance(60);
    scene.call_successfully().await;
    scene.mock.accept_only(&[]);
    scene.advance(60);
    let failed = failure(scene.ask().await).await;
    assert!(
        failed.message().contains("HTTP 401") && failed.message().ends_with("log in anew"),
        "{failed}"
    );
    assert!(scene.authority.requests().is_empty());
    assert_eq!(
        scene.mock.executions("echo"),
        3,
        "what was refused did not run"
    );
}

/// A keeper with a token for a minute that it cannot renew.
struct UnrenewableProvider(Mutex<Option<&'static str>>);

impl TokenProvider for UnrenewableProvider {
    fn token(&self, _is_refused: bool) -> BoxFuture<'_, Result<Option<ProvidedToken>, String>> {
        let token = self.0.lock().take().map(|token| ProvidedToken {
            header: HeaderValue::from_static(token),
            lifetime: Some(Duration::from_secs(60)),
        });
        let token = token.ok_or_else(|| "https://id.example/token: HTTP 503".to_owned());
        Box::pin(std::future::ready(token.map(Some)))
    }

    fn advice(&self) -> String {
        "log in anew".to_owned()
    }
}

#[tokio::test]
async fn token_that_cannot_be_renewed_serves_until_its_end() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let keeper = UnrenewableProvider(Mutex::new(Some("Bearer first")));
    let auth = UpstreamOAuth::from_provider(SharedTokenProvider(Arc::new(keeper)));
    let scene = TokenScene::of(mock, auth, TokenServer::start().await);
    scene.call_successfully().await;
    scene.advance(52);
    scene.call_successfully().await;
    scene.advance(10);
    let failed = failure(scene.ask().await).await;
    assert!(
        failed
            .cause()
            .contains("https://id.example/token: HTTP 503"),
        "{}",
        failed.cause()
    );
    assert_eq!(
        scene.authorizations("tools/call"),
        ["Bearer first", "Bearer first"],
        "no call goes without a token"
    );
}
