//! The evaluation of the rules that concern a decision. A forbidding rule wins; without a
//! permitting one the answer is no; an evaluation error is a no too.

use std::sync::Arc;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request,
    RestrictedExpression,
};
use weir_core::principal::Principal;

use super::Target;
use super::index::{Deed, Index};
use super::reads::Pointers;
use super::vocabulary::{ARGUMENTS, Type};
use super::{arguments, condition, facts};

/// A decision, and the rules behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// These rules permit it.
    Permitted(Arc<[Arc<str>]>),
    /// No rule permits it.
    Unmentioned,
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

impl Outcome {
    /// The rule that forbids it, if there is one.
    pub(super) fn rule(self) -> Option<Arc<str>> {
        match self {
            Self::Forbidden { rule, .. } => Some(rule),
            Self::Permitted(_) | Self::Unmentioned | Self::Unreadable(_) | Self::Undecided(_) => {
                None
            }
        }
    }
}

/// The decision about one principal and one tool, as far as it holds for all arguments.
pub(super) struct Case {
    pub(super) see: Outcome,
    call: Calls,
}

enum Calls {
    /// Always the same.
    Settled(Outcome),
    /// Some rule reads the arguments.
    Open(Box<Open>),
}

/// The part of a decision that depends on a call's arguments.
struct Open {
    rules: Box<[Asked]>,
    /// The arguments that the rules read.
    pointers: Pointers,
    known: Entities,
    who: EntityUid,
    tool: EntityUid,
}

/// A rule that concerns a decision, and its answer.
struct Asked {
    rule: u32,
    says: Answer,
}

enum Answer {
    /// This, for all arguments.
    Known(Says),
    /// This, if its condition holds for the arguments.
    If(Says),
    /// Only known after an evaluation with the arguments.
    Unknown,
}

/// The answer of one rule.
#[derive(Clone)]
enum Says {
    Permit,
    Forbid,
    /// It does not apply.
    Nothing,
    Error(Arc<str>),
}

impl Case {
    pub(super) fn new(index: &Index, principal: &Principal, target: &Target<'_>) -> Self {
        Self::build(index, principal, target).unwrap_or_else(|error| {
            let undecided = Outcome::Undecided(error.into());
            Self {
                see: undecided.clone(),
                call: Calls::Settled(undecided),
            }
        })
    }

    fn build(index: &Index, principal: &Principal, target: &Target<'_>) -> Result<Self, String> {
        let (who, tool) = (facts::principal(principal)?, facts::tool(target)?);
        let (who_id, tool_id) = (who.uid(), tool.uid());
        let known =
            Entities::from_entities([who, tool], None).map_err(|error| error.to_string())?;
        let mut principals = facts::groups(principal);
        principals.push(who_id.clone());
        let resources = facts::tool_ids(target);
        let concerned = |deed| index.concerned(deed, &principals, &resources);
        let request = request(Deed::See, (&who_id, &tool_id), Context::empty())?;
        let see = concerned(Deed::See)
            .into_iter()
            .map(|rule| (rule, ask(&index.rule(rule).set, &request, &known)));
        let see = outcome(index, see);
        let request = self::request(Deed::Call, (&who_id, &tool_id), with_arguments()?)?;
        let mut pointers = Pointers::default();
        let asked = concerned(Deed::Call).into_iter().map(|at| {
            let rule = index.rule(at);
            let says = match (&rule.parts, rule.reads.context) {
                (_, false) => Answer::Known(ask(&rule.set, &request, &known)),
                (None, true) => Answer::Unknown,
                (Some(parts), true) => match ask(&parts.scope, &request, &known) {
                    says @ (Says::Permit | Says::Forbid) => Answer::If(says),
                    says @ (Says::Nothing | Says::Error(_)) => Answer::Known(says),
                },
            };
            if !matches!(says, Answer::Known(_)) {
                pointers = std::mem::take(&mut pointers).and(&rule.pointers);
            }
            Asked { rule: at, says }
        });
        let rules: Box<[Asked]> = asked
            .filter(|asked| !matches!(asked.says, Answer::Known(Says::Nothing)))
            .collect();
        let settled = rules.iter().map(|asked| match &asked.says {
            Answer::Known(says) => Some((asked.rule, says.clone())),
            Answer::If(_) | Answer::Unknown => None,
        });
        let call = match settled.collect::<Option<Vec<_>>>() {
            Some(said) => Calls::Settled(outcome(index, said.into_iter())),
            None => Calls::Open(Box::new(Open {
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
        index: &Index,
        arguments: Option<&[u8]>,
        named: &dyn Fn(&str) -> bool,
    ) -> Outcome {
        match &self.call {
            Calls::Settled(outcome) => outcome.clone(),
            Calls::Open(open) => open
                .decide(index, arguments, named)
                .unwrap_or_else(|error| Outcome::Undecided(error.into())),
        }
    }
}

impl Open {
    fn decide(
        &self,
        index: &Index,
        arguments: Option<&[u8]>,
        named: &dyn Fn(&str) -> bool,
    ) -> Result<Outcome, String> {
        let scalars = match arguments::scalars(arguments.unwrap_or(b"{}"), &self.pointers, named) {
            Ok(scalars) => scalars,
            Err(why) => return Ok(Outcome::Unreadable(why.into())),
        };
        let whole = self
            .rules
            .iter()
            .any(|asked| matches!(asked.says, Answer::Unknown));
        let whole = if whole {
            Some(self.whole(&scalars)?)
        } else {
            None
        };
        let bare = request(
            Deed::Call,
            (&self.who, &self.tool),
            condition::context(scalars)?,
        )?;
        let said = self.rules.iter().map(|asked| {
            let rule = index.rule(asked.rule);
            let says = match (&asked.says, &rule.parts, &whole) {
                (Answer::Known(says), ..) => says.clone(),
                (Answer::If(says), Some(parts), _) => match parts.holds(&bare, &self.known) {
                    Ok(true) => says.clone(),
                    Ok(false) => Says::Nothing,
                    Err(error) => Says::Error(error.into()),
                },
                (_, _, Some((request, known))) => ask(&rule.set, request, known),
                (Answer::If(_) | Answer::Unknown, ..) => {
                    Says::Error("this rule cannot be asked".into())
                }
            };
            (asked.rule, says)
        });
        Ok(outcome(index, said))
    }

    /// The request and entities for rules that cannot be split: with the arguments as an entity.
    fn whole(&self, scalars: &[(String, String)]) -> Result<(Request, Entities), String> {
        let tags = scalars
            .iter()
            .cloned()
            .map(|(pointer, text)| (pointer, RestrictedExpression::new_string(text)));
        let entity = Entity::new_with_tags(Type::Arguments.id(ARGUMENTS), [], [], tags);
        let entity = entity.map_err(|error| error.to_string())?;
        let known = self
            .known
            .clone()
            .add_entities([entity], None)
            .map_err(|error| error.to_string())?;
        Ok((
            request(Deed::Call, (&self.who, &self.tool), with_arguments()?)?,
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
    index: &Index,
    principal: &Principal,
    target: &Target<'_>,
) -> Result<bool, String> {
    let (who, thing) = (facts::principal(principal)?, facts::tool(target)?);
    let (who_id, thing_id) = (who.uid(), thing.uid());
    let known = Entities::from_entities([who, thing], None).map_err(|error| error.to_string())?;
    let mut principals = facts::groups(principal);
    principals.push(who_id.clone());
    let [_, upstream, endpoint] = facts::tool_ids(target);
    let own_names = format!("{}/", target.upstream);
    for deed in [Deed::See, Deed::Call] {
        let context = match deed {
            Deed::See => Context::empty(),
            Deed::Call => with_arguments()?,
        };
        let request = request(deed, (&who_id, &thing_id), context)?;
        let mut is_permitted = false;
        for rule in index.of_principals(deed, &principals) {
            let is_of_all = rule
                .resource
                .as_ref()
                .is_none_or(|id| *id == upstream || *id == endpoint);
            let is_of_one = rule
                .resource
                .as_ref()
                .is_some_and(|id| id.id().unescaped().starts_with(&own_names));
            if is_of_all && rule.is_even {
                match ask(&rule.set, &request, &known) {
                    Says::Permit => is_permitted = true,
                    Says::Nothing => {}
                    Says::Forbid | Says::Error(_) => return Ok(false),
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
    let arguments = RestrictedExpression::new_entity_uid(Type::Arguments.id(ARGUMENTS));
    Context::from_pairs([(ARGUMENTS.to_owned(), arguments)]).map_err(|error| error.to_string())
}

fn request(
    deed: Deed,
    (who, tool): (&EntityUid, &EntityUid),
    context: Context,
) -> Result<Request, String> {
    let action = Type::Action.id(match deed {
        Deed::See => "see",
        Deed::Call => "call",
    });
    Request::new(who.clone(), action, tool.clone(), context, None)
        .map_err(|error| error.to_string())
}

fn ask(rules: &PolicySet, request: &Request, known: &Entities) -> Says {
    #[cfg(test)]
    super::tests::trip();
    let response = Authorizer::new().is_authorized(request, rules, known);
    if let Some(error) = response.diagnostics().errors().next() {
        return Says::Error(error.to_string().into());
    }
    match response.decision() {
        Decision::Allow => Says::Permit,
        // A deny of a single rule means that it either forbids or does not apply.
        Decision::Deny if response.diagnostics().reason().next().is_some() => Says::Forbid,
        Decision::Deny => Says::Nothing,
    }
}

/// The combined answer of rules. All of them count, also after a permit: an error of the last one
/// is an error.
fn outcome(index: &Index, said: impl Iterator<Item = (u32, Says)>) -> Outcome {
    let mut permits: Vec<Arc<str>> = Vec::new();
    let mut forbidden = None;
    for (rule, says) in said {
        let rule = index.rule(rule);
        match says {
            Says::Permit => permits.push(rule.id.clone()),
            Says::Forbid => {
                forbidden.get_or_insert(rule);
            }
            Says::Nothing => {}
            Says::Error(error) => return Outcome::Undecided(error),
        }
    }
    match forbidden {
        Some(rule) => Outcome::Forbidden {
            rule: rule.id.clone(),
            reason: rule.reason.clone(),
        },
        None if permits.is_empty() => Outcome::Unmentioned,
        None => Outcome::Permitted(permits.into()),
    }
}
