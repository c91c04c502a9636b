//! The deciding ports: authentication, authorization, limits, and the audit of their decisions.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::call_outcome::CallOutcome;
use crate::catalog_item::CatalogItem;
use crate::failure::Failure;
use crate::names::{EndpointId, UpstreamId};
use crate::port::BoxFuture;
use crate::port::borrowed_secret::BorrowedSecret;
use crate::port::shared_rates::RateDecision;
use crate::principal::{Principal, VerifiedIdentity};

/// The evidence of a request's sender, before any of it is verified.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The text behind `Bearer `, if there was exactly one `Authorization` header. A secret: never
    /// logged.
    pub bearer: Option<BorrowedSecret<'a>>,
    /// The value of `X-API-Key`, if there was exactly one.
    pub api_key: Option<BorrowedSecret<'a>>,
    /// The client certificate (DER, leaf) that the listener verified against its roots.
    pub certificate: Option<&'a [u8]>,
    /// The address the connection comes from, after `trusted_proxies`.
    pub peer: IpAddr,
    /// The endpoint the request is for: tokens are bound to it.
    pub endpoint: &'a EndpointId,
}

impl<'a> Evidence<'a> {
    /// A request from `peer` to `endpoint` without credentials.
    #[must_use]
    pub fn none(peer: IpAddr, endpoint: &'a EndpointId) -> Self {
        Self {
            bearer: None,
            api_key: None,
            certificate: None,
            peer,
            endpoint,
        }
    }
}

/// Authenticates senders.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Verifies the evidence. Cancel safe.
    ///
    /// # Errors
    ///
    /// `Unauthenticated`, or `Unavailable` if the check itself cannot be made. Never a default
    /// identity.
    fn verify<'a>(
        &'a self,
        evidence: &'a Evidence<'a>,
    ) -> BoxFuture<'a, Result<VerifiedIdentity, Failure>>;

    /// The outcome of [`Self::verify`], if it is known without a wait: for nearly all requests, which
    /// then need no future.
    fn verify_at_once(
        &self,
        _evidence: &Evidence<'_>,
    ) -> Option<Result<VerifiedIdentity, Failure>> {
        None
    }

    /// The time for which a successful [`Self::verify`] of this evidence is trusted without another
    /// check, if that ends: an open stream is checked again after it.
    fn trust_time(&self, _evidence: &Evidence<'_>) -> Option<Duration> {
        None
    }
}

/// Authorizes principals.
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides if the principal may use an endpoint at all.
    ///
    /// # Errors
    ///
    /// `InsufficientScope`, or `Denied`.
    fn may_enter(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure>;

    /// The name of a group of principals that see the same on an endpoint, under the present rules:
    /// the same name, the same answers of [`Self::may_see`], on every replica with the same rules.
    /// `None` if the principal sees everything.
    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience>;

    /// Decides if the principal sees a tool of an endpoint. A principal that may not see a tool may
    /// not call it.
    fn may_see(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        item: &CatalogItem,
    ) -> Visibility;

    /// True if the principal sees all that an upstream has or may have on an endpoint, and may call
    /// all of it with any arguments. Scopes of single tools do not count here.
    fn permits_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        _upstream: &UpstreamId,
    ) -> bool {
        self.audience(principal, endpoint).is_none()
    }

    /// Decides if the principal may make this call of a tool that it sees.
    ///
    /// # Errors
    ///
    /// `Denied`; its message goes to the client. Any failure to decide denies too.
    fn may_call(
        &self,
        principal: &Principal,
        call: &Call,
        item: &CatalogItem,
    ) -> Result<CallPermission, Failure>;
}

/// See [`Authorizer::audience`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Audience(pub [u8; 16]);

/// See [`Authorizer::may_see`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It is listed and may be asked for.
    Visible,
    /// It does not exist for the principal.
    Hidden,
    /// It is not listed; a call of it is answered with the scopes that it takes: all of them, also
    /// those that the principal has, and its other scopes that count at the endpoint.
    NeedsScopes(Arc<[Arc<str>]>),
}

/// A permission, with the rules that gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPermission {
    /// The ids of the rules that decided. Empty if there are no rules.
    pub rules: Arc<[Arc<str>]>,
}

/// Limits rates and calls in flight. Every failure is of the kind `Limit` or `Busy`, and has the
/// limit and the time to come again.
pub trait Limiter: fmt::Debug + Send + Sync {
    /// Counts a request of an address, before its sender is known.
    ///
    /// # Errors
    ///
    /// `Limit`.
    fn admit_address(&self, peer: IpAddr) -> Result<(), Failure>;

    /// Counts a request of a principal, before its body is read. It refuses with `Limit`.
    fn admit_request<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
    ) -> RateDecision<'a, Failure>;

    /// Takes the cost of a call, and a permit among those in flight. Cancel safe: a permit not yet
    /// given is not taken.
    ///
    /// # Errors
    ///
    /// `Limit` or `Busy`.
    fn admit_call<'a>(
        &'a self,
        principal: &'a Principal,
        call: &'a Call,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure>;

    /// Takes a permit among those in flight for a call that goes on: its beginning was charged.
    /// Cancel safe, like [`Self::admit_call`].
    ///
    /// # Errors
    ///
    /// `Busy`.
    fn admit_continuation<'a>(
        &'a self,
        principal: &'a Principal,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure>;
}

/// The permit of a call, at once or after a bounded wait.
pub enum PermitWait<'a> {
    /// It may go.
    Now(CallPermit),
    /// It waits its turn.
    Later(BoxFuture<'a, Result<CallPermit, Failure>>),
}

impl fmt::Debug for PermitWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::Later(_) => "Later",
        })
    }
}

/// The permit that a call holds while it is in flight; given back by dropping it.
#[derive(Default)]
pub struct CallPermit(Option<Box<dyn Any + Send + Sync>>);

impl CallPermit {
    /// A permit without a resource to give back.
    #[must_use]
    pub fn free() -> Self {
        Self(None)
    }

    /// Gives `held` back when dropped.
    #[must_use]
    pub fn holding(held: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(held)))
    }
}

impl fmt::Debug for CallPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.is_some() { "held" } else { "free" };
        write!(f, "CallPermit({state})")
    }
}

/// Records decisions and ends of calls, one record each. Calls never wait for it.
pub trait AuditLog: fmt::Debug + Send + Sync {
    /// Records that a sender was refused, or that it was let in with credentials that are seen for
    /// the first time.
    fn record_entrance(&self, entrance: &SenderEntrance<'_>);

    /// Records the decision on a call. A call that was allowed has its record when it ends, see
    /// [`AuditLog::record_end`].
    ///
    /// # Errors
    /// The record cannot be kept, and the operator wants no calls without one: the call must not be
    /// made.
    fn record_decision(
        &self,
        attempt: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure>;

    /// Records the end of a call.
    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall);

    /// Reports if a call may be made now: its record can be kept, or none is required.
    fn can_record(&self) -> bool {
        true
    }

    /// Records an operator's action: a reload, an admin action.
    fn record_operator_action(&self, action: &OperatorAction<'_>);
}

/// An attempt of a sender to enter an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct SenderEntrance<'a> {
    /// The address it came from.
    pub peer: IpAddr,
    /// The endpoint it wanted.
    pub endpoint: &'a EndpointId,
    /// weir's id of the request.
    pub request: &'a str,
    /// The principal that is let in, or the refusal.
    pub outcome: Result<&'a Principal, SenderRejection<'a>>,
}

/// The refusal of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderRejection<'a> {
    /// The reason: one of a small, fixed set of words.
    pub reason: &'static str,
    /// The principal, if the sender was refused after it was authenticated.
    pub principal: Option<&'a Principal>,
}

/// A principal's call, with its tool if one was found.
#[derive(Clone, Copy, Debug)]
pub struct CallAttempt<'a> {
    /// The principal.
    pub principal: &'a Principal,
    /// The call.
    pub call: &'a Call,
    /// The tool, if the principal sees one of that name.
    pub item: Option<&'a CatalogItem>,
}

/// A decision on a call.
#[derive(Clone, Copy, Debug)]
pub enum GateDecision<'a> {
    /// It may be made.
    Allowed(&'a CallPermission),
    /// It may not.
    Refused(&'a Failure),
}

/// The end of a call.
#[derive(Clone, Debug)]
pub struct EndedCall {
    /// Its outcome.
    pub outcome: CallOutcome,
    /// From the decision to the end.
    pub took: Duration,
    /// Bytes of results that went back, if they were counted.
    pub bytes: u64,
    /// The changes of its content, and the findings for which it was refused.
    pub changes: ContentChanges,
    /// The protocol revision in which it was sent to its server; absent if it was not sent.
    pub revision: Option<&'static str>,
    /// The rules that allowed it.
    pub verdict: CallPermission,
}

/// The changes of a call's content, and the findings that led to a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentChanges {
    /// Hidden characters that were removed from its end.
    pub cleaned: u64,
    /// Secrets that were masked in its end; 1 if it was refused for one, in its arguments or in its
    /// end.
    pub secrets: u64,
    /// Bytes of text that were cut from a result that was too large.
    pub cut: u64,
}

/// An operator's action.
#[derive(Clone, Copy, Debug)]
pub struct OperatorAction<'a> {
    /// The actor: a principal's name, or `config` for the file.
    pub actor: &'a str,
    /// The action: `reload`, `start`, or the name of an admin action.
    pub action: &'a str,
    /// Its target and outcome, for people.
    pub detail: &'a str,
    /// True if it took effect.
    pub took_effect: bool,
}
