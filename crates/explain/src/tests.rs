#![allow(clippy::unwrap_used, reason = "a test may panic")]
use std::sync::Arc;

use serde_json::json;
use weir_config::{ConfigLoader, ConfigSource};
use weir_core::Failure;
use weir_core::failure::FailureKind;
use weir_core::port::{
    AuditLog, BorrowedSecret, BoxFuture, CallAttempt, DocumentFetcher, EndedCall, Evidence,
    FetchRequest, FetchResponse, GateDecision, OperatorAction, SenderEntrance, Verifier as _,
};
use weir_policy::{CredentialVerifier, VerifierPorts};
use weir_system::{SystemClock, SystemRandom};

use super::*;

const CONFIG: &str = r#"
listen: 127.0.0.1:8080
auth:
  mode: required
  issuers:
    - { issuer: https://id.example.com, groups: [groups] }
  api_keys:
    - { id: ci, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, subject: builder, groups: [machines] }
    - { id: old, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855, subject: builder, expires: 2020-01-01 }
upstreams:
  files: { url: "http://127.0.0.1:1/mcp", tools: { wipe: { scopes: [admin] } } }
  web: { url: "http://127.0.0.1:2/mcp", headers: { X-Team: red } }
  mail:
    url: "http://127.0.0.1:3/mcp"
    auth:
      mode: token_exchange
      issuer: http://127.0.0.1:4
      client_id: weir
      client_secret: kept-between-us
endpoints:
  /mcp:
    upstreams: [files, web, mail]
    tools:
      exclude: ["*delete*"]
      alias: { files__read_file: look }
  /closed:
    upstreams: [files]
    scopes: [inner]
policy:
  inline: |
    @id("staff") permit(principal in Group::"staff", action, resource);
    @id("machines") permit(principal in Group::"machines", action, resource in Upstream::"files");
    @id("tmp-only") @reason("only /tmp")
    forbid(principal in Group::"machines", action == Action::"call", resource == Tool::"files/write_file")
    unless { context.arguments.hasTag("/path") && context.arguments.getTag("/path") like "/tmp/*" };
"#;

fn explainer() -> Explainer {
    explainer_of(CONFIG)
}

fn explainer_of(config: &str) -> Explainer {
    let none = |_: &str| None;
    let source = ConfigSource::Text {
        name: "test".to_owned(),
        text: config.to_owned(),
    };
    let outcome = ConfigLoader::new(source, &none).load();
    let config = outcome
        .config
        .unwrap_or_else(|| panic!("{}", outcome.report));
    Explainer::from_config(Arc::new(config), Arc::new(SystemClock::new()))
}

async fn ask(
    claims: serde_json::Value,
    endpoint: &str,
    tool: &str,
    arguments: Option<&str>,
) -> Explanation {
    let question = AccessQuestion::new(&claims.to_string(), endpoint, tool, arguments).unwrap();
    explainer().answer(&question).await
}

/// Returns the stages that stop a call, in order.
fn causes(explanation: &Explanation) -> Vec<&str> {
    let stops = explanation.steps.iter().filter(|step| step.effect.stops());
    stops.map(|step| step.stage.as_str()).collect()
}

#[tokio::test]
async fn the_first_cause_comes_first() {
    let staff = || json!({ "sub": "alice", "groups": ["staff"] });
    let machine = || json!({ "api_key": "ci" });
    let table = [
        (staff(), "/mcp", "files__write_file", "", true),
        (staff(), "/mcp", "files/write_file", "", true),
        (staff(), "/mcp", "look", "", true),
        (staff(), "/mcp", "web__get", "", true),
        (staff(), "/mcp", "mail__send", "", true),
        (staff(), "/nowhere", "look", "endpoint", false),
        (staff(), "/mcp", "files__delete_all", "toolset", false),
        (staff(), "/mcp", "files__read_file", "name", false),
        (staff(), "/mcp", "read_file", "name", false),
        (staff(), "/mcp", "nothing", "name", false),
        (staff(), "/mcp", "files__wipe", "scope", false),
        (staff(), "/closed", "files__list", "scope", false),
        (json!({}), "/mcp", "look", "sender", false),
        (
            json!({ "sub": "x", "iss": "https://evil" }),
            "/mcp",
            "look",
            "sender",
            false,
        ),
        (
            json!({ "sub": "x", "exp": 5, "groups": ["staff"] }),
            "/mcp",
            "look",
            "sender",
            false,
        ),
        (
            json!({ "sub": "x", "aud": "http://127.0.0.1:8080/closed", "groups": ["staff"] }),
            "/mcp",
            "look",
            "sender",
            false,
        ),
        (
            json!({ "api_key": "old" }),
            "/mcp",
            "look",
            "sender policy",
            false,
        ),
        (
            json!({ "api_key": "none" }),
            "/mcp",
            "look",
            "sender",
            false,
        ),
        (json!({ "sub": "bob" }), "/mcp", "look", "policy", false),
        (machine(), "/mcp", "look", "", true),
        (machine(), "/mcp", "web__get", "policy", false),
        (machine(), "/mcp", "files__write_file", "policy", true),
        (machine(), "/mcp", "mail__send", "policy credential", false),
        (
            json!({ "sub": "a", "groups": ["staff"], "scope": "admin" }),
            "/mcp",
            "files__wipe",
            "",
            true,
        ),
        (
            json!({ "sub": "a", "groups": ["staff"], "scope": "inner" }),
            "/closed",
            "files__list",
            "",
            true,
        ),
    ];
    for (claims, endpoint, tool, expected, listed) in table {
        let told = ask(claims.clone(), endpoint, tool, None).await;
        let case = format!("{claims} {endpoint} {tool}:\n{told}");
        assert_eq!(causes(&told).join(" "), expected, "{case}");
        assert_eq!(
            (told.listed, told.callable),
            (listed, expected.is_empty()),
            "{case}"
        );
        assert!(!told.live && !case.contains("hush"), "{case}");
    }
}

#[tokio::test]
async fn arguments_are_shown_to_the_rules_that_look_at_them() {
    let ask = async |path: &str| {
        let arguments = json!({ "path": path }).to_string();
        ask(
            json!({ "api_key": "ci" }),
            "/mcp",
            "files__write_file",
            Some(&arguments),
        )
        .await
    };
    assert!(ask("/tmp/a").await.callable);
    let refused = ask("/etc/a").await;
    assert!(refused.listed && !refused.callable);
    let text = refused.to_string();
    assert!(
        text.starts_with(
            "No: `files__write_file` on /mcp is in the list, but a call would be refused"
        ),
        "{text}"
    );
    assert!(
        text.contains("rule tmp-only forbids `call`: only /tmp"),
        "{text}"
    );
    assert!(text.contains("permitted by machines"), "{text}");
}

/// A network in which no issuer answers.
#[derive(Debug)]
struct SilentNetwork;

impl DocumentFetcher for SilentNetwork {
    fn fetch<'a>(&'a self, _: FetchRequest<'a>) -> BoxFuture<'a, Result<FetchResponse, Failure>> {
        Box::pin(async { Err(Failure::new(FailureKind::Unavailable, "refused")) })
    }
}

/// An audit that keeps no record.
#[derive(Debug)]
struct FullAudit;

impl AuditLog for FullAudit {
    fn record_entrance(&self, _: &SenderEntrance<'_>) {}

    fn record_decision(&self, _: &CallAttempt<'_>, _: GateDecision<'_>) -> Result<(), Failure> {
        Err(Failure::new(FailureKind::Overloaded, "no record"))
    }

    fn record_end(&self, _: &CallAttempt<'_>, _: &EndedCall) {}

    fn can_record(&self) -> bool {
        false
    }

    fn record_operator_action(&self, _: &OperatorAction<'_>) {}
}

/// Asks about `look` on `/mcp`.
async fn ask_about_look(explainer: &Explainer, claims: serde_json::Value) -> Explanation {
    let question = AccessQuestion::new(&claims.to_string(), "/mcp", "look", None).unwrap();
    explainer.answer(&question).await
}

/// Gives the explainer a verifier whose issuers do not answer.
fn with_silent_issuers(mut explainer: Explainer) -> (Explainer, Arc<CredentialVerifier>) {
    let ports = VerifierPorts {
        fetch: Arc::new(SilentNetwork),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
    };
    let verifier = CredentialVerifier::new(explainer.config.load().auth.clone(), ports);
    explainer.credentials = Some(verifier.clone());
    (explainer, verifier)
}

#[tokio::test]
async fn token_of_an_issuer_without_keys_is_refused_and_an_api_key_is_not() {
    let (explainer, _verifier) = with_silent_issuers(explainer());
    let token = json!({ "sub": "alice", "groups": ["staff"] });
    let told = ask_about_look(&explainer, token).await;
    assert_eq!(causes(&told), ["sender"], "{told}");
    let said = told.to_string();
    assert!(
        said.contains("503: the keys of the issuer https://id.example.com were never fetched"),
        "{said}"
    );
    let told = ask_about_look(&explainer, json!({ "api_key": "ci" })).await;
    assert!(told.callable, "{told}");
}

#[tokio::test]
async fn introspection_that_fails_is_noted() {
    let config = CONFIG.replace(
        "groups: [groups] }",
        "groups: [groups], introspection: { url: \"http://127.0.0.1:1/i\", client_id: w, client_secret: kq83jf92jfs02kfs } }",
    );
    let (explainer, verifier) = with_silent_issuers(explainer_of(&config));
    let token = || json!({ "sub": "alice", "groups": ["staff"] });
    let note = "the introspection endpoint of https://id.example.com does not answer";
    let told = ask_about_look(&explainer, token()).await.to_string();
    assert!(!told.contains(note), "{told}");
    let endpoint = weir_core::EndpointId::new("/mcp");
    let evidence = Evidence {
        bearer: Some(BorrowedSecret::new("opaque")),
        ..Evidence::none(std::net::Ipv4Addr::LOCALHOST.into(), &endpoint)
    };
    assert!(verifier.verify(&evidence).await.is_err());
    let told = ask_about_look(&explainer, token()).await;
    assert!(told.callable && told.to_string().contains(note), "{told}");
}

#[tokio::test]
async fn call_that_cannot_be_recorded_is_refused() {
    let mut explainer = explainer();
    explainer.audit = Some(Arc::new(FullAudit));
    let token = json!({ "sub": "alice", "groups": ["staff"] });
    let told = ask_about_look(&explainer, token).await;
    assert_eq!(causes(&told), ["audit"], "{told}");
    assert!(told.listed && !told.callable);
}

// Proves F14.
#[tokio::test]
async fn explain_output_has_no_control_characters_of_the_request() {
    let told = ask(
        json!({ "sub": "a\u{1b}[2J", "groups": ["staff"] }),
        "/m\u{7}",
        "x\u{1b}[31m\n",
        None,
    )
    .await;
    assert!(
        !told
            .to_string()
            .chars()
            .any(|c| c.is_control() && c != '\n'),
        "{told}"
    );
    let told = ask(
        json!({ "sub": "a\u{1b}[2J", "groups": ["staff"] }),
        "/mcp",
        "files__x\u{1b}[31m\u{9b}",
        None,
    )
    .await;
    assert!(
        !told
            .to_string()
            .chars()
            .any(|c| c.is_control() && c != '\n'),
        "{told}"
    );
}

#[tokio::test]
async fn a_secret_in_the_arguments_is_named_by_its_pattern_and_place() {
    let patterns = std::env::temp_dir().join(format!("weir-explain-{}.yaml", std::process::id()));
    std::fs::write(&patterns, "key: AKIA[0-9A-Z]{16}\n").unwrap();
    let secrets = format!(
        "files: {{ secrets: {{ patterns: \"{}\", arguments: refuse }}, url",
        patterns.display()
    );
    let explainer = explainer_of(&CONFIG.replace("files: { url", &secrets));
    let arguments = r#"{"path":"/tmp/x","text":"AKIAIOSFODNN7EXAMPLE"}"#;
    let claims = json!({ "sub": "alice", "groups": ["staff"] });
    let question = AccessQuestion::new(
        &claims.to_string(),
        "/mcp",
        "files__write_file",
        Some(arguments),
    )
    .unwrap();
    let explanation = explainer.answer(&question).await;
    assert_eq!(causes(&explanation), ["arguments"]);
    let said = explanation.to_string();
    assert!(
        said.contains("a secret at /text (pattern `key`)") && !said.contains("AKIA"),
        "{said}"
    );
    let _ = std::fs::remove_file(&patterns);
}
