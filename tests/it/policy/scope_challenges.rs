//! Scopes: the challenge names all missing scopes at once.

use serde_json::json;
use weir_testkit::identity_provider::now;
use weir_testkit::{ClientAnswer, IdentityProvider, MockServer};

use super::{is_made, names};
use crate::auth::bearer;
use crate::harness::Weir;

// Proves R239, R245, C21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn challenge_names_all_missing_scopes_at_once() {
    let idp = IdentityProvider::start().await;
    let upstream = MockServer::dual().tools(2).start().await;
    let weir = Weir::with_config(json!({
        "auth": { "mode": "oauth", "issuers": [{ "issuer": idp.issuer() }] },
        "upstreams": { "one": { "url": upstream.url(), "tools": { "tool_0001": { "scopes": ["write", "files"] } } } },
        "endpoints": { "/mcp": { "upstreams": ["one"], "scopes": ["use"] } },
    }));
    let url = weir.url("/mcp");
    let client = |scope: &str| {
        let mut claims = idp.claims("ada", &url);
        claims["scope"] = json!(scope);
        claims["exp"] = json!(now() + 300);
        bearer(&url, &idp.signer().token(&claims)).modern()
    };
    let challenge = |answer: &ClientAnswer| {
        answer
            .header("www-authenticate")
            .unwrap_or_default()
            .to_owned()
    };
    let metadata = format!(
        "resource_metadata=\"{}\"",
        weir.url("/.well-known/oauth-protected-resource/mcp")
    );
    // No token at all: the first challenge has the scopes of the endpoint.
    let nobody = weir_testkit::RawClient::new(&url)
        .modern()
        .ask("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(nobody.status, 401);
    assert!(
        challenge(&nobody).contains("scope=\"use\"") && challenge(&nobody).contains(&metadata),
        "R239"
    );
    // A token for another scope: 403 for every request.
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "one__tool_0000" })),
    ] {
        let answer = client("other").ask(method, params).await.unwrap();
        assert_eq!(answer.status, 403, "{method}");
        let said = challenge(&answer);
        assert!(
            said.contains("error=\"insufficient_scope\"") && said.contains("scope=\"use\""),
            "{said}"
        );
        assert!(said.contains(&metadata), "{said}");
    }
    // A token for the endpoint, but not for the tool: the tool is not listed, and a call is
    // answered with all scopes, also the one that the token has.
    let user = client("use");
    crate::harness::wait_until_async("the list", async || {
        (names(&user.ask("tools/list", json!({})).await.unwrap()) == ["one__tool_0000"])
            .then_some(())
    })
    .await;
    let answer = user.call("one__tool_0001", json!({})).await.unwrap();
    assert_eq!(answer.status, 403);
    let said = challenge(&answer);
    assert!(
        said.contains("error=\"insufficient_scope\"") && said.contains("scope=\"files use write\""),
        "{said}"
    );
    assert_eq!(upstream.executions("tool_0001"), 0);
    for (scope, listed) in [("use write", 1), ("files use write", 2)] {
        let client = client(scope);
        assert_eq!(
            names(&client.ask("tools/list", json!({})).await.unwrap()).len(),
            listed,
            "{scope}"
        );
        let answer = client.call("one__tool_0001", json!({})).await.unwrap();
        assert_eq!(is_made(&answer), listed == 2, "{scope}");
    }
}
