//! The task that undoes operators' changes when they expire.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};
use weir_core::instant::rfc3339;
use weir_core::supervision::run_supervised;

use crate::state::AdminState;

/// Undoes changes when they expire. Never returns; drop the future to end it.
pub async fn expire_overrides(state: Arc<AdminState>) {
    run_supervised("expiry of changes", || undo_expired(state.clone())).await;
}

async fn undo_expired(state: Arc<AdminState>) {
    loop {
        let next = state.overrides.next();
        let due = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = state.overrides.wait_for_change() => {}
        }
        for (target, change) in state.overrides.take_expired(Instant::now(), |target| {
            state.undo(target);
        }) {
            let (kind, name) = target.kind_and_name();
            let (what, since) = (change.action, rfc3339(change.since));
            let detail = format!(
                "{kind} {name}: {what} by {} at {since} is over",
                change.operator
            );
            state.record_action("weir", "expire", &detail, true);
        }
    }
}
