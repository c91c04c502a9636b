//! The index of rules: finds the rules that concern a decision by the entities in their scope,
//! without evaluating each of them.

use std::collections::HashMap;
use std::sync::Arc;

use cedar_policy::EntityUid;

use crate::rules::attribute_reads::AttributeReads;
use crate::rules::policy_rule::PolicyRule;

/// The rules of one endpoint, common ones and its own.
#[derive(Default)]
pub(super) struct RuleIndex {
    rules: Vec<Arc<PolicyRule>>,
    see: ScopeTable,
    call: ScopeTable,
    /// The attributes that any of them reads.
    pub(super) reads: AttributeReads,
    has_deep_rules: bool,
}

/// Positions of rules, by the principal or group in their scope and then by the tool, upstream or
/// endpoint.
type ScopeTable = HashMap<Option<EntityUid>, HashMap<Option<EntityUid>, Vec<u32>>>;

/// The action to decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyAction {
    See,
    Call,
}

impl RuleIndex {
    pub(super) fn of<'a>(rules: impl Iterator<Item = &'a Arc<PolicyRule>>) -> Self {
        let mut index = Self::default();
        for (at, rule) in (0..).zip(rules) {
            let tables = [(rule.sees, &mut index.see), (rule.calls, &mut index.call)];
            for (_, table) in tables.into_iter().filter(|(concerns, _)| *concerns) {
                let about = table.entry(rule.principal.clone()).or_default();
                about.entry(rule.resource.clone()).or_default().push(at);
            }
            index.reads = index.reads.and(rule.reads);
            index.has_deep_rules |= rule.is_deep;
            index.rules.push(rule.clone());
        }
        index
    }

    /// True if not every thread has room for the evaluation of all rules.
    pub(super) fn has_deep_rules(&self) -> bool {
        self.has_deep_rules
    }

    pub(super) fn rule(&self, at: u32) -> &Arc<PolicyRule> {
        &self.rules[at as usize]
    }

    /// The rules about an action with a scope that fits one of these principals, for any resource.
    pub(super) fn of_principals<'a>(
        &'a self,
        action: PolicyAction,
        principals: &'a [EntityUid],
    ) -> impl Iterator<Item = &'a Arc<PolicyRule>> {
        self.rules.iter().filter(move |rule| {
            let concerns = match action {
                PolicyAction::See => rule.sees,
                PolicyAction::Call => rule.calls,
            };
            concerns
                && rule
                    .principal
                    .as_ref()
                    .is_none_or(|principal| principals.contains(principal))
        })
    }

    /// The rules with a fitting scope, in the order of their text. `principals` are the principal's
    /// own id and its groups, `resources` the tool's own and its parents.
    pub(super) fn concerned(
        &self,
        action: PolicyAction,
        principals: &[EntityUid],
        resources: &[EntityUid],
    ) -> Vec<u32> {
        let table = match action {
            PolicyAction::See => &self.see,
            PolicyAction::Call => &self.call,
        };
        let of = |ids: &[EntityUid]| {
            std::iter::once(None)
                .chain(ids.iter().cloned().map(Some))
                .collect::<Vec<_>>()
        };
        let resources = of(resources);
        let mut found: Vec<u32> = of(principals)
            .iter()
            .filter_map(|principal| table.get(principal))
            .flat_map(|about| resources.iter().filter_map(|resource| about.get(resource)))
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
