//! A policy file: parsed, checked against the schema, and split into single rules.

use std::fmt;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint, ValidationMode, Validator,
};
use miette::Diagnostic;
use sha2::{Digest, Sha256};

use super::attribute_reads::{ArgumentPointers, AttributeReads, looks_at_resource};
use super::cedar_schema::{SCHEMA, SchemaEntity, is_annotation};
use super::condition::SplitRule;
use super::rule_texts::{MOST_LEVELS, RuleText, rule_texts, with_stack};

/// The most rules of one text; more are a mistake.
const MOST: usize = 10_000;

/// The rules of one text. Two are equal if their texts and names are.
#[derive(Clone)]
pub struct PolicyFile {
    digest: [u8; 32],
    name: Arc<str>,
    /// The text itself, to detect a later one that is the same without its end.
    text: Arc<str>,
    pub(super) rules: Arc<[Arc<PolicyRule>]>,
}

/// An error or a warning about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDiagnostic {
    /// The line in the text, from 1, if it is known.
    pub line: Option<u32>,
    /// The message, for people.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
    /// True for a warning: the rules are valid.
    pub is_warning: bool,
}

/// An entity that a rule names: `Tool::"files/read"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEntity {
    /// The rule.
    pub rule: Arc<str>,
    /// The entity's type.
    pub kind: String,
    /// Its id.
    pub id: String,
}

/// One rule, ready for evaluation.
pub(super) struct PolicyRule {
    /// Its `@id`, or the text's name and its line.
    pub(super) id: Arc<str>,
    /// A set of this rule alone: so a decision needs no set of its own for the rules that concern
    /// it.
    pub(super) set: PolicySet,
    /// The message for a client if this rule forbids: its `@reason`.
    pub(super) reason: Option<Arc<str>>,
    pub(super) sees: bool,
    pub(super) calls: bool,
    /// True for a rule that forbids.
    pub(super) forbids: bool,
    /// The principal or group in its scope; absent for any.
    pub(super) principal: Option<EntityUid>,
    /// The tool, upstream or endpoint in its scope; absent for any.
    pub(super) resource: Option<EntityUid>,
    /// True for a rule with the same answer for everything within [`Self::resource`]: for all
    /// kinds, names and arguments.
    pub(super) is_uniform: bool,
    /// True if not every thread has room for its evaluation.
    pub(super) is_deep: bool,
    pub(super) reads: AttributeReads,
    /// The arguments that it reads.
    pub(super) pointers: ArgumentPointers,
    /// Its scope and its condition apart, if it reads arguments and can be split.
    pub(super) parts: Option<SplitRule>,
}

impl PolicyFile {
    /// Reads a text. `name` is the prefix of its rules' ids; `first` the line number of its first
    /// line, from 1. The complaints returned with the rules are warnings.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn read(
        name: &str,
        text: &str,
        first: u32,
    ) -> Result<(Self, Vec<PolicyDiagnostic>), Vec<PolicyDiagnostic>> {
        let text = PolicySource::new(name, text, first);
        let texts = rule_texts(text.text);
        let deep = text.too_deep(&texts);
        if !deep.is_empty() {
            return Err(deep);
        }
        with_stack(texts.iter().any(RuleText::is_deep), || {
            Self::parse(&text, &texts)
        })
    }

    fn parse(
        text: &PolicySource<'_>,
        texts: &[RuleText],
    ) -> Result<(Self, Vec<PolicyDiagnostic>), Vec<PolicyDiagnostic>> {
        let policies: PolicySet =
            text.text
                .parse()
                .map_err(|errors: cedar_policy::ParseErrors| {
                    errors
                        .iter()
                        .map(|error| text.complaint(error))
                        .collect::<Vec<_>>()
                })?;
        // A text that lost its rules must not count as one without a policy.
        if policies.num_of_policies() == 0 && policies.num_of_templates() == 0 {
            let hint = "to allow nothing, write: forbid(principal, action, resource);";
            let whole = text.whole("has no rule, and without a rule nothing is allowed");
            return Err(vec![PolicyDiagnostic {
                hint: Some(hint.to_owned()),
                ..whole
            }]);
        }
        if policies.num_of_policies() > MOST {
            return Err(vec![text.whole(format!("more than {MOST} rules"))]);
        }
        if policies.num_of_templates() > 0 {
            return Err(vec![text.whole(
                "a rule with `?principal` or `?resource` is a template, and nothing fills it in",
            )]);
        }
        let result = Validator::new(SCHEMA.clone()).validate(&policies, ValidationMode::Strict);
        let mut wrong = text.complaints(
            result
                .validation_errors()
                .map(|error| error as &dyn Diagnostic),
        );
        let doubts = text.complaints(
            result
                .validation_warnings()
                .map(|warning| warning as &dyn Diagnostic),
        );
        let doubts = doubts
            .into_iter()
            .map(|doubt| PolicyDiagnostic {
                is_warning: true,
                ..doubt
            })
            .collect();
        let lines = texts_of_rules(&policies, texts);
        let mut rules = Vec::with_capacity(lines.len());
        for (policy, written) in lines {
            match PolicyRule::of(text, policy, written) {
                Ok(rule) => rules.push(Arc::new(rule)),
                Err(complaint) => wrong.push(complaint),
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut hash = Sha256::new();
        for part in [text.name, text.text] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(text.first.to_be_bytes());
        let (digest, rules) = (hash.finalize().into(), rules.into());
        Ok((
            Self {
                digest,
                name: text.name.into(),
                text: text.text.into(),
                rules,
            },
            doubts,
        ))
    }

    /// The number of forbidding rules that this text lost with its end, if it is a truncated
    /// version of an earlier text of the same name.
    #[must_use]
    pub fn forbids_cut_off(&self, earlier: &Self) -> usize {
        let text = self.text.trim_end();
        let is_cut = self.name == earlier.name
            && text.len() < earlier.text.trim_end().len()
            && earlier.text.starts_with(text);
        if !is_cut {
            return 0;
        }
        let forbids = |file: &Self| file.rules.iter().filter(|rule| rule.forbids).count();
        forbids(earlier).saturating_sub(forbids(self))
    }

    /// The number of forbidding rules that are in no other of the texts, word for word.
    #[must_use]
    pub fn forbids_without(&self, others: &[Self]) -> usize {
        let forbids = |file: &Self| -> Vec<Option<String>> {
            let rules = file.rules.iter().filter(|rule| rule.forbids);
            rules
                .map(|rule| rule.set.policies().next().and_then(Policy::to_cedar))
                .collect()
        };
        let kept: Vec<_> = others.iter().flat_map(forbids).collect();
        // A rule without a printable text equals no other.
        forbids(self)
            .iter()
            .filter(|own| own.is_none() || !kept.contains(own))
            .count()
    }

    /// The entities that the rules name, in the order of the rules.
    #[must_use]
    pub fn named_entities(&self) -> Vec<NamedEntity> {
        let mut all = Vec::new();
        for rule in &*self.rules {
            let literals = rule.set.policies().flat_map(Policy::entity_literals);
            let mut named: Vec<_> = literals
                .map(|entity| NamedEntity {
                    rule: rule.id.clone(),
                    kind: entity.type_name().to_string(),
                    id: entity.id().unescaped().to_owned(),
                })
                .collect();
            named.sort_by(|a, b| (&a.kind, &a.id).cmp(&(&b.kind, &b.id)));
            named.dedup();
            all.append(&mut named);
        }
        all
    }

    /// The name of the text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A digest of the text and its name.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl PartialEq for PolicyFile {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for PolicyFile {}

impl fmt::Debug for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyFile({} rules)", self.rules.len())
    }
}

impl PolicyRule {
    fn of(
        text: &PolicySource<'_>,
        policy: &Policy,
        written: Option<&RuleText>,
    ) -> Result<Self, PolicyDiagnostic> {
        let line = written.map(|rule| text.line(rule.start));
        let bug = |what: &dyn fmt::Display| PolicyDiagnostic {
            line,
            ..text.whole(format!("this rule cannot be used: {what}"))
        };
        let form = policy.to_json().map_err(|error| bug(&error))?;
        let name = policy.annotation("id").map_or_else(
            || {
                line.map_or_else(
                    || format!("{}#{}", text.name, policy.id()),
                    |line| format!("{}:{line}", text.name),
                )
            },
            str::to_owned,
        );
        let (sees, calls) = actions(&policy.action_constraint());
        let (reads, pointers) = (AttributeReads::of(&form), ArgumentPointers::of(&form));
        if pointers.is_open() {
            let (message, hint) = if pointers.asks_for_any() {
                (
                    format!("{name}: `context has arguments` is not allowed"),
                    "a call always has arguments, a list never: remove it, and write \
                     `action == Action::\"call\"` in the head of the rule",
                )
            } else {
                // An argument with an unknown name cannot be distinguished from one that differs
                // in case alone.
                (
                    format!(
                        "{name}: a rule names the arguments that it looks at by texts, and this \
                         one does not"
                    ),
                    "write the name of each argument: context.arguments.getTag(\"/path\")",
                )
            };
            return Err(PolicyDiagnostic {
                line,
                hint: Some(hint.to_owned()),
                ..text.whole(message)
            });
        }
        let set = PolicySet::from_policies([policy.new_id(PolicyId::new(&name))])
            .map_err(|error| bug(&error))?;
        Ok(Self {
            id: name.into(),
            set,
            reason: policy.annotation("reason").map(Into::into),
            sees,
            calls,
            forbids: policy.effect() == Effect::Forbid,
            principal: match policy.principal_constraint() {
                PrincipalConstraint::Any | PrincipalConstraint::Is(_) => None,
                PrincipalConstraint::In(id)
                | PrincipalConstraint::Eq(id)
                | PrincipalConstraint::IsIn(_, id) => Some(id),
            },
            resource: match policy.resource_constraint() {
                ResourceConstraint::Any | ResourceConstraint::Is(_) => None,
                ResourceConstraint::In(id)
                | ResourceConstraint::Eq(id)
                | ResourceConstraint::IsIn(_, id) => Some(id),
            },
            is_uniform: matches!(
                policy.resource_constraint(),
                ResourceConstraint::Any | ResourceConstraint::In(_)
            ) && !looks_at_resource(&form["conditions"]),
            parts: if reads.context {
                SplitRule::of(policy, &form, &pointers)
            } else {
                None
            },
            is_deep: written.is_some_and(RuleText::is_deep),
            reads,
            pointers,
        })
    }
}

/// The advice on a rule that reads an annotation of tools without a test for its presence. Cedar
/// suggests an attribute with a similar name.
fn annotation_hint(message: &str) -> Option<String> {
    let name = message.strip_prefix("attribute `")?.split('`').next()?;
    is_annotation(name)
        .then(|| format!("only a tool may have it: write `resource has {name} && resource.{name}`"))
}

fn actions(constraint: &ActionConstraint) -> (bool, bool) {
    let (see, call) = (
        SchemaEntity::Action.id("see"),
        SchemaEntity::Action.id("call"),
    );
    match constraint {
        ActionConstraint::Any => (true, true),
        ActionConstraint::In(ids) => (ids.contains(&see), ids.contains(&call)),
        ActionConstraint::Eq(id) => (*id == see, *id == call),
    }
}

struct PolicySource<'a> {
    name: &'a str,
    text: &'a str,
    first: u32,
    /// The offsets of its line ends, computed once for many lookups.
    ends: Vec<usize>,
}

impl<'t> PolicySource<'t> {
    fn new(name: &'t str, text: &'t str, first: u32) -> Self {
        let ends = text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| *byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        Self {
            name,
            text,
            first,
            ends,
        }
    }

    fn whole(&self, message: impl Into<String>) -> PolicyDiagnostic {
        PolicyDiagnostic {
            line: None,
            message: message.into(),
            hint: None,
            is_warning: false,
        }
    }

    /// In the order of the text. A rule is checked for tools, prompts and resources: a fault at one
    /// position is reported once.
    fn complaints<'a>(
        &self,
        errors: impl Iterator<Item = &'a dyn Diagnostic>,
    ) -> Vec<PolicyDiagnostic> {
        let place = |error: &dyn Diagnostic| Some(error.labels()?.next()?.offset());
        let mut all: Vec<_> = errors
            .map(|error| (place(error), error.to_string(), error))
            .collect();
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        all.dedup_by(|a, b| a.0.is_some() && a.0 == b.0);
        all.into_iter()
            .map(|(_, _, error)| self.complaint(error))
            .collect()
    }

    fn complaint(&self, error: &dyn Diagnostic) -> PolicyDiagnostic {
        let label = error.labels().and_then(|mut labels| labels.next());
        let message = error.to_string();
        // A rule's own number has no meaning for its author; the line does.
        let own = message
            .split_once(", ")
            .filter(|(head, _)| head.starts_with("for policy `policy"));
        let mut message = own.map(|(_, rest)| rest.to_owned()).unwrap_or(message);
        if let Some(about) = label
            .as_ref()
            .and_then(|label| label.label())
            .filter(|about| !message.contains(about))
        {
            message = format!("{message}: {about}");
        }
        let hint = annotation_hint(&message).or_else(|| error.help().map(|help| help.to_string()));
        PolicyDiagnostic {
            line: label.map(|label| self.line(label.offset())),
            message: message.replace('\n', " "),
            hint: hint.map(|hint| hint.replace('\n', " ")),
            is_warning: false,
        }
    }

    fn line(&self, offset: usize) -> u32 {
        let lines = self.ends.partition_point(|end| *end < offset);
        self.first
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX))
    }

    /// The complaints about rules that a thread could not parse or evaluate.
    fn too_deep(&self, rules: &[RuleText]) -> Vec<PolicyDiagnostic> {
        let deep = rules.iter().filter(|rule| rule.levels > MOST_LEVELS);
        let complaint = |rule: &RuleText| {
            PolicyDiagnostic {
            line: Some(self.line(rule.start)),
            hint: Some(
                "instead of a chain of `||`, write [\"ada\", \"ben\"].contains(principal.subject) or \
                 principal in Group::\"staff\", or split the rule"
                    .to_owned(),
            ),
            ..self.whole(format!(
                "this rule has {} levels, more than {MOST_LEVELS}: each bracket and each operator \
                 of a chain is one",
                rule.levels
            ))
        }
        };
        deep.map(complaint).collect()
    }
}

/// Every rule with its text. The parser numbers rules in the order of the text.
fn texts_of_rules<'a>(
    policies: &'a PolicySet,
    texts: &'a [RuleText],
) -> Vec<(&'a Policy, Option<&'a RuleText>)> {
    let number = |policy: &Policy| {
        let id: &str = policy.id().as_ref();
        id.strip_prefix("policy")
            .and_then(|number| number.parse::<usize>().ok())
            .unwrap_or(usize::MAX)
    };
    let mut sorted: Vec<_> = policies.policies().collect();
    sorted.sort_by_key(|policy| number(policy));
    sorted
        .into_iter()
        .map(|policy| (policy, texts.get(number(policy))))
        .collect()
}

#[cfg(test)]
mod tests {
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
        let named = "context.arguments.hasTag(\"/a\") && principal.hasTag(context.arguments.getTag(\"/a\"))";
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
}
