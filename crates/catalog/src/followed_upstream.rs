//! An upstream that the catalog follows, and the operator's rules for it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use weir_core::endpoint::UpstreamRules;
use weir_core::names::UpstreamId;
use weir_core::upstream::{ListKind, ListKinds, Upstream};

use crate::stale_list_signal::StaleListSignal;
use weir_items::ResolvedRules;

/// The pause before a client's request has the server asked again for a list that it does not declare
/// and did not answer for in time.
const UNDECLARED_PAUSE: Duration = Duration::from_secs(600);

/// The lists that clients asked for although the server does not declare them.
#[derive(Debug, Default)]
struct UndeclaredLists {
    /// The lists that walks ask for.
    walked: ListKinds,
    /// The end of the pause after a request without an answer. By [`ListKind`].
    paused_until: [Option<Instant>; 4],
}

/// The parts of an upstream that all its watchers read.
pub(super) struct FollowedUpstream {
    pub(super) server: Arc<dyn Upstream>,
    pub(super) stale_lists: Arc<StaleListSignal>,
    rules: ArcSwap<ResolvedRules>,
    undeclared: Mutex<UndeclaredLists>,
    /// Cancelled once the upstream is not followed any more.
    stop: CancellationToken,
}

impl FollowedUpstream {
    pub(super) fn new(
        server: Arc<dyn Upstream>,
        rules: UpstreamRules,
        stop: CancellationToken,
    ) -> Self {
        Self {
            server,
            stale_lists: Arc::default(),
            rules: ArcSwap::from_pointee(ResolvedRules::new(rules)),
            undeclared: Mutex::default(),
            stop,
        }
    }

    pub(super) fn id(&self) -> &UpstreamId {
        self.server.id()
    }

    /// True once the upstream is not followed any more: figures of it would bring back series of an
    /// upstream that is gone.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
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
        self.undeclared.lock().walked
    }

    /// Adds a list that the server does not declare; false if it was added before.
    pub(super) fn add_undeclared(&self, kind: ListKind) -> bool {
        let mut lists = self.undeclared.lock();
        let is_new = !lists.walked.has(kind);
        lists.walked = lists.walked.with(kind);
        is_new
    }

    /// Has no walk ask for a list any more, nor a client's request for some time: the server does
    /// not answer, and its other lists would wait with every walk.
    pub(super) fn give_up_undeclared(&self, kind: ListKind) {
        let mut lists = self.undeclared.lock();
        lists.walked = lists.walked.without(kind);
        lists.paused_until[kind as usize] = Some(Instant::now() + UNDECLARED_PAUSE);
    }

    /// True if a list that the server does not declare may be asked for.
    pub(super) fn may_ask_undeclared(&self, kind: ListKind) -> bool {
        let until = self.undeclared.lock().paused_until[kind as usize];
        until.is_none_or(|until| until <= Instant::now())
    }
}
