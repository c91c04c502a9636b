//! Asking the rules that concern a decision. One that forbids wins; without one that permits it is no; and where one of
//! them cannot be asked it is no too.

use std::sync::Arc;

use cedar_policy::{Authorizer, Context, Decision, Entities, Entity, EntityUid, Request, RestrictedExpression};
use weir_core::principal::Principal;

use super::Target;
use super::index::{Deed, Index};
use super::reads::Pointers;
use super::sheet::Rule;
use super::vocabulary::{ARGUMENTS, Type};
use super::{arguments, facts};

/// An answer, and what gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// These rules permit it.
    Permitted(Arc<[Arc<str>]>),
    /// No rule permits it.
    Unmentioned,
    /// This rule forbids it.
    Forbidden {
        /// Which.
        rule: Arc<str>,
        /// What it says to clients, if anything.
        reason: Option<Arc<str>>,
    },
    /// A rule has to look at the arguments, and they cannot be read: the text is for the client.
    Unreadable(Arc<str>),
    /// It cannot be decided: the text is for the log.
    Undecided(Arc<str>),
}

/// What is known of one principal's way to one tool, whatever the arguments.
pub(super) struct Case {
    pub(super) see: Outcome,
    call: Calls,
}

enum Calls {
    /// Always the same.
    Settled(Outcome),
    /// Some rule looks at the arguments.
    Open(Box<Open>),
}

/// What is left to decide with a call's arguments.
struct Open {
    rules: Box<[Asked]>,
    /// Which arguments the rules look at.
    pointers: Pointers,
    known: Entities,
    request: Request,
}

/// A rule that concerns a decision, and what it says, unless that depends on the arguments.
struct Asked {
    rule: u32,
    says: Option<Says>,
}

/// What one rule says.
#[derive(Clone)]
enum Says {
    Permit,
    Forbid,
    /// It does not fit.
    Nothing,
    Error(Arc<str>),
}

impl Case {
    pub(super) fn new(index: &Index, principal: &Principal, target: &Target<'_>) -> Self {
        Self::build(index, principal, target).unwrap_or_else(|error| {
            let undecided = Outcome::Undecided(error.into());
            Self { see: undecided.clone(), call: Calls::Settled(undecided) }
        })
    }

    fn build(index: &Index, principal: &Principal, target: &Target<'_>) -> Result<Self, String> {
        let (who, tool) = (facts::principal(principal)?, facts::tool(target)?);
        let (who_id, tool_id) = (who.uid(), tool.uid());
        let known = Entities::from_entities([who, tool], None).map_err(|error| error.to_string())?;
        let mut principals = facts::groups(principal);
        principals.push(who_id.clone());
        let resources = facts::tool_ids(target);
        let concerned = |deed| index.concerned(deed, &principals, &resources);
        let request = request(Deed::See, (&who_id, &tool_id), Context::empty())?;
        let see = concerned(Deed::See).into_iter().map(|rule| (rule, ask(index.rule(rule), &request, &known)));
        let see = outcome(index, see);
        let request = self::request(Deed::Call, (&who_id, &tool_id), with_arguments()?)?;
        let mut pointers = Pointers::These([].into());
        let asked = concerned(Deed::Call).into_iter().map(|at| {
            let rule = index.rule(at);
            if rule.reads.context {
                pointers = std::mem::replace(&mut pointers, Pointers::All).and(&rule.pointers);
                return Asked { rule: at, says: None };
            }
            Asked { rule: at, says: Some(ask(rule, &request, &known)) }
        });
        let rules: Box<[Asked]> = asked.filter(|asked| !matches!(asked.says, Some(Says::Nothing))).collect();
        let call = if rules.iter().any(|asked| asked.says.is_none()) {
            Calls::Open(Box::new(Open { rules, pointers, known, request }))
        } else {
            let said = rules.into_iter().filter_map(|asked| Some((asked.rule, asked.says?)));
            Calls::Settled(outcome(index, said))
        };
        Ok(Self { see, call })
    }

    /// Whether a call with these arguments may be made.
    pub(super) fn call(&self, index: &Index, arguments: Option<&[u8]>) -> Outcome {
        match &self.call {
            Calls::Settled(outcome) => outcome.clone(),
            Calls::Open(open) => open.decide(index, arguments).unwrap_or_else(|error| Outcome::Undecided(error.into())),
        }
    }
}

impl Open {
    fn decide(&self, index: &Index, arguments: Option<&[u8]>) -> Result<Outcome, String> {
        let scalars = match arguments::scalars(arguments.unwrap_or(b"{}"), &self.pointers) {
            Ok(scalars) => scalars,
            Err(why) => return Ok(Outcome::Unreadable(why.into())),
        };
        let tags = scalars.into_iter().map(|(pointer, text)| (pointer, RestrictedExpression::new_string(text)));
        let entity = Entity::new_with_tags(Type::Arguments.id(ARGUMENTS), [], [], tags);
        let entity = entity.map_err(|error| error.to_string())?;
        let known = self.known.clone().add_entities([entity], None).map_err(|error| error.to_string())?;
        let said = self.rules.iter().map(|asked| {
            let says = asked.says.clone().unwrap_or_else(|| ask(index.rule(asked.rule), &self.request, &known));
            (asked.rule, says)
        });
        Ok(outcome(index, said))
    }
}

fn with_arguments() -> Result<Context, String> {
    let arguments = RestrictedExpression::new_entity_uid(Type::Arguments.id(ARGUMENTS));
    Context::from_pairs([(ARGUMENTS.to_owned(), arguments)]).map_err(|error| error.to_string())
}

fn request(deed: Deed, (who, tool): (&EntityUid, &EntityUid), context: Context) -> Result<Request, String> {
    let action = Type::Action.id(match deed {
        Deed::See => "see",
        Deed::Call => "call",
    });
    Request::new(who.clone(), action, tool.clone(), context, None).map_err(|error| error.to_string())
}

fn ask(rule: &Rule, request: &Request, known: &Entities) -> Says {
    #[cfg(test)]
    super::tests::trip();
    let response = Authorizer::new().is_authorized(request, &rule.set, known);
    if let Some(error) = response.diagnostics().errors().next() {
        return Says::Error(error.to_string().into());
    }
    match response.decision() {
        Decision::Allow => Says::Permit,
        // A rule alone that says no either forbids or does not fit.
        Decision::Deny if response.diagnostics().reason().next().is_some() => Says::Forbid,
        Decision::Deny => Says::Nothing,
    }
}

/// What rules say together. All of them count, also when one has said yes: an error of the last one is an error.
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
        Some(rule) => Outcome::Forbidden { rule: rule.id.clone(), reason: rule.reason.clone() },
        None if permits.is_empty() => Outcome::Unmentioned,
        None => Outcome::Permitted(permits.into()),
    }
}
