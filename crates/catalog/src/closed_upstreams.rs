//! Upstreams that an operator took out. Their items are in no list and no call of them is made.
//! They are followed as before, so that they are back at once when they are let in again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use weir_core::names::UpstreamId;

/// The mode of taking an upstream out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosingMode {
    /// No call and no task of it is served.
    Disabled,
    /// Running calls and tasks may end.
    Draining,
}

/// An upstream that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedUpstream {
    /// The mode.
    pub mode: ClosingMode,
    /// The time of the operator's action.
    pub since: SystemTime,
}

/// The upstreams that are taken out.
#[derive(Debug, Default)]
pub(super) struct ClosedUpstreams {
    /// True once an upstream was taken out: calls before that skip the map.
    is_in_use: AtomicBool,
    by_id: ArcSwap<HashMap<UpstreamId, ClosedUpstream>>,
}

impl ClosedUpstreams {
    pub(super) fn find(&self, id: &UpstreamId) -> Option<ClosedUpstream> {
        if !self.is_in_use.load(Ordering::Acquire) {
            return None;
        }
        self.by_id.load().get(id).copied()
    }

    /// Changes the map for all calls from now on.
    pub(super) fn change(&self, change: impl Fn(&mut HashMap<UpstreamId, ClosedUpstream>)) {
        self.is_in_use.store(true, Ordering::Release);
        self.by_id.rcu(|map| {
            let mut map = HashMap::clone(map);
            change(&mut map);
            map
        });
    }
}
