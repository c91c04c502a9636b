//! Tests of the orders of discovery, and of the metadata that is not believed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::HashMap;

use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_core::port::{BoxFuture, FetchResponse};
use weir_core::{Failure, FailureKind};

use super::*;

/// Documents by URL; every other URL is a 404. Records the URLs that were fetched and their
/// `UrlSource`.
#[derive(Debug, Default)]
struct MetadataServers {
    documents: HashMap<String, Value>,
    asked: Mutex<Vec<(String, UrlSource)>>,
}

impl MetadataServers {
    fn with(mut self, url: &str, document: Value) -> Self {
        self.documents.insert(url.to_owned(), document);
        self
    }

    fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .iter()
            .map(|(url, _)| url.clone())
            .collect()
    }
}

impl DocumentFetcher for MetadataServers {
    fn fetch<'a>(&'a self, ask: FetchRequest<'a>) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        self.asked.lock().push((ask.url.to_owned(), ask.url_source));
        let found = self.documents.get(ask.url);
        let down = found.is_some_and(Value::is_null);
        let (status, body) =
            found.map_or((404, String::new()), |document| (200, document.to_string()));
        Box::pin(async move {
            if down {
                return Err(Failure::new(FailureKind::Unavailable, "down"));
            }
            Ok(FetchResponse {
                status,
                max_age: None,
                body: body.into(),
            })
        })
    }
}

const SERVER: &str = "https://mcp.example.com/team/mcp";
const ISSUER: &str = "https://id.example.com/tenant";

async fn run(
    web: &MetadataServers,
    issuer: &str,
    hint: Option<&str>,
) -> Result<TokenTarget, String> {
    let server = Url::parse(SERVER).unwrap();
    let found = TokenDiscovery {
        fetch: web,
        issuer,
        server: &server,
        hint,
    }
    .run()
    .await;
    found.map_err(|trouble| trouble.text.into_owned())
}

fn metadata(issuer: &str) -> Value {
    json!({ "issuer": issuer, "token_endpoint": format!("{issuer}/token") })
}

// Proves R256, R257.
#[tokio::test]
async fn metadata_is_fetched_in_the_order_of_the_specifications() {
    let hint = "https://mcp.example.com/elsewhere/prm.json";
    let web = MetadataServers::default();
    assert!(
        run(&web, ISSUER, Some(hint))
            .await
            .unwrap_err()
            .contains("cannot be had")
    );
    assert_eq!(
        web.asked(),
        [
            hint,
            "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp",
            "https://mcp.example.com/.well-known/oauth-protected-resource",
            "https://id.example.com/.well-known/oauth-authorization-server/tenant",
            "https://id.example.com/.well-known/openid-configuration/tenant",
            "https://id.example.com/tenant/.well-known/openid-configuration",
        ]
    );
    let web = MetadataServers::default();
    run(&web, "https://id.example.com", None).await.unwrap_err();
    assert_eq!(
        web.asked()[2..],
        [
            "https://id.example.com/.well-known/oauth-authorization-server",
            "https://id.example.com/.well-known/openid-configuration",
        ]
    );
    for url in &web_urls(ISSUER) {
        let web = MetadataServers::default().with(url, metadata(ISSUER));
        let place = run(&web, ISSUER, None).await.unwrap();
        assert_eq!(
            (place.endpoint.as_str(), place.named_by),
            ("https://id.example.com/tenant/token", UrlSource::Operator)
        );
        assert_eq!(
            place.resource, SERVER,
            "without metadata its URL is its name"
        );
    }
    let silent = MetadataServers::default().with(&web_urls(ISSUER)[0], Value::Null);
    assert!(
        run(&silent, ISSUER, None)
            .await
            .unwrap_err()
            .contains("cannot be had")
    );
}

#[tokio::test]
async fn failure_of_every_location_is_for_operators() {
    let [first, second, third]: [String; 3] = web_urls(ISSUER).try_into().unwrap();
    let web = MetadataServers::default()
        .with(&first, metadata("https://id.example.com"))
        .with(&second, json!("no metadata"));
    let server = Url::parse(SERVER).unwrap();
    let discovery = TokenDiscovery {
        fetch: &web,
        issuer: ISSUER,
        server: &server,
        hint: None,
    };
    assert_eq!(
        discovery.run().await.unwrap_err().to_string(),
        format!(
            "The authorization server's metadata is of another issuer: it was not used: \
             {first}: is the metadata of `https://id.example.com`, not of `{ISSUER}`; \
             {second}: is no valid metadata; {third}: status 404"
        )
    );
}

fn web_urls(issuer: &str) -> Vec<String> {
    server_metadata_urls(&Url::parse(issuer).unwrap())
        .into_iter()
        .map(String::from)
        .collect()
}

// Proves R258.
#[tokio::test]
async fn metadata_of_another_issuer_is_not_used() {
    for named in [
        "https://evil.example.com",
        "https://id.example.com",
        "https://id.example.com/tenant/",
        "HTTPS://id.example.com/tenant",
    ] {
        let mut document = metadata(ISSUER);
        document["issuer"] = json!(named);
        let web = MetadataServers::default().with(&web_urls(ISSUER)[0], document);
        assert!(
            run(&web, ISSUER, None)
                .await
                .unwrap_err()
                .contains("of another issuer"),
            "{named}"
        );
    }
    // The right document further down the order is found nevertheless.
    let web = MetadataServers::default()
        .with(&web_urls(ISSUER)[0], metadata("https://evil.example.com"))
        .with(&web_urls(ISSUER)[1], metadata(ISSUER));
    assert_eq!(
        run(&web, ISSUER, None).await.unwrap().endpoint,
        "https://id.example.com/tenant/token"
    );
}

#[tokio::test]
async fn slash_of_an_empty_path_makes_no_other_issuer() {
    let bare = "https://id.example.com";
    let slashed = "https://id.example.com/";
    for (configured, listed, named) in [
        (bare, slashed, bare),
        (slashed, bare, bare),
        (bare, bare, slashed),
        (slashed, slashed, bare),
    ] {
        let listing = json!({ "resource": SERVER, "authorization_servers": [listed] });
        let mut document = metadata(bare);
        document["issuer"] = json!(named);
        let web = MetadataServers::default()
            .with(
                "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp",
                listing,
            )
            .with(&web_urls(bare)[0], document);
        let place = run(&web, configured, None).await.unwrap();
        assert_eq!(place.endpoint, "https://id.example.com/token");
    }
}

// Proves R254, R262.
#[tokio::test]
async fn credentials_stay_with_their_issuer() {
    let prm = |servers: Value, resource: &str| json!({ "resource": resource, "authorization_servers": servers });
    let under_path = "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp";
    for (servers, resource, expected) in [
        (json!([ISSUER]), SERVER, Ok(SERVER)),
        (
            json!(["https://other.example.com", ISSUER]),
            SERVER,
            Ok(SERVER),
        ),
        (
            json!([]),
            "https://mcp.example.com/team",
            Ok("https://mcp.example.com/team"),
        ),
        (
            json!([ISSUER]),
            "https://mcp.example.com",
            Ok("https://mcp.example.com"),
        ),
        (
            json!(["https://other.example.com"]),
            SERVER,
            Err("another authorization server"),
        ),
        (
            json!(["https://id.example.com/tenant/"]),
            SERVER,
            Err("another authorization server"),
        ),
        (
            json!([ISSUER]),
            "https://mcp.example.com/tea",
            Err("another resource"),
        ),
        (
            json!([ISSUER]),
            "https://bank.example.com/team/mcp",
            Err("another resource"),
        ),
        (
            json!([ISSUER]),
            "http://mcp.example.com/team/mcp",
            Err("another resource"),
        ),
    ] {
        let web = MetadataServers::default()
            .with(under_path, prm(servers.clone(), resource))
            .with(&web_urls(ISSUER)[0], metadata(ISSUER));
        let found = run(&web, ISSUER, None).await;
        match expected {
            Ok(named) => assert_eq!(found.unwrap().resource, named),
            Err(part) => {
                let text = found.unwrap_err();
                assert!(text.contains(part), "{servers} {resource}: {text}");
                assert!(
                    !text.contains("example.com"),
                    "what a stranger wrote is not repeated"
                );
                assert_eq!(web.asked().len(), 1, "no authorization server hears of it");
            }
        }
    }
}

// Proves C18, C25.
#[tokio::test]
async fn urls_named_by_others_count_as_outsiders() {
    let hint = "https://169.254.169.254/prm";
    let mut document = metadata(ISSUER);
    document["token_endpoint"] = json!("https://tokens.example.com/token");
    let web = MetadataServers::default().with(&web_urls(ISSUER)[0], document);
    let place = run(&web, ISSUER, Some(hint)).await.unwrap();
    assert_eq!(
        place.named_by,
        UrlSource::Outsider,
        "the issuer's metadata names another host"
    );
    let asked = web.asked.lock().clone();
    assert_eq!(asked[0], (hint.to_owned(), UrlSource::Outsider));
    assert!(
        asked[1..].iter().all(|(_, by)| *by == UrlSource::Operator),
        "{asked:?}"
    );
    for hint in [
        "http://mcp.example.com/x",
        "https://mcp.example.com:444/x",
        "file:///etc/passwd",
        "no url",
    ] {
        let web = MetadataServers::default();
        run(&web, ISSUER, Some(hint)).await.unwrap_err();
        assert_eq!(web.asked.lock()[0], (hint.to_owned(), UrlSource::Outsider));
    }
}

#[test]
fn resource_identifier_is_canonical() {
    for (url, name) in [
        (
            "HTTPS://Mcp.Example.com:443/mcp",
            "https://mcp.example.com/mcp",
        ),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("https://mcp.example.com/a/", "https://mcp.example.com/a/"),
        (
            "http://127.0.0.1:3000/mcp?team=a",
            "http://127.0.0.1:3000/mcp?team=a",
        ),
    ] {
        assert_eq!(resource_identifier(&Url::parse(url).unwrap()), name);
    }
}

#[tokio::test]
async fn null_and_empty_members_are_absent() {
    let web = MetadataServers::default().with(
        "https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp",
        json!({ "resource": "https://mcp.example.com/team", "authorization_servers": null }),
    );
    let mut document = metadata(ISSUER);
    document["token_endpoint_auth_methods_supported"] = Value::Null;
    let place = web_urls(ISSUER).remove(0);
    let web = web.with(&place, document.clone());
    let target = run(&web, ISSUER, None).await.unwrap();
    assert_eq!(target.resource, "https://mcp.example.com/team");
    assert_eq!(target.methods, None);
    document["token_endpoint"] = json!("");
    let web = MetadataServers::default().with(&place, document);
    let error = run(&web, ISSUER, None).await.unwrap_err();
    assert!(error.contains("no token endpoint"), "{error}");
}
