#![allow(clippy::unwrap_used, reason = "a test may panic")]
use super::*;

fn read(text: &str) -> Result<(PolicyFile, Vec<PolicyDiagnostic>), Vec<PolicyDiagnostic>> {
    PolicyFile::read("main.cedar", text, 1)
}

#[test]
fn rules_are_named_by_their_id_or_line() {
    let text = "// first\npermit(principal, action, resource);\n\n@id(\"no-deletes\")\nforbid(principal, action == Action::\"call\",\n  resource) when { resource.name like \"*delete*\" };\n  permit(principal,action,resource);";
    let (file, doubts) = read(text).unwrap();
    let ids: Vec<&str> = file.rules.iter().map(|rule| &*rule.id).collect();
    assert_eq!(ids, ["main.cedar:2", "no-deletes", "main.cedar:7"]);
    assert_eq!(doubts, []);
    let actions: Vec<_> = file
        .rules
        .iter()
        .map(|rule| (rule.sees, rule.calls))
        .collect();
    assert_eq!(actions, [(true, true), (false, true), (true, true)]);
}

#[test]
fn policy_errors_have_line_and_cause() {
    let table = [
        (
            "permit(principal, action, resource)\n",
            1,
            "unexpected end of input",
        ),
        (
            "permit(principal, action, resource);\n\npermit(principal, action, resource) when { resource.nmae == \"x\" };",
            3,
            "nmae",
        ),
        (
            "\npermit(principal in User::\"x\", action, resource);",
            2,
            "User",
        ),
        (
            "permit(principal, action == Action::\"list\", resource);",
            1,
            "list",
        ),
        (
            "permit(principal, action, resource) when { context.arguments.hasTag(\"/a\") };",
            1,
            "arguments",
        ),
        (
            "permit(principal, action == Action::\"call\", resource) when { context.arguments.getTag(\"/a\") == \"x\" };",
            1,
            "tag",
        ),
        (
            "permit(principal, action, resource) when { resource.readOnlyHint };",
            1,
            "readOnlyHint",
        ),
        (
            "permit(principal, action, resource) when { principal.subject == 1 };",
            1,
            "type",
        ),
    ];
    for (text, line, part) in table {
        let wrong = read(text).unwrap_err();
        assert_eq!(wrong[0].line, Some(line), "{text}: {wrong:?}");
        assert!(wrong[0].message.contains(part), "{text}: {wrong:?}");
        assert!(!wrong[0].message.contains("policy0"), "{wrong:?}");
    }
    let wrong = read("permit(principal, action, resource) when { resource.readOnlyHint };");
    let hint = wrong.unwrap_err()[0].hint.clone().unwrap();
    assert!(
        hint.contains("`resource has readOnlyHint && resource.readOnlyHint`"),
        "{hint}"
    );
    let all = read(
        "permit(principal, action, resource) when { resource.a };\npermit(principal, action, resource) when { resource.b };",
    );
    assert_eq!(all.unwrap_err().len(), 2, "all of it is said at once");
}

// Proves C22.
#[test]
fn a_text_without_rules_is_refused_and_would_permit_nothing() {
    use super::super::tests::{ToolFixture, call, person};
    use super::super::{EndpointPolicies, PolicyAuthorizer};
    for text in ["", "\n", "// Staff sees everything.", "/"] {
        assert!(read(text).is_err(), "{text:?}");
    }
    assert!(
        read("// nothing").unwrap_err()[0]
            .message
            .contains("has no rule")
    );
    let (file, _) = read("permit(principal, action, resource);").unwrap();
    let (who, tool) = (person("ada", &[], &[]), ToolFixture::new("files/read"));
    let outcome = |files: Vec<PolicyFile>| {
        call(
            &PolicyAuthorizer::new(Arc::new(EndpointPolicies::new(files, Vec::new()))),
            &who,
            &tool,
            "{}",
        )
    };
    assert!(outcome(vec![file.clone()]).is_ok());
    assert!(
        outcome(vec![PolicyFile {
            rules: Arc::new([]),
            ..file
        }])
        .is_err()
    );
    assert!(
        outcome(Vec::new()).is_ok(),
        "without a policy everything is allowed"
    );
}

#[test]
fn truncated_policy_file_is_distinguished_from_an_edited_one() {
    let whole = "permit(principal, action, resource);\nforbid(principal, action, resource) when { resource.native == \"a\" };\nforbid(principal, action, resource) when { resource.native == \"b\" };\n";
    let (old, _) = read(whole).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let lost = |text: &str| read(text).unwrap().0.forbids_cut_off(&old);
    assert_eq!(
        (lost(whole), lost(lines[0]), lost(&lines[..2].join("\n"))),
        (0, 2, 1)
    );
    assert_eq!(lost(whole.trim_end()), 0, "nothing but a line end is gone");
    assert_eq!(lost(&format!("{}\n// that is all", lines[0])), 0);
    assert_eq!(lost(lines[2]), 0, "it begins in another way");
    let (other, _) = PolicyFile::read("other.cedar", lines[0], 1).unwrap();
    assert_eq!(other.forbids_cut_off(&old), 0, "it is another file");
}

// Proves B04.
#[test]
fn rules_that_compute_the_names_of_arguments_are_refused() {
    for condition in [
        "context.arguments.hasTag(resource.name)",
        "principal.hasTag(\"t\") && context.arguments.hasTag(principal.getTag(\"t\"))",
        "(if true then context else context).arguments.hasTag(\"/a\")",
        "context.arguments == context.arguments",
        "context == context",
    ] {
        let text = format!(
            "permit(principal, action, resource);\nforbid(principal, action == Action::\"call\", resource) when {{ {condition} }};"
        );
        let wrong = read(&text).unwrap_err();
        assert_eq!(wrong.len(), 1, "{condition}: {wrong:?}");
        assert!(
            wrong[0].message.contains("by texts") && wrong[0].line == Some(2),
            "{condition}: {wrong:?}"
        );
    }
    let named =
        "context.arguments.hasTag(\"/a\") && principal.hasTag(context.arguments.getTag(\"/a\"))";
    assert!(
        read(&format!(
            "permit(principal, action == Action::\"call\", resource) when {{ {named} }};"
        ))
        .is_ok()
    );
}

#[test]
fn rule_line_is_found_behind_a_commented_copy_of_the_rule() {
    let rule = "permit(principal, action, resource);";
    let (file, _) = read(&format!("// {rule}\n\n{rule}")).unwrap();
    assert_eq!(&*file.rules[0].id, "main.cedar:3");
}

/// A chain of terms, each of two levels.
fn chain(terms: usize) -> String {
    let terms: Vec<_> = (0..terms)
        .map(|n| format!("principal.subject == \"a{n}\""))
        .collect();
    terms.join(" || ")
}

#[test]
fn rules_that_would_exhaust_a_stack_are_refused_with_their_line() {
    let conditions = [
        chain(5000),
        format!("{}true{}", "(".repeat(1000), ")".repeat(1000)),
        format!("{}true{}", "!(".repeat(1000), ")".repeat(1000)),
        format!("{}[]{}", "[".repeat(1000), "]".repeat(1000)),
        format!("{}true", "if true then true else ".repeat(1000)),
        format!("principal{}", ".a".repeat(1000)),
        vec!["true"; 1000].join(" } when { "),
        "(".repeat(100_000),
    ];
    for condition in conditions {
        let text = format!(
            "permit(principal, action, resource);\npermit(principal, action, resource) when {{ {condition} }};"
        );
        let wrong = read(&text).unwrap_err();
        assert_eq!(wrong.len(), 1);
        assert_eq!(wrong[0].line, Some(2));
        assert!(wrong[0].message.contains("levels"), "{wrong:?}");
    }
}

#[test]
fn test_for_arguments_is_refused_with_the_restriction_to_calls() {
    let text = "forbid(principal, action, resource) when { context has arguments && context.arguments.hasTag(\"/a\") };";
    let wrong = read(text).unwrap_err();
    assert!(
        wrong[0]
            .message
            .contains("`context has arguments` is not allowed"),
        "{wrong:?}"
    );
    let hint = wrong[0].hint.as_deref().unwrap();
    assert!(hint.contains("`action == Action::\"call\"`"), "{hint}");
}

#[test]
fn named_entities_of_rules_are_found_in_heads_and_conditions() {
    let text = "forbid(principal in Group::\"g\", action, resource == Tool::\"files/read\") unless { resource in Upstream::\"x\" };";
    let (file, _) = read(text).unwrap();
    let named: Vec<_> = file
        .named_entities()
        .into_iter()
        .map(|named| (named.kind, named.id))
        .collect();
    let pair = |kind: &str, id: &str| (kind.to_owned(), id.to_owned());
    assert_eq!(
        named,
        [
            pair("Group", "g"),
            pair("Tool", "files/read"),
            pair("Upstream", "x")
        ]
    );
}

#[test]
fn templates_are_refused() {
    let wrong = read("permit(principal == ?principal, action, resource);").unwrap_err();
    assert!(wrong[0].message.contains("template"), "{wrong:?}");
}

#[test]
fn rule_that_never_matches_gives_a_warning() {
    let (_, doubts) = read("permit(principal, action, resource) when { false };").unwrap();
    assert!(doubts.len() == 1 && doubts[0].is_warning, "{doubts:?}");
}
