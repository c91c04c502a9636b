//! A policy file: parsed, checked against the schema, and split into single rules.

use std::fmt;
use std::sync::Arc;

use cedar_policy::{Policy, PolicySet, ValidationMode, Validator};
use miette::Diagnostic;
use sha2::{Digest, Sha256};

use crate::rules::cedar_schema::SCHEMA;
use crate::rules::policy_rule::PolicyRule;
use crate::rules::policy_source::{PolicyDiagnostic, PolicySource};
use crate::rules::rule_texts::{RuleText, rule_texts, with_stack};

/// The most rules of one text; more are a mistake.
const MAX_RULES: usize = 10_000;

/// The rules of one text. Two are equal if their texts and names are.
#[derive(Clone)]
pub struct PolicyFile {
    digest: [u8; 32],
    name: Arc<str>,
    /// The text itself, to detect a later one that is the same without its end.
    text: Arc<str>,
    pub(super) rules: Arc<[Arc<PolicyRule>]>,
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
        let policies = text.parse().map_err(|first| {
            let all = text.syntax_errors(texts);
            if all.is_empty() { first } else { all }
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
        if policies.num_of_policies() > MAX_RULES {
            return Err(vec![text.whole(format!("more than {MAX_RULES} rules"))]);
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
mod tests;
