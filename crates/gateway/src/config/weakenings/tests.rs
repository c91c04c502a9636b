//! Tests the table of protections against the config's schema, and against a config that has all of
//! them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::tests::load;
use super::*;

/// Keys whose absence removes no protection, or a part of the config. `x.**` stands for all keys
/// below `x`.
const NO_PROTECTION: &[&str] = &[
    // The address of the listener: an open address has a check of its own. Absent is loopback.
    "listen",
    "public_url",
    "admin.listen",
    // Absent is stricter: fewer names, origins, proxies or credentials are accepted.
    "admin.allowed_hosts",
    "admin.allowed_hosts[]",
    "admin.auth.token",
    "admin.auth.tokens",
    "admin.auth.tokens[].name",
    "admin.auth.tokens[].sha256",
    "admin.auth.oauth",
    "allowed_hosts",
    "allowed_hosts[]",
    "cors.**",
    "trusted_proxies",
    "trusted_proxies[]",
    "auth.allow_anyone",
    "auth.scope_implies.**",
    "auth.mtls.**",
    "auth.api_keys",
    "auth.api_keys[].id",
    "auth.api_keys[].sha256",
    "auth.api_keys[].subject",
    "auth.api_keys[].groups",
    "auth.api_keys[].groups[]",
    "auth.api_keys[].scopes",
    "auth.api_keys[].scopes[]",
    "auth.issuers",
    "auth.issuers[].issuer",
    "auth.issuers[].jwks_uri",
    "auth.issuers[].introspection.**",
    "auth.issuers[].audience",
    "auth.issuers[].audience[]",
    "auth.issuers[].groups",
    "auth.issuers[].groups[]",
    "auth.issuers[].claims",
    "auth.issuers[].claims[]",
    "auth.issuers[].allow_http",
    "teams.**",
    "include",
    "include_errors",
    "allow_weaker",
    "allow_weaker[]",
    // Absent is a safe default.
    "admin.auth.oauth.scope",
    "auth.leeway",
    "auth.issuers[].algorithms",
    "auth.issuers[].algorithms[]",
    "auth.issuers[].max_lifetime",
    "legacy_sessions",
    "limits.**",
    "deadlines.**",
    "keys.**",
    "rates.concurrency.**",
    "rates.address.burst",
    "rates.principal.burst",
    "rates.endpoints.*.burst",
    "rates.groups.*.burst",
    "rates.clients.*.burst",
    "rates.upstreams.*.burst",
    "rates.tools.*.burst",
    "rates.tools.*.cost",
    "audit.file.path",
    "audit.file.rotate.**",
    "audit.otlp.url",
    "audit.otlp.headers.**",
    "audit.otlp.ca_file",
    "audit.sync",
    "audit.queue",
    // Absent is `digest`, without any value in clear text.
    "audit.arguments",
    "audit.show",
    "audit.show[]",
    "audit.key.id",
    "audit.key.secret",
    "upstreams.*.asks[]",
    "upstreams.*.session",
    "upstreams.*.trust",
    "upstreams.*.baggage",
    "upstreams.*.limits.**",
    "upstreams.*.deadlines.**",
    "upstreams.*.walk.**",
    "upstreams.*.tools",
    "upstreams.*.tools.*",
    "upstreams.*.tools.*.deadlines.**",
    "upstreams.*.tools.*.safe_to_repeat",
    "endpoints.*.deadlines.**",
    // The upstreams and their transports: a call that cannot be made exposes no data.
    "upstreams",
    "upstreams.*",
    "upstreams.*.url",
    "upstreams.*.command",
    "upstreams.*.args",
    "upstreams.*.args[]",
    "upstreams.*.env.**",
    "upstreams.*.cwd",
    "upstreams.*.start",
    "upstreams.*.protocol",
    "upstreams.*.headers.**",
    "upstreams.*.auth.**",
    "upstreams.*.ca_file",
    "upstreams.*.h2c",
    "upstreams.*.poll",
    "upstreams.*.grace",
    "mcpServers.**",
    // The removal of an endpoint removes access to it.
    "endpoints.*",
    "endpoints.*.upstream",
    "endpoints.*.upstreams",
    "endpoints.*.upstreams[]",
    // Texts and presentation.
    "endpoints.*.page.**",
    "endpoints.*.naming.**",
    "endpoints.*.tools.alias.**",
    "endpoints.*.tools.describe.**",
    // Changes of a response's content grant no access.
    "endpoints.*.clean",
    "upstreams.*.tools.*.clean",
    "upstreams.*.results.**",
    // Absent is `mask`.
    "upstreams.*.secrets.results",
    // The hints of a pattern count together.
    "endpoints.*.tools.annotations.*.readOnlyHint",
    "endpoints.*.tools.annotations.*.destructiveHint",
    "endpoints.*.tools.annotations.*.idempotentHint",
    "endpoints.*.tools.annotations.*.openWorldHint",
    "endpoints.*.tools.include[]",
    "endpoints.*.tools.exclude[]",
    "endpoints.*.policy.files[]",
    "policy.files[]",
    "naming.**",
    "page.**",
    "server.**",
    "first_list_wait",
    "change_window",
    "http_sse",
    "store",
    "drain",
    "log.**",
    "telemetry.**",
];

/// Collects all paths of a schema.
fn places(schema: &Value, root: &Value, at: &str, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        places(target, root, at, found);
    }
    for choice in ["anyOf", "oneOf", "allOf"]
        .iter()
        .flat_map(|key| schema[*key].as_array().into_iter().flatten())
    {
        places(choice, root, at, found);
    }
    let mut below = |place: String, schema: &Value| {
        // The root itself is not a path.
        found.insert(place.clone());
        places(schema, root, &place, found);
    };
    let dotted = |key: &str| {
        if at.is_empty() {
            key.to_owned()
        } else {
            format!("{at}.{key}")
        }
    };
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        below(dotted(key), schema);
    }
    if schema["additionalProperties"].is_object() {
        below(dotted("*"), &schema["additionalProperties"]);
    }
    if schema["items"].is_object() {
        below(format!("{at}[]"), &schema["items"]);
    }
}

fn all_places() -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&super::super::schema()).unwrap();
    let mut found = BTreeSet::new();
    places(&schema, &schema, "", &mut found);
    assert!(
        found.len() > 250 && found.contains("rates.tools.*.shared"),
        "{found:?}"
    );
    found
}

#[test]
fn every_key_of_the_config_is_a_protection_or_known_to_be_none() {
    let found = all_places();
    let protections: BTreeSet<&str> = PROTECTIONS
        .iter()
        .flat_map(|row| row.keys)
        .copied()
        .collect();
    let is_none = |place: &str| {
        NO_PROTECTION
            .iter()
            .any(|known| match known.strip_suffix(".**") {
                None => place == *known,
                Some(section) => place.strip_prefix(section).is_some_and(|rest| {
                    rest.is_empty() || rest.starts_with('.') || rest.starts_with("[]")
                }),
            })
    };
    // A section is present for the keys in it.
    let is_section = |place: &str| {
        let mut known = protections.iter().chain(NO_PROTECTION);
        known.any(|known| {
            known
                .strip_prefix(place)
                .is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
        })
    };
    let unknown: Vec<_> = found
        .iter()
        .filter(|place| {
            !protections.contains(place.as_str()) && !is_none(place) && !is_section(place)
        })
        .collect();
    assert!(
        unknown.is_empty(),
        "neither a protection nor known to be none: {unknown:#?}"
    );
    let gone: Vec<_> = protections
        .iter()
        .filter(|place| !found.contains(**place))
        .collect();
    assert!(gone.is_empty(), "no keys of the config: {gone:?}");
    let gone = |known: &&&str| match known.strip_suffix(".**") {
        Some(section) => !found.contains(section),
        None => !found.contains(**known),
    };
    let gone: Vec<_> = NO_PROTECTION.iter().filter(gone).collect();
    assert!(gone.is_empty(), "no keys of the config: {gone:?}");
}

/// Returns a readable file.
fn file() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").to_owned()
}

/// Returns a config with every protection.
fn full(rules: &str, patterns: &str) -> Value {
    let permit = "permit(principal, action, resource);";
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let limit = json!({ "rate": "20/s", "daily": 100 });
    json!({
        "public_url": "https://mcp.example.com",
        "tls": { "cert": file(), "key": file(), "client_ca": file(), "client_auth": "required" },
        "admin": {
            "auth": { "tokens": [{ "name": "ada", "sha256": digest, "expires": "2999-01-31" }] },
            "metrics": "auth",
        },
        "auth": {
            "mode": "required",
            "issuers": [{ "issuer": "https://id.example.com", "strict_type": true }],
            "api_keys": [{ "id": "ci", "sha256": digest, "subject": "build", "expires": "2999-01-31" }],
        },
        "policy": { "files": [rules], "inline": "permit(principal, action, resource);
            forbid(principal, action, resource) when { resource.native == \"c\" };" },
        "validation": { "input": "enforce", "output": "enforce" },
        "rates": {
            "address": { "rate": "50/s" },
            "principal": limit,
            "endpoints": { "/a": limit },
            "groups": { "g": limit },
            "clients": { "c": limit },
            "tools": { "a/write": { "rate": "1/s", "daily": 7, "shared": true } },
            "upstreams": { "a": limit },
            "uncounted": "refuse",
        },
        "upstreams": {
            "a": {
                "url": "https://a.example.com/",
                "asks": ["roots"],
                "secrets": { "patterns": patterns, "arguments": "refuse", "results": "refuse" },
                "validation": { "input": "enforce", "output": "enforce" },
                "tools": { "t": {
                    "scopes": ["s1", "s2"],
                    "validation": { "input": "enforce", "output": "enforce" },
                } },
            },
            "b": { "url": "https://b.example.com/" },
        },
        "endpoints": {
            "/a": {
                "upstreams": ["a", "b"],
                "scopes": ["s1", "s2"],
                "tools": {
                    "include": ["a__*"],
                    "exclude": ["*secret*"],
                    "annotations": { "a__drop": { "destructiveHint": true }, "a__post": { "openWorldHint": true } },
                    "scopes": { "a__*": ["s3", "s4"], "b__*": ["s3", "s4"] },
                },
                "policy": { "files": [rules], "inline": permit.to_owned()
                    + "forbid(principal, action, resource) when { resource.native == \"d\" };" },
            },
        },
        "audit": {
            "file": { "path": "audit.jsonl" },
            "stdout": true,
            "otlp": { "url": "http://127.0.0.1:4318" },
            "on_failure": "closed",
            "key": { "id": 1, "secret": "${WEIR_KEY}" },
        },
    })
}

/// Removes the value at a path with `*` and `[]`, once for each match. Returns the actual path and
/// the remaining config.
fn without(config: &Value, place: &str) -> Vec<(String, Value)> {
    let (head, rest) = match place.find(['.', '[']) {
        Some(0) => ("[]", place[2..].trim_start_matches('.')),
        Some(end) => (&place[..end], place[end..].trim_start_matches('.')),
        None => (place, ""),
    };
    let keys: Vec<String> = match config {
        Value::Array(items) => (0..items.len()).map(|n| n.to_string()).collect(),
        Value::Object(members) => members
            .keys()
            .filter(|key| head == "*" || *key == head)
            .cloned()
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let mut all = Vec::new();
    for key in keys {
        let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        if rest.is_empty() {
            let mut left = config.clone();
            match &mut left {
                Value::Array(items) => drop(items.remove(key.parse().unwrap())),
                Value::Object(members) => drop(members.remove(&key)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
            all.push((key, left));
            continue;
        }
        for (way, below) in without(config.pointer(&pointer).unwrap(), rest) {
            let mut left = config.clone();
            *left.pointer_mut(&pointer).unwrap() = below;
            all.push((format!("{key}.{way}"), left));
        }
    }
    all
}

/// Returns the config without the other settings that could replace the one at a path.
fn with_one(full: &Value, place: &str) -> Value {
    let for_some = ["rates.endpoints", "rates.groups", "rates.clients"]
        .iter()
        .any(|some| place.starts_with(some));
    let mut stand_ins = Vec::new();
    stand_ins.extend(for_some.then_some("rates.principal"));
    stand_ins.extend(
        (place.starts_with("upstreams") && place.contains("validation")).then_some("validation"),
    );
    stand_ins.extend(
        place
            .starts_with("upstreams.*.tools.*.validation")
            .then_some("upstreams.*.validation"),
    );
    stand_ins.into_iter().fold(full.clone(), |full, place| {
        without(&full, place).remove(0).1
    })
}

// Proves G01.
#[test]
fn every_lost_protection_is_reported() {
    let rules = std::env::temp_dir().join(format!("weir-protections-{}.cedar", std::process::id()));
    let text = "permit(principal, action, resource);\nforbid(principal, action, resource) when { resource.native == \"f\" };";
    std::fs::write(&rules, text).unwrap();
    let patterns =
        std::env::temp_dir().join(format!("weir-protections-{}.yaml", std::process::id()));
    std::fs::write(&patterns, "a: AKIA[0-9A-Z]{16}\nb: ghp_[0-9A-Za-z]{36}\n").unwrap();
    let full = full(
        &rules.display().to_string(),
        &patterns.display().to_string(),
    );
    let read = |config: &Value| load(&config.to_string());
    let mut missed = Vec::new();
    for row in PROTECTIONS {
        for place in row.keys {
            let full = with_one(&full, place);
            let outcome = read(&full);
            assert!(!outcome.report.has_errors(), "{}", outcome.report);
            let old = outcome.config.unwrap();
            assert_eq!(weakenings(&old, &old), []);
            let ways = without(&full, place);
            assert!(!ways.is_empty(), "the full config has no {place}");
            for (way, left) in ways {
                // A config with errors is refused because of them.
                let Some(new) = read(&left).config else {
                    continue;
                };
                let lost = weakenings(&old, &new);
                let is_named =
                    |lost: &&Weakening| lost.protection == row.protection && !lost.hint.is_empty();
                if !lost.iter().any(|lost| is_named(&lost)) {
                    missed.push(format!("{way}: {lost:?}"));
                }
                // `allow_weaker` with its path gives it up, unless it has a key of its own.
                let mut given_up = left.clone();
                given_up["allow_weaker"] = lost.iter().map(|lost| lost.path.to_string()).collect();
                let again = weakenings(&old, &read(&given_up).config.unwrap());
                assert!(
                    again.iter().all(|lost| !lost.hint.contains("allow_weaker")),
                    "{way}: {again:?}"
                );
            }
        }
    }
    let _ = std::fs::remove_file(&rules);
    let _ = std::fs::remove_file(&patterns);
    assert!(missed.is_empty(), "{missed:#?}");
}
