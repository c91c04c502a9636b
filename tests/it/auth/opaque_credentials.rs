//! Credentials that are not JWTs: API keys of machines, opaque tokens, and a reload that changes
//! them all.

use serde_json::{Value, json};
use weir_testkit::identity_provider::now;
use weir_testkit::{IdentityProvider, RawClient};

use super::{WeirWithIdp, bearer};
use crate::harness::{Weir, wait_until_async};

/// Returns a key and its config entry, as `weir apikey` prints them.
pub fn api_key(subject: &str) -> (String, Value) {
    let output = Weir::run_cli(&["apikey", subject]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |start: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(start))
            .unwrap()
            .to_owned()
    };
    let (key, entry) = (line("WEIR_API_KEY="), line("# - "));
    let part = |name: &str| {
        let begin = entry.find(&format!("{name}: \"")).unwrap() + name.len() + 3;
        entry[begin..].split('"').next().unwrap().to_owned()
    };
    let entry = json!({ "id": part("id"), "sha256": part("sha256"), "subject": part("subject") });
    (key, entry)
}

// Proves C27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_key_is_accepted_in_either_header() {
    let (key, entry) = api_key("build");
    let (_, other) = api_key("build");
    let stage = WeirWithIdp::with(json!({ "api_keys": [entry, other] })).await;
    assert_eq!(stage.status(&key).await, 200);
    let url = stage.weir.url("/mcp");
    let by_header = |value: &str| {
        RawClient::new(&url)
            .with_header("x-api-key", value)
            .modern()
    };
    assert_eq!(
        by_header(&key)
            .call("one__tool_0000", json!({}))
            .await
            .unwrap()
            .status,
        200
    );
    let mut wrong = key.clone();
    wrong.pop();
    for bad in [wrong.as_str(), "weir_x_y", "nonsense", ""] {
        let answer = by_header(bad)
            .call("one__tool_0000", json!({}))
            .await
            .unwrap();
        assert_eq!(answer.status, 401, "{bad}");
        assert_eq!(
            answer.header("www-authenticate"),
            Some(&*stage.challenge(Some("invalid_token")))
        );
    }
    let both = bearer(&url, &stage.token())
        .with_header("x-api-key", &key)
        .modern();
    assert_eq!(
        both.call("one__tool_0000", json!({})).await.unwrap().status,
        401,
        "one of two is a guess"
    );
    assert!(!stage.weir.process.output().contains(&key));
}

// Proves R240.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opaque_tokens_are_asked_about_once_a_minute() {
    let idp = IdentityProvider::start().await;
    let introspection = json!({
        "url": idp.introspection_url(), "client_id": "weir", "client_secret": "introspection-secret-0123456789",
    });
    let issuer = json!({ "issuer": idp.issuer(), "introspection": introspection });
    let stage = WeirWithIdp::over(idp, issuer, json!({})).await;
    let url = stage.weir.url("/mcp");
    let said = |changes: Value| {
        let mut said = json!({ "active": true, "sub": "ada", "aud": url, "exp": now() + 300, "scope": "read" });
        for (name, value) in changes.as_object().unwrap() {
            said[name] = value.clone();
        }
        said
    };
    stage.idp.set_introspection("opaque-good", said(json!({})));
    for _ in 0..3 {
        assert_eq!(stage.status("opaque-good").await, 200);
    }
    assert_eq!(stage.idp.request_count("/introspect"), 1);
    for (token, changes) in [
        ("wrong-audience", json!({ "aud": "other" })),
        ("no-audience", json!({ "aud": null })),
        ("expired", json!({ "exp": now() - 60 })),
        (
            "other-issuer",
            json!({ "iss": "https://other.example.com" }),
        ),
        ("inactive", json!({ "active": false })),
    ] {
        stage.idp.set_introspection(token, said(changes));
        assert_eq!(stage.status(token).await, 401, "{token}");
    }
    let before = stage.idp.request_count("/introspect");
    for _ in 0..3 {
        assert_eq!(stage.status("inactive").await, 401);
    }
    assert_eq!(
        stage.idp.request_count("/introspect"),
        before,
        "what is over is not asked about again at once"
    );
    // An unclear answer is not a yes: weir does not know, so it answers 503.
    stage
        .idp
        .set_introspection("odd", said(json!({ "active": "true" })));
    assert_eq!(stage.status("odd").await, 503);
    assert_eq!(stage.status("unknown").await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_a_key_back_at_once() {
    let (key, entry) = api_key("build");
    let stage = WeirWithIdp::with(json!({ "api_keys": [entry] })).await;
    assert_eq!(stage.status(&key).await, 200);
    stage.weir.rewrite_config(json!({
        "upstreams": { "one": { "url": stage.upstream.url() } },
        "auth": { "mode": "oauth", "issuers": [{ "issuer": stage.idp.issuer() }] },
    }));
    wait_until_async("the key to be taken back", async || {
        (stage.status(&key).await == 401).then_some(())
    })
    .await;
    assert_eq!(stage.status(&stage.token()).await, 200);
    assert_eq!(
        stage.idp.request_count("/keys"),
        1,
        "the keys of the issuer stayed"
    );
}
