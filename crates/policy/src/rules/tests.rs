//! Decisions as a table, and with all kinds of failures; [`plainly`] compares them with a plain
//! evaluation of the same rules.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod reference;

use bytes::Bytes;
use cedar_policy::Entities;
use weir_core::principal::{Subject, VerifiedIdentity};
use weir_core::toolset::ToolHints;
use weir_core::upstream::ListKind;
use weir_testkit::principal_of;

use super::cedar_schema::SCHEMA;
use super::rule_texts::{MAX_LEVELS, rule_texts};
use super::*;

pub(super) fn person(name: &str, groups: &[&str], scopes: &[&str]) -> Principal {
    let all = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| Arc::from(*text))
            .collect::<Vec<Arc<str>>>()
            .into()
    };
    let mut subject = Subject::new("https://id.example.com", name);
    (subject.groups, subject.scopes) = (all(groups), all(scopes));
    subject.claims = Arc::new([("team".into(), name.into())]);
    principal_of(VerifiedIdentity::Subject(Arc::new(subject)))
}

/// A tool that is not in any catalog.
#[derive(Debug)]
pub(super) struct ToolFixture {
    kind: ListKind,
    endpoint: EndpointId,
    upstream: UpstreamId,
    native: Arc<str>,
    name: Arc<str>,
    hints: ToolHints,
    scopes: Vec<Arc<str>>,
}

impl ToolFixture {
    pub(super) fn new(home: &str) -> Self {
        let (upstream, native) = home.split_once('/').unwrap();
        Self {
            kind: ListKind::Tools,
            endpoint: EndpointId::new("/mcp"),
            upstream: UpstreamId::new(upstream).unwrap(),
            native: native.into(),
            name: format!("{upstream}__{native}").into(),
            hints: ToolHints::default(),
            scopes: Vec::new(),
        }
    }

    fn target(&self) -> PolicyTarget<'_> {
        let Self {
            kind,
            endpoint,
            upstream,
            native,
            name,
            hints,
            scopes,
        } = self;
        PolicyTarget {
            kind: *kind,
            endpoint,
            upstream,
            native,
            name,
            hints: *hints,
            scopes,
            tool: None,
        }
    }
}

pub(super) fn rules(text: &str) -> PolicyAuthorizer {
    let (file, _) = PolicyFile::read("test", text, 1).unwrap();
    PolicyAuthorizer::new(Arc::new(EndpointPolicies::new(vec![file], Vec::new())))
}

fn ruled(text: &str, endpoint: &str, own: &str) -> PolicyAuthorizer {
    let file = |text| PolicyFile::read("test", text, 1).unwrap().0;
    let own_rules = EndpointRules {
        endpoint: EndpointId::new(endpoint),
        scopes: Vec::new(),
        tool_scopes: Vec::new(),
        files: vec![file(own)],
    };
    PolicyAuthorizer::new(Arc::new(EndpointPolicies::new(
        vec![file(text)],
        vec![own_rules],
    )))
}

pub(super) fn call(
    rules: &PolicyAuthorizer,
    who: &Principal,
    thing: &ToolFixture,
    arguments: &str,
) -> Result<CallPermission, Failure> {
    let arguments = Bytes::copy_from_slice(arguments.as_bytes());
    rules.calls(who, &thing.target(), || Ok(Some(arguments)))
}

/// The visibility (`seen`, `hidden` or the scopes), and the outcome of a call.
fn visibility_and_outcome(
    rules: &PolicyAuthorizer,
    who: &Principal,
    thing: &ToolFixture,
) -> (String, &'static str) {
    let sight = match rules.sees(who, &thing.target()) {
        Visibility::Visible => "seen".to_owned(),
        Visibility::Hidden => "hidden".to_owned(),
        Visibility::NeedsScopes(scopes) => scopes.join(" "),
    };
    (
        sight,
        call(rules, who, thing, "{}").map_or_else(|failure| failure.reason(), |_| "made"),
    )
}

const RULES: &str = r#"
    permit(principal in Group::"staff", action, resource) when { resource has readOnlyHint && resource.readOnlyHint };
    permit(principal in Group::"admins", action, resource);
    permit(principal, action, resource == Tool::"clock/time");
    permit(principal in Group::"staff", action == Action::"see", resource in Upstream::"files");
    permit(principal == Principal::"https://id.example.com carol", action == Action::"call", resource);
    permit(principal, action, resource) when { principal.hasTag("team") && principal.getTag("team") == "red" };
    @id("no-prod") @reason("production is read by hand only")
    forbid(principal, action == Action::"call", resource in Upstream::"prod");
"#;

#[test]
fn shows_all_only_if_no_rule_could_refuse_a_part() {
    let all = |text: &str, who: &Principal, upstream: &str| {
        rules(text).permits_all(
            who,
            &EndpointId::new("/mcp"),
            &UpstreamId::new(upstream).unwrap(),
        )
    };
    let (admin, staff) = (
        person("ada", &["admins"], &[]),
        person("bob", &["staff"], &[]),
    );
    let everything = "permit(principal, action, resource);";
    let yes = [
        everything.to_owned(),
        "permit(principal in Group::\"admins\", action, resource in Upstream::\"files\");".to_owned(),
        "permit(principal, action, resource in Endpoint::\"/mcp\") when { principal in Group::\"admins\" };".to_owned(),
        "permit(principal, action == Action::\"see\", resource); permit(principal, action == Action::\"call\", resource);"
            .to_owned(),
        format!("{everything} forbid(principal, action, resource in Upstream::\"web\");"),
        format!("{everything} forbid(principal, action, resource == Tool::\"web/fetch\");"),
        format!("{everything} forbid(principal in Group::\"staff\", action, resource);"),
        format!("{everything} forbid(principal, action, resource) unless {{ principal in Group::\"admins\" }};"),
        format!(
            "{everything} forbid(principal, action == Action::\"call\", resource == Tool::\"web/fetch\") \
             unless {{ context.arguments.hasTag(\"/a\") }};"
        ),
    ];
    for text in &yes {
        assert!(all(text, &admin, "files"), "{text}");
    }
    let no = [
        "permit(principal, action == Action::\"see\", resource);".to_owned(),
        "permit(principal, action == Action::\"call\", resource);".to_owned(),
        "permit(principal, action, resource == Tool::\"files/read\");".to_owned(),
        "permit(principal, action, resource is Resource);".to_owned(),
        "permit(principal, action, resource is Resource in Upstream::\"files\");".to_owned(),
        "permit(principal, action, resource) when { resource.native like \"*\" };".to_owned(),
        "permit(principal, action, resource in Endpoint::\"/other\");".to_owned(),
        format!("{everything} forbid(principal, action, resource == Tool::\"files/write\");"),
        format!(
            "{everything} forbid(principal, action, resource) when {{ resource.name like \"*write*\" }};"
        ),
        format!("{everything} forbid(principal, action, resource is Prompt);"),
        format!("{everything} forbid(principal, action, resource in Upstream::\"files\");"),
        format!(
            "{everything} forbid(principal, action == Action::\"call\", resource == Tool::\"files/write\") \
             unless {{ context.arguments.hasTag(\"/a\") }};"
        ),
        format!(
            "{everything} forbid(principal, action, resource) when {{ principal.hasTag(\"team\") }};"
        ),
    ];
    for text in &no {
        assert!(!all(text, &admin, "files"), "{text}");
    }
    for (text, theirs) in yes
        .iter()
        .zip([true, false, false, true, true, true, false, false, true])
    {
        assert_eq!(all(text, &staff, "files"), theirs, "{text}");
    }
    let without = PolicyAuthorizer::new(Arc::new(EndpointPolicies::new(Vec::new(), Vec::new())));
    assert!(without.permits_all(
        &staff,
        &EndpointId::new("/mcp"),
        &UpstreamId::new("files").unwrap()
    ));
    panic_trip::set(true);
    let tripped = all(everything, &admin, "files");
    panic_trip::set(false);
    assert!(!tripped, "c22: a panic of the engine is a no");
}

// Proves C21, R115.
#[test]
fn roles_and_tools_lists_and_calls_agree() {
    let rules = rules(RULES);
    let people = [
        person("alice", &["admins"], &[]),
        person("bob", &["staff"], &[]),
        person("carol", &[], &[]),
        person("red", &[], &[]),
        principal_of(VerifiedIdentity::Anonymous),
    ];
    let mut read = ToolFixture::new("files/read");
    read.hints.read_only = Some(true);
    let things = [
        read,
        ToolFixture::new("files/write"),
        ToolFixture::new("clock/time"),
        ToolFixture::new("prod/query"),
    ];
    let expected = [
        // read, write, time, prod
        ["seen made", "seen made", "seen made", "seen denied"],
        [
            "seen made",
            "seen denied",
            "seen made",
            "hidden invalid_params",
        ],
        // May call, but not see: so neither.
        [
            "hidden invalid_params",
            "hidden invalid_params",
            "seen made",
            "hidden invalid_params",
        ],
        ["seen made", "seen made", "seen made", "seen denied"],
        [
            "hidden invalid_params",
            "hidden invalid_params",
            "seen made",
            "hidden invalid_params",
        ],
    ];
    for (who, row) in people.iter().zip(expected) {
        for (thing, wanted) in things.iter().zip(row) {
            let (sight, end) = visibility_and_outcome(&rules, who, thing);
            assert_eq!(format!("{sight} {end}"), wanted, "{who} and {}", thing.name);
            // Once more, now from the cache.
            assert_eq!(visibility_and_outcome(&rules, who, thing), (sight, end));
        }
    }
    let refusal = call(&rules, &people[0], &things[3], "{}").unwrap_err();
    assert_eq!(
        refusal.message(),
        "A rule forbids this call: production is read by hand only"
    );
    let verdict = call(&rules, &people[0], &things[2], "{}").unwrap();
    assert_eq!(
        verdict.rules.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["test:3", "test:4"]
    );
    let hidden = call(&rules, &people[2], &things[1], "{}").unwrap_err();
    assert_eq!(
        hidden.message(),
        Failure::unknown_tool("files__write").message()
    );
}

// Proves R279.
#[test]
fn annotations_count_only_where_the_operator_believes_them() {
    let rules = rules(
        "permit(principal, action, resource) when { resource has destructiveHint && !resource.destructiveHint };",
    );
    let who = person("alice", &[], &[]);
    let mut thing = ToolFixture::new("files/read");
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "hidden");
    thing.hints.destructive = Some(false);
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "seen");
    thing.hints.destructive = Some(true);
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "hidden");
}

#[test]
fn empty_policy_allows_all_and_any_rule_makes_deny_the_default() {
    let (who, thing) = (
        principal_of(VerifiedIdentity::Anonymous),
        ToolFixture::new("files/read"),
    );
    assert_eq!(
        visibility_and_outcome(&PolicyAuthorizer::default(), &who, &thing),
        ("seen".to_owned(), "made")
    );
    assert_eq!(
        PolicyAuthorizer::default().audience(&who, &thing.endpoint),
        None
    );
    let rules = rules("forbid(principal, action, resource in Upstream::\"other\");");
    assert_eq!(
        visibility_and_outcome(&rules, &who, &thing),
        ("hidden".to_owned(), "invalid_params")
    );
}

// Proves R115.
#[test]
fn prompts_and_resources_are_decided_like_tools_and_apart_from_them() {
    let rules = rules(
        r#"permit(principal, action, resource is Tool in Upstream::"files");
           permit(principal, action, resource is Resource) when { resource.native like "file:///srv/*" };
           permit(principal, action, resource == Prompt::"files/read");"#,
    );
    let who = person("alice", &[], &[]);
    let sight = |kind, home: &str| {
        visibility_and_outcome(
            &rules,
            &who,
            &ToolFixture {
                kind,
                ..ToolFixture::new(home)
            },
        )
    };
    let (seen, hidden) = (
        ("seen".to_owned(), "made"),
        ("hidden".to_owned(), "invalid_params"),
    );
    let gone = ("hidden".to_owned(), "unknown_resource");
    assert_eq!(sight(ListKind::Tools, "files/x"), seen);
    assert_eq!(sight(ListKind::Prompts, "files/read"), seen);
    assert_eq!(sight(ListKind::Prompts, "files/x"), hidden);
    assert_eq!(sight(ListKind::Templates, "files/x"), hidden);
    assert_eq!(sight(ListKind::Resources, "web/file:///srv/a"), seen);
    assert_eq!(sight(ListKind::Resources, "web/file:///etc/a"), gone);
}

#[test]
fn rules_of_an_endpoint_hold_there_alone_and_common_ones_everywhere() {
    let rules = ruled(
        "forbid(principal, action, resource) when { resource.native == \"drop\" };",
        "/mcp",
        "permit(principal, action, resource);",
    );
    let who = person("alice", &[], &[]);
    let mut thing = ToolFixture::new("files/read");
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "seen");
    thing.endpoint = EndpointId::new("/other");
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "hidden");
    assert_eq!(
        visibility_and_outcome(&rules, &who, &ToolFixture::new("files/drop")).0,
        "hidden"
    );
    assert_ne!(
        rules.audience(&who, &EndpointId::new("/mcp")),
        rules.audience(&who, &EndpointId::new("/other")),
        "a cursor of one endpoint is none of the other"
    );
}

#[test]
fn challenge_has_all_scopes_of_the_principal_if_a_rule_reads_scopes() {
    let rules = rules(
        "permit(principal, action, resource) when { principal.scopes.contains(\"team:red\") };",
    );
    let mut thing = ToolFixture::new("files/write");
    thing.scopes = vec!["files:write".into()];
    let reader = person("d", &[], &["team:red"]);
    assert_eq!(
        visibility_and_outcome(&rules, &reader, &thing),
        ("files:write team:red".to_owned(), "insufficient_scope")
    );
}

// Proves C21.
#[test]
fn scopes_hide_in_lists_and_step_up_on_calls() {
    let scope = |text: &str| Arc::<str>::from(text);
    let own_rules = EndpointRules {
        endpoint: EndpointId::new("/mcp"),
        scopes: vec![scope("mcp")],
        tool_scopes: vec![scope("files:read"), scope("files:write")],
        files: vec![PolicyFile::read("test", "forbid(principal, action, resource) when { resource.native == \"drop\" }; permit(principal, action, resource);", 1).unwrap().0],
    };
    let rules = PolicyAuthorizer::new(Arc::new(EndpointPolicies::new(Vec::new(), vec![own_rules])));
    let mut thing = ToolFixture::new("files/write");
    thing.scopes = vec![scope("files:write")];
    let (full, half, none) = (
        person("a", &[], &["files:write", "mcp"]),
        person("b", &[], &["mcp"]),
        person("c", &[], &[]),
    );
    assert_eq!(
        visibility_and_outcome(&rules, &full, &thing),
        ("seen".to_owned(), "made")
    );
    assert_eq!(
        visibility_and_outcome(&rules, &half, &thing),
        ("files:write mcp".to_owned(), "insufficient_scope")
    );
    // The challenge has the scopes of other tools that the principal would lose otherwise.
    let reader = person("d", &[], &["files:read", "mcp", "openid"]);
    assert_eq!(
        visibility_and_outcome(&rules, &reader, &thing),
        (
            "files:read files:write mcp".to_owned(),
            "insufficient_scope"
        )
    );
    let outsider = person("e", &[], &["files:read", "openid"]);
    let refusal = rules.may_enter(&outsider, &thing.endpoint).unwrap_err();
    let both = Arc::new([scope("files:read"), scope("mcp")]);
    assert_eq!(refusal.kind(), &FailureKind::InsufficientScope(both));
    let refusal = rules.may_enter(&none, &thing.endpoint).unwrap_err();
    assert_eq!(
        refusal.kind(),
        &FailureKind::InsufficientScope(Arc::new([scope("mcp")]))
    );
    assert!(rules.may_enter(&half, &thing.endpoint).is_ok());
    // A hidden tool is not revealed by a scope.
    thing.native = "drop".into();
    assert_eq!(
        visibility_and_outcome(&rules, &half, &thing),
        ("hidden".to_owned(), "invalid_params")
    );
    assert_ne!(
        rules.audience(&full, &thing.endpoint),
        rules.audience(&half, &thing.endpoint)
    );
    let opinion = rules.explain(&none, &thing.target(), None);
    assert_eq!(
        (
            opinion.lacks_for_endpoint.len(),
            opinion.lacks_for_tool.len()
        ),
        (1, 1)
    );
    assert!(matches!(opinion.see, Some(PolicyOutcome::Forbidden { .. })));
}

#[test]
fn rules_on_arguments_decide_calls_and_unreadable_arguments_are_refused() {
    let rules = rules(
        r#"permit(principal, action == Action::"see", resource);
           permit(principal, action == Action::"call", resource) when {
               context.arguments.hasTag("/path") && context.arguments.getTag("/path") like "/srv/*" };
           forbid(principal, action == Action::"call", resource) when {
               context.arguments.hasTag("/n") && context.arguments.getTag("/n") == "1" };"#,
    );
    let (who, thing) = (person("alice", &[], &[]), ToolFixture::new("files/read"));
    let end = |arguments: &str| {
        call(&rules, &who, &thing, arguments)
            .map_or_else(|f| f.message().to_owned(), |_| "made".to_owned())
    };
    assert_eq!(end(r#"{"path":"/srv/a"}"#), "made");
    assert_eq!(end(r#"{"p\u0061th":"/srv/a"}"#), "made");
    for refused in [
        r#"{"path":"/etc/x"}"#,
        "{}",
        r#"{"a":{"path":"/srv/a"}}"#,
        r#"{"path":["/srv/a"]}"#,
    ] {
        assert!(end(refused).starts_with("No rule allows"), "{refused}");
    }
    for one in ["1", "1.0", "10e-1", "\"1\""] {
        assert!(
            end(&format!(r#"{{"path":"/srv/a","n":{one}}}"#)).starts_with("A rule forbids"),
            "{one}"
        );
    }
    let doubtful = end(r#"{"path":"/etc/x","path":"/srv/a"}"#);
    assert!(
        doubtful.ends_with("an object in the arguments has the same key twice"),
        "{doubtful}"
    );
    assert!(end(&format!("{{\"path\":\"/srv/{}\"}}", "x".repeat(300_000))).contains("more than"));
    let none = rules.calls(&who, &thing.target(), || Ok(None));
    assert!(none.is_err(), "a call without arguments has none to show");
}

// Proves C22.
#[test]
fn an_evaluation_error_denies() {
    // The sum is larger than a number can be: no check at load can find that.
    let broken = r#"permit(principal, action, resource);
        permit(principal, action, resource) when { 9223372036854775807 + 1 == 0 };"#;
    let rules = rules(broken);
    let (who, thing) = (person("alice", &[], &[]), ToolFixture::new("files/read"));
    assert_eq!(
        visibility_and_outcome(&rules, &who, &thing),
        ("hidden".to_owned(), "invalid_params")
    );
    assert!(matches!(
        rules.explain(&who, &thing.target(), None).call,
        Some(PolicyOutcome::Undecided(_))
    ));
    let calls_only = rules_text_for_calls();
    assert_eq!(
        visibility_and_outcome(&calls_only, &who, &thing),
        ("seen".to_owned(), "denied")
    );
}

fn rules_text_for_calls() -> PolicyAuthorizer {
    rules(
        r#"permit(principal, action, resource);
           forbid(principal, action == Action::"call", resource) when { 9223372036854775807 * 2 == 0 };"#,
    )
}

// Proves C22.
#[test]
fn a_panic_of_the_engine_denies() {
    let rules = rules("permit(principal, action, resource);");
    let (who, thing) = (person("alice", &[], &[]), ToolFixture::new("files/read"));
    panic_trip::set(true);
    assert_eq!(
        visibility_and_outcome(&rules, &who, &thing),
        ("hidden".to_owned(), "invalid_params")
    );
    assert!(matches!(
        rules.explain(&who, &thing.target(), None).see,
        Some(PolicyOutcome::Undecided(_))
    ));
    panic_trip::set(false);
    assert_eq!(
        visibility_and_outcome(&rules, &who, &thing),
        ("seen".to_owned(), "made"),
        "nothing is left of it"
    );
    let open = self::rules(
        r#"permit(principal, action == Action::"see", resource);
        permit(principal, action == Action::"call", resource) unless { context.arguments.hasTag("/x") };"#,
    );
    assert_eq!(
        visibility_and_outcome(&open, &who, &thing),
        ("seen".to_owned(), "made")
    );
    panic_trip::set(true);
    assert_eq!(
        visibility_and_outcome(&open, &who, &thing),
        ("seen".to_owned(), "denied")
    );
    panic_trip::set(false);
}

#[test]
fn replaced_policy_set_applies_at_once_and_equal_sets_share_audiences() {
    let rules = rules("permit(principal, action, resource);");
    let (who, thing) = (person("alice", &[], &[]), ToolFixture::new("files/read"));
    let before = rules.audience(&who, &thing.endpoint);
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "seen");
    let other = self::rules("forbid(principal, action, resource);").policies();
    assert_ne!(*rules.policies(), *other);
    rules.replace(other);
    assert_eq!(visibility_and_outcome(&rules, &who, &thing).0, "hidden");
    assert_ne!(rules.audience(&who, &thing.endpoint), before);
    let again = self::rules("permit(principal, action, resource);");
    assert_eq!(
        again.audience(&who, &thing.endpoint),
        before,
        "a replica with the same rules has the same audiences"
    );
}

// Proves D14.
#[test]
fn audience_depends_only_on_attributes_read_by_rules() {
    let endpoint = EndpointId::new("/mcp");
    let by_group = rules("permit(principal in Group::\"staff\", action, resource);");
    let of = |rules: &PolicyAuthorizer, who: &Principal| rules.audience(who, &endpoint).unwrap();
    let (alice, bob) = (
        person("alice", &["staff", "x"], &["s"]),
        person("bob", &["x", "staff"], &[]),
    );
    assert_eq!(of(&by_group, &alice), of(&by_group, &bob));
    assert_ne!(
        of(&by_group, &alice),
        of(&by_group, &person("eve", &["x"], &[]))
    );
    assert_ne!(
        of(&by_group, &person("n", &[], &[])),
        of(&by_group, &principal_of(VerifiedIdentity::Anonymous))
    );
    let by_name =
        rules("permit(principal, action, resource) when { principal.subject == \"alice\" };");
    assert_ne!(of(&by_name, &alice), of(&by_name, &bob));
    // Different sets of texts never have the same audience.
    assert_ne!(
        of(&by_group, &person("a", &["ab", "c"], &[])),
        of(&by_group, &person("a", &["a", "bc"], &[]))
    );
}

#[test]
fn principals_of_two_issuers_never_share_an_id() {
    let one = principal_of(VerifiedIdentity::subject("https://a", "b c"));
    let two = principal_of(VerifiedIdentity::subject("https://a b", "c"));
    assert_ne!(entities::principal_id(&one), entities::principal_id(&two));
    assert_ne!(
        entities::principal_id(&principal_of(VerifiedIdentity::subject("", "anonymous"))),
        entities::principal_id(&principal_of(VerifiedIdentity::Anonymous))
    );
}

#[test]
fn entities_are_as_the_schema_says() {
    let mut subject = Subject::new("i", "s");
    (subject.client, subject.actor) = (Some("c".into()), Some("a".into()));
    (subject.groups, subject.scopes) = (
        Arc::new(["g".into(), "g".into()]),
        Arc::new(["x".into(), "x".into()]),
    );
    subject.claims = Arc::new([("k".into(), "1".into()), ("k".into(), "2".into())]);
    let mut thing = ToolFixture::new("files/read");
    thing.hints = ToolHints {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
    for who in [
        principal_of(VerifiedIdentity::Subject(Arc::new(subject))),
        principal_of(VerifiedIdentity::Anonymous),
    ] {
        for kind in ListKind::ALL {
            thing.kind = kind;
            let entities = [
                entities::principal(&who).unwrap(),
                entities::tool(&thing.target()).unwrap(),
            ];
            Entities::from_entities(entities, Some(&SCHEMA)).unwrap();
        }
    }
}

/// Run with `UPDATE=1` to write the file anew.
#[test]
fn the_checked_in_schema_is_current() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.cedarschema");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, schema()).unwrap();
    }
    let checked_in = std::fs::read_to_string(file).unwrap();
    assert_eq!(
        checked_in,
        schema(),
        "run this test with UPDATE=1 and review the difference"
    );
}

/// The deepest rules that are valid, of several forms, each with a call that it forbids.
fn deepest_rules() -> Vec<String> {
    let rule = |condition: String| {
        format!(
            "permit(principal, action, resource);\nforbid(principal, action == Action::\"call\", resource) when {{ {condition} }};"
        )
    };
    let forms: [&dyn Fn(usize) -> String; 8] = [
        &|n| {
            vec!["principal.subject == \"ben\""; n].join(" || ")
                + " || principal.subject == \"ada\""
        },
        &|n| vec!["principal.subject == \"ada\""; n].join(" && "),
        &|n| {
            let term =
                "context.arguments.hasTag(\"/q\") && context.arguments.getTag(\"/q\") == \"b\"";
            vec![term; n].join(" || ") + " || context.arguments.hasTag(\"/q\")"
        },
        &|n| {
            format!(
                "{}principal.subject == \"ada\"{}",
                "(".repeat(n),
                ")".repeat(n)
            )
        },
        &|n| {
            format!(
                "{}principal.subject != \"ada\"{}",
                "!(".repeat(2 * n + 1),
                ")".repeat(2 * n + 1)
            )
        },
        &|n| {
            format!(
                "{}principal.subject{} == {}\"ada\"{}",
                "[".repeat(n),
                "]".repeat(n),
                "[".repeat(n),
                "]".repeat(n)
            )
        },
        &|n| {
            format!(
                "{}principal.subject == \"ada\"",
                "if principal.subject == \"ben\" then false else ".repeat(n)
            )
        },
        &|n| vec!["principal.subject == \"ada\""; n].join(" } when { "),
    ];
    let is_valid = |text: &String| {
        rule_texts(text)
            .iter()
            .all(|rule| rule.levels <= MAX_LEVELS)
    };
    let deepest = |form: &&dyn Fn(usize) -> String| {
        let all = (1..).map(|n| rule(form(n)));
        all.take_while(is_valid).last().unwrap()
    };
    forms.iter().map(deepest).collect()
}

#[test]
fn deepest_rules_are_read_and_evaluated_on_the_stack_of_a_worker() {
    let work = || {
        for text in deepest_rules() {
            let rules = rules(&text);
            let (ada, tool) = (person("ada", &[], &[]), ToolFixture::new("files/read"));
            let forbidden = PolicyOutcome::Forbidden {
                rule: "test:2".into(),
                reason: None,
            };
            let found = rules.explain(&ada, &tool.target(), Some(b"{\"q\":\"c\"}"));
            assert_eq!(found.call, Some(forbidden), "{text}");
            assert!(call(&rules, &ada, &tool, "{\"q\":\"c\"}").is_err());
            // Another rule decides on what is listed.
            assert_eq!(rules.sees(&ada, &tool.target()), Visibility::Visible);
        }
    };
    // As large as that of tokio's workers.
    let worker = std::thread::Builder::new().stack_size(2 << 20);
    worker.spawn(work).unwrap().join().unwrap();
}

/// Cedar's parser stops at the first rule with an error.
#[test]
fn every_rule_with_a_syntax_error_is_reported() {
    let text = "permit(principal, action, resource) when { 1 + };

permit(principal, action, resource);
forbid(principal action, resource);
permit(principal, action, resource) unless };
";
    let wrong = PolicyFile::read("test", text, 10).unwrap_err();
    let lines: Vec<_> = wrong.iter().filter_map(|one| one.line).collect();
    assert_eq!(lines, [10, 13, 14], "{wrong:?}");
}
