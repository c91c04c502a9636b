//! The SDKs' own OAuth clients: discovery by the 401, registration at the provider, PKCE, a token,
//! a call; then a refresh, and more scopes if a tool demands them.

use serde_json::{Value, json};

use super::oauth_zoo::OauthZoo;
use crate::harness::{ForeignClient, inspector, peers_are_enabled};

const CAT: &str = r#"{"animal":"cat"}"#;

/// The clients, and the cause of their refresh: those in JavaScript refresh after a server refused
/// the token, those in Python by their own clock.
const CLIENTS: [(ForeignClient, &str); 5] = [
    (ForeignClient::TypeScript1, "stale"),
    (ForeignClient::TypeScript2("modern"), "stale"),
    (ForeignClient::TypeScript2("legacy"), "stale"),
    (ForeignClient::Python1, "ttl"),
    (ForeignClient::Python2, "ttl"),
];

// Proves R238, R255, R259.
#[test]
fn every_sdk_logs_in_knowing_only_the_url() {
    if !peers_are_enabled() {
        return;
    }
    for alg in ["RS256", "ES256"] {
        let town = OauthZoo::start();
        town.idp.control(&json!({ "alg": alg }));
        for (nth, (client, _)) in (1..).zip(CLIENTS) {
            let seen = client.run(&town.url(), &["call", "zoo__draw", CAT, "--auth", "sdk"]);
            assert_eq!(
                seen.only_line("result")["result"]["content"][0]["text"],
                "A cat",
                "{client:?}"
            );
            let account = seen.only_line("account");
            assert_eq!(
                (&account["logins"], &account["tokens"]),
                (&json!(1), &json!(1)),
                "{client:?}: {seen:?}"
            );
            assert_eq!(
                town.idp.count("registrations"),
                nth,
                "{client:?} registered itself"
            );
            assert_eq!(
                town.idp.count("authorization_code"),
                nth,
                "{client:?} exchanged one code"
            );
        }
    }
}

// Proves R240.
#[test]
fn every_sdk_refreshes_its_token() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::start();
    for (nth, (client, how)) in (1..).zip(CLIENTS) {
        let ttl = if how == "ttl" { 1 } else { 600 };
        town.idp
            .control(&json!({ "stale": u32::from(how == "stale"), "ttl": ttl }));
        let seen = client.run(&town.url(), &["refresh", "zoo__draw", CAT, "--auth", "sdk"]);
        assert_eq!(
            seen.only_line("account")["logins"],
            1,
            "{client:?}: {seen:?}"
        );
        assert!(town.idp.count("refresh_token") >= nth, "{client:?}");
    }
}

/// An expired token is refreshed below any `fetch`, and the request is sent again.
// Proves R240.
#[test]
fn the_sdks_middleware_logs_in_and_retries_a_401() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::start();
    for (nth, client) in (1..).zip([
        ForeignClient::TypeScript1,
        ForeignClient::TypeScript2("modern"),
        ForeignClient::TypeScript2("legacy"),
    ]) {
        town.idp.control(&json!({ "stale": 1 }));
        let seen = client.run(
            &town.url(),
            &["call", "zoo__draw", CAT, "--auth", "middleware"],
        );
        assert_eq!(
            seen.only_line("result")["result"]["content"][0]["text"],
            "A cat",
            "{client:?}"
        );
        assert_eq!(
            seen.only_line("account")["tokens"],
            2,
            "{client:?}: {seen:?}"
        );
        assert_eq!(town.idp.count("refresh_token"), nth);
        let refused = seen
            .lines_of("http")
            .iter()
            .any(|line| line["status"] == 401);
        assert!(
            !refused,
            "the log is around the retry, so it never sees the 401: {seen:?}"
        );
    }
}

/// A tool with a scope of its own: the 403 names it, the client asks for it, and the call succeeds.
// Proves R245, R266.
#[test]
fn every_sdk_steps_up_to_the_scope_a_tool_takes() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::with(|config| {
        config["endpoints"]["/mcp"]["scopes"] = json!(["mcp"]);
        config["endpoints"]["/mcp"]["tools"] =
            json!({ "scopes": { "zoo__weigh": ["tools:write"] } });
    });
    for (client, _) in CLIENTS {
        // The SDK 1.x would refresh instead of asking for more, and a refresh adds no scope.
        town.idp
            .control(&json!({ "refresh": !matches!(client, ForeignClient::TypeScript1) }));
        let seen = client.run(&town.url(), &["call", "zoo__weigh", CAT, "--auth", "sdk"]);
        let result = &seen.only_line("result")["result"];
        assert_eq!(
            result["structuredContent"]["weight"], 4.5,
            "{client:?}: {result}"
        );
        assert_eq!(
            seen.only_line("account")["logins"],
            2,
            "{client:?}: {seen:?}"
        );
    }
}

// Proves R059.
#[test]
fn the_inspector_lists_and_calls_with_a_token() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::start();
    let token = town.idp.machine_token(&town.url(), "mcp");
    let header = format!("Authorization: Bearer {token}");
    let listed = inspector(&town.url(), &["tools/list", "--header", &header]);
    let names: Vec<&Value> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(names.contains(&&json!("zoo__draw")), "{names:?}");
    let call = [
        "tools/call",
        "--tool-name",
        "zoo__draw",
        "--tool-arg",
        "animal=cat",
        "--header",
        &header,
    ];
    assert_eq!(inspector(&town.url(), &call)["content"][0]["text"], "A cat");
}

/// The provider changes its keys; tokens of the new ones are good at once, without a restart of
/// weir.
// Proves C14.
#[test]
fn rotated_keys_are_found_without_a_restart() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::start();
    town.idp.control(&json!({ "keys": "add" }));
    let seen = ForeignClient::TypeScript2("modern")
        .run(&town.url(), &["call", "zoo__draw", CAT, "--auth", "sdk"]);
    assert_eq!(seen.only_line("account")["logins"], 1, "{seen:?}");
}

/// While the provider is down, good tokens stay good, and weir stays ready.
// Proves C17.
#[test]
fn valid_tokens_work_while_the_provider_is_down() {
    if !peers_are_enabled() {
        return;
    }
    let town = OauthZoo::start();
    let token = town.idp.machine_token(&town.url(), "mcp");
    let fresh = town.idp.machine_token(&town.url(), "mcp");
    town.idp.control(&json!({ "down": true }));
    for token in [token, fresh] {
        let called = super::oauth_zoo::weir(&["call", &town.url(), "zoo__draw", CAT])
            .env("WEIR_TOKEN", token)
            .output()
            .unwrap();
        assert!(called.status.success(), "{called:?}");
    }
    assert!(
        town.weir
            .get_admin_page("/readyz")
            .starts_with("HTTP/1.1 200")
    );
}
