//! Attacks on tokens, one after the other, each with the exact reason of its refusal.

use data_encoding::BASE64URL_NOPAD;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_testkit::TokenSigner;

use super::verifier_fixture::{ISSUER, URL, VerifierFixture, settings};
use crate::settings::{SignatureAlgorithm, TokenValidation};
use crate::token::audiences;

fn text(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

/// A token of these parts.
fn joined(header: &Value, claims: &Value, signature: &[u8]) -> String {
    format!(
        "{}.{}.{}",
        text(header.to_string()),
        text(claims.to_string()),
        text(signature)
    )
}

fn hmac(key: &[u8], message: &str) -> Vec<u8> {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    aws_lc_rs::hmac::sign(&key, message.as_bytes())
        .as_ref()
        .to_vec()
}

// Proves C02.
#[tokio::test(start_paused = true)]
async fn unsigned_tokens_are_refused_in_every_spelling() {
    let stand = VerifierFixture::new().await;
    for alg in [
        "none", "None", "NONE", "nOnE", "", " none", "ES256 ", "es256", "HS256", "HS384", "HS512",
        "ES512", "RSA-OAEP",
    ] {
        let header = json!({ "alg": alg, "kid": "key-1" });
        for signature in [&b""[..], b"x"] {
            assert_eq!(
                stand
                    .reason(&joined(&header, &stand.claims(), signature))
                    .await,
                "alg",
                "{alg}"
            );
        }
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "alg",
            "{alg}"
        );
    }
    for alg in [json!(null), json!(["ES256"]), json!(1), json!({})] {
        let header = json!({ "alg": alg, "kid": "key-1" });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "alg"
        );
    }
    let good = stand.good();
    let (signed, _) = good.rsplit_once('.').unwrap();
    assert_eq!(stand.reason(&format!("{signed}.")).await, "malformed");
    assert_eq!(stand.reason(signed).await, "malformed");
}

// Proves C03.
#[tokio::test(start_paused = true)]
async fn public_key_is_not_accepted_as_hmac_secret() {
    let signer = TokenSigner::rsa("RS256", "key-1");
    let stand = VerifierFixture::with(settings(), signer);
    stand.publish(&[stand.signer.jwk()]);
    stand.settle().await;
    assert!(stand.subject(&stand.good()).await.is_ok());
    let der = stand.signer.public_der();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        data_encoding::BASE64.encode(&der)
    );
    let jwk = stand.signer.jwk().to_string();
    for secret in [
        der,
        pem.clone().into_bytes(),
        format!(" {pem}").into_bytes(),
        jwk.into_bytes(),
    ] {
        for alg in ["HS256", "RS256"] {
            let header = json!({ "alg": alg, "kid": "key-1" });
            let signed = format!(
                "{}.{}",
                text(header.to_string()),
                text(stand.claims().to_string())
            );
            let token = format!("{signed}.{}", text(hmac(&secret, &signed)));
            let expected = if alg == "HS256" { "alg" } else { "signature" };
            assert_eq!(stand.reason(&token).await, expected);
        }
    }
    // The key is for RS256: the very same key is not good for PS256, nor for another kind.
    for alg in ["PS256", "ES256", "EdDSA"] {
        let header = json!({ "alg": alg, "kid": "key-1" });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.earlier_claims()))
                .await,
            "key",
            "{alg}"
        );
    }
}

// Proves C02.
#[tokio::test(start_paused = true)]
async fn an_algorithm_that_the_issuer_does_not_use_is_refused_whatever_its_keys_say() {
    let mut settings = settings();
    let TokenValidation::Keys { algorithms, .. } = &mut settings.issuers[0].validation else {
        panic!()
    };
    *algorithms = vec![SignatureAlgorithm::Es256];
    let stand = VerifierFixture::with(settings, TokenSigner::eddsa("key-1"));
    stand.publish(&[stand.signer.jwk(), TokenSigner::es256("key-2").jwk()]);
    stand.settle().await;
    assert_eq!(stand.reason(&stand.good()).await, "alg");
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_of_the_default_list_works() {
    for signer in [
        TokenSigner::rsa("RS256", "k"),
        TokenSigner::rsa("PS256", "k"),
        TokenSigner::es256("k"),
        TokenSigner::eddsa("k"),
    ] {
        let stand = VerifierFixture::with(settings(), signer);
        stand.publish(&[stand.signer.jwk()]);
        stand.settle().await;
        assert!(
            stand.subject(&stand.good()).await.is_ok(),
            "{}",
            stand.signer.algorithm()
        );
    }
}

// Proves C04.
#[tokio::test(start_paused = true)]
async fn a_token_that_brings_its_own_key_causes_no_fetch() {
    let stand = VerifierFixture::new().await;
    let before = stand.fetch.all().len();
    let own = TokenSigner::es256("key-1");
    let keys_url = format!("{ISSUER}/keys");
    for (name, value) in [
        ("jku", json!("http://127.0.0.1:9/keys")),
        ("x5u", json!("http://127.0.0.1:9/cert")),
        ("jwk", own.jwk()),
        ("x5c", json!(["MIIB"])),
    ] {
        let header = json!({ "alg": "ES256", "kid": "key-1", name: value });
        assert_eq!(
            stand
                .reason(&own.token_with(&header, &stand.claims()))
                .await,
            "signature",
            "{name}"
        );
        // From the issuer itself it is only an unknown parameter.
        assert!(
            stand
                .subject(&stand.signer.token_with(&header, &stand.claims()))
                .await
                .is_ok(),
            "{name}"
        );
    }
    // Their signatures cause one fetch of the issuer's own metadata and keys, and none of a URL of a
    // token.
    let fetched = &stand.fetch.all()[before..];
    assert!(
        fetched.iter().all(|url| url.starts_with(ISSUER)),
        "{fetched:?}"
    );
    let of_keys = fetched.iter().filter(|url| **url == keys_url).count();
    assert_eq!(of_keys, 1, "{fetched:?}");
}

// Proves C05.
#[tokio::test(start_paused = true)]
async fn forged_key_ids_select_no_key() {
    let stand = VerifierFixture::new().await;
    for kid in [
        "../../etc/passwd",
        "' OR 1=1 --",
        "key-2",
        "KEY-1",
        "",
        "key-1\u{0}",
    ] {
        let header = json!({ "alg": "ES256", "kid": kid });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.earlier_claims()))
                .await,
            "key",
            "{kid}"
        );
    }
    for kid in [
        json!("k".repeat(257)),
        json!(1),
        json!(null),
        json!(["key-1"]),
    ] {
        let header = json!({ "alg": "ES256", "kid": kid });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "malformed",
            "{kid}"
        );
    }
    let huge = json!({ "alg": "ES256", "kid": "k".repeat(4096) });
    assert_eq!(
        stand
            .reason(&stand.signer.token_with(&huge, &stand.claims()))
            .await,
        "malformed"
    );
    let nameless = stand
        .signer
        .token_with(&json!({ "alg": "ES256" }), &stand.claims());
    assert!(stand.subject(&nameless).await.is_ok());
}

// Proves C05.
#[tokio::test(start_paused = true)]
async fn duplicate_key_id_is_refused_and_a_missing_one_needs_a_single_key() {
    let stand = VerifierFixture::with(settings(), TokenSigner::es256("key-1"));
    stand.publish(&[
        stand.signer.jwk(),
        TokenSigner::es256("key-1").jwk(),
        TokenSigner::es256("key-2").jwk(),
    ]);
    stand.settle().await;
    assert_eq!(stand.reason(&stand.good()).await, "key");
    let nameless = stand
        .signer
        .token_with(&json!({ "alg": "ES256" }), &stand.earlier_claims());
    assert_eq!(stand.reason(&nameless).await, "key");
}

// Proves C06.
#[tokio::test(start_paused = true)]
async fn header_parameters_that_change_the_meaning_are_refused() {
    let stand = VerifierFixture::new().await;
    for (name, value) in [
        ("crit", json!(["exp"])),
        ("crit", json!([])),
        ("crit", json!("x")),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("enc", json!("A256GCM")),
        ("cty", json!("JWT")),
        ("cty", json!(1)),
    ] {
        let header = json!({ "alg": "ES256", "kid": "key-1", name: value });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "type",
            "{name}"
        );
    }
    // Five parts are an encrypted token.
    assert_eq!(
        stand.reason("eyJhbGciOiJkaXIifQ.a.b.c.d").await,
        "malformed"
    );
    for header in [
        r#"{"alg":"ES256","alg":"none"}"#,
        r#"{"alg":"none","alg":"ES256"}"#,
        "[]",
        "\"ES256\"",
        "{",
        "",
    ] {
        let token = stand
            .signer
            .sign(header.as_bytes(), stand.claims().to_string().as_bytes());
        assert_eq!(stand.reason(&token).await, "malformed", "{header}");
    }
    let claims = stand.claims().to_string();
    let twice = claims.replacen('{', r#"{"sub":"eve","#, 1);
    let header = br#"{"alg":"ES256","kid":"key-1"}"#;
    assert_eq!(
        stand
            .reason(&stand.signer.sign(header, twice.as_bytes()))
            .await,
        "malformed"
    );
}

// Proves C07.
#[tokio::test(start_paused = true)]
async fn only_access_tokens_are_accepted() {
    let stand = VerifierFixture::new().await;
    for typ in [
        "at+jwt",
        "AT+JWT",
        "application/at+jwt",
        "JWT",
        "jwt",
        "application/jwt",
    ] {
        let header = json!({ "alg": "ES256", "kid": "key-1", "typ": typ });
        assert!(
            stand
                .subject(&stand.signer.token_with(&header, &stand.claims()))
                .await
                .is_ok(),
            "{typ}"
        );
    }
    for typ in [
        json!("dpop+jwt"),
        json!("logout+jwt"),
        json!("id_token"),
        json!(""),
        json!(1),
        json!(null),
    ] {
        let header = json!({ "alg": "ES256", "kid": "key-1", "typ": typ });
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "type",
            "{typ}"
        );
    }
    for marks in [
        json!({ "nonce": "n" }),
        json!({ "at_hash": "h" }),
        json!({ "c_hash": "h" }),
        json!({ "token_use": "id" }),
    ] {
        let header = json!({ "alg": "ES256", "kid": "key-1", "typ": "JWT" });
        let token = stand
            .signer
            .token_with(&header, &stand.claims_with(marks.clone()));
        assert_eq!(stand.reason(&token).await, "type", "{marks}");
    }
    let id_token = stand.claims_with(json!({ "aud": "test-client" }));
    assert_eq!(
        stand.reason(&stand.signer.token(&id_token)).await,
        "audience"
    );
    let mut settings = settings();
    let TokenValidation::Keys { strict_type, .. } = &mut settings.issuers[0].validation else {
        panic!()
    };
    *strict_type = true;
    stand.credentials.replace(settings);
    assert!(stand.subject(&stand.good()).await.is_ok());
    for header in [
        json!({ "alg": "ES256", "kid": "key-1", "typ": "JWT" }),
        json!({ "alg": "ES256", "kid": "key-1" }),
    ] {
        assert_eq!(
            stand
                .reason(&stand.signer.token_with(&header, &stand.claims()))
                .await,
            "type"
        );
    }
}

// Proves C08, R241.
#[tokio::test(start_paused = true)]
async fn every_wrong_audience_is_refused() {
    let stand = VerifierFixture::new().await;
    for aud in [
        json!(null),
        json!(""),
        json!(1),
        json!(true),
        json!({}),
        json!({ URL: URL }),
        json!([]),
        json!([1]),
        json!([URL, 1]),
        json!([[URL]]),
        json!(format!("{URL}/")),
        json!(format!(" {URL}")),
        json!(format!("{URL}/files")),
        json!("https://mcp.example.com"),
        json!("https://mcp.example.com/MCP"),
        json!("https://mcp.example.com/mc"),
        json!("https://mcp.example.com.evil.example/mcp"),
        json!("*"),
        json!("api://weir2"),
        json!("API://weir"),
    ] {
        let token = stand
            .signer
            .token(&stand.claims_with(json!({ "aud": aud })));
        assert_eq!(stand.reason(&token).await, "audience", "{aud}");
    }
    let absent = stand.claims_with(json!({ "aud": null }));
    assert!(absent.get("aud").is_none());
    let null = stand
        .claims()
        .to_string()
        .replace(&format!("\"{URL}\""), "null");
    let token = stand
        .signer
        .sign(br#"{"alg":"ES256","kid":"key-1"}"#, null.as_bytes());
    assert_eq!(stand.reason(&token).await, "audience");
    for aud in [
        json!(URL),
        json!(["other", URL]),
        json!("https://MCP.example.com/mcp"),
        json!("api://weir"),
    ] {
        let token = stand
            .signer
            .token(&stand.claims_with(json!({ "aud": aud })));
        assert!(stand.subject(&token).await.is_ok(), "{aud}");
    }
}

// Proves C09, R242.
#[tokio::test(start_paused = true)]
async fn every_wrong_issuer_is_refused_and_a_key_of_another_issuer_too() {
    let mut both = settings();
    let mut other = both.issuers[0].clone();
    other.name = "https://other.example.com".into();
    both.issuers.push(other);
    let stand = VerifierFixture::with(both, TokenSigner::es256("key-1"));
    stand.publish(&[stand.signer.jwk()]);
    let others = TokenSigner::es256("key-1");
    let metadata = json!({ "issuer": "https://other.example.com", "jwks_uri": "https://other.example.com/keys" });
    stand.fetch.put(
        "https://other.example.com/.well-known/oauth-authorization-server",
        200,
        metadata.to_string(),
    );
    stand.fetch.put(
        "https://other.example.com/keys",
        200,
        json!({ "keys": [others.jwk()] }).to_string(),
    );
    stand.settle().await;
    for iss in [
        json!(null),
        json!(1),
        json!([ISSUER]),
        json!({ "iss": ISSUER }),
        json!(""),
        json!(format!("{ISSUER}/")),
        json!("https://ID.example.com"),
        json!("http://id.example.com"),
        json!("https://id.example.com.evil.example"),
    ] {
        let token = stand
            .signer
            .token(&stand.claims_with(json!({ "iss": iss })));
        assert_eq!(stand.reason(&token).await, "issuer", "{iss}");
    }
    // Both have a key of this name: each is valid for its own tokens alone.
    assert!(stand.subject(&stand.good()).await.is_ok());
    assert_eq!(
        stand.reason(&others.token(&stand.claims())).await,
        "signature"
    );
    let own = others.token(&stand.claims_with(json!({ "iss": "https://other.example.com" })));
    assert_eq!(
        stand.subject(&own).await.unwrap().issuer(),
        "https://other.example.com"
    );
}

// Proves C10.
#[tokio::test(start_paused = true)]
async fn times_are_whole_numbers_at_their_very_boundaries() {
    let stand = VerifierFixture::new().await;
    let now = stand.now();
    let day = 24 * 3600;
    for (changes, expected) in [
        (json!({ "exp": null }), Err("claims")),
        (json!({ "exp": "9999999999" }), Err("claims")),
        (json!({ "exp": now as f64 + 300.5 }), Err("claims")),
        (json!({ "exp": -1 }), Err("claims")),
        (json!({ "exp": 1u64 << 63, "iat": null }), Err("not_yet")),
        (json!({ "exp": u64::MAX }), Err("not_yet")),
        (
            json!({ "exp": 253_402_300_799u64, "iat": null }),
            Err("not_yet"),
        ),
        (json!({ "exp": 0 }), Err("expired")),
        (json!({ "exp": now - 30 }), Err("expired")),
        (json!({ "exp": now - 29 }), Ok(())),
        (json!({ "exp": now + day }), Ok(())),
        (json!({ "exp": now + day + 1 }), Err("not_yet")),
        (json!({ "exp": now + day + 30, "iat": null }), Ok(())),
        (
            json!({ "exp": now + day + 31, "iat": null }),
            Err("not_yet"),
        ),
        (json!({ "exp": now + 10, "iat": now - day }), Err("not_yet")),
        (json!({ "nbf": now + 30 }), Ok(())),
        (json!({ "nbf": now + 31 }), Err("not_yet")),
        (json!({ "nbf": "0" }), Err("claims")),
        (json!({ "nbf": 1.5 }), Err("claims")),
        (json!({ "iat": now + 30 }), Ok(())),
        (json!({ "iat": now + 31 }), Err("not_yet")),
        (json!({ "iat": [] }), Err("claims")),
        (json!({ "sub": null }), Err("claims")),
        (json!({ "sub": "" }), Err("claims")),
        (json!({ "sub": 7 }), Err("claims")),
        (json!({ "sub": "s".repeat(257) }), Err("claims")),
        (json!({ "scope": 1 }), Err("claims")),
        (json!({ "scp": [1] }), Err("claims")),
        (json!({ "groups": { "a": 1 } }), Err("claims")),
        (json!({ "realm_access": { "roles": ["x"] } }), Ok(())),
    ] {
        let token = stand.signer.token(&stand.claims_with(changes.clone()));
        let known = match stand.subject(&token).await {
            Ok(_) => Ok(()),
            Err(_) => Err(stand.reason(&token).await),
        };
        assert_eq!(known, expected, "{changes}");
    }
}

// Proves C13.
#[tokio::test(start_paused = true)]
async fn oversized_and_odd_texts_are_refused_unread() {
    let stand = VerifierFixture::new().await;
    let many_scopes: String = (0..1000).map(|n| format!("s{n} ")).collect();
    let many = stand
        .signer
        .token(&stand.claims_with(json!({ "scope": many_scopes })));
    assert!(many.len() < 8 << 10);
    assert_eq!(stand.reason(&many).await, "claims");
    let long = stand
        .signer
        .token(&stand.claims_with(json!({ "pad": "x".repeat(8 << 10) })));
    let deep = format!(
        "{}{}",
        r#"{"a":"#.repeat(900),
        "1".to_owned() + &"}".repeat(900)
    );
    let deep = stand
        .signer
        .sign(br#"{"alg":"ES256","kid":"key-1"}"#, deep.as_bytes());
    for bad in [
        "",
        ".",
        "..",
        "...",
        "a",
        "a.b",
        "a.b.c",
        "é.é.é",
        "eyJhbGciOiJFUzI1NiJ9..x",
        "eyJhbGciOiJFUzI1NiJ9=.e30=.x",
        &long,
        &deep,
        &"x".repeat(8 << 20),
        &"a.".repeat(10_000),
        &format!("{} ", stand.good()),
        &format!(" {}", stand.good()),
        &stand.good().replace('.', ".."),
        &format!("{}=", stand.good()),
        &format!("{}\n", stand.good()),
    ] {
        assert_eq!(
            stand.reason(bad).await,
            "malformed",
            "{}",
            bad.chars().take(80).collect::<String>()
        );
    }
}

/// The expected audience check, written independently of the code.
fn names(aud: &Value, own: &str) -> bool {
    match aud {
        Value::String(text) => text == own,
        Value::Array(list) => {
            list.iter().all(Value::is_string) && list.iter().any(|item| item == own)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z:/.]{0,12}".prop_map(Value::from),
        Just(json!("api://weir")),
        Just(json!("api://weir/")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..3)
                .prop_map(|map| Value::from_iter(map.into_iter().collect::<Vec<_>>())),
        ]
    })
}

proptest! {
    // Proves C08.
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn an_audience_counts_if_it_is_ours_or_a_list_of_texts_with_ours(aud in any_json()) {
        let counts = audiences(Some(&aud)).is_ok_and(|read| read.iter().any(|text| **text == *"api://weir"));
        prop_assert_eq!(counts, names(&aud, "api://weir"));
    }
}
