//! The operator's rules about who sees and calls what: scopes, and policies in Cedar.
//!
//! A list is decided by `see`, a call by `call` as well; so a tool is in a principal's list exactly
//! if a call of it is not answered "unknown tool" (or, for want of scopes, by which scopes it
//! takes). Whatever goes wrong on the way to an answer, a panic of the engine included, is a no.
//! This is not a place for limits, and none for what an endpoint shows at all.

mod arguments;
mod book;
mod condition;
mod facts;
mod index;
mod judge;
#[cfg(test)]
mod prove;
mod reads;
mod sheet;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::call::Call;
use weir_core::catalog::{Item, Tool};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Audience, Authorizer, Sight, Verdict};
use weir_core::principal::Principal;
use weir_core::toolset::Hints;
use weir_core::upstream::ListKind;

pub use book::{Book, Ruling};
pub use judge::Outcome;
pub use sheet::{Complaint, Sheet};
pub use vocabulary::schema;

use self::book::Desk;
use self::judge::Case;

/// The rules in force. A reload replaces them as a whole; a decision is by those of one moment.
#[derive(Default)]
pub struct Rules(ArcSwap<Book>);

/// What rules know of a tool on an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// A tool, or what else it is.
    pub kind: ListKind,
    /// The endpoint.
    pub endpoint: &'a EndpointId,
    /// The tool's upstream.
    pub upstream: &'a UpstreamId,
    /// The upstream's own name for it.
    pub native: &'a Arc<str>,
    /// Its name on the endpoint.
    pub name: &'a Arc<str>,
    /// What may be believed of what it does.
    pub hints: Hints,
    /// The scopes it takes, beside the endpoint's.
    pub scopes: &'a [Arc<str>],
    /// The tool as the catalog has it, where it is there: what its schema names.
    pub tool: Option<&'a Tool>,
}

/// What every rule says about one principal and one tool, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// Scopes of the endpoint that the principal lacks.
    pub lacks_for_endpoint: Vec<Arc<str>>,
    /// Scopes of the tool that the principal lacks.
    pub lacks_for_tool: Vec<Arc<str>>,
    /// Whether it is listed; `None`: no rule decides here.
    pub see: Option<Outcome>,
    /// Whether a call with these arguments may be made.
    pub call: Option<Outcome>,
}

impl<'a> Target<'a> {
    /// A tool that an endpoint shows.
    #[must_use]
    pub fn of(endpoint: &'a EndpointId, item: &'a Item) -> Self {
        Self {
            endpoint,
            kind: item.tool.kind,
            upstream: &item.tool.upstream,
            native: &item.tool.native,
            name: &item.exposed,
            hints: item.terms.hints,
            scopes: &item.terms.scopes,
            tool: Some(&item.tool),
        }
    }

    /// Whether the tool's schema names the argument that a JSON pointer leads to.
    fn names_argument(&self, pointer: &str) -> bool {
        self.tool.is_some_and(|tool| tool.names_argument(pointer))
    }
}

impl Rules {
    /// These rules.
    #[must_use]
    pub fn new(book: Arc<Book>) -> Self {
        Self(ArcSwap::new(book))
    }

    /// Others from now on. Whoever keeps lists has to be told: `Catalog::reconsider`.
    pub fn replace(&self, book: Arc<Book>) {
        self.0.store(book);
    }

    /// Those in force.
    #[must_use]
    pub fn book(&self) -> Arc<Book> {
        self.0.load_full()
    }

    /// All that the rules say, also what no request would get to hear.
    #[must_use]
    pub fn opinion(
        &self,
        principal: &Principal,
        target: &Target<'_>,
        arguments: Option<&[u8]>,
    ) -> Opinion {
        let book = self.0.load();
        let desk = book.desk(target.endpoint);
        let asked = shielded(|| {
            let case = desk.case(principal, target)?;
            Some((
                case.see.clone(),
                case.call(&desk.index, arguments, &|pointer| {
                    target.names_argument(pointer)
                }),
            ))
        });
        let panicked = || {
            (
                Outcome::Undecided(PANIC.into()),
                Outcome::Undecided(PANIC.into()),
            )
        };
        let (see, call) = asked.unwrap_or_else(|| Some(panicked())).unzip();
        Opinion {
            lacks_for_endpoint: lacking(principal, &desk.scopes),
            lacks_for_tool: lacking(principal, target.scopes),
            see,
            call,
        }
    }

    fn sees(&self, principal: &Principal, target: &Target<'_>) -> Sight {
        let book = self.0.load();
        let desk = book.desk(target.endpoint);
        sight(
            desk,
            shielded(|| desk.case(principal, target)).as_ref(),
            principal,
            target,
        )
    }

    /// Whether a call may be made; `arguments` are its own bytes.
    fn calls(
        &self,
        principal: &Principal,
        target: &Target<'_>,
        arguments: impl FnOnce() -> Result<Option<Arguments>, Failure>,
    ) -> Result<Verdict, Failure> {
        let book = self.0.load();
        let desk = book.desk(target.endpoint);
        let case = shielded(|| desk.case(principal, target));
        match sight(desk, case.as_ref(), principal, target) {
            Sight::Seen => {}
            Sight::Hidden => {
                let see = case.flatten().map(|case| case.see.clone());
                return Err(Failure::not_there(target.kind, target.name)
                    .forbidden_by(see.and_then(Outcome::rule)));
            }
            Sight::Scopes(scopes) => {
                let text = "This takes scopes that your token lacks";
                return Err(Failure::new(FailureKind::InsufficientScope(scopes), text));
            }
        }
        let decided = shielded(|| match case.flatten() {
            None => Ok(Verdict::default()),
            Some(case) => {
                let named = |pointer: &str| target.names_argument(pointer);
                verdict(
                    case.call(&desk.index, arguments()?.as_deref(), &named),
                    target,
                )
            }
        });
        decided.unwrap_or_else(|| {
            report(PANIC, target);
            Err(denied(UNDECIDED))
        })
    }
}

type Arguments = bytes::Bytes;

/// What a principal may know of a tool. `case`: none where deciding went wrong, an empty one where
/// no rule decides.
fn sight(
    desk: &Desk,
    case: Option<&Option<Arc<Case>>>,
    principal: &Principal,
    target: &Target<'_>,
) -> Sight {
    if !case.is_some_and(|case| case.as_ref().is_none_or(|case| is_yes(&case.see, target))) {
        return Sight::Hidden;
    }
    // Scopes last: they say that there is something.
    if lacking(principal, target.scopes).is_empty() {
        return Sight::Seen;
    }
    let mut all: Vec<_> = desk.scopes.iter().chain(target.scopes).cloned().collect();
    all.sort_unstable();
    all.dedup();
    Sight::Scopes(all.into())
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rules").field(&self.0.load()).finish()
    }
}

impl Authorizer for Rules {
    fn may_enter(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        let book = self.0.load();
        let taken = &book.desk(endpoint).scopes;
        if lacking(principal, taken).is_empty() {
            return Ok(());
        }
        let text = "This endpoint takes scopes that your token lacks";
        Err(Failure::new(
            FailureKind::InsufficientScope(taken.clone()),
            text,
        ))
    }

    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience> {
        self.0.load().desk(endpoint).audience(principal, endpoint)
    }

    fn may_see(&self, principal: &Principal, endpoint: &EndpointId, item: &Item) -> Sight {
        self.sees(principal, &Target::of(endpoint, item))
    }

    fn shows_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> bool {
        let book = self.0.load();
        shielded(|| book.desk(endpoint).shows_all(principal, endpoint, upstream)).unwrap_or(false)
    }

    fn may_call(
        &self,
        principal: &Principal,
        call: &Call,
        item: &Item,
    ) -> Result<Verdict, Failure> {
        let arguments = || {
            call.params
                .arguments()
                .map_err(|error| Failure::invalid_params(error.to_string()))
        };
        self.calls(principal, &Target::of(&call.endpoint, item), arguments)
    }
}

const UNDECIDED: &str = "The rules for this tool could not be applied to this call, so it was not made; ask whoever runs this service";
const PANIC: &str = "the rule engine panicked; the log has the panic";

/// An answer of the engine; `None` where it panicked. The panic is in the log, by the process's
/// hook.
fn shielded<T>(decide: impl FnOnce() -> T) -> Option<T> {
    // What a decision leaves behind is complete or absent: cases are kept only when they are whole.
    catch_unwind(AssertUnwindSafe(decide)).ok()
}

fn is_yes(outcome: &Outcome, target: &Target<'_>) -> bool {
    if let Outcome::Undecided(why) = outcome {
        report(why, target);
    }
    matches!(outcome, Outcome::Permitted(_))
}

fn verdict(outcome: Outcome, target: &Target<'_>) -> Result<Verdict, Failure> {
    match outcome {
        Outcome::Permitted(rules) => Ok(Verdict { rules }),
        Outcome::Unmentioned => Err(denied(
            "No rule allows you this call; calling again will not help",
        )),
        Outcome::Forbidden {
            rule,
            reason: Some(reason),
        } => Err(denied(format!("A rule forbids this call: {reason}")).forbidden_by(Some(rule))),
        Outcome::Forbidden { rule, reason: None } => Err(denied(
            "A rule forbids you this call; calling again will not help",
        )
        .forbidden_by(Some(rule))),
        Outcome::Unreadable(why) => Err(denied(format!(
            "A rule looks at the arguments of this call, and they cannot be read: {why}"
        ))),
        Outcome::Undecided(why) => {
            report(&why, target);
            Err(denied(UNDECIDED))
        }
    }
}

fn denied(text: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::Denied, text)
}

fn report(why: &str, target: &Target<'_>) {
    let Target {
        endpoint,
        upstream,
        name,
        ..
    } = target;
    tracing::warn!(%endpoint, %upstream, tool = &***name, why, "the rules could not be applied: denied");
}

fn lacking(principal: &Principal, taken: &[Arc<str>]) -> Vec<Arc<str>> {
    let own = principal
        .subject()
        .map(|subject| &*subject.scopes)
        .unwrap_or_default();
    taken
        .iter()
        .filter(|scope| !own.contains(scope))
        .cloned()
        .collect()
}
