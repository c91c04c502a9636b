//! The weakenings of one config against another, and the explicit consent to each.

use super::*;

const UPSTREAMS: &str = "upstreams: { a: { url: \"http://a/\" } }\n";

/// Returns the protections that are lost between two texts, with their paths.
fn lost(old: &str, new: &str) -> Vec<String> {
    let [old, new] = [old, new].map(|text| good(&format!("{UPSTREAMS}{text}")));
    weakenings(&old, &new)
        .iter()
        .map(|lost| format!("{} {}", lost.protection.label(), lost.path))
        .collect()
}

const AUTH: &str = "auth: { mode: oauth, issuers: [{ issuer: \"https://id.example.com\" }] }\n";
const ADMIN: &str = "admin: { auth: { token: weir_0123456789_of-the-operators } }\n";
const POLICY: &str = "policy: { inline: \"permit(principal, action, resource);\" }\n";
const RATES: &str = "rates: { principal: { rate: 20/s } }\n";
const AUDIT: &str = "audit: { stdout: true }\n";

// Proves G01.
#[test]
fn removed_protection_is_a_loss_unless_switched_off_explicitly() {
    let endpoint = |more: &str| format!("endpoints: {{ /a: {{ upstream: a{more} }} }}\n");
    let own = ", policy: { inline: \"permit(principal, action, resource);\" }";
    let table = [
        (
            AUTH.to_owned(),
            String::new(),
            "auth auth.mode",
            "auth: { mode: none, allow_anyone: true }".to_owned(),
        ),
        (
            ADMIN.to_owned(),
            String::new(),
            "admin admin.auth",
            "admin: { auth: off }".to_owned(),
        ),
        (
            POLICY.to_owned(),
            String::new(),
            "policy policy",
            "policy: off".to_owned(),
        ),
        (
            RATES.to_owned(),
            "rates: {}".to_owned(),
            "rates rates",
            "rates: off".to_owned(),
        ),
        (
            AUDIT.to_owned(),
            String::new(),
            "audit audit",
            "audit: off".to_owned(),
        ),
        (
            "audit: { stdout: true, on_failure: closed }".to_owned(),
            AUDIT.to_owned(),
            "audit audit.on_failure",
            "audit: { stdout: true, on_failure: open }".to_owned(),
        ),
        (
            endpoint(own),
            endpoint(""),
            "policy endpoints./a.policy",
            endpoint(", policy: off"),
        ),
        (
            endpoint(", scopes: [x]"),
            endpoint(""),
            "scopes endpoints./a.scopes",
            endpoint(", scopes: []"),
        ),
        (
            endpoint(", tools: { scopes: { \"*\": [x] } }"),
            endpoint(", tools: { include: [\"*\"] }"),
            "scopes endpoints./a.tools.scopes",
            endpoint(", tools: { scopes: {} }"),
        ),
        (
            endpoint(", scopes: [x]"),
            String::new(),
            "endpoints endpoints",
            endpoint(", scopes: [x]"),
        ),
    ];
    for (old, new, expected, wanted) in table {
        assert_eq!(lost(&old, &new), [expected], "{old}");
        assert_eq!(lost(&old, &wanted), Vec::<String>::new(), "{wanted}");
        assert_eq!(lost(&old, &old), Vec::<String>::new(), "{old}");
        assert_eq!(
            lost(&new, &old),
            Vec::<String>::new(),
            "more than before: {old}"
        );
    }
}

#[test]
fn all_losses_are_reported_with_hints() {
    let old = format!("{AUTH}{ADMIN}{POLICY}{RATES}{AUDIT}");
    assert_eq!(
        lost(&old, ""),
        [
            "auth auth.mode",
            "admin admin.auth",
            "policy policy",
            "rates rates",
            "audit audit"
        ]
    );
    let [old, new] = [old.as_str(), ""].map(|text| good(&format!("{UPSTREAMS}{text}")));
    let said = weakenings(&old, &new)[0].to_string();
    let expected = "auth.mode: clients would no longer need credentials (if this is wanted, write auth: { mode: none, allow_anyone: true })";
    assert_eq!(said, expected);
}

#[test]
fn removed_endpoints_are_no_loss() {
    let old = "endpoints: { /a: { upstream: a }, /b: { upstream: a, scopes: [x] } }";
    assert_eq!(
        lost(old, "endpoints: { /a: { upstream: a } }"),
        Vec::<String>::new()
    );
    // Scopes of an upstream's tools go with the upstream.
    let tools = |text: &str| {
        good(&format!(
            "upstreams: {{ a: {{ url: \"http://a/\"{text} }}, b: {{ url: \"http://b/\" }} }}"
        ))
    };
    let old = tools(", tools: { write: { scopes: [x] } }");
    let places = |new: &Config| {
        weakenings(&old, new)
            .iter()
            .map(|lost| lost.path.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&tools("")), ["upstreams.a.tools.write.scopes"]);
    assert_eq!(
        places(&tools(", tools: { write: { scopes: [] } }")),
        Vec::<String>::new()
    );
    assert_eq!(
        places(&good("upstreams: { b: { url: \"http://b/\" } }")),
        Vec::<String>::new()
    );
}

// Proves C22.
#[test]
fn truncated_policy_file_is_weaker() {
    let folder = TestFolder::new("cut-rules");
    let main = folder.write(
        "weir.yaml",
        &format!("{UPSTREAMS}policy: {{ files: [main.cedar] }}\n"),
    );
    let first = "permit(principal, action, resource);\n";
    let whole = format!(
        "{first}forbid(principal, action, resource) when {{ resource.native == \"drop\" }};\n"
    );
    let config = |text: &str| {
        folder.write("main.cedar", text);
        ConfigLoader::new(ConfigSource::File(main.clone()), &environment)
            .load()
            .config
            .unwrap()
    };
    let old = config(&whole);
    let lost = |text: &str| {
        weakenings(&old, &config(text))
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let said = lost(first);
    assert!(
        said.len() == 1 && said[0].contains("main.cedar lost its end, with 1 of its forbid rules"),
        "{said:?}"
    );
    assert_eq!(lost(first.trim_end()).len(), 1);
    assert_eq!(lost(&whole), Vec::<String>::new());
    // The file has new text, so it was edited on purpose.
    assert_eq!(
        lost(&format!("{first}// dropping is allowed\n")),
        Vec::<String>::new()
    );
    assert_eq!(lost(&whole.replace("drop", "wipe")), Vec::<String>::new());
}
