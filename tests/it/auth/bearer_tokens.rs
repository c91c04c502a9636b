//! Tokens at the listener of the binary: every method demands one, and every wrong token gets the
//! same answer.

use http::{HeaderMap, HeaderValue, Method};
use serde_json::json;
use weir_testkit::identity_provider::now;
use weir_testkit::{RawClient, TokenSigner};
use weir_wire::Revision;

use super::{WeirWithIdp, bearer};
use crate::harness::{wait_until_async, within_test_timeout};

// Proves R243, R238, C01.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_asks_for_a_token_and_says_where_to_get_one() {
    let stage = WeirWithIdp::start().await;
    let url = stage.weir.url("/mcp");
    let session = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    for method in [Method::POST, Method::GET, Method::DELETE] {
        let mut headers = HeaderMap::new();
        headers.insert("mcp-session-id", session.clone());
        headers.insert(
            "accept",
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        for (shown, error) in [
            (None, None),
            (Some("Basic YTpi"), None),
            (Some("Bearer nonsense"), Some("invalid_token")),
        ] {
            if let Some(shown) = shown {
                headers.insert("authorization", HeaderValue::from_static(shown));
            }
            let body = if method == Method::POST { "{}" } else { "" };
            let sent = RawClient::new(&url)
                .send(method.clone(), headers.clone(), body)
                .await
                .unwrap();
            let answer = sent.finish().await.unwrap();
            assert_eq!(answer.status, 401, "{method} {shown:?}");
            assert_eq!(
                answer.header("www-authenticate"),
                Some(&*stage.challenge(error)),
                "{method} {shown:?}"
            );
        }
    }
    assert_eq!(stage.upstream.executions("tool_0000"), 0);
}

// Proves C01, R244.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tokens_or_one_in_the_query_are_400() {
    let stage = WeirWithIdp::start().await;
    let token = stage.token();
    assert_eq!(stage.status(&token).await, 200);
    let url = stage.weir.url("/mcp");
    let in_query = bearer(&format!("{url}?access_token={token}"), &token).modern();
    assert_eq!(
        in_query
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        400
    );
    let mut headers = HeaderMap::new();
    for _ in 0..2 {
        headers.append("authorization", format!("Bearer {token}").parse().unwrap());
    }
    for (name, value) in [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let sent = RawClient::new(&url)
        .send(Method::POST, headers, "{}")
        .await
        .unwrap();
    assert_eq!(sent.finish().await.unwrap().status, 400);
    assert!(
        !stage.weir.process.output().contains(&token),
        "a token is never logged"
    );
}

// Proves R240, R241, R242, C09.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_tokens_are_401_and_nothing_is_forwarded() {
    // No random identifier of an answer, which is hexadecimal, can contain it.
    const SUBJECT: &str = "subject-of-token";
    let stage = WeirWithIdp::start().await;
    let url = stage.weir.url("/mcp");
    let signer = stage.idp.signer();
    let with = |name: &str, value: serde_json::Value| {
        let mut claims = stage.idp.claims(SUBJECT, &url);
        claims[name] = value;
        signer.token(&claims)
    };
    let others = TokenSigner::es256("key-1");
    let hmac = json!({ "alg": "HS256", "kid": "key-1" });
    let none = json!({ "alg": "none" });
    for (what, token) in [
        ("expired", with("exp", json!(now() - 31))),
        ("not yet", with("nbf", json!(now() + 120))),
        (
            "another endpoint",
            with("aud", json!(stage.weir.url("/mcp/one"))),
        ),
        ("the whole host", with("aud", json!(stage.weir.url("")))),
        ("a slash", with("aud", json!(format!("{url}/")))),
        (
            "another issuer",
            with("iss", json!("https://rogue.example.com")),
        ),
        (
            "another key",
            others.token(&stage.idp.claims(SUBJECT, &url)),
        ),
        (
            "no algorithm",
            signer.token_with(&none, &stage.idp.claims(SUBJECT, &url)),
        ),
        (
            "a symmetric algorithm",
            signer.token_with(&hmac, &stage.idp.claims(SUBJECT, &url)),
        ),
    ] {
        let answer = stage
            .client(&token)
            .call("one__tool_0000", json!({}))
            .await
            .unwrap();
        assert_eq!(answer.status, 401, "{what}");
        assert_eq!(
            answer.header("www-authenticate"),
            Some(&*stage.challenge(Some("invalid_token"))),
            "{what}"
        );
        assert!(
            !String::from_utf8_lossy(&answer.body).contains(SUBJECT),
            "{what}"
        );
    }
    assert_eq!(stage.upstream.executions("tool_0000"), 0);
    // Operators see the number of refused tokens: all nine. Those without an algorithm of the
    // issuer, and that of another issuer, are counted for no issuer.
    let seen = stage.weir.get_admin_page("/admin/config");
    let seen: serde_json::Value =
        serde_json::from_str(seen.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        (&seen["auth"]["refused"], &seen["issuers"][0]["refused"]),
        (&json!(9), &json!(6)),
        "{seen}"
    );
    // A token for another endpoint opens that one.
    let token = stage.idp.token("ada", &stage.weir.url("/mcp/one"));
    let client = bearer(&stage.weir.url("/mcp/one"), &token).modern();
    assert_eq!(
        client.call("tool_0000", json!({})).await.unwrap().status,
        200
    );
    for reason in [
        "expired",
        "not_yet",
        "audience",
        "issuer",
        "signature",
        "alg",
    ] {
        assert!(
            stage
                .weir
                .metric("weir_auth_rejections_total", &[&format!("\"{reason}\"")])
                >= 1.0,
            "{reason}"
        );
    }
}

// Proves C20, R250.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clients_token_never_reaches_the_upstream() {
    let stage = WeirWithIdp::start().await;
    let token = stage.token();
    assert_eq!(stage.status(&token).await, 200);
    for request in stage.upstream.requests() {
        let heads = request
            .headers
            .values()
            .any(|value| String::from_utf8_lossy(value.as_bytes()).contains(&token));
        assert!(
            !heads && !String::from_utf8_lossy(&request.body).contains(&token),
            "{request:?}"
        );
    }
}

// Proves D02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_of_their_principal() {
    let stage = WeirWithIdp::start().await;
    let url = stage.weir.url("/mcp");
    let client = |subject: &str| {
        bearer(&url, &stage.idp.token(subject, &url)).legacy(Revision::NEWEST_LEGACY)
    };
    let ada = client("ada").initialize().await.unwrap();
    let session = ada.session().unwrap().to_owned();
    let eve = client("eve").with_header("mcp-session-id", &session);
    let answer = eve.ask("tools/list", json!({})).await.unwrap();
    assert_eq!(answer.status, 404);
    let without = RawClient::new(&url)
        .legacy(Revision::NEWEST_LEGACY)
        .with_header("mcp-session-id", &session);
    assert_eq!(
        without.ask("tools/list", json!({})).await.unwrap().status,
        401
    );
    assert_eq!(ada.ask("tools/list", json!({})).await.unwrap().status, 200);
}

/// R252: the stream ends by itself soon after its token expires, with the leeway that requests
/// have.
// Proves R252, C12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_its_token_does() {
    let stage = WeirWithIdp::with(json!({ "leeway": "0s" })).await;
    let url = stage.weir.url("/mcp");
    let mut claims = stage.idp.claims("ada", &url);
    claims["exp"] = json!(now() + 12);
    let token = stage.idp.signer().token(&claims);
    let client = stage.client(&token);
    let mut stream = within_test_timeout(
        "a stream",
        client.listen(json!({ "toolsListChanged": true })),
    )
    .await
    .unwrap();
    assert_eq!(stream.status, 200);
    let ended = wait_until_async("the stream to end", async || {
        stream.next_message().await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(ended, ());
    assert!(now() >= claims["exp"].as_u64().unwrap());
    assert_eq!(stage.status(&token).await, 401);
    assert_eq!(stage.weir.metric("weir_streams", &[]), 0.0);
}
