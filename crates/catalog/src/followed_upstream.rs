//! An upstream that the catalog follows, and the operator's rules for it.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weir_core::endpoint::UpstreamRules;
use weir_core::names::UpstreamId;
use weir_core::upstream::{ListKind, ListKinds, Upstream};

use super::resolved_rules::ResolvedRules;

/// The parts of an upstream that all its watchers read.
pub(super) struct FollowedUpstream {
    pub(super) server: Arc<dyn Upstream>,
    rules: ArcSwap<ResolvedRules>,
    /// The lists that clients asked for although the server does not declare them.
    undeclared: Mutex<ListKinds>,
}

impl FollowedUpstream {
    pub(super) fn new(server: Arc<dyn Upstream>, rules: UpstreamRules) -> Self {
        Self {
            server,
            rules: ArcSwap::from_pointee(ResolvedRules::new(rules)),
            undeclared: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> &UpstreamId {
        self.server.id()
    }

    pub(super) fn rules(&self) -> Arc<ResolvedRules> {
        self.rules.load_full()
    }

    /// Takes the rules of a reload; equal ones are no change.
    pub(super) fn set_rules(&self, rules: UpstreamRules) {
        if self.rules.load().given != rules {
            self.rules.store(Arc::new(ResolvedRules::new(rules)));
        }
    }

    /// The lists that the server is asked for although it does not declare them.
    pub(super) fn undeclared(&self) -> ListKinds {
        *self
            .undeclared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a list that the server does not declare; false if it was added before.
    pub(super) fn add_undeclared(&self, kind: ListKind) -> bool {
        let mut undeclared = self
            .undeclared
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_new = !undeclared.has(kind);
        *undeclared = undeclared.with(kind);
        is_new
    }
}
