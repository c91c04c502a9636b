//! Principals that an operator blocks for a while, in addition to the rules.
//!
//! It runs before the rules and only ever adds refusals. It is not a rule: rules belong to the
//! config, and a block is an operator's action at run time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{BLOCKED, Failure, FailureKind};
use weir_core::fast::FastMap;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::{Audience, Authorizer, CallPermission, Visibility};
use weir_core::principal::{Principal, Subject};

/// An authorizer that blocks some principals, and delegates all others to another one.
pub struct BlocklistAuthorizer {
    inner: Arc<dyn Authorizer>,
    /// True once a principal was blocked: requests before that skip the map.
    is_in_use: AtomicBool,
    /// By digest.
    blocked: ArcSwap<FastMap<[u8; 16], Arc<Subject>>>,
}

impl BlocklistAuthorizer {
    /// An authorizer without blocked principals.
    #[must_use]
    pub fn new(inner: Arc<dyn Authorizer>) -> Self {
        Self {
            inner,
            is_in_use: AtomicBool::new(false),
            blocked: ArcSwap::default(),
        }
    }

    /// Blocks a subject from now on. Returns false if it was blocked already.
    pub fn block(&self, subject: Subject) -> bool {
        let subject = Arc::new(subject);
        self.is_in_use.store(true, Ordering::Release);
        let before = self.blocked.rcu(|those| {
            let mut those = FastMap::clone(those);
            those.insert(*subject.digest(), subject.clone());
            those
        });
        !before.contains_key(subject.digest())
    }

    /// Removes the block. Returns false if the subject was not blocked.
    pub fn unblock(&self, digest: &[u8; 16]) -> bool {
        let before = self.blocked.rcu(|those| {
            let mut those = FastMap::clone(those);
            those.remove(digest);
            those
        });
        before.contains_key(digest)
    }

    fn refusal(&self, principal: &Principal) -> Option<Failure> {
        if !self.is_in_use.load(Ordering::Acquire) || principal.is_anonymous() {
            return None;
        }
        let out = self.blocked.load().contains_key(principal.digest());
        out.then(|| Failure::new(FailureKind::Denied, BLOCKED))
    }
}

impl Authorizer for BlocklistAuthorizer {
    fn may_enter(&self, principal: &Principal, endpoint: &EndpointId) -> Result<(), Failure> {
        match self.refusal(principal) {
            Some(refusal) => Err(refusal),
            None => self.inner.may_enter(principal, endpoint),
        }
    }

    fn audience(&self, principal: &Principal, endpoint: &EndpointId) -> Option<Audience> {
        self.inner.audience(principal, endpoint)
    }

    fn may_see(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        item: &CatalogItem,
    ) -> Visibility {
        self.inner.may_see(principal, endpoint, item)
    }

    fn permits_all(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> bool {
        self.inner.permits_all(principal, endpoint, upstream)
    }

    fn may_call(
        &self,
        principal: &Principal,
        call: &Call,
        item: &CatalogItem,
    ) -> Result<CallPermission, Failure> {
        // It may have been admitted before the block.
        match self.refusal(principal) {
            Some(refusal) => Err(refusal),
            None => self.inner.may_call(principal, call, item),
        }
    }
}

impl fmt::Debug for BlocklistAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlocklistAuthorizer({})", self.blocked.load().len())
    }
}
