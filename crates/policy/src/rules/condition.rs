//! A rule that reads arguments, split in two: its scope, evaluated once for a principal and a tool,
//! and its condition, evaluated for each call. The condition alone needs no entity for the
//! arguments and no policy set, and both cost several times the evaluation itself.
//!
//! The condition is the rule's own except for one change: `context.arguments.hasTag("/path")` and
//! `.getTag("/path")` become `context has "/path"` and `context["/path"]`, and the context is made
//! of the values.

use cedar_policy::{
    Context, Entities, EvalResult, Expression, Policy, PolicySet, Request, RestrictedExpression,
    eval_expression,
};
use serde_json::{Value, json};

use crate::rules::attribute_reads::{ArgumentPointers, tag_of_arguments};

/// The two parts of a rule with a condition that reads arguments known from its text.
#[derive(Clone, Debug)]
pub(super) struct SplitRule {
    /// The rule without conditions.
    pub(super) scope: PolicySet,
    condition: Expression,
}

impl SplitRule {
    /// Splits the rule with this JSON form; `None` if it has to be evaluated whole.
    pub(super) fn of(policy: &Policy, form: &Value, pointers: &ArgumentPointers) -> Option<Self> {
        if pointers.is_open() {
            return None;
        }
        let mut bare = form.clone();
        *bare.get_mut("conditions")? = json!([]);
        let scope = Policy::from_json(Some(policy.id().clone()), bare).ok()?;
        let condition = expression(&rewritten(&conjunction(form["conditions"].as_array()?)?))?;
        Some(Self {
            scope: PolicySet::from_policies([scope]).ok()?,
            condition,
        })
    }

    /// Evaluates the condition in a context made by [`context`].
    ///
    /// # Errors
    /// It cannot be evaluated; for the log.
    pub(super) fn holds(&self, request: &Request, known: &Entities) -> Result<bool, String> {
        #[cfg(test)]
        super::panic_trip::trip();
        match eval_expression(request, known, &self.condition) {
            Ok(EvalResult::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("a condition is neither true nor false: {other}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The context of conditions: the arguments' values by their pointers.
///
/// # Errors
/// For the log; cannot happen with texts if their pointers differ.
pub(super) fn context(values: Vec<(String, String)>) -> Result<Context, String> {
    let pairs = values
        .into_iter()
        .map(|(pointer, text)| (pointer, RestrictedExpression::new_string(text)));
    Context::from_pairs(pairs).map_err(|error| error.to_string())
}

/// All conditions of a rule as one, in their order: `when` has to hold, `unless` must not.
fn conjunction(conditions: &[Value]) -> Option<Value> {
    let mut whole = None;
    for condition in conditions {
        let body = condition["body"].clone();
        let part = match condition["kind"].as_str()? {
            "when" => body,
            "unless" => json!({ "!": { "arg": body } }),
            _ => return None,
        };
        whole = Some(match whole {
            None => part,
            Some(before) => json!({ "&&": { "left": before, "right": part } }),
        });
    }
    whole
}

/// The same with reads of arguments replaced by reads of the context.
fn rewritten(node: &Value) -> Value {
    match node {
        Value::Array(items) => items.iter().map(rewritten).collect(),
        Value::Object(members) => {
            let member = |(operator, operands): (&String, &Value)| {
                let plain = match operator.as_str() {
                    "hasTag" => "has",
                    "getTag" => ".",
                    // A literal stays unchanged, even if it looks like an operator.
                    "Value" => return (operator.clone(), operands.clone()),
                    _ => return (operator.clone(), rewritten(operands)),
                };
                match tag_of_arguments(operands) {
                    Some(pointer) => (
                        plain.to_owned(),
                        json!({ "left": { "Var": "context" }, "attr": pointer }),
                    ),
                    None => (operator.clone(), rewritten(operands)),
                }
            };
            Value::Object(members.iter().map(member).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => node.clone(),
    }
}

/// An expression from its JSON form. The library reads only whole rules in this form: so it is
/// converted by a rule's text, and back again to check that it is the same.
fn expression(form: &Value) -> Option<Expression> {
    let all = json!({ "op": "All" });
    let whole = json!({
        "effect": "permit", "principal": all, "action": all, "resource": all,
        "conditions": [{ "kind": "when", "body": form }],
    });
    let text = Policy::from_json(None, whole.clone()).ok()?.to_string();
    // A rule without a scope has no text before its condition that could be taken for these words.
    let condition = text.split_once("when {")?.1.rsplit_once('}')?.0;
    let again = Policy::parse(
        None,
        format!("permit(principal, action, resource) when {{ {condition} }};"),
    )
    .ok()?;
    (again.to_json().ok()?["conditions"] == whole["conditions"])
        .then(|| condition.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn parts(conditions: &str) -> Option<SplitRule> {
        let policy = Policy::parse(
            None,
            format!("forbid(principal, action, resource) {conditions};"),
        )
        .unwrap();
        let form = policy.to_json().unwrap();
        SplitRule::of(&policy, &form, &ArgumentPointers::of(&form))
    }

    fn text(conditions: &str) -> String {
        parts(conditions).unwrap().condition.to_string()
    }

    #[test]
    fn a_condition_looks_at_the_context_where_the_rule_looks_at_arguments() {
        let table = [
            (
                r#"when { context.arguments.hasTag("/a") }"#,
                r#"context has "/a""#,
            ),
            (
                r#"when { context.arguments.getTag("/a b") == "x" }"#,
                r#"context["/a b"] == "x""#,
            ),
            (
                r#"unless { context.arguments.hasTag("/a") }"#,
                r#"!(context has "/a")"#,
            ),
            (
                r#"when { context.arguments.hasTag("/a") && resource.name == "when { }" } unless { principal.hasTag(context.arguments.getTag("/a")) }"#,
                r#"((context has "/a") && (resource.name == "when { }")) && (!(principal.hasTag(context["/a"])))"#,
            ),
        ];
        for (conditions, expected) in table {
            let plain = |text: &str| text.replace(['(', ')', ' '], "");
            assert_eq!(plain(&text(conditions)), plain(expected));
        }
    }

    #[test]
    fn conditions_with_computed_argument_reads_are_not_split() {
        assert!(parts("when { context.arguments.hasTag(resource.name) }").is_none());
        assert!(parts("when { context.arguments == context.arguments }").is_none());
    }
}
