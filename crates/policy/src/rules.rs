//! The operator's authorization rules: scopes, and policies in Cedar.
//!
//! A list is decided by `see`, a call by both `see` and `call`. So a tool is in a principal's list
//! exactly if a call of it does not get "unknown tool" (or, for want of scopes, the list of scopes
//! it takes). Every failure on the path to a decision, a panic of the engine included, denies.
//! Limits and the selection of an endpoint's tools do not belong here.

mod argument_scalars;
mod attribute_reads;
mod cedar_schema;
mod condition;
mod decision;
mod endpoint_policies;
mod entities;
#[cfg(test)]
mod panic_trip;
mod policy_file;
mod policy_rule;
mod policy_source;
mod policy_target;
mod rule_index;
mod rule_texts;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Audience, Authorizer, CallPermission, Visibility};
use weir_core::principal::Principal;

pub use cedar_schema::schema;
pub use decision::PolicyOutcome;
pub use endpoint_policies::{EndpointPolicies, EndpointRules};
pub use policy_file::{NamedEntity, PolicyFile};
pub use policy_source::PolicyDiagnostic;
pub use policy_target::PolicyTarget;

use self::decision::AccessDecision;
use self::endpoint_policies::EndpointPolicy;
use self::policy_target::report;

/// The rules in force. A reload replaces them as a whole; each decision uses one version of them.
#[derive(Default)]
pub struct PolicyAuthorizer(ArcSwap<EndpointPolicies>);

/// The decisions of all rules about one principal and one tool, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyExplanation {
    /// Scopes of the endpoint that the principal lacks.
    pub lacks_for_endpoint: Vec<Arc<str>>,
    /// Scopes of the tool that the principal lacks.
    pub lacks_for_tool: Vec<Arc<str>>,
    /// The decision on listing it; `None`: no rule decides here.
    pub see: Option<PolicyOutcome>,
    /// The decision on a call with these arguments.
    pub call: Option<PolicyOutcome>,
}

impl PolicyAuthorizer {
    /// Enforces these rules.
    #[must_use]
    pub fn new(policies: Arc<EndpointPolicies>) -> Self {
        Self(ArcSwap::new(policies))
    }

    /// Replaces the rules. Keepers of lists must be notified: `Catalog::announce_rule_change`.
    pub fn replace(&self, policies: Arc<EndpointPolicies>) {
        self.0.store(policies);
    }

    /// The rules in force.
    #[must_use]
    pub fn policies(&self) -> Arc<EndpointPolicies> {
        self.0.load_full()
    }

    /// All decisions, also those that no client would see.
    #[must_use]
    pub fn explain(
        &self,
        principal: &Principal,
        target: &PolicyTarget<'_>,
        arguments: Option<&[u8]>,
    ) -> PolicyExplanation {
        let policies = self.0.load();
        let policy = policies.endpoint_policy(target.endpoint);
        let decided = catch_panic(|| {
            let case = policy.case(principal, target)?;
            Some((
                case.see.clone(),
                case.call(&policy.index, arguments, &|pointer| {
                    target.names_argument(pointer)
                }),
            ))
        });
        let panicked = || {
            (
                PolicyOutcome::Undecided(PANIC.into()),
                PolicyOutcome::Undecided(PANIC.into()),
            )
        };
        let (see, call) = decided.unwrap_or_else(|| Some(panicked())).unzip();
        PolicyExplanation {
            lacks_for_endpoint: lacking(principal, &policy.scopes),
            lacks_for_tool: lacking(principal, target.scopes),
            see,
            call,
        }
    }

    fn sees(&self, principal: &Principal, target: &PolicyTarget<'_>) -> Visibility {
        let policies = self.0.load();
        let policy = policies.endpoint_policy(target.endpoint);
        visibility(
            policy,
            catch_panic(|| policy.case(principal, target)).as_ref(),
            principal,
            target,
        )
    }

    /// Checks if a call may be made; `arguments` are its own bytes.
    fn calls(
        &self,
        principal: &Principal,
        target: &PolicyTarget<'_>,
        arguments: impl FnOnce() -> Result<Option<ArgumentBytes>, Failure>,
    ) -> Result<CallPermission, Failure> {
        let policies = self.0.load();
        let policy = policies.endpoint_policy(target.endpoint);
        let case = catch_panic(|| policy.case(principal, target));
        match visibility(policy, case.as_ref(), principal, target) {
            Visibility::Visible => {}
            Visibility::Hidden => {
                let see = case.flatten().map(|case| case.see.clone());
                return Err(Failure::unknown_item(target.kind, target.name)
                    .forbidden_by(see.and_then(PolicyOutcome::rule)));
            }
            Visibility::NeedsScopes(scopes) => {
                let text = "This takes scopes that your token lacks";
                return Err(Failure::new(FailureKind::InsufficientScope(scopes), text));
            }
        }
        let decided = catch_panic(|| match case.flatten() {
            None => Ok(CallPermission::default()),
            Some(case) => {
                let named = |pointer: &str| target.names_argument(pointer);
                verdict(
                    case.call(&policy.index, arguments()?.as_deref(), &named),
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

type ArgumentBytes = bytes::Bytes;

/// The visibility of a tool to a principal. `case`: absent after a failed decision, an inner `None`
/// if no rule decides.
fn visibility(
    policy: &EndpointPolicy,
    case: Option<&Option<Arc<AccessDecision>>>,
    principal: &Principal,
    target: &PolicyTarget<'_>,
) -> Visibility {
    if !case.is_some_and(|case| case.as_ref().is_none_or(|case| is_yes(&case.see, target))) {
        return Visibility::Hidden;
    }
    // Scopes last: they reveal that the tool exists.
    if lacking(principal, target.scopes).is_empty() {
        return Visibility::Visible;
    }
    let needed = [&*policy.scopes, target.scopes].concat();
    Visibility::NeedsScopes(policy.scopes_to_request(principal, &needed))
}

impl fmt::Debug for PolicyAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyAuthorizer")
            .field(&self.0.load())
            .finish()
    }
}

impl Authorizer for PolicyAuthorizer {
    fn may_enter(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        let policies = self.0.load();
        let policy = policies.endpoint_policy(endpoint);
        if lacking(principal, &policy.scopes).is_empty() {
            return Ok(());
        }
        let text = "This endpoint takes scopes that your token lacks";
        let scopes = policy.scopes_to_request(principal, &policy.scopes);
        Err(Failure::new(FailureKind::InsufficientScope(scopes), text))
    }

    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience> {
        self.0
            .load()
            .endpoint_policy(endpoint)
            .audience(principal, endpoint)
    }

    fn may_see(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        item: &CatalogItem,
    ) -> Visibility {
        self.sees(principal, &PolicyTarget::of(endpoint, item))
    }

    fn permits_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> bool {
        let policies = self.0.load();
        catch_panic(|| {
            policies
                .endpoint_policy(endpoint)
                .shows_all(principal, endpoint, upstream)
        })
        .unwrap_or(false)
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
        self.calls(
            principal,
            &PolicyTarget::of(&call.endpoint, item),
            arguments,
        )
    }
}

const UNDECIDED: &str = "The rules for this tool could not be applied to this call, so it was not made; ask whoever runs this service";
const PANIC: &str = "the rule engine panicked; the log has the panic";

/// A result of the engine; `None` if it panicked. The panic is in the log, by the process's hook.
fn catch_panic<T>(decide: impl FnOnce() -> T) -> Option<T> {
    // The state after a panic is complete or absent: only whole cases are cached.
    catch_unwind(AssertUnwindSafe(decide)).ok()
}

fn is_yes(outcome: &PolicyOutcome, target: &PolicyTarget<'_>) -> bool {
    if let PolicyOutcome::Undecided(why) = outcome {
        report(why, target);
    }
    matches!(outcome, PolicyOutcome::Permitted(_))
}

fn verdict(outcome: PolicyOutcome, target: &PolicyTarget<'_>) -> Result<CallPermission, Failure> {
    match outcome {
        PolicyOutcome::Permitted(rules) => Ok(CallPermission { rules }),
        PolicyOutcome::NotPermitted => Err(denied(
            "No rule allows you this call; calling again will not help",
        )),
        PolicyOutcome::Forbidden {
            rule,
            reason: Some(reason),
        } => Err(denied(format!("A rule forbids this call: {reason}")).forbidden_by(Some(rule))),
        PolicyOutcome::Forbidden { rule, reason: None } => Err(denied(
            "A rule forbids you this call; calling again will not help",
        )
        .forbidden_by(Some(rule))),
        PolicyOutcome::Unreadable(why) => Err(denied(format!(
            "A rule looks at the arguments of this call, and they cannot be read: {why}"
        ))),
        PolicyOutcome::Undecided(why) => {
            report(&why, target);
            Err(denied(UNDECIDED))
        }
    }
}

fn denied(text: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::Denied, text)
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
