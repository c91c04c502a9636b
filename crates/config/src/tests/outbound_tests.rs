//! `auth` of upstreams.

use weir_upstream::{
    ClientAuthMethod, SessionSharing, TokenAuthority, TokenExchange, TransportSettings,
    UpstreamOAuth,
};

use super::*;

fn auth(text: &str) -> UpstreamOAuth {
    let config = good(text);
    let TransportSettings::Http(http) = &config.upstreams[0].settings.transport else {
        panic!("it has a URL")
    };
    *http.auth.clone().unwrap()
}

// Proves R255.
#[test]
fn every_oauth_key_is_applied() {
    let auth = auth(
        r#"upstreams: { a: { url: "https://a.example/mcp", auth: { mode: token_exchange, issuer: "https://id.example.com/t",
            client_id: weir, client_secret: "${TOKEN}", client_auth: post, scopes: [a], step_up: [b], resource: "urn:a",
            audience: c, subject_token: jwt } } }"#,
    );
    assert_eq!(
        auth.authority,
        TokenAuthority::Issuer("https://id.example.com/t".to_owned())
    );
    assert_eq!(
        (auth.client_id.as_str(), auth.client_auth),
        ("weir", ClientAuthMethod::Post)
    );
    assert_eq!(
        (auth.scopes, auth.step_up),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(auth.resource.as_deref(), Some("urn:a"));
    let jwt = "urn:ietf:params:oauth:token-type:jwt".to_owned();
    assert_eq!(
        auth.exchange,
        Some(TokenExchange {
            audience: Some("c".to_owned()),
            subject_type: jwt
        })
    );
    assert!(!format!("{:?}", auth.client_secret).contains("canary"));
}

// Proves R272.
#[test]
fn secrets_go_over_https_or_stay_on_this_machine() {
    let text = |url: &str| {
        format!(
            "upstreams: {{ a: {{ url: \"https://a.example/\", auth: {{ mode: client_credentials, token_endpoint: \"{url}\", client_id: w, client_secret: kept-between-us }} }} }}"
        )
    };
    for url in [
        "https://id.example.com/token",
        "https://10.0.0.1/t",
        "http://127.0.0.1:1/t",
        "http://[::1]:1/t",
        "http://localhost/t",
    ] {
        let usual = auth(&text(url));
        assert_eq!(
            (usual.authority, usual.client_auth),
            (
                TokenAuthority::TokenEndpoint(url.to_owned()),
                ClientAuthMethod::Discovered
            )
        );
        assert_eq!(usual.exchange, None);
    }
    for url in [
        "http://id.example.com/token",
        "http://10.0.0.1/t",
        "javascript:x",
        "ftp://a/",
        "https://a/#b",
        "https:///x",
        "http://127.0.0.1.example.com/",
    ] {
        assert!(load(&text(url)).config.is_none(), "{url}");
    }
}

// Proves R272.
#[test]
fn remote_http_needs_allow_http() {
    let text = r#"upstreams: { a: { url: "https://a.example/", auth: { mode: client_credentials, issuer: "http://id:8080/realms/a",
        allow_http: true, client_id: w, client_secret: kept-between-us } } }"#;
    assert_eq!(
        auth(text).authority,
        TokenAuthority::Issuer("http://id:8080/realms/a".to_owned())
    );
    assert!(load(&text.replace("true", "false")).config.is_none());
}

#[test]
fn placeholder_secrets_are_rejected() {
    let refused = |upstream: &str, place: &str| {
        let report = load(&format!("upstreams: {{ a: {{ {upstream} }} }}"))
            .report
            .to_string();
        assert!(
            report.contains(&format!("error: upstreams.a.{place}: is a placeholder")),
            "{upstream}: {report}"
        );
        assert!(!report.contains("changeme"), "{report}");
    };
    let url = "url: \"https://a.example/mcp\"";
    for secret in [
        "changeme",
        "changeme-changeme",
        "<client-secret>",
        "your-client-secret",
        "xxxxxxxxxxxx",
        "secret",
    ] {
        refused(
            &format!(
                "{url}, auth: {{ mode: client_credentials, issuer: \"https://id.example\", client_id: w, client_secret: \"{secret}\" }}"
            ),
            "auth.client_secret",
        );
    }
    refused(
        &format!("{url}, headers: {{ Authorization: Bearer changeme }}"),
        "headers.Authorization",
    );
    refused(
        &format!("{url}, headers: {{ X-Api-Key: changeme }}"),
        "headers.X-Api-Key",
    );
    refused("url: \"https://a.example/mcp?api_key=changeme\"", "url");
    refused(
        "command: cat, env: { GITHUB_TOKEN: changeme }",
        "env.GITHUB_TOKEN",
    );
    let collector = "upstreams: { a: { url: \"http://x/\" } }\ntelemetry: { otlp: { endpoint: \"http://127.0.0.1:1\", headers: { authorization: Bearer changeme } } }";
    assert!(
        load(collector)
            .report
            .to_string()
            .contains("headers.authorization: is a placeholder")
    );
}

// Proves C20.
#[test]
fn tokens_of_callers_are_kept_only_where_they_are_exchanged() {
    let text = |mode: &str| {
        format!(
            "upstreams: {{ a: {{ url: \"https://a.example/\", auth: {{ mode: {mode}, issuer: \"https://id.example.com\", client_id: w, client_secret: kept-between-us }} }} }}"
        )
    };
    let keeps = |grant: &str| good(&text(grant)).exchanges_tokens();
    assert!(keeps("token_exchange") && !keeps("client_credentials"));
}

#[test]
fn with_auth_each_principal_has_its_own_processes() {
    let known = "auth: { mode: required, api_keys: [{ id: a, sha256: \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\", subject: y }] }";
    for (auth, upstream, expected, said) in [
        (
            "auth: { mode: none }",
            "command: x",
            SessionSharing::Shared,
            false,
        ),
        (known, "command: x", SessionSharing::Principal, true),
        (
            known,
            "command: x, session: shared",
            SessionSharing::Shared,
            false,
        ),
        (
            known,
            "command: x, session: principal",
            SessionSharing::Principal,
            false,
        ),
        (
            known,
            "url: \"https://a.example/mcp\"",
            SessionSharing::Principal,
            false,
        ),
    ] {
        let outcome = load(&format!("{auth}\nupstreams: {{ a: {{ {upstream} }} }}"));
        let report = outcome.report.to_string();
        assert_eq!(
            report.contains("each caller has its own processes"),
            said,
            "{upstream}: {report}"
        );
        assert_eq!(report.contains("at most 64 run at once"), said, "{report}");
        assert_eq!(
            outcome.config.unwrap().upstreams[0].settings.session,
            expected,
            "{upstream}"
        );
    }
}

// Proves R191.
#[test]
fn url_elicitation_needs_distinguishable_callers() {
    let of = |auth: &str, upstream: &str| {
        let outcome = load(&format!("{auth}\nupstreams: {{ a: {{ {upstream} }} }}"));
        assert!(!outcome.report.has_errors(), "{}", outcome.report);
        let said = outcome
            .report
            .to_string()
            .contains("URL elicitation is off");
        let settings = outcome.config.unwrap().upstreams.remove(0).settings;
        (
            settings.allows_url_elicitation,
            settings
                .client_capabilities
                .has(weir_core::CapabilityClass::ELICITATION_URL),
            said,
        )
    };
    let known = "auth: { mode: required, api_keys: [{ id: a, sha256: \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\", subject: y }] }";
    let url = "url: \"https://a.example/mcp\"";
    let own = "auth: { mode: client_credentials, issuer: \"https://id.example.com\", client_id: w, client_secret: kept-between-us }";
    let exchanged = own.replace("client_credentials", "token_exchange");
    let header = "headers: { X-Key: \"${TOKEN}\" }";
    let (sent, kept, kept_without_news) = (
        (true, true, false),
        (false, true, true),
        (false, false, false),
    );
    for (upstream, expected) in [
        (url.to_owned(), sent),
        (format!("{url}, {exchanged}"), sent),
        (format!("{url}, {header}, {exchanged}"), sent),
        (format!("{url}, {own}"), kept),
        (format!("{url}, {header}"), kept),
        (
            "url: \"https://a.example/mcp?key=${TOKEN}\"".to_owned(),
            kept,
        ),
        (format!("{url}, session: shared, asks: [elicitation]"), kept),
        (format!("{url}, session: shared"), kept_without_news),
        (
            format!("{url}, {header}, asks: [sampling]"),
            kept_without_news,
        ),
        (
            format!("{url}, {header}, asks: [elicitation, elicitation_url]"),
            sent,
        ),
        (
            "command: x, env: { TOKEN: \"${TOKEN}\" }, session: principal".to_owned(),
            sent,
        ),
        ("command: x".to_owned(), sent),
        ("command: x, session: shared".to_owned(), kept_without_news),
    ] {
        assert_eq!(of(known, &upstream), expected, "{upstream}");
        let anyone = of("auth: { mode: none }", &upstream);
        assert_eq!(
            (anyone.0, anyone.2),
            (true, false),
            "there is one caller: {upstream}"
        );
    }
}
