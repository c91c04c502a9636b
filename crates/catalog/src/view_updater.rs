//! The background task that keeps views up to date. It has them built when a feed has a new
//! snapshot, and held-back announcements sent when their time comes; now and then unused state is
//! dropped.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::context::CatalogContext;

const TIDY_INTERVAL: Duration = Duration::from_secs(30);

/// One round of the task.
pub(super) struct UpdateRound {
    pub(super) now: Instant,
    /// True if unused state is to be dropped.
    pub(super) is_tidying: bool,
}

/// Calls `update` for each round until it breaks, which is when the catalog is gone, or until
/// dropped. `update` returns the time of the next held-back announcement.
pub(super) async fn run(
    context: Arc<CatalogContext>,
    update: impl Fn(UpdateRound) -> ControlFlow<(), Option<Instant>>,
) {
    let mut tidy = Instant::now() + TIDY_INTERVAL;
    let mut due = None;
    loop {
        tokio::select! {
            () = context.rebuild.requested() => {}
            () = sleep_until(due.map_or(tidy, |due: Instant| due.min(tidy))) => {}
        }
        let now = Instant::now();
        let is_tidying = now >= tidy;
        match update(UpdateRound { now, is_tidying }) {
            ControlFlow::Break(()) => return,
            ControlFlow::Continue(next) => due = next,
        }
        if is_tidying {
            tidy = now + TIDY_INTERVAL;
        }
    }
}
