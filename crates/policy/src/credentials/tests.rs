#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod attacks;
mod forged;
mod keys;
mod verifier_fixture;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use verifier_fixture::{ISSUER, URL, VerifierFixture};
use weir_core::port::{BorrowedSecret, Evidence, Verifier as _};
use weir_testkit::{FakeRandom, TokenSigner, TokioClock};

use crate::credentials::{AnsweringIssuer, examine_issuer};
use crate::settings::{ClientSecret, TokenValidation, VerifierSettings};
use crate::verifier_ports::VerifierPorts;

// Proves R240.
#[tokio::test(start_paused = true)]
async fn valid_token_yields_subject_scopes_groups_and_claims() {
    let fixture = VerifierFixture::new().await;
    let claims = fixture.claims_with(json!({
        "scope": "write", "scp": ["read"], "groups": ["b", "a"], "client_id": "ide", "act": { "sub": "bot" },
        "tenant": "t1", "level": 3,
    }));
    let subject = fixture
        .subject(&fixture.signer.token(&claims))
        .await
        .unwrap();
    let texts =
        |list: &[std::sync::Arc<str>]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((subject.issuer(), subject.subject()), (ISSUER, "ada"));
    // `write` includes `admin` here, and `admin` `write`: a circle ends.
    assert_eq!(texts(&subject.scopes), ["admin", "read", "write"]);
    assert_eq!(texts(&subject.groups), ["a", "b"]);
    assert_eq!(
        (subject.client.as_deref(), subject.actor.as_deref()),
        (Some("ide"), Some("bot"))
    );
    let claims: Vec<_> = subject
        .claims
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    assert_eq!(claims, [("tenant", "t1"), ("level", "3")]);
    assert!(subject.is_by_token);
    let end = subject
        .expires
        .unwrap()
        .duration_since(fixture.wall())
        .unwrap()
        .as_secs();
    // A token counts in whole seconds, the clock in parts of them.
    assert!(
        (329..=330).contains(&end),
        "the leeway counts for streams as it does for requests: {end}"
    );
}

// Proves R246.
#[tokio::test(start_paused = true)]
async fn scope_implies_its_included_scopes() {
    let fixture = VerifierFixture::new().await;
    let token = fixture
        .signer
        .token(&fixture.claims_with(json!({ "scope": "admin" })));
    let subject = fixture.subject(&token).await.unwrap();
    let scopes: Vec<_> = subject.scopes.iter().map(|scope| &**scope).collect();
    assert_eq!(scopes, ["admin", "read", "write"]);
}

// Proves C22.
#[tokio::test(start_paused = true)]
async fn failed_credentials_are_not_tried_as_another_kind() {
    let fixture = VerifierFixture::new().await;
    let good = fixture.good();
    let key = verifier_fixture::API_KEY;
    let both = Evidence {
        bearer: Some(BorrowedSecret::new(&good)),
        api_key: Some(BorrowedSecret::new(key)),
        ..fixture.evidence()
    };
    assert_eq!(fixture.reason_of(&both).await, "malformed");
    let bad = Evidence {
        bearer: Some(BorrowedSecret::new("weir_ci_wrong")),
        ..fixture.evidence()
    };
    assert_eq!(fixture.reason_of(&bad).await, "key");
    let nothing = fixture.evidence();
    assert_eq!(fixture.reason_of(&nothing).await, "missing");
    let token_as_key = Evidence {
        api_key: Some(BorrowedSecret::new(&good)),
        ..fixture.evidence()
    };
    assert_eq!(fixture.reason_of(&token_as_key).await, "malformed");
}

// Proves C27.
#[tokio::test(start_paused = true)]
async fn api_keys_are_known_by_their_digest_until_they_expire() {
    let fixture = VerifierFixture::new().await;
    for shown in [
        Evidence {
            bearer: Some(BorrowedSecret::new(verifier_fixture::API_KEY)),
            ..fixture.evidence()
        },
        Evidence {
            api_key: Some(BorrowedSecret::new(verifier_fixture::API_KEY)),
            ..fixture.evidence()
        },
    ] {
        let subject = fixture.identify(&shown).await.unwrap();
        assert_eq!((subject.issuer(), subject.subject()), ("api-key", "build"));
        assert_eq!(
            subject
                .scopes
                .iter()
                .map(|scope| &**scope)
                .collect::<Vec<_>>(),
            ["admin", "read", "write"]
        );
        assert!(!subject.is_by_token);
    }
    for bad in [
        "weir_ci_",
        "weir_ci",
        "weir_",
        "weir_other_0123456789abcdef",
        "weir_ci_0123456789abcdeg",
        "ci_0123456789abcdef",
    ] {
        let shown = Evidence {
            api_key: Some(BorrowedSecret::new(bad)),
            ..fixture.evidence()
        };
        assert!(
            ["key", "malformed"].contains(&fixture.reason_of(&shown).await),
            "{bad}"
        );
    }
    let shown = Evidence {
        api_key: Some(BorrowedSecret::new(verifier_fixture::API_KEY)),
        ..fixture.evidence()
    };
    fixture.pass(3600 - 1).await;
    assert!(fixture.identify(&shown).await.is_ok());
    fixture.pass(1).await;
    assert_eq!(fixture.reason_of(&shown).await, "expired");
}

#[tokio::test(start_paused = true)]
async fn a_verified_token_is_remembered_and_still_ends_on_time_and_at_its_endpoint() {
    let fixture = VerifierFixture::new().await;
    let token = fixture.good();
    for _ in 0..3 {
        assert!(fixture.subject(&token).await.is_ok());
    }
    assert_eq!(fixture.reason_at("/other", &token).await, "audience");
    fixture.pass(300 + 29).await;
    assert!(fixture.subject(&token).await.is_ok());
    fixture.pass(1).await;
    assert_eq!(fixture.reason(&token).await, "expired");
}

#[tokio::test(start_paused = true)]
async fn replaced_auth_settings_apply_at_once_and_keep_cached_keys() {
    let fixture = VerifierFixture::new().await;
    let token = fixture.good();
    assert!(fixture.subject(&token).await.is_ok());
    let mut settings = verifier_fixture::settings();
    settings.base = "https://elsewhere.example.com".to_owned();
    fixture.credentials.replace(settings);
    assert_eq!(
        fixture.reason(&token).await,
        "audience",
        "nothing is remembered of the old settings"
    );
    fixture.credentials.replace(verifier_fixture::settings());
    assert!(fixture.subject(&token).await.is_ok());
    assert_eq!(
        fixture.fetch.asked(&format!("{ISSUER}/keys")),
        1,
        "keys stand where they stood"
    );
    let mut settings = verifier_fixture::settings();
    settings.issuers.clear();
    fixture.credentials.replace(settings);
    assert_eq!(fixture.reason(&token).await, "issuer");
    fixture.credentials.replace(VerifierSettings::open());
    let evidence = Evidence {
        bearer: Some(BorrowedSecret::new(&token)),
        ..fixture.evidence()
    };
    assert!(matches!(
        fixture.verify(&evidence).await,
        Ok(weir_core::principal::VerifiedIdentity::Anonymous)
    ));
}

/// The URL of token introspection.
fn introspection_url() -> String {
    format!("{ISSUER}/introspect")
}

/// Settings with an issuer that is asked about each token, as this client.
fn introspection_settings(client_id: &str, leeway: u64) -> VerifierSettings {
    let mut settings = verifier_fixture::settings();
    settings.leeway = Duration::from_secs(leeway);
    settings.issuers[0].validation = TokenValidation::Introspection {
        url: introspection_url(),
        client_id: client_id.to_owned(),
        client_secret: ClientSecret::new("secret"),
    };
    settings
}

#[tokio::test(start_paused = true)]
async fn introspection_of_an_unchanged_endpoint_goes_on_after_a_reload() {
    let url = introspection_url();
    let signer = TokenSigner::es256("key-1");
    let fixture = VerifierFixture::with(introspection_settings("weir", 30), signer);
    fixture
        .fetch
        .put(&url, 200, json!({ "active": false }).to_string());
    assert_eq!(fixture.reason("opaque").await, "expired");
    fixture
        .credentials
        .replace(introspection_settings("weir", 29));
    assert_eq!(fixture.reason("opaque").await, "expired");
    assert_eq!(fixture.fetch.asked(&url), 1, "it is remembered as inactive");
    fixture
        .credentials
        .replace(introspection_settings("other", 29));
    assert_eq!(fixture.reason("opaque").await, "expired");
    assert_eq!(
        fixture.fetch.asked(&url),
        2,
        "another client may get another answer"
    );
}

#[tokio::test(start_paused = true)]
async fn introspection_without_an_answer_is_a_failure_of_the_issuer() {
    let url = introspection_url();
    let signer = TokenSigner::es256("key-1");
    let fixture = VerifierFixture::with(introspection_settings("weir", 30), signer);
    let state = || {
        let all = fixture.credentials.issuers();
        (all[0].ready, all[0].is_introspected, all[0].failures)
    };
    assert_eq!(state(), (true, true, 0));
    for (number, (status, body)) in [(401, ""), (500, ""), (200, "[]"), (200, "{}")]
        .into_iter()
        .enumerate()
    {
        fixture.fetch.put(&url, status, body);
        assert_eq!(
            fixture.reason(&format!("opaque-{number}")).await,
            "unavailable"
        );
        assert_eq!(state(), (false, true, number as u32 + 1));
    }
    fixture
        .fetch
        .put(&url, 200, json!({ "active": false }).to_string());
    assert_eq!(fixture.reason("opaque-9").await, "expired");
    assert_eq!(state(), (true, true, 0));
}

#[tokio::test(start_paused = true)]
async fn introspection_endpoint_is_examined_with_a_made_up_token() {
    let url = introspection_url();
    let signer = TokenSigner::es256("key-1");
    let settings = introspection_settings("weir", 30);
    let fixture = VerifierFixture::with(settings.clone(), signer);
    let ports = VerifierPorts {
        fetch: fixture.fetch.clone(),
        clock: Arc::new(TokioClock::new()),
        random: Arc::new(FakeRandom::new(1)),
    };
    for (status, body, expected) in [
        (
            200,
            r#"{"active":false}"#,
            Ok(AnsweringIssuer::Introspection),
        ),
        (200, r#"{"active":true}"#, Err("made-up token is active")),
        (200, "{}", Err("does not say whether")),
        (200, "[]", Err("no JSON object")),
        (401, "", Err("status 401: it refuses weir's `client_id`")),
        (404, "", Err("status 404")),
    ] {
        fixture.fetch.put(&url, status, body);
        let found = examine_issuer(&settings.issuers[0], &ports).await;
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(why), Err(part)) => assert!(why.contains(part) && why.contains(&url), "{why}"),
            other => panic!("{body}: {other:?}"),
        }
    }
}

// Proves C07.
#[tokio::test(start_paused = true)]
async fn introspected_tokens_of_another_kind_are_refused() {
    let url = introspection_url();
    let signer = TokenSigner::es256("key-1");
    let fixture = VerifierFixture::with(introspection_settings("weir", 30), signer);
    let mut number = 0;
    for (told, good) in [
        (json!({}), true),
        (
            json!({ "token_type": "Bearer", "token_use": "access_token" }),
            true,
        ),
        (
            json!({ "token_type": "bearer", "token_use": "access" }),
            true,
        ),
        (json!({ "token_type": "DPoP", "typ": "DPoP" }), true),
        (
            json!({ "token_type": "access_token", "typ": "Bearer" }),
            true,
        ),
        (json!({ "token_type": null, "typ": ["at"] }), true),
        (json!({ "iss": null }), true),
        (json!({ "typ": "Bearer", "nonce": "n" }), true),
        (json!({ "token_type": "refresh_token" }), false),
        (
            json!({ "token_type": "urn:ietf:params:oauth:token-type:refresh_token" }),
            false,
        ),
        (json!({ "token_type": ["Bearer"] }), false),
        (
            json!({ "token_type": "Bearer", "token_use": "refresh_token" }),
            false,
        ),
        (json!({ "token_use": "id" }), false),
        (json!({ "typ": "Refresh" }), false),
        (json!({ "typ": "Offline" }), false),
        (json!({ "typ": "ID" }), false),
        (json!({ "nonce": "n" }), false),
        (json!({ "at_hash": "h" }), false),
    ] {
        let mut answer = json!({ "active": true, "sub": "ada", "aud": URL });
        let members = answer.as_object_mut().unwrap();
        members.extend(told.as_object().unwrap().clone());
        fixture.fetch.put(&url, 200, answer.to_string());
        number += 1;
        let token = format!("opaque-{number}");
        if good {
            assert!(fixture.subject(&token).await.is_ok(), "{told}");
        } else {
            assert_eq!(fixture.reason(&token).await, "type", "{told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn check_at_the_end_of_trust_asks_the_issuer_once_a_minute() {
    let url = introspection_url();
    let signer = TokenSigner::es256("key-1");
    let fixture = VerifierFixture::with(introspection_settings("weir", 30), signer);
    let active = json!({ "active": true, "sub": "ada", "aud": URL });
    fixture.fetch.put(&url, 200, active.to_string());
    let evidence = Evidence {
        bearer: Some(BorrowedSecret::new("opaque")),
        ..fixture.evidence()
    };
    assert_eq!(fixture.credentials.trust_time(&evidence), None);
    for asked in 1..4 {
        assert!(fixture.identify(&evidence).await.is_ok());
        fixture.pass(20).await;
        // Two streams check it in between.
        assert!(fixture.identify(&evidence).await.is_ok());
        assert!(fixture.identify(&evidence).await.is_ok());
        assert_eq!(fixture.fetch.asked(&url), asked);
        let left = fixture.credentials.trust_time(&evidence).unwrap();
        assert!(left <= Duration::from_secs(40), "{left:?}");
        tokio::time::sleep(left).await;
    }
    fixture
        .fetch
        .put(&url, 200, json!({ "active": false }).to_string());
    assert_eq!(fixture.reason_of(&evidence).await, "expired");
    let key = Evidence {
        api_key: Some(BorrowedSecret::new(verifier_fixture::API_KEY)),
        ..fixture.evidence()
    };
    assert!(fixture.identify(&key).await.is_ok());
    assert_eq!(fixture.credentials.trust_time(&key), None);
}

// Proves R249.
#[test]
fn an_endpoint_is_named_by_its_url_alone() {
    let settings = verifier_fixture::settings();
    let endpoint = |path: &str| weir_core::names::EndpointId::new(path);
    for good in [
        URL,
        "https://MCP.example.com/mcp",
        "HTTPS://mcp.example.com/mcp",
    ] {
        assert!(settings.is_endpoint(good, &endpoint("/mcp")), "{good}");
    }
    for bad in [
        "https://mcp.example.com/mcp/",
        "https://mcp.example.com/MCP",
        "https://mcp.example.com/mc",
        "https://mcp.example.com/mcp/files",
        "https://mcp.example.com",
        "http://mcp.example.com/mcp",
        "https://mcp.example.com:443/mcp",
        "https://mcp.example.community/mcp",
        "",
        "é",
    ] {
        assert!(!settings.is_endpoint(bad, &endpoint("/mcp")), "{bad}");
    }
    for good in ["https://mcp.example.com", "https://mcp.example.com/"] {
        assert!(settings.is_endpoint(good, &endpoint("/")), "{good}");
    }
}
