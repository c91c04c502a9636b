//! Principals that an operator keeps out for a while, whatever the rules say.
//!
//! It stands before the rules and only ever adds refusals. It is no rule: rules are of the config,
//! and this is what somebody does at three in the morning.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::call::Call;
use weir_core::catalog::Item;
use weir_core::failure::{BLOCKED, Failure, FailureKind};
use weir_core::fast::FastMap;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Audience, Authorizer, Sight, Verdict};
use weir_core::principal::{Principal, Subject};

/// An authorizer that keeps some principals out, and asks another one about all others.
pub struct Blocked {
    inner: Arc<dyn Authorizer>,
    /// By digest. What is asked of it on every request is one load, and nearly always of an empty
    /// map.
    those: ArcSwap<FastMap<[u8; 16], Arc<Subject>>>,
}

impl Blocked {
    /// Nobody is kept out yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Authorizer>) -> Self {
        Self {
            inner,
            those: ArcSwap::default(),
        }
    }

    /// Keeps a subject out from now on; false: it was so already.
    pub fn block(&self, subject: Subject) -> bool {
        let subject = Arc::new(subject);
        let before = self.those.rcu(|those| {
            let mut those = FastMap::clone(those);
            those.insert(*subject.digest(), subject.clone());
            those
        });
        !before.contains_key(subject.digest())
    }

    /// Lets it in again; false: it was not kept out.
    pub fn unblock(&self, digest: &[u8; 16]) -> bool {
        let before = self.those.rcu(|those| {
            let mut those = FastMap::clone(those);
            those.remove(digest);
            those
        });
        before.contains_key(digest)
    }

    fn refusal(&self, principal: &Principal) -> Option<Failure> {
        let those = self.those.load();
        let out = !those.is_empty()
            && !principal.is_anonymous()
            && those.contains_key(principal.digest());
        out.then(|| Failure::new(FailureKind::Denied, BLOCKED))
    }
}

impl Authorizer for Blocked {
    fn may_enter(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        match self.refusal(principal) {
            Some(refusal) => Err(refusal),
            None => self.inner.may_enter(principal, endpoint),
        }
    }

    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience> {
        self.inner.audience(principal, endpoint)
    }

    fn may_see(&self, principal: &Principal, endpoint: &EndpointId, item: &Item) -> Sight {
        self.inner.may_see(principal, endpoint, item)
    }

    fn shows_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> bool {
        self.inner.shows_all(principal, endpoint, upstream)
    }

    fn may_call(
        &self,
        principal: &Principal,
        call: &Call,
        item: &Item,
    ) -> Result<Verdict, Failure> {
        // It may have been let in before.
        match self.refusal(principal) {
            Some(refusal) => Err(refusal),
            None => self.inner.may_call(principal, call, item),
        }
    }
}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocked({})", self.those.load().len())
    }
}
