//! `auth:` and its settings.

use std::sync::Arc;
use std::time::Duration;

use weir_policy::settings::{KeySource, SignatureAlgorithm, TokenValidation, VerifierSettings};

use super::*;

// Proves R272.
#[test]
fn every_auth_key_is_applied() {
    let config = good(include_str!("full.yaml"));
    let auth = &config.auth;
    assert!(auth.required);
    assert_eq!(
        (auth.base.as_str(), auth.leeway),
        ("https://mcp.example.com", Duration::from_secs(10))
    );
    let [one, two, three] = auth.issuers.as_slice() else {
        panic!("three issuers")
    };
    let TokenValidation::Keys {
        source: at,
        algorithms,
        strict_type,
        max_lifetime,
    } = &one.validation
    else {
        panic!("keys")
    };
    assert_eq!(&*one.name, "https://id.example.com/tenant");
    assert_eq!(
        (at, *strict_type, *max_lifetime),
        (&KeySource::Metadata, true, Duration::from_secs(3600))
    );
    assert_eq!(
        algorithms,
        &[SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa]
    );
    assert_eq!(
        (&*one.audiences[0], &*one.claims[0]),
        ("api://weir", "tenant")
    );
    assert_eq!(
        [&*one.groups[0], &*one.groups[1]],
        ["groups", "realm_access.roles"]
    );
    let TokenValidation::Keys {
        source: at,
        algorithms,
        strict_type,
        ..
    } = &two.validation
    else {
        panic!("keys")
    };
    assert_eq!(
        at,
        &KeySource::Url("https://old.example.com/keys".to_owned())
    );
    assert_eq!(
        (algorithms.as_slice(), *strict_type),
        (&SignatureAlgorithm::DEFAULT[..], false)
    );
    assert!(
        matches!(&three.validation, TokenValidation::Introspection { client_id, .. } if client_id == "weir")
    );
    assert!(
        !format!("{config:?}").contains("canary"),
        "secrets do not print"
    );
    let implied: Vec<&str> = auth.implied["admin"].iter().map(|scope| &**scope).collect();
    assert_eq!(implied, ["read", "write"]);
    assert_eq!(
        (auth.api_keys[0].id.as_str(), &*auth.api_keys[0].subject),
        ("ci", "build")
    );
    assert!(auth.api_keys[0].expires.is_some());
    let oauth = config.front.oauth.unwrap();
    assert_eq!(oauth.base, "https://mcp.example.com");
    assert_eq!(oauth.servers.len(), 3);
}

// Proves R249.
#[test]
fn token_audience_defaults_to_listen_address() {
    let auth = "auth: { mode: oauth, issuers: [{ issuer: \"https://id.example.com\" }] }";
    let config = good(&format!("listen: 127.0.0.1:9000\n{auth}"));
    assert_eq!(config.auth.base, "http://127.0.0.1:9000");
    let config = good(&format!("public_url: https://MCP.Example.com/\n{auth}"));
    assert_eq!(config.auth.base, "https://mcp.example.com");
    assert_eq!(good("listen: 127.0.0.1:1").auth, VerifierSettings::open());
    // The default port of the scheme is left out, as clients do that normalize URLs.
    for (named, base) in [
        ("listen: 127.0.0.1:80", "http://127.0.0.1"),
        ("listen: \"[::1]:80\"", "http://[::1]"),
        ("public_url: http://127.0.0.1:80/", "http://127.0.0.1"),
        (
            "public_url: HTTPS://MCP.example.com:443",
            "https://mcp.example.com",
        ),
        (
            "public_url: https://mcp.example.com:80",
            "https://mcp.example.com:80",
        ),
        (
            "public_url: http://mcp.example.com:443",
            "http://mcp.example.com:443",
        ),
        ("public_url: \"https://[::443]\"", "https://[::443]"),
    ] {
        let config = good(&format!("{named}\n{auth}"));
        assert_eq!(config.auth.base, base, "{named}");
        assert_eq!(config.front.oauth.unwrap().base, base, "{named}");
    }
}

// Proves R249.
#[test]
fn token_audience_has_the_chosen_port() {
    let auth = "auth: { mode: oauth, issuers: [{ issuer: \"https://id.example.com\" }] }";
    let bound = "127.0.0.1:40651".parse().unwrap();
    let served = Arc::new(good(&format!("listen: 127.0.0.1:0\n{auth}"))).served_at(bound);
    assert_eq!(served.auth.base, "http://127.0.0.1:40651");
    assert_eq!(
        served.front.oauth.as_ref().unwrap().base,
        "http://127.0.0.1:40651"
    );
    for named in [
        "public_url: https://mcp.example.com\nlisten: 127.0.0.1:0",
        "listen: 127.0.0.1:9000",
    ] {
        let config = Arc::new(good(&format!("{named}\n{auth}")));
        assert_eq!(config.served_at(bound), config, "{named}");
    }
    let open = Arc::new(good("listen: 127.0.0.1:0"));
    assert_eq!(open.served_at(bound), open);
}

#[test]
fn issuer_that_nothing_is_fetched_from_may_have_an_http_name() {
    let adfs = "issuer: \"http://adfs.example.com/adfs/services/trust\"";
    let introspection = "introspection: { url: \"https://id.example.com/i\", client_id: weir, client_secret: kept-between-us }";
    for keys in [
        "jwks_uri: \"https://adfs.example.com/adfs/discovery/keys\"",
        introspection,
    ] {
        good(&format!(
            "auth: {{ mode: oauth, issuers: [{{ {adfs}, {keys} }}] }}"
        ));
    }
}

#[test]
fn wildcard_listener_is_allowed_with_authentication() {
    let auth = "public_url: https://mcp.example.com\nauth: { mode: oauth, issuers: [{ issuer: \"https://id.example.com\" }] }";
    good(&format!("listen: 0.0.0.0:8080\n{auth}"));
}
