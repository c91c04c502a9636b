//! The attributes that a rule reads, found in its parsed form, so that principals that look the
//! same to all rules are one audience.
//!
//! Any unknown form counts as a read of everything: that costs memory, never a wrong answer.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::Value;
use weir_core::case_folding;

use crate::rules::cedar_schema::{
    ACTOR, ANONYMOUS, ARGUMENTS, CLIENT, GROUPS, ISSUER, SCOPES, SUBJECT,
};

/// The attributes of a principal and a call that some rules read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AttributeReads {
    pub(super) issuer: bool,
    pub(super) subject: bool,
    pub(super) scopes: bool,
    pub(super) groups: bool,
    pub(super) client: bool,
    pub(super) actor: bool,
    pub(super) claims: bool,
    /// The arguments: then a decision holds for one call only.
    pub(super) context: bool,
}

/// The arguments that a rule reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArgumentPointers {
    /// The arguments at these pointers.
    named: BTreeSet<Box<str>>,
    /// True if it may read further, unknown ones.
    all: bool,
    /// True if it asks whether there are arguments.
    asks_for_any: bool,
}

impl ArgumentPointers {
    /// The arguments at these pointers, and no others.
    #[cfg(test)]
    pub(super) fn these(named: &[&str]) -> Self {
        Self {
            named: named.iter().map(|one| Box::from(*one)).collect(),
            ..Self::default()
        }
    }

    /// All arguments, without names.
    #[cfg(test)]
    pub(super) fn all() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// True if it may read arguments that it does not name.
    pub(super) fn is_open(&self) -> bool {
        self.all
    }

    /// True if it asks whether there are arguments: `context has arguments`.
    pub(super) fn asks_for_any(&self) -> bool {
        self.asks_for_any
    }

    /// The arguments that a policy reads, by its JSON form.
    pub(super) fn of(policy: &Value) -> Self {
        let mut found = Self::default();
        found.look(&policy["conditions"]);
        found
    }

    /// The union.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.named.extend(other.named.iter().cloned());
        self.all |= other.all;
        self
    }

    /// True if a value at this pointer may be read.
    pub(super) fn has(&self, pointer: &str) -> bool {
        self.all || self.named.contains(pointer)
    }

    /// True if the property at this pointer differs in case alone from a named one, or from a
    /// property on the path to a named one, and is not named itself. `parent` is the length of its
    /// object's pointer.
    pub(super) fn has_variant(&self, pointer: &str, parent: usize) -> bool {
        let (before, step) = pointer.split_at(parent + 1);
        let mut variant = false;
        let below = self
            .named
            .range::<str, _>((Bound::Included(before), Bound::Unbounded));
        for named in below.map_while(|named| named.strip_prefix(before)) {
            let named = named.split('/').next().unwrap_or_default();
            if named == step {
                return false;
            }
            variant |= case_folding::equal_folded(named, step);
        }
        variant
    }

    fn look(&mut self, node: &Value) {
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.look(item)),
            Value::Object(members) => {
                for (operator, operands) in members {
                    match (operator.as_str(), tag_of_arguments(operands)) {
                        // A literal has no variables, even if its text looks like one.
                        ("Value", _) => {}
                        // The keys of a record are no operators.
                        ("Record", _) => values(operands).for_each(|value| self.look(value)),
                        ("hasTag" | "getTag", Some(pointer)) => {
                            self.named.insert(pointer.into());
                        }
                        ("Var", _) if operands == "context" => self.all = true,
                        ("has", _)
                            if operands["left"]["Var"] == "context"
                                && operands["attr"] == ARGUMENTS =>
                        {
                            (self.all, self.asks_for_any) = (true, true);
                        }
                        _ => self.look(operands),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// The pointer in `context.arguments.getTag("/pointer")`, by the operands' JSON form.
pub(super) fn tag_of_arguments(operands: &Value) -> Option<&str> {
    let of = &operands["left"]["."];
    let is_arguments = of["left"]["Var"] == "context" && of["attr"] == ARGUMENTS;
    operands["right"]["Value"].as_str().filter(|_| is_arguments)
}

/// The values of a record, by its JSON form.
fn values(record: &Value) -> impl Iterator<Item = &Value> {
    record
        .as_object()
        .into_iter()
        .flat_map(|members| members.values())
}

/// True if conditions, in their JSON form, read the resource or the arguments.
pub(super) fn looks_at_resource(node: &Value) -> bool {
    match node {
        Value::Array(items) => items.iter().any(looks_at_resource),
        Value::Object(members) => {
            members
                .iter()
                .any(|(operator, operands)| match operator.as_str() {
                    // A literal has no variables, even if its text looks like one.
                    "Value" => false,
                    // The keys of a record are no operators.
                    "Record" => values(operands).any(looks_at_resource),
                    "Var" => operands != "principal" && operands != "action",
                    _ => looks_at_resource(operands),
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl AttributeReads {
    const WHO: Self = Self {
        issuer: true,
        subject: true,
        scopes: false,
        groups: false,
        client: false,
        actor: false,
        claims: false,
        context: false,
    };
    const PRINCIPAL: Self = Self {
        scopes: true,
        groups: true,
        client: true,
        actor: true,
        claims: true,
        ..Self::WHO
    };

    /// The attributes that a policy reads, by its JSON form.
    pub(super) fn of(policy: &Value) -> Self {
        let mut reads = Self::scope(&policy["principal"]);
        // Conditions are the rest; annotations are texts and read no attributes.
        reads.look(&policy["conditions"]);
        reads
    }

    /// The union.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            issuer: self.issuer | other.issuer,
            subject: self.subject | other.subject,
            scopes: self.scopes | other.scopes,
            groups: self.groups | other.groups,
            client: self.client | other.client,
            actor: self.actor | other.actor,
            claims: self.claims | other.claims,
            context: self.context | other.context,
        }
    }

    fn add(&mut self, other: Self) {
        *self = self.and(other);
    }

    fn scope(principal: &Value) -> Self {
        let op = principal["op"].as_str().unwrap_or_default();
        let target = principal
            .get("entity")
            .or_else(|| principal.get("in").map(|within| &within["entity"]));
        match (op, target) {
            ("All", None) | ("is", None) => Self::default(),
            ("in" | "is", Some(entity)) if entity["type"] == "Group" => Self {
                groups: true,
                ..Self::default()
            },
            ("==", Some(_)) => Self::WHO,
            _ => Self::PRINCIPAL,
        }
    }

    fn look(&mut self, node: &Value) {
        match node {
            Value::Array(items) => items.iter().for_each(|item| self.look(item)),
            Value::Object(members) => {
                for (operator, operands) in members {
                    if !self.knows(operator, operands) {
                        self.look(operands);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Handles the forms that read a part of a variable; returns true if the form is fully handled.
    fn knows(&mut self, operator: &str, operands: &Value) -> bool {
        let on = |side: &str| operands[side]["Var"].as_str();
        match (operator, on("left"), &operands["attr"]) {
            // A literal has no variables, even if its text looks like one.
            ("Value", ..) => true,
            // The keys of a record are no operators.
            ("Record", ..) => {
                values(operands).for_each(|value| self.look(value));
                true
            }
            ("Var", ..) => {
                match operands.as_str() {
                    Some("resource" | "action") => {}
                    Some("context") => self.context = true,
                    _ => self.add(Self::PRINCIPAL),
                }
                true
            }
            ("." | "has", Some("principal"), Value::String(attribute)) => {
                self.attribute(attribute);
                true
            }
            ("hasTag" | "getTag", Some("principal"), _) => {
                self.claims = true;
                self.look(&operands["right"]);
                true
            }
            ("in", Some("principal"), _) => {
                self.add(Self {
                    groups: true,
                    ..Self::WHO
                });
                self.look(&operands["right"]);
                true
            }
            _ => false,
        }
    }

    fn attribute(&mut self, name: &str) {
        match name {
            // Part of every audience.
            ANONYMOUS => {}
            ISSUER => self.issuer = true,
            SUBJECT => self.subject = true,
            SCOPES => self.scopes = true,
            GROUPS => self.groups = true,
            CLIENT => self.client = true,
            ACTOR => self.actor = true,
            _ => self.add(Self::PRINCIPAL),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use cedar_policy::Policy;

    use super::*;

    fn reads(text: &str) -> AttributeReads {
        AttributeReads::of(&Policy::parse(None, text).unwrap().to_json().unwrap())
    }

    #[test]
    fn argument_pointers_of_a_rule_are_found_or_default_to_all() {
        let these = ArgumentPointers::these;
        let table = [
            (
                "permit(principal, action, resource) when { resource.name == \"context\" };",
                these(&[]),
            ),
            (
                "forbid(principal, action, resource) when { context.arguments.hasTag(\"/a\") && \
                 context.arguments.getTag(\"/a\") like \"x*\" } unless { context.arguments.hasTag(\"/b/0\") };",
                these(&["/a", "/b/0"]),
            ),
            (
                "permit(principal, action, resource) when { context.arguments.hasTag(resource.name) };",
                ArgumentPointers::all(),
            ),
            (
                "permit(principal, action, resource) when { (if true then context else context).arguments.hasTag(\"/a\") };",
                ArgumentPointers::all(),
            ),
            (
                "permit(principal, action, resource) when { context.arguments == context.arguments };",
                ArgumentPointers::all(),
            ),
            (
                "permit(principal, action, resource) when { {Value: context.arguments.getTag(\"/a\")} == {Value: \"x\"} };",
                these(&["/a"]),
            ),
            (
                "permit(principal, action, resource) when { principal.hasTag(context.arguments.getTag(\"/a\")) };",
                these(&["/a"]),
            ),
        ];
        for (text, expected) in table {
            let form = Policy::parse(None, text).unwrap().to_json().unwrap();
            assert_eq!(ArgumentPointers::of(&form), expected, "{text}");
        }
        assert_eq!(these(&["/a"]).and(&these(&["/b"])), these(&["/a", "/b"]));
        assert_eq!(
            these(&["/a"]).and(&ArgumentPointers::all()),
            ArgumentPointers {
                all: true,
                ..these(&["/a"])
            }
        );
    }

    #[test]
    fn conditions_that_read_the_resource_are_detected() {
        let table = [
            ("principal.subject == \"resource\"", false),
            ("principal in Group::\"g\" && !principal.anonymous", false),
            ("principal.hasTag(\"resource\")", false),
            ("action == Action::\"see\"", false),
            ("resource.name like \"a*\"", true),
            ("principal.anonymous || resource in Upstream::\"x\"", true),
            ("context.arguments.hasTag(\"/a\")", true),
            ("{Value: resource.name} == {Value: \"x\"}", true),
            ("{Var: \"resource\"} == {Var: principal.subject}", false),
            ("principal.hasTag(resource.name)", true),
        ];
        for (condition, expected) in table {
            let text = format!("permit(principal, action, resource) when {{ {condition} }};");
            let form = Policy::parse(None, text).unwrap().to_json().unwrap();
            assert_eq!(
                looks_at_resource(&form["conditions"]),
                expected,
                "{condition}"
            );
        }
    }

    #[test]
    fn principals_in_the_head_of_a_rule_are_found() {
        let none = AttributeReads::default();
        let table = [
            ("permit(principal, action, resource);", none),
            (
                "permit(principal is Principal, action, resource) when { resource.name == \"principal\" };",
                none,
            ),
            (
                "@reason(\"principal\") permit(principal, action, resource);",
                none,
            ),
            (
                "permit(principal in Group::\"g\", action, resource);",
                AttributeReads {
                    groups: true,
                    ..none
                },
            ),
            (
                "permit(principal is Principal in Group::\"g\", action, resource);",
                AttributeReads {
                    groups: true,
                    ..none
                },
            ),
            (
                "permit(principal == Principal::\"a b\", action, resource);",
                AttributeReads::WHO,
            ),
        ];
        for (text, expected) in table {
            assert_eq!(reads(text), expected, "{text}");
        }
    }

    #[test]
    fn attributes_in_the_conditions_of_a_rule_are_found() {
        let none = AttributeReads::default();
        let table = [
            (
                "permit(principal, action, resource) when { principal.anonymous };",
                none,
            ),
            (
                "permit(principal, action, resource) when { principal.subject == \"x\" };",
                AttributeReads {
                    subject: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) unless { principal.issuer like \"x*\" };",
                AttributeReads {
                    issuer: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { principal has client && principal.client == \"x\" };",
                AttributeReads {
                    client: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { principal.scopes.contains(\"a\") };",
                AttributeReads {
                    scopes: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { principal.hasTag(\"t\") && principal.getTag(\"t\") == \"x\" };",
                AttributeReads {
                    claims: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { principal in Group::\"g\" };",
                AttributeReads {
                    groups: true,
                    ..AttributeReads::WHO
                },
            ),
            (
                "permit(principal, action, resource) when { {x: principal.actor} == {x: \"y\"} };",
                AttributeReads {
                    actor: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { {Value: principal.subject} == {Value: \"y\"} };",
                AttributeReads {
                    subject: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { context.arguments.hasTag(\"/a\") };",
                AttributeReads {
                    context: true,
                    ..none
                },
            ),
            (
                "permit(principal, action, resource) when { principal.hasTag(context.arguments.getTag(\"/a\")) };",
                AttributeReads {
                    context: true,
                    claims: true,
                    ..none
                },
            ),
        ];
        for (text, expected) in table {
            assert_eq!(reads(text), expected, "{text}");
        }
    }

    #[test]
    fn unclear_reads_of_the_principal_count_as_all_of_them() {
        for text in [
            "permit(principal, action, resource) when { principal == Principal::\"a b\" };",
            "permit(principal, action, resource) when { (if true then principal else principal).subject == \"x\" };",
            "permit(principal, action, resource) when { [principal].contains(principal) };",
        ] {
            assert_eq!(reads(text), AttributeReads::PRINCIPAL, "{text}");
        }
    }
}
