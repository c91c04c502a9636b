//! The evaluation of the rules that concern a decision. A forbidding rule wins; without a
//! permitting one the answer is no; an evaluation error is a no too.

use std::sync::Arc;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request,
    RestrictedExpression,
};
use weir_core::principal::Principal;

use crate::rules::attribute_reads::ArgumentPointers;
use crate::rules::cedar_schema::{ARGUMENTS, SchemaEntity};
use crate::rules::policy_target::PolicyTarget;
use crate::rules::rule_index::{PolicyAction, RuleIndex};
use crate::rules::rule_texts::with_stack;
use crate::rules::{argument_scalars, condition, entities};

/// A decision, and the rules behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyOutcome {
    /// These rules permit it.
    Permitted(Arc<[Arc<str>]>),
    /// No rule permits it.
    NotPermitted,
    /// This rule forbids it.
    Forbidden {
        /// The rule.
        rule: Arc<str>,
        /// Its message for clients, if it has one.
        reason: Option<Arc<str>>,
    },
    /// A rule reads the arguments, and they cannot be read: the text is for the client.
    Unreadable(Arc<str>),
    /// It cannot be decided: the text is for the log.
    Undecided(Arc<str>),
}

impl PolicyOutcome {
    /// The rule that forbids it, if there is one.
    pub(super) fn rule(self) -> Option<Arc<str>> {
        match self {
            Self::Forbidden { rule, .. } => Some(rule),
            Self::Permitted(_) | Self::NotPermitted | Self::Unreadable(_) | Self::Undecided(_) => {
                None
            }
        }
    }
}

/// The decision about one principal and one tool, as far as it holds for all arguments.
pub(super) struct AccessDecision {
    pub(super) see: PolicyOutcome,
    call: CallRuling,
}

enum CallRuling {
    /// Always the same.
    Settled(PolicyOutcome),
    /// Some rule reads the arguments.
    NeedsArguments(Box<PendingDecision>),
}

/// The part of a decision that depends on a call's arguments.
struct PendingDecision {
    rules: Box<[EvaluatedRule]>,
    /// The arguments that the rules read.
    pointers: ArgumentPointers,
    known: Entities,
    who: EntityUid,
    tool: EntityUid,
}

/// A rule that concerns a decision, and its answer.
struct EvaluatedRule {
    rule: u32,
    says: RuleAnswer,
}

enum RuleAnswer {
    /// This, for all arguments.
    Known(RuleEffect),
    /// This, if its condition holds for the arguments.
    If(RuleEffect),
    /// Only known after an evaluation with the arguments.
    Unknown,
}

/// The answer of one rule.
#[derive(Clone)]
enum RuleEffect {
    Permit,
    Forbid,
    /// It does not apply.
    NotApplicable,
    Error(Arc<str>),
}

impl AccessDecision {
    pub(super) fn new(index: &RuleIndex, principal: &Principal, target: &PolicyTarget<'_>) -> Self {
        let built = with_stack(index.has_deep_rules(), || {
            Self::build(index, principal, target)
        });
        built.unwrap_or_else(|error| {
            let undecided = PolicyOutcome::Undecided(error.into());
            Self {
                see: undecided.clone(),
                call: CallRuling::Settled(undecided),
            }
        })
    }

    fn build(
        index: &RuleIndex,
        principal: &Principal,
        target: &PolicyTarget<'_>,
    ) -> Result<Self, String> {
        let (who, tool) = (entities::principal(principal)?, entities::tool(target)?);
        let (who_id, tool_id) = (who.uid(), tool.uid());
        let known =
            Entities::from_entities([who, tool], None).map_err(|error| error.to_string())?;
        let mut principals = entities::groups(principal);
        principals.push(who_id.clone());
        let resources = entities::tool_ids(target);
        let concerned = |action| index.concerned(action, &principals, &resources);
        let request = request(PolicyAction::See, &who_id, &tool_id, Context::empty())?;
        let see = concerned(PolicyAction::See)
            .into_iter()
            .map(|rule| (rule, evaluate(&index.rule(rule).set, &request, &known)));
        let see = outcome(index, see);
        let request = self::request(PolicyAction::Call, &who_id, &tool_id, with_arguments()?)?;
        let mut pointers = ArgumentPointers::default();
        let answers = concerned(PolicyAction::Call).into_iter().map(|at| {
            let rule = index.rule(at);
            let says = match (&rule.parts, rule.reads.context) {
                (_, false) => RuleAnswer::Known(evaluate(&rule.set, &request, &known)),
                (None, true) => RuleAnswer::Unknown,
                (Some(parts), true) => match evaluate(&parts.scope, &request, &known) {
                    says @ (RuleEffect::Permit | RuleEffect::Forbid) => RuleAnswer::If(says),
                    says @ (RuleEffect::NotApplicable | RuleEffect::Error(_)) => {
                        RuleAnswer::Known(says)
                    }
                },
            };
            if !matches!(says, RuleAnswer::Known(_)) {
                pointers = std::mem::take(&mut pointers).and(&rule.pointers);
            }
            EvaluatedRule { rule: at, says }
        });
        let rules: Box<[EvaluatedRule]> = answers
            .filter(|answer| !matches!(answer.says, RuleAnswer::Known(RuleEffect::NotApplicable)))
            .collect();
        let settled = rules.iter().map(|answer| match &answer.says {
            RuleAnswer::Known(says) => Some((answer.rule, says.clone())),
            RuleAnswer::If(_) | RuleAnswer::Unknown => None,
        });
        let call = match settled.collect::<Option<Vec<_>>>() {
            Some(said) => CallRuling::Settled(outcome(index, said.into_iter())),
            None => CallRuling::NeedsArguments(Box::new(PendingDecision {
                rules,
                pointers,
                known,
                who: who_id,
                tool: tool_id,
            })),
        };
        Ok(Self { see, call })
    }

    /// Decides on a call with these arguments; `named` reports if the tool's schema names the
    /// argument at a JSON pointer.
    pub(super) fn call(
        &self,
        index: &RuleIndex,
        arguments: Option<&[u8]>,
        named: &dyn Fn(&str) -> bool,
    ) -> PolicyOutcome {
        match &self.call {
            CallRuling::Settled(outcome) => outcome.clone(),
            CallRuling::NeedsArguments(open) => with_stack(index.has_deep_rules(), || {
                open.decide(index, arguments, named)
            })
            .unwrap_or_else(|error| PolicyOutcome::Undecided(error.into())),
        }
    }
}

impl PendingDecision {
    fn decide(
        &self,
        index: &RuleIndex,
        arguments: Option<&[u8]>,
        named: &dyn Fn(&str) -> bool,
    ) -> Result<PolicyOutcome, String> {
        let scalars =
            match argument_scalars::scalars(arguments.unwrap_or(b"{}"), &self.pointers, named) {
                Ok(scalars) => scalars,
                Err(why) => return Ok(PolicyOutcome::Unreadable(why.into())),
            };
        let whole = self
            .rules
            .iter()
            .any(|answer| matches!(answer.says, RuleAnswer::Unknown));
        let whole = if whole {
            Some(self.whole(&scalars)?)
        } else {
            None
        };
        let bare = request(
            PolicyAction::Call,
            &self.who,
            &self.tool,
            condition::context(scalars)?,
        )?;
        let effects = self.rules.iter().map(|answer| {
            let rule = index.rule(answer.rule);
            let says = match (&answer.says, &rule.parts, &whole) {
                (RuleAnswer::Known(says), ..) => says.clone(),
                (RuleAnswer::If(says), Some(parts), _) => match parts.holds(&bare, &self.known) {
                    Ok(true) => says.clone(),
                    Ok(false) => RuleEffect::NotApplicable,
                    Err(error) => RuleEffect::Error(error.into()),
                },
                (_, _, Some((request, known))) => evaluate(&rule.set, request, known),
                (RuleAnswer::If(_) | RuleAnswer::Unknown, ..) => {
                    RuleEffect::Error("this rule cannot be asked".into())
                }
            };
            (answer.rule, says)
        });
        Ok(outcome(index, effects))
    }

    /// The request and entities for rules that cannot be split: with the arguments as an entity.
    fn whole(&self, scalars: &[(String, String)]) -> Result<(Request, Entities), String> {
        let tags = scalars
            .iter()
            .cloned()
            .map(|(pointer, text)| (pointer, RestrictedExpression::new_string(text)));
        let entity = Entity::new_with_tags(SchemaEntity::Arguments.id(ARGUMENTS), [], [], tags);
        let entity = entity.map_err(|error| error.to_string())?;
        let known = self
            .known
            .clone()
            .add_entities([entity], None)
            .map_err(|error| error.to_string())?;
        Ok((
            request(PolicyAction::Call, &self.who, &self.tool, with_arguments()?)?,
            known,
        ))
    }
}

/// Returns true if a principal may see and call everything of the target's upstream: for each
/// action a rule permits that without reading the resource or the arguments, and no rule could
/// forbid a part of it. The target stands for the whole upstream.
///
/// # Errors
/// For the log.
pub(super) fn shows_all(
    index: &RuleIndex,
    principal: &Principal,
    target: &PolicyTarget<'_>,
) -> Result<bool, String> {
    with_stack(index.has_deep_rules(), || {
        permits_all(index, principal, target)
    })
}

fn permits_all(
    index: &RuleIndex,
    principal: &Principal,
    target: &PolicyTarget<'_>,
) -> Result<bool, String> {
    let (who, thing) = (entities::principal(principal)?, entities::tool(target)?);
    let (who_id, thing_id) = (who.uid(), thing.uid());
    let known = Entities::from_entities([who, thing], None).map_err(|error| error.to_string())?;
    let mut principals = entities::groups(principal);
    principals.push(who_id.clone());
    let [_, upstream, endpoint] = entities::tool_ids(target);
    let own_names = format!("{}/", target.upstream);
    for action in [PolicyAction::See, PolicyAction::Call] {
        let context = match action {
            PolicyAction::See => Context::empty(),
            PolicyAction::Call => with_arguments()?,
        };
        let request = request(action, &who_id, &thing_id, context)?;
        let mut is_permitted = false;
        for rule in index.of_principals(action, &principals) {
            let is_of_all = rule
                .resource
                .as_ref()
                .is_none_or(|id| *id == upstream || *id == endpoint);
            let is_of_one = rule
                .resource
                .as_ref()
                .is_some_and(|id| id.id().unescaped().starts_with(&own_names));
            if is_of_all && rule.is_uniform {
                match evaluate(&rule.set, &request, &known) {
                    RuleEffect::Permit => is_permitted = true,
                    RuleEffect::NotApplicable => {}
                    RuleEffect::Forbid | RuleEffect::Error(_) => return Ok(false),
                }
            } else if rule.forbids && (is_of_all || is_of_one) {
                return Ok(false);
            }
        }
        if !is_permitted {
            return Ok(false);
        }
    }
    Ok(true)
}

fn with_arguments() -> Result<Context, String> {
    let arguments = RestrictedExpression::new_entity_uid(SchemaEntity::Arguments.id(ARGUMENTS));
    Context::from_pairs([(ARGUMENTS.to_owned(), arguments)]).map_err(|error| error.to_string())
}

fn request(
    action: PolicyAction,
    principal: &EntityUid,
    tool: &EntityUid,
    context: Context,
) -> Result<Request, String> {
    let action = SchemaEntity::Action.id(match action {
        PolicyAction::See => "see",
        PolicyAction::Call => "call",
    });
    Request::new(principal.clone(), action, tool.clone(), context, None)
        .map_err(|error| error.to_string())
}

fn evaluate(rules: &PolicySet, request: &Request, known: &Entities) -> RuleEffect {
    #[cfg(test)]
    super::panic_trip::trip();
    let response = Authorizer::new().is_authorized(request, rules, known);
    if let Some(error) = response.diagnostics().errors().next() {
        return RuleEffect::Error(error.to_string().into());
    }
    match response.decision() {
        Decision::Allow => RuleEffect::Permit,
        // A deny of a single rule means that it either forbids or does not apply.
        Decision::Deny if response.diagnostics().reason().next().is_some() => RuleEffect::Forbid,
        Decision::Deny => RuleEffect::NotApplicable,
    }
}

/// The combined answer of rules. All of them count, also after a permit: an error of the last one
/// is an error.
fn outcome(index: &RuleIndex, effects: impl Iterator<Item = (u32, RuleEffect)>) -> PolicyOutcome {
    let mut permits: Vec<Arc<str>> = Vec::new();
    let mut forbidden = None;
    for (rule, says) in effects {
        let rule = index.rule(rule);
        match says {
            RuleEffect::Permit => permits.push(rule.id.clone()),
            RuleEffect::Forbid => {
                forbidden.get_or_insert(rule);
            }
            RuleEffect::NotApplicable => {}
            RuleEffect::Error(error) => return PolicyOutcome::Undecided(error),
        }
    }
    match forbidden {
        Some(rule) => PolicyOutcome::Forbidden {
            rule: rule.id.clone(),
            reason: rule.reason.clone(),
        },
        None if permits.is_empty() => PolicyOutcome::NotPermitted,
        None => PolicyOutcome::Permitted(permits.into()),
    }
}
