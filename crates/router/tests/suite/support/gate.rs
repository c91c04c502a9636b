//! Gates without rules, or with few: rules by name decide on visibility, calls and waiting. They
//! keep the records.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_core::catalog_item::CatalogItem;
use weir_core::names::EndpointId;
use weir_core::port::{
    Audience, AuditLog, Authorizer, CallAttempt, CallPermission, CallPermit, EndedCall,
    GateDecision, Limiter, OperatorAction, PermitWait, RateDecision, SenderEntrance, Visibility,
};
use weir_core::{Call, Failure, FailureKind, Principal};
use weir_router::Gates;

/// A restriction of a principal for tools of a native name.
#[derive(Clone, Debug)]
pub(crate) enum GateRule {
    Hidden,
    Scope(&'static str),
    Denied,
    /// Calls wait until the semaphore has a place.
    Queue(Arc<tokio::sync::Semaphore>),
}

/// Lets all principals in and all calls through, except for its rules: principal, and native name,
/// `upstream/tool`, or `=` and the name on the endpoint.
#[derive(Debug, Default)]
pub(crate) struct ScriptedGate {
    rules: Mutex<Vec<(String, String, GateRule)>>,
    outcomes: Mutex<Vec<&'static str>>,
    refused: Mutex<Vec<&'static str>>,
    /// The number of calls that were charged.
    charged: AtomicUsize,
    /// No call without a record, and no record can be kept.
    pub(crate) closed: Mutex<bool>,
}

impl ScriptedGate {
    pub(crate) fn all(self: &Arc<Self>) -> Gates {
        Gates {
            authorizer: self.clone(),
            limiter: self.clone(),
            audit: self.clone(),
        }
    }

    pub(crate) fn rule(&self, who: &str, native: &str, rule: GateRule) {
        self.rules
            .lock()
            .push((who.to_owned(), native.to_owned(), rule));
    }

    pub(crate) fn forget(&self) {
        self.rules.lock().clear();
    }

    pub(crate) fn outcomes(&self) -> Vec<&'static str> {
        self.outcomes.lock().clone()
    }

    pub(crate) fn refused(&self) -> Vec<&'static str> {
        self.refused.lock().clone()
    }

    pub(crate) fn charged(&self) -> usize {
        self.charged.load(Ordering::Relaxed)
    }

    fn of(&self, principal: &Principal, item: &CatalogItem) -> Vec<GateRule> {
        let rules = self.rules.lock();
        let who = principal.to_string();
        rules
            .iter()
            .filter(|(name, tool, _)| {
                let tool = tool.as_str();
                let is_native = tool == &*item.tool.native || tool == item.tool.qualified_name();
                let is_exposed = tool.strip_prefix('=') == Some(&*item.exposed);
                *name == who && (is_native || is_exposed)
            })
            .map(|r| r.2.clone())
            .collect()
    }
}

impl Authorizer for ScriptedGate {
    fn may_enter(&self, _: &Principal, _: &EndpointId) -> Result<(), Failure> {
        Ok(())
    }

    fn audience(&self, principal: &Principal, _: &EndpointId) -> Option<Audience> {
        let rules = self.rules.lock();
        let text = format!(
            "{:?}",
            rules
                .iter()
                .filter(|rule| rule.0 == principal.to_string())
                .collect::<Vec<_>>()
        );
        let mut name = [0u8; 16];
        text.bytes().enumerate().for_each(|(at, byte)| {
            name[at % 16] = byte
                .wrapping_mul(31)
                .wrapping_add(name[at % 16].rotate_left(3))
        });
        (!rules.is_empty()).then_some(Audience(name))
    }

    fn may_see(&self, principal: &Principal, _: &EndpointId, item: &CatalogItem) -> Visibility {
        let rules = self.of(principal, item);
        let visibility = rules.iter().find_map(|rule| match rule {
            GateRule::Hidden => Some(Visibility::Hidden),
            GateRule::Scope(scope) => Some(Visibility::NeedsScopes(Arc::new([(*scope).into()]))),
            GateRule::Denied | GateRule::Queue(_) => None,
        });
        visibility.unwrap_or(Visibility::Visible)
    }

    fn may_call(
        &self,
        principal: &Principal,
        _: &Call,
        item: &CatalogItem,
    ) -> Result<CallPermission, Failure> {
        match self
            .of(principal, item)
            .iter()
            .any(|rule| matches!(rule, GateRule::Denied))
        {
            true => Err(Failure::new(FailureKind::Denied, "no")),
            false => Ok(CallPermission::default()),
        }
    }
}

impl Limiter for ScriptedGate {
    fn admit_address(&self, _: IpAddr) -> Result<(), Failure> {
        Ok(())
    }

    fn admit_request<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a EndpointId,
    ) -> RateDecision<'a, Failure> {
        RateDecision::Now(Ok(()))
    }

    fn admit_call<'a>(
        &'a self,
        principal: &'a Principal,
        _: &'a Call,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        self.charged.fetch_add(1, Ordering::Relaxed);
        self.admit_continuation(principal, item)
    }

    fn admit_continuation<'a>(
        &'a self,
        principal: &'a Principal,
        item: &'a CatalogItem,
    ) -> Result<PermitWait<'a>, Failure> {
        let queue = self
            .of(principal, item)
            .into_iter()
            .find_map(|rule| match rule {
                GateRule::Queue(queue) => Some(queue),
                GateRule::Hidden | GateRule::Scope(_) | GateRule::Denied => None,
            });
        Ok(match queue {
            Some(queue) => PermitWait::Later(Box::pin(async {
                Ok(CallPermit::holding(queue.acquire_owned().await.unwrap()))
            })),
            None => PermitWait::Now(CallPermit::free()),
        })
    }
}

impl AuditLog for ScriptedGate {
    fn record_entrance(&self, _: &SenderEntrance<'_>) {}

    fn record_decision(
        &self,
        _: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        if let GateDecision::Refused(failure) = decision {
            self.refused.lock().push(failure.reason());
        }
        match *self.closed.lock() {
            true => Err(Failure::new(
                FailureKind::Overloaded,
                "no record can be kept",
            )),
            false => Ok(()),
        }
    }

    fn record_end(&self, _: &CallAttempt<'_>, ended: &EndedCall) {
        self.outcomes.lock().push(ended.outcome.as_str());
    }

    fn record_operator_action(&self, _: &OperatorAction<'_>) {}
}
