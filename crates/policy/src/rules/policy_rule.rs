//! One rule of a policy file: its scope, its effect, and the values that it reads.

use std::fmt;
use std::sync::Arc;

use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicyId, PolicySet, PrincipalConstraint,
    ResourceConstraint,
};

use crate::rules::attribute_reads::{ArgumentPointers, AttributeReads, looks_at_resource};
use crate::rules::cedar_schema::SchemaEntity;
use crate::rules::condition::SplitRule;
use crate::rules::policy_source::{PolicyDiagnostic, PolicySource};
use crate::rules::rule_texts::RuleText;

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

impl PolicyRule {
    /// Reads a parsed rule; `written` is its text.
    pub(super) fn of(
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
