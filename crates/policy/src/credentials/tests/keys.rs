//! Keys: found, rotated, requested in a storm, gone, and bad.

use std::time::Duration;

use serde_json::{Value, json};
use weir_core::failure::FailureKind;
use weir_testkit::TokenSigner;

use super::verifier_fixture::{ISSUER, VerifierFixture, settings};
use crate::settings::{KeySource, SignatureAlgorithm, TokenValidation, VerifierSettings};

fn keys_url() -> String {
    format!("{ISSUER}/keys")
}

// Proves R257.
#[tokio::test(start_paused = true)]
async fn keys_are_found_by_metadata_or_by_their_url() {
    let stand = VerifierFixture::new().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert_eq!(
        stand.fetch.all(),
        [
            format!("{ISSUER}/.well-known/oauth-authorization-server"),
            format!("{ISSUER}/.well-known/openid-configuration"),
            keys_url(),
        ]
    );
    let mut named = settings();
    let TokenValidation::Keys { source: at, .. } = &mut named.issuers[0].validation else {
        panic!()
    };
    *at = KeySource::Url(keys_url());
    let stand = VerifierFixture::with(named, TokenSigner::es256("key-1"));
    stand.publish(&[stand.signer.jwk()]);
    stand.settle().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert_eq!(stand.fetch.all(), [keys_url()]);
}

// Proves C14.
#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_once_and_its_first_token_is_good() {
    let stand = VerifierFixture::new().await;
    let old = stand.good();
    assert!(stand.subject(&old).await.is_ok());
    let new = TokenSigner::es256("key-2");
    stand.publish(&[new.jwk(), stand.signer.jwk()]);
    stand.fetch.delay(Duration::from_millis(100));
    let token = new.token(&stand.claims());
    // Twenty at once wait for one fetch.
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (credentials, token) = (stand.credentials.clone(), token.clone());
        asking.spawn(async move {
            let endpoint = weir_core::names::EndpointId::new("/mcp");
            let evidence = weir_core::port::Evidence {
                bearer: Some(weir_core::port::BorrowedSecret::new(&token)),
                ..weir_core::port::Evidence::none(std::net::Ipv4Addr::LOCALHOST.into(), &endpoint)
            };
            weir_core::port::Verifier::verify(&*credentials, &evidence)
                .await
                .is_ok()
        });
    }
    while let Some(known) = asking.join_next().await {
        assert!(known.unwrap());
    }
    assert_eq!(stand.fetch.asked(&keys_url()), 2);
    assert!(
        stand.subject(&stand.good()).await.is_ok(),
        "the old key is good while it is published"
    );
    // Out of the set the key is no longer valid, also for a token that was verified before.
    stand.pass(30).await;
    stand.publish(&[new.jwk()]);
    let unknown = TokenSigner::es256("key-9").token(&stand.claims());
    assert_eq!(stand.reason(&unknown).await, "key");
    assert_eq!(stand.reason(&old).await, "key");
}

// Proves C14, C15.
#[tokio::test(start_paused = true)]
async fn key_replaced_under_its_id_or_without_one_is_fetched_for_its_first_token() {
    for header in [
        json!({ "alg": "ES256", "kid": "key-1" }),
        json!({ "alg": "ES256" }),
    ] {
        let stand = VerifierFixture::new().await;
        let published = |signer: &TokenSigner| {
            let mut key = signer.jwk();
            if header.get("kid").is_none() {
                key.as_object_mut().unwrap().remove("kid");
            }
            key
        };
        let token = |signer: &TokenSigner| signer.token_with(&header, &stand.claims());
        stand.publish(&[published(&stand.signer)]);
        stand.pass(3600).await;
        let old = token(&stand.signer);
        assert!(stand.subject(&old).await.is_ok());
        let before = stand.fetch.asked(&keys_url());
        let new = TokenSigner::es256("key-1");
        stand.publish(&[published(&new)]);
        assert!(stand.subject(&token(&new)).await.is_ok(), "{header}");
        assert_eq!(stand.fetch.asked(&keys_url()), before + 1);
        assert_eq!(stand.reason(&old).await, "signature");
        // Forged tokens cause no more fetches than unknown keys do.
        let forger = TokenSigner::es256("key-1");
        for number in 0..100 {
            let claims = stand.claims_with(json!({ "sub": format!("eve-{number}") }));
            let forged = forger.token_with(&header, &claims);
            assert_eq!(stand.reason(&forged).await, "signature");
        }
        assert_eq!(stand.fetch.asked(&keys_url()), before + 1);
        stand.pass(30).await;
        for number in 0..100 {
            let claims = stand.claims_with(json!({ "sub": format!("eve-{number}") }));
            let forged = forger.token_with(&header, &claims);
            assert_eq!(stand.reason(&forged).await, "signature");
        }
        assert_eq!(stand.fetch.asked(&keys_url()), before + 2);
        assert!(stand.subject(&token(&new)).await.is_ok());
    }
}

// Proves C15.
#[tokio::test(start_paused = true)]
async fn a_storm_of_unknown_keys_causes_one_fetch_in_thirty_seconds() {
    let stand = VerifierFixture::new().await;
    let signer = TokenSigner::es256("forged");
    let claims = json!({ "iss": ISSUER, "sub": "eve" });
    let mut number = 0;
    for second in 0..90 {
        for _ in 0..50 {
            number += 1;
            let header = json!({ "alg": "ES256", "kid": format!("kid-{number}") });
            assert_eq!(
                stand.reason(&signer.token_with(&header, &claims)).await,
                "key"
            );
        }
        assert!(
            stand.fetch.asked(&keys_url()) <= 2 + second / 30,
            "in second {second}"
        );
        assert!(stand.subject(&stand.good()).await.is_ok());
        stand.pass(1).await;
    }
    assert_eq!(stand.fetch.asked(&keys_url()), 4);
}

// Proves C15.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_asked_for_before_it_was_published_is_found_thirty_seconds_later() {
    let stand = VerifierFixture::new().await;
    let new = TokenSigner::es256("key-2");
    assert_eq!(stand.reason(&new.token(&stand.claims())).await, "key");
    stand.publish(&[stand.signer.jwk(), new.jwk()]);
    stand.pass(10).await;
    // One fetch in thirty seconds: the key of a token that was issued since then may be new.
    let failure = stand.subject(&new.token(&stand.claims())).await;
    let failure = failure.expect_err("it was let in");
    assert_eq!(failure.kind(), &FailureKind::Unavailable);
    assert_eq!(failure.retry_delay(), Some(Duration::from_secs(20)));
    for issued in [json!(stand.now() - 11), json!(null)] {
        let earlier = new.token(&stand.claims_with(json!({ "iat": issued })));
        assert_eq!(stand.reason(&earlier).await, "key", "{issued}");
    }
    stand.pass(20).await;
    assert!(stand.subject(&new.token(&stand.claims())).await.is_ok());
    let unknown = TokenSigner::es256("key-3").token(&stand.claims());
    assert_eq!(stand.reason(&unknown).await, "unavailable");
    stand.pass(30).await;
    assert_eq!(stand.reason(&unknown).await, "key");
    assert_eq!(
        stand.reason(&unknown).await,
        "key",
        "it is older than the keys"
    );
}

// Proves C15.
#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_off_does_not_break_off_the_fetch() {
    let stand = VerifierFixture::new().await;
    let new = TokenSigner::es256("key-2");
    stand.publish(&[new.jwk()]);
    stand.fetch.delay(Duration::from_secs(1));
    let token = new.token(&stand.claims());
    let gone = tokio::time::timeout(Duration::from_millis(10), stand.subject(&token)).await;
    assert!(gone.is_err());
    stand.pass(2).await;
    assert!(stand.subject(&token).await.is_ok());
    assert_eq!(stand.fetch.asked(&keys_url()), 2);
}

// Proves C17.
#[tokio::test(start_paused = true)]
async fn weir_is_unready_until_the_first_keys() {
    let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
    stand.settle().await;
    assert!(!stand.credentials.is_ready());
    assert_eq!(stand.reason(&stand.good()).await, "unavailable");
    stand.pass(600).await;
    assert!(!stand.credentials.is_ready());
    let tries = stand
        .fetch
        .asked(&format!("{ISSUER}/.well-known/openid-configuration"));
    assert!((8..40).contains(&tries), "{tries} tries in ten minutes");
    stand.publish(&[stand.signer.jwk()]);
    stand.pass(100).await;
    assert!(stand.credentials.is_ready());
    assert!(stand.subject(&stand.good()).await.is_ok());
}

// Proves C16, C17.
#[tokio::test(start_paused = true)]
async fn the_last_good_keys_serve_for_a_day_and_not_longer() {
    let stand = VerifierFixture::new().await;
    for broken in [
        (200, String::new()),
        (200, "<html>".to_owned()),
        (200, r#"{"keys":[]}"#.to_owned()),
        (200, r#"{"keys":{}}"#.to_owned()),
        (302, String::new()),
        (500, String::new()),
        (
            200,
            format!(r#"{{"keys":[],"pad":"{}"}}"#, "x".repeat(10 << 20)),
        ),
    ] {
        stand.fetch.put(&keys_url(), broken.0, broken.1);
        stand.pass(3 * 3600).await;
        assert!(stand.subject(&stand.good()).await.is_ok());
    }
    assert!(stand.credentials.is_ready());
    stand.pass(4 * 3600).await;
    assert_eq!(stand.reason(&stand.good()).await, "unavailable");
    // The cooldown holds without any keys, too.
    let before = stand.fetch.asked(&keys_url());
    for _ in 0..100 {
        assert_eq!(stand.reason(&stand.good()).await, "unavailable");
    }
    assert!(stand.fetch.asked(&keys_url()) <= before + 1);
    stand.publish(&[stand.signer.jwk()]);
    stand.pass(100).await;
    assert!(stand.subject(&stand.good()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_are_refreshed_ahead_of_their_age_within_bounds() {
    for (age, from, to) in [
        (0, 200, 300),
        (3600, 2500, 3200),
        (10 * 24 * 3600, 60_000, 77_000),
    ] {
        let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
        stand.publish(&[stand.signer.jwk()]);
        stand.fetch.max_age(Duration::from_secs(age));
        stand.pass(from).await;
        assert_eq!(stand.fetch.asked(&keys_url()), 1, "{age}");
        stand.pass(to - from).await;
        assert_eq!(stand.fetch.asked(&keys_url()), 2, "{age}");
    }
}

/// The usual settings with this location of keys and these algorithms.
fn settings_with(at: KeySource, listed: &[SignatureAlgorithm]) -> VerifierSettings {
    let mut settings = settings();
    let TokenValidation::Keys {
        source, algorithms, ..
    } = &mut settings.issuers[0].validation
    else {
        panic!()
    };
    (*source, *algorithms) = (at, listed.to_vec());
    settings
}

// Proves C16, C17.
#[tokio::test(start_paused = true)]
async fn keys_outlive_a_reload_of_algorithms_or_of_their_url_during_an_outage() {
    let [es256, eddsa] = [SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa];
    let only_es256 = settings_with(KeySource::Metadata, &[es256]);
    let stand = VerifierFixture::with(only_es256, TokenSigner::es256("key-1"));
    let other = TokenSigner::eddsa("key-2");
    stand.publish(&[stand.signer.jwk(), other.jwk()]);
    stand.settle().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    stand.fetch.put(&keys_url(), 500, "");
    let token = other.token(&stand.claims());
    assert_eq!(stand.reason(&token).await, "alg");
    let both = settings_with(KeySource::Metadata, &[es256, eddsa]);
    stand.credentials.replace(both);
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert!(
        stand.subject(&token).await.is_ok(),
        "its key was fetched with the others"
    );
    let at_url = settings_with(KeySource::Url(keys_url()), &[es256]);
    stand.credentials.replace(at_url);
    stand.settle().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert_eq!(stand.reason(&token).await, "alg");
    let elsewhere = KeySource::Url(format!("{ISSUER}/others"));
    stand
        .credentials
        .replace(settings_with(elsewhere, &[es256]));
    stand.settle().await;
    assert_eq!(
        stand.reason(&stand.good()).await,
        "unavailable",
        "other keys may be there"
    );
}

// Proves C16.
#[tokio::test(start_paused = true)]
async fn set_without_a_key_for_the_listed_algorithms_changes_nothing() {
    let [es256, eddsa] = [SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa];
    let only_es256 = settings_with(KeySource::Metadata, &[es256]);
    let stand = VerifierFixture::with(only_es256, TokenSigner::es256("key-1"));
    stand.publish(&[stand.signer.jwk()]);
    stand.settle().await;
    let other = TokenSigner::eddsa("key-2");
    stand.publish(&[other.jwk()]);
    stand.pass(3600).await;
    assert!(
        stand.subject(&stand.good()).await.is_ok(),
        "the last good keys"
    );
    let only_eddsa = settings_with(KeySource::Metadata, &[eddsa]);
    stand.credentials.replace(only_eddsa);
    stand.settle().await;
    assert!(
        stand.subject(&other.token(&stand.claims())).await.is_ok(),
        "fetched again without a wait"
    );
}

// Proves C14, C17.
#[tokio::test(start_paused = true)]
async fn new_key_of_an_issuer_whose_keys_cannot_be_fetched_is_unavailable() {
    let stand = VerifierFixture::new().await;
    stand.pass(60).await;
    stand.fetch.put(&keys_url(), 500, "");
    let new = TokenSigner::es256("key-2").token(&stand.claims());
    for _ in 0..3 {
        assert_eq!(stand.reason(&new).await, "unavailable");
    }
    assert!(stand.subject(&stand.good()).await.is_ok());
    let forged = TokenSigner::es256("key-1").token(&stand.claims());
    assert_eq!(stand.reason(&forged).await, "signature");
    stand.publish(&[stand.signer.jwk()]);
    stand.pass(120).await;
    assert_eq!(stand.reason(&new).await, "key");
}

// Proves C16.
#[tokio::test(start_paused = true)]
async fn bad_keys_are_left_out_of_a_set() {
    let good = TokenSigner::es256("key-1");
    let with = |name: &str, value: Value| {
        let mut key = good.jwk();
        key[name] = value;
        key
    };
    let weak = json!({ "kty": "RSA", "kid": "key-1", "n": data_encoding::BASE64URL_NOPAD.encode(&[0xff; 128]), "e": "AQAB" });
    for bad in [
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("d", json!("AA")),
        with("alg", json!("ES384")),
        with("alg", json!("none")),
        with("crv", json!("secp256k1")),
        with("x", json!("AA")),
        with("kid", json!(1)),
        weak,
        json!({ "kty": "oct", "kid": "key-1", "k": "c2VjcmV0" }),
        json!({ "kty": "oct", "kid": "key-1", "alg": "ES256" }),
        json!(7),
        json!({}),
    ] {
        let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-2"));
        stand.publish(&[bad.clone(), stand.signer.jwk()]);
        stand.settle().await;
        assert!(stand.subject(&stand.good()).await.is_ok(), "{bad}");
        let token = good.token(&stand.claims());
        assert_eq!(stand.reason(&token).await, "key", "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn null_members_of_a_key_are_absent() {
    let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
    let mut key = stand.signer.jwk();
    for name in ["use", "alg", "key_ops", "d", "k"] {
        key[name] = Value::Null;
    }
    stand.publish(&[key]);
    stand.settle().await;
    let accepted = stand.subject(&stand.good()).await;
    assert!(accepted.is_ok(), "{accepted:?}");
}

// Proves C16.
#[tokio::test(start_paused = true)]
async fn bound_of_a_key_set_counts_usable_keys_alone() {
    let encryption = |number: usize| {
        let mut key = TokenSigner::es256(&format!("enc-{number}")).jwk();
        key["use"] = json!("enc");
        key
    };
    let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
    let mut keys: Vec<Value> = (0..40).map(encryption).collect();
    keys.push(stand.signer.jwk());
    keys.extend((0..31).map(|number| TokenSigner::es256(&format!("other-{number}")).jwk()));
    let beyond = TokenSigner::es256("beyond");
    keys.push(beyond.jwk());
    stand.publish(&keys);
    stand.settle().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert_eq!(stand.reason(&beyond.token(&stand.claims())).await, "key");
}

// Proves C16.
#[tokio::test(start_paused = true)]
async fn day_of_the_last_keys_begins_with_the_first_failed_fetch() {
    let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
    stand.publish(&[stand.signer.jwk()]);
    stand.fetch.max_age(Duration::from_secs(24 * 3600));
    stand.settle().await;
    // The next fetch is due after 17 to 22 hours.
    stand.fetch.put(&keys_url(), 500, "");
    stand.pass(36 * 3600).await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    stand.pass(11 * 3600).await;
    assert_eq!(stand.reason(&stand.good()).await, "unavailable");
    // A failed fetch for an unknown key begins an outage, too, and a success ends it.
    stand.publish(&[stand.signer.jwk()]);
    stand.pass(120).await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    stand.fetch.put(&keys_url(), 500, "");
    let unknown = TokenSigner::es256("key-2").token(&stand.claims());
    assert_eq!(stand.reason(&unknown).await, "unavailable");
    stand.pass(23 * 3600).await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    stand.pass(2 * 3600).await;
    assert_eq!(stand.reason(&stand.good()).await, "unavailable");
}

// Proves C11.
#[tokio::test(start_paused = true)]
async fn a_clock_before_1970_or_far_off_refuses_and_does_not_panic() {
    let stand = VerifierFixture::new().await;
    let now = stand.now();
    // Tokens as seen by a clock that is ten minutes wrong, either way, and by one that is at zero.
    for (iat, expected) in [
        (now - 600, "expired"),
        (now + 600, "not_yet"),
        (56 * 365 * 86_400 + now, "not_yet"),
    ] {
        let token = stand
            .signer
            .token(&stand.claims_with(json!({ "iat": iat, "exp": iat + 300 })));
        assert_eq!(stand.reason(&token).await, expected);
    }
    let before = std::time::UNIX_EPOCH - Duration::from_secs(1);
    let all = json!({ "exp": now, "iat": now });
    let times = crate::token::claims::TokenTimes::read(all.as_object().unwrap()).unwrap();
    assert_eq!(
        times.check(before, Duration::from_secs(30)),
        Err(crate::token::TokenRefusal::NotYet)
    );
}

#[tokio::test(start_paused = true)]
async fn keys_at_a_new_location_are_found_while_the_old_one_still_answers() {
    let stand = VerifierFixture::new().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    let moved = |url: &str, signer: &TokenSigner| {
        let metadata = json!({ "issuer": ISSUER, "jwks_uri": url }).to_string();
        let place = format!("{ISSUER}/.well-known/openid-configuration");
        stand.fetch.put(&place, 200, metadata);
        let keys = json!({ "keys": [signer.jwk()] }).to_string();
        stand.fetch.put(url, 200, keys);
    };
    let (second, third) = (TokenSigner::es256("key-2"), TokenSigner::es256("key-3"));
    moved("https://id.example.com/keys/2", &second);
    assert!(stand.subject(&second.token(&stand.claims())).await.is_ok());
    // Without a token of an unknown key, the metadata is read again after an hour.
    moved("https://id.example.com/keys/3", &third);
    stand.fetch.max_age(Duration::from_secs(600));
    stand.pass(2 * 3600).await;
    assert!(stand.fetch.asked("https://id.example.com/keys/3") > 0);
    assert!(stand.subject(&third.token(&stand.claims())).await.is_ok());
}
