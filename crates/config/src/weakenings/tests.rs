//! Tests the table of protections against the config's schema, and against a config that has all of
//! them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use weir_config_file::schema::{PROTECTION, marked_schema};

use weir_testkit::TestFolder;

use super::super::tests::{TestCertificate, load};
use super::*;

/// The keys of a config.
#[derive(Default)]
struct DeclaredKeys {
    /// All keys, by their paths.
    all: BTreeSet<String>,
    /// The keys that are declared as no protection.
    unprotective: BTreeSet<String>,
}

/// Collects all paths of a schema. `unprotective` is true below a section that has no protections.
fn places(schema: &Value, root: &Value, at: &str, unprotective: bool, found: &mut DeclaredKeys) {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        places(target, root, at, unprotective, found);
    }
    for choice in ["anyOf", "oneOf", "allOf"]
        .iter()
        .flat_map(|key| schema[*key].as_array().into_iter().flatten())
    {
        places(choice, root, at, unprotective, found);
    }
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let place = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        let mark = schema[PROTECTION].as_str();
        assert!(
            matches!(mark, None | Some("none" | "none below")),
            "{place}"
        );
        let below = unprotective || mark == Some("none below");
        if below || mark.is_some() {
            found.unprotective.insert(place.clone());
        }
        found.all.insert(place.clone());
        places(schema, root, &place, below, found);
    }
    // The comparison of a list or map is that of its items.
    for (items, suffix) in [("additionalProperties", ".*"), ("items", "[]")] {
        if schema[items].is_object() {
            let place = format!("{at}{suffix}");
            places(&schema[items], root, &place, unprotective, found);
        }
    }
}

fn declared_keys() -> DeclaredKeys {
    let schema = marked_schema();
    let mut found = DeclaredKeys::default();
    places(&schema, &schema, "", false, &mut found);
    assert!(
        found.all.len() > 200 && found.all.contains("rates.tools.*.shared"),
        "{:?}",
        found.all
    );
    found
}

#[test]
fn every_key_of_the_config_is_a_protection_or_declared_as_none() {
    let DeclaredKeys { all, unprotective } = declared_keys();
    let protections: BTreeSet<&str> = PROTECTIONS
        .iter()
        .flat_map(|row| row.keys)
        .copied()
        .collect();
    // A section is present for the keys in it.
    let is_section = |place: &str| {
        all.iter().any(|known| {
            known
                .strip_prefix(place)
                .is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
        })
    };
    let unknown: Vec<_> = all
        .iter()
        .filter(|place| {
            !protections.contains(place.as_str())
                && !unprotective.contains(*place)
                && !is_section(place)
        })
        .collect();
    assert!(
        unknown.is_empty(),
        "neither a protection nor declared as none: {unknown:#?}"
    );
    let both: Vec<_> = protections
        .iter()
        .filter(|place| unprotective.contains(**place))
        .collect();
    assert!(
        both.is_empty(),
        "a protection and declared as none: {both:?}"
    );
    let gone: Vec<_> = protections
        .iter()
        .filter(|place| !all.contains(place.trim_end_matches("[]").trim_end_matches(".*")))
        .collect();
    assert!(gone.is_empty(), "no keys of the config: {gone:?}");
}

/// The files that a config with every protection names.
struct ProtectionFiles {
    rules: String,
    patterns: String,
    cert: String,
    key: String,
}

impl ProtectionFiles {
    fn new(folder: &TestFolder) -> Self {
        let rules = "permit(principal, action, resource);\nforbid(principal, action, resource) when { resource.native == \"f\" };";
        let patterns = "a: AKIA[0-9A-Z]{16}\nb: ghp_[0-9A-Za-z]{36}\n";
        let TestCertificate { cert, key } = TestCertificate::new();
        let write = |name, text| folder.write(name, text).display().to_string();
        Self {
            rules: write("rules.cedar", rules),
            patterns: write("patterns.yaml", patterns),
            cert: write("cert.pem", &cert),
            key: write("key.pem", &key),
        }
    }
}

/// Returns a config with every protection.
fn full(files: &ProtectionFiles) -> Value {
    let ProtectionFiles {
        rules,
        patterns,
        cert,
        key,
    } = files;
    let permit = "permit(principal, action, resource);";
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let limit = json!({ "rate": "20/s", "daily": 100 });
    json!({
        "public_url": "https://mcp.example.com",
        "tls": { "cert": cert, "key": key, "client_ca": cert, "client_auth": "required" },
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
    let folder = TestFolder::new("protections");
    let full = full(&ProtectionFiles::new(&folder));
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
    assert!(missed.is_empty(), "{missed:#?}");
}
