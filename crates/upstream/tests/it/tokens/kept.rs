//! Tests of a token keeper in the process: no token is requested of an authorization server.

use std::sync::Mutex;

use http::HeaderValue;
use weir_core::port::Fut;
use weir_testkit::{MockBehaviour, MockServer, TokenServer};
use weir_upstream::{KeepsTokens, KeptToken, TokenKeeper};

use super::*;

/// A keeper that gives these tokens one after the other, each until it is refused, and then the
/// last.
struct Sequence(Mutex<Vec<Option<&'static str>>>);

impl KeepsTokens for Sequence {
    fn token(&self, is_refused: bool) -> Fut<'_, Option<KeptToken>> {
        let mut left = self.0.lock().unwrap();
        if is_refused && left.len() > 1 {
            left.remove(0);
        }
        let token = left[0].map(|token| KeptToken {
            header: HeaderValue::from_static(token),
            lifetime: None,
        });
        Box::pin(std::future::ready(token))
    }

    fn advice(&self) -> String {
        "log in anew".to_owned()
    }
}

#[tokio::test]
async fn a_keeper_is_asked_again_after_a_refusal_and_callers_get_its_advice() {
    let mock = MockServer::modern()
        .tool("echo", MockBehaviour::echo())
        .start()
        .await;
    let keeper = Sequence(Mutex::new(vec![
        None,
        Some("Bearer first"),
        Some("Bearer second"),
    ]));
    let auth = OAuth::kept_by(TokenKeeper(Arc::new(keeper)));
    let scene = Scene::of(mock, auth, TokenServer::start().await);
    scene.good().await;
    scene.mock.accept_only(&["Bearer first"]);
    scene.good().await;
    assert_eq!(
        scene.shown("tools/call"),
        ["nothing", "nothing", "Bearer first"]
    );
    scene.mock.accept_only(&["Bearer second"]);
    scene.advance(60);
    scene.good().await;
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
