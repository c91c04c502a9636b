//! The identity provider: down, back, rotating its keys, flooded with unknown keys, and
//! misbehaving.

use std::time::Instant;

use serde_json::json;
use weir_testkit::identity_provider::now;
use weir_testkit::{IdentityProvider, IdpMisbehaviour, TokenSigner};

use super::{WeirWithIdp, get};
use crate::harness::wait_until_async;

// Proves C14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_is_taken_at_once_and_the_old_one_goes() {
    let stage = WeirWithIdp::start().await;
    let url = stage.weir.url("/mcp");
    let mut claims = stage.idp.claims("ada", &url);
    // Issued before the keys were fetched.
    claims["iat"] = json!(now() - 60);
    let old = stage.idp.signer().token(&claims);
    assert_eq!(stage.status(&old).await, 200);
    stage.idp.rotate_key(TokenSigner::eddsa("key-2"));
    assert_eq!(stage.status(&stage.token()).await, 200);
    assert_eq!(stage.idp.request_count("/keys"), 2);
    assert_eq!(stage.status(&old).await, 401);
}

// Proves C15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_keys_cause_one_fetch() {
    let stage = WeirWithIdp::start().await;
    let forged = TokenSigner::es256("x");
    let mut claims = stage.idp.claims("eve", &stage.weir.url("/mcp"));
    claims["iat"] = json!(now() - 60);
    let begun = Instant::now();
    for number in 0..300 {
        let token = forged.token_with(
            &json!({ "alg": "ES256", "kid": format!("k{number}") }),
            &claims,
        );
        assert_eq!(stage.status(&token).await, 401);
    }
    // The key of a token that was issued since then may be new.
    claims["iat"] = json!(now() + 5);
    let header = json!({ "alg": "ES256", "kid": "new" });
    let unknown = forged.token_with(&header, &claims);
    assert_eq!(stage.status(&unknown).await, 503);
    // One at the start, and one for each thirty seconds that have passed.
    let most = 2 + usize::try_from(begun.elapsed().as_secs()).unwrap() / 30;
    assert!(
        stage.idp.request_count("/keys") <= most,
        "{} fetches",
        stage.idp.request_count("/keys")
    );
    assert_eq!(stage.status(&stage.token()).await, 200);
    assert_eq!(stage.upstream.executions("tool_0000"), 1);
}

// Proves C16, C17, C22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_good_keys_serve_while_the_provider_misbehaves() {
    let stage = WeirWithIdp::start().await;
    assert_eq!(stage.status(&stage.token()).await, 200);
    let before = stage.token();
    let redirect = IdpMisbehaviour::Redirect(format!("{}/elsewhere", stage.idp.issuer()));
    let private =
        json!({ "keys": [{ "kty": "oct", "kid": "key-9", "k": "c2VjcmV0" }] }).to_string();
    for how in [
        IdpMisbehaviour::Status(500),
        IdpMisbehaviour::Status(404),
        IdpMisbehaviour::Body("<html>".to_owned()),
        IdpMisbehaviour::Body(r#"{"keys":[]}"#.to_owned()),
        IdpMisbehaviour::Body(private),
        redirect,
    ] {
        stage.idp.set_misbehaviour(Some(how.clone()));
        let forged =
            TokenSigner::es256("key-9").token(&stage.idp.claims("eve", &stage.weir.url("/mcp")));
        // Its key could be a new one of the provider.
        assert_eq!(stage.status(&forged).await, 503, "{how:?}");
        assert_eq!(stage.status(&before).await, 200, "{how:?}");
        assert_eq!(stage.status(&stage.token()).await, 200, "{how:?}");
    }
    assert_eq!(
        stage.idp.request_count("/elsewhere"),
        0,
        "redirects are not followed"
    );
}

// Proves C17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weir_starts_without_its_provider_and_is_ready_once_it_is_there() {
    let mut idp = IdentityProvider::start().await;
    idp.stop();
    let issuer = json!({ "issuer": idp.issuer() });
    let upstream = weir_testkit::MockServer::modern().tools(1).start().await;
    let config = json!({
        "upstreams": { "one": { "url": upstream.url() } },
        "auth": { "mode": "oauth", "issuers": [issuer] },
    });
    let weir = crate::harness::Weir::start_unready(config);
    assert!(weir.get_admin_page("/readyz").starts_with("HTTP/1.1 503"));
    assert!(weir.get_admin_page("/healthz").starts_with("HTTP/1.1 200"));
    let url = weir.url("/mcp");
    let client = || super::bearer(&url, &idp.token("ada", &url)).modern();
    let answer = client().call("one__tool_0000", json!({})).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.header("retry-after")),
        (503, Some("5"))
    );
    assert!(
        answer.header("www-authenticate").is_none(),
        "getting another token would not help"
    );
    let client = client();
    let _served = idp.restart().await;
    wait_until_async("weir to be ready", async || {
        weir.get_admin_page("/readyz")
            .starts_with("HTTP/1.1 200")
            .then_some(())
    })
    .await;
    assert_eq!(
        client
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        200
    );
    // If the provider is down again, weir goes on with the keys that it has.
    idp.stop();
    assert_eq!(
        client
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        200
    );
    assert!(weir.get_admin_page("/readyz").starts_with("HTTP/1.1 200"));
    assert_eq!(
        get(&weir.url("/.well-known/oauth-protected-resource/mcp"))
            .await
            .status,
        200
    );
}
