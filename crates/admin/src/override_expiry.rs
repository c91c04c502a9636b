//! The task that undoes operators' changes when they expire.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};
use weir_core::instant::rfc3339;
use weir_core::principal::Subject;

use super::overrides::OverrideTarget;
use super::state::AdminState;

/// Undoes changes when they expire. Never returns; drop the future to end it.
pub(super) async fn expire_overrides(desk: Arc<AdminState>) {
    loop {
        let next = desk.overrides.next();
        let due = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = desk.overrides.wait_for_change() => {}
        }
        for (target, change) in desk
            .overrides
            .take_expired(Instant::now(), |target| desk.undo(target))
        {
            let (kind, name) = target.kind_and_name();
            let (what, since) = (change.action, rfc3339(change.since));
            let detail = format!(
                "{kind} {name}: {what} by {} at {since} is over",
                change.operator
            );
            desk.record_action("weir", "expire", &detail, true);
        }
    }
}

impl AdminState {
    /// Undoes an expired change.
    fn undo(&self, target: &OverrideTarget) {
        match target {
            OverrideTarget::Upstream(id) => {
                self.catalog.reopen(id);
            }
            OverrideTarget::Principal { issuer, subject } => {
                self.blocked
                    .unblock(Subject::new(issuer.as_str(), subject.as_str()).digest());
            }
            OverrideTarget::Log(_) => {
                let reset = self.controls().map(|levers| levers.log.reset());
                if let Some(Err(error)) = reset {
                    tracing::error!(error, "log level reset failed");
                }
            }
        }
    }
}
