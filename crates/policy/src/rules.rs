//! The operator's authorization rules: scopes, and policies in Cedar.
//!
//! A list is decided by `see`, a call by both `see` and `call`. So a tool is in a principal's list
//! exactly if a call of it does not get "unknown tool" (or, for want of scopes, the list of scopes
//! it takes). Every failure on the path to a decision, a panic of the engine included, denies.
//! Limits and the selection of an endpoint's tools do not belong here.

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
use weir_core::catalog::{CatalogItem, Tool};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Audience, Authorizer, CallPermission, Visibility};
use weir_core::principal::Principal;
use weir_core::toolset::ToolHints;
use weir_core::upstream::ListKind;

pub use book::{Book, Ruling};
pub use judge::Outcome;
pub use sheet::{Complaint, Sheet};
pub use vocabulary::schema;

use self::book::Desk;
use self::judge::Case;

/// The rules in force. A reload replaces them as a whole; each decision uses one version of them.
#[derive(Default)]
pub struct Rules(ArcSwap<Book>);

/// The facts of a tool on an endpoint that rules can use.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Tool, prompt, resource or template.
    pub kind: ListKind,
    /// The endpoint.
    pub endpoint: &'a EndpointId,
    /// The tool's upstream.
    pub upstream: &'a UpstreamId,
    /// The upstream's own name for it.
    pub native: &'a Arc<str>,
    /// Its name on the endpoint.
    pub name: &'a Arc<str>,
    /// The trusted hints about its behaviour.
    pub hints: ToolHints,
    /// The scopes it takes, beside the endpoint's.
    pub scopes: &'a [Arc<str>],
    /// The tool in the catalog with its schema, if it is there.
    pub tool: Option<&'a Tool>,
}

/// The decisions of all rules about one principal and one tool, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// Scopes of the endpoint that the principal lacks.
    pub lacks_for_endpoint: Vec<Arc<str>>,
    /// Scopes of the tool that the principal lacks.
    pub lacks_for_tool: Vec<Arc<str>>,
    /// The decision on listing it; `None`: no rule decides here.
    pub see: Option<Outcome>,
    /// The decision on a call with these arguments.
    pub call: Option<Outcome>,
}

impl<'a> Target<'a> {
    /// A tool that an endpoint shows.
    #[must_use]
    pub fn of(endpoint: &'a EndpointId, item: &'a CatalogItem) -> Self {
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

    /// True if the tool's schema names the argument at this JSON pointer.
    fn names_argument(&self, pointer: &str) -> bool {
        self.tool.is_some_and(|tool| tool.names_argument(pointer))
    }
}

impl Rules {
    /// Enforces these rules.
    #[must_use]
    pub fn new(book: Arc<Book>) -> Self {
        Self(ArcSwap::new(book))
    }

    /// Replaces the rules. Keepers of lists must be notified: `Catalog::reconsider`.
    pub fn replace(&self, book: Arc<Book>) {
        self.0.store(book);
    }

    /// The rules in force.
    #[must_use]
    pub fn book(&self) -> Arc<Book> {
        self.0.load_full()
    }

    /// All decisions, also those that no client would see.
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

    fn sees(&self, principal: &Principal, target: &Target<'_>) -> Visibility {
        let book = self.0.load();
        let desk = book.desk(target.endpoint);
        sight(
            desk,
            shielded(|| desk.case(principal, target)).as_ref(),
            principal,
            target,
        )
    }

    /// Checks if a call may be made; `arguments` are its own bytes.
    fn calls(
        &self,
        principal: &Principal,
        target: &Target<'_>,
        arguments: impl FnOnce() -> Result<Option<Arguments>, Failure>,
    ) -> Result<CallPermission, Failure> {
        let book = self.0.load();
        let desk = book.desk(target.endpoint);
        let case = shielded(|| desk.case(principal, target));
        match sight(desk, case.as_ref(), principal, target) {
            Visibility::Visible => {}
            Visibility::Hidden => {
                let see = case.flatten().map(|case| case.see.clone());
                return Err(Failure::unknown_item(target.kind, target.name)
                    .forbidden_by(see.and_then(Outcome::rule)));
            }
            Visibility::NeedsScopes(scopes) => {
                let text = "This takes scopes that your token lacks";
                return Err(Failure::new(FailureKind::InsufficientScope(scopes), text));
            }
        }
        let decided = shielded(|| match case.flatten() {
            None => Ok(CallPermission::default()),
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

/// The visibility of a tool to a principal. `case`: absent after a failed decision, an inner `None`
/// if no rule decides.
fn sight(
    desk: &Desk,
    case: Option<&Option<Arc<Case>>>,
    principal: &Principal,
    target: &Target<'_>,
) -> Visibility {
    if !case.is_some_and(|case| case.as_ref().is_none_or(|case| is_yes(&case.see, target))) {
        return Visibility::Hidden;
    }
    // Scopes last: they reveal that the tool exists.
    if lacking(principal, target.scopes).is_empty() {
        return Visibility::Visible;
    }
    let mut all: Vec<_> = desk.scopes.iter().chain(target.scopes).cloned().collect();
    all.sort_unstable();
    all.dedup();
    Visibility::NeedsScopes(all.into())
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

    fn may_see(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        item: &CatalogItem,
    ) -> Visibility {
        self.sees(principal, &Target::of(endpoint, item))
    }

    fn permits_all(
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
        item: &CatalogItem,
    ) -> Result<CallPermission, Failure> {
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

/// A result of the engine; `None` if it panicked. The panic is in the log, by the process's hook.
fn shielded<T>(decide: impl FnOnce() -> T) -> Option<T> {
    // The state after a panic is complete or absent: only whole cases are cached.
    catch_unwind(AssertUnwindSafe(decide)).ok()
}

fn is_yes(outcome: &Outcome, target: &Target<'_>) -> bool {
    if let Outcome::Undecided(why) = outcome {
        report(why, target);
    }
    matches!(outcome, Outcome::Permitted(_))
}

fn verdict(outcome: Outcome, target: &Target<'_>) -> Result<CallPermission, Failure> {
    match outcome {
        Outcome::Permitted(rules) => Ok(CallPermission { rules }),
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
