//! The index, the sharing and the cache compared with the plain engine, for all kinds of rules,
//! principals and tools.

use cedar_policy::{
    Authorizer as Cedar, Context, Decision, Entities, Entity, PolicySet, Request,
    RestrictedExpression,
};
use proptest::prelude::*;
use weir_core::principal::VerifiedIdentity;

use super::super::attribute_reads::ArgumentPointers;
use super::super::cedar_schema::{ARGUMENTS, SCHEMA, SchemaEntity};
use super::super::*;
use super::{ToolFixture, call, person, principal_of, rules};

/// The same request evaluated by plain Cedar: all rules at once, without index and cache.
fn decide_plainly(
    text: &str,
    who: &Principal,
    thing: &ToolFixture,
    action: &str,
    arguments: &str,
) -> bool {
    let policies: PolicySet = text.parse().unwrap();
    let scalars =
        argument_scalars::scalars(arguments.as_bytes(), &ArgumentPointers::all(), &|_| false)
            .unwrap();
    let tags = scalars
        .into_iter()
        .map(|(k, v)| (k, RestrictedExpression::new_string(v)));
    let id = SchemaEntity::Arguments.id("a");
    let entities = [
        entities::principal(who).unwrap(),
        entities::tool(&thing.target()).unwrap(),
        Entity::new_with_tags(id.clone(), [], [], tags).unwrap(),
    ];
    let entities = Entities::from_entities(entities, None).unwrap();
    let context = match action {
        "call" => Context::from_pairs([(
            ARGUMENTS.to_owned(),
            RestrictedExpression::new_entity_uid(id),
        )])
        .unwrap(),
        _ => Context::empty(),
    };
    let [tool, ..] = entities::tool_ids(&thing.target());
    let request = Request::new(
        entities::principal_id(who),
        SchemaEntity::Action.id(action),
        tool,
        context,
        Some(&SCHEMA),
    )
    .unwrap();
    let response = Cedar::new().is_authorized(&request, &policies, &entities);
    response.decision() == Decision::Allow && response.diagnostics().errors().next().is_none()
}

fn any_rule() -> impl Strategy<Value = String> {
    let effect = prop::sample::select(vec!["permit", "permit", "permit", "forbid"]);
    let who = prop::sample::select(vec![
        "principal",
        "principal",
        "principal in Group::\"a\"",
        "principal in Group::\"b\"",
        "principal is Principal in Group::\"b\"",
        "principal == Principal::\"https://id.example.com ann\"",
        "principal == Principal::\"anonymous\"",
    ]);
    let tool = prop::sample::select(vec![
        "resource",
        "resource",
        "resource in Upstream::\"one\"",
        "resource in Endpoint::\"/mcp\"",
        "resource == Tool::\"one/x\"",
        "resource == Tool::\"two/y\"",
        "resource is Tool in Upstream::\"two\"",
    ]);
    let either = prop::sample::select(vec![
        "",
        "",
        "when { principal.scopes.contains(\"s\") }",
        "unless { principal.anonymous }",
        "when { resource has readOnlyHint && resource.readOnlyHint }",
        "when { principal.subject == \"ann\" }",
        "unless { principal.hasTag(\"team\") && principal.getTag(\"team\") == \"ben\" }",
        "when { principal in Group::\"a\" || resource.native == \"y\" }",
        "when { principal has client }",
        "when { 9223372036854775807 + (if principal.groups.contains(\"b\") then 1 else 0) > 0 }",
    ]);
    let calls = prop::sample::select(vec![
        "when { context.arguments.hasTag(\"/p\") }",
        "unless { context.arguments.hasTag(\"/p\") && context.arguments.getTag(\"/p\") == \"1\" }",
        "when { principal.scopes.contains(\"s\") } unless { context.arguments.hasTag(\"/p\") }",
        "when { (if context.arguments.hasTag(\"/p\") then resource.native else \"context\") like \"*x*\" }",
        "when { 9223372036854775807 + (if context.arguments.hasTag(\"/p\") then 1 else 0) > 0 }",
    ]);
    let scope = (effect, who, tool);
    prop_oneof![
        3 => (scope.clone(), prop::sample::select(vec!["action", "action == Action::\"see\"", "action in [Action::\"call\"]"]), either)
            .prop_map(|((effect, who, tool), action, when)| format!("{effect}({who}, {action}, {tool}) {when};")),
        2 => (scope, calls).prop_map(|((effect, who, tool), when)| format!("{effect}({who}, action == Action::\"call\", {tool}) {when};")),
    ]
}

fn any_person() -> impl Strategy<Value = Principal> {
    let name = prop::sample::select(vec!["ann", "ben", "eve"]);
    let groups = prop::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    let scopes = prop::sample::subsequence(vec!["s", "t"], 0..=2);
    prop_oneof![
        8 => (name, groups, scopes).prop_map(|(name, groups, scopes)| person(name, &groups, &scopes)),
        1 => Just(principal_of(VerifiedIdentity::Anonymous)),
    ]
}

fn any_thing() -> impl Strategy<Value = ToolFixture> {
    let home = prop::sample::select(vec!["one/x", "one/y", "two/x", "two/y"]);
    (
        home,
        prop::option::of(any::<bool>()),
        prop::bool::ANY,
        prop::bool::ANY,
    )
        .prop_map(|(home, read_only, scoped, other)| {
            let mut thing = ToolFixture::new(home);
            thing.hints.read_only = read_only;
            if scoped {
                thing.scopes = vec!["s".into()];
            }
            if other {
                thing.endpoint = EndpointId::new("/other");
            }
            thing
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    /// Indexed, shared and cached decisions equal those of the plain engine, in any order of
    /// requests. A tool is listed exactly if a call of it is not answered as one of an unknown
    /// tool.
    // Proves D14.
    #[test]
    fn cached_decisions_equal_those_of_plain_cedar(
        texts in prop::collection::vec(any_rule(), 0..8),
        people in prop::collection::vec(any_person(), 1..6),
        things in prop::collection::vec(any_thing(), 1..6),
        arguments in prop::sample::select(vec!["{}", r#"{"p":1}"#, r#"{"p":"2"}"#]),
    ) {
        let text = texts.join("\n");
        let rules = match text.is_empty() {
            true => PolicyAuthorizer::default(),
            false => rules(&text),
        };
        for who in &people {
            for thing in &things {
                let ask = |action| text.is_empty() || decide_plainly(&text, who, thing, action, arguments);
                let scoped = lacking(who, &thing.scopes).is_empty();
                let (see, may) = (ask("see"), ask("call"));
                let sight = rules.sees(who, &thing.target());
                let called = call(&rules, who, thing, arguments).map_or_else(|failure| failure.reason(), |_| "made");
                let (sight, wanted) = match (see, scoped, may) {
                    (false, ..) => (sight == Visibility::Hidden, Failure::unknown_item(thing.kind, "x").reason()),
                    (true, false, _) => (matches!(sight, Visibility::NeedsScopes(_)), "insufficient_scope"),
                    (true, true, false) => (sight == Visibility::Visible, "denied"),
                    (true, true, true) => (sight == Visibility::Visible, "made"),
                };
                prop_assert!(sight, "{} {:?} {}", who, thing.target(), text);
                prop_assert_eq!(called, wanted, "{} {:?} {}", who, thing.target(), text);
            }
        }
    }
}
