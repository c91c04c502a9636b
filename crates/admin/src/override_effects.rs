//! The effects of operators' lasting changes: the same for a change that was asked for here and for
//! one of another replica.

use weir_catalog::ClosingMode;
use weir_core::catalog_item::CatalogItem;
use weir_core::principal::Subject;
use weir_router::live_calls::StopReason;

use crate::admin_error::AdminError;
use crate::overrides::{OperatorOverride, OverrideTarget};
use crate::state::AdminState;

/// The effect of a change.
#[derive(Debug, Default)]
pub(super) struct OverrideEffect {
    /// False if the state was like this already.
    pub(super) changed: bool,
    /// The number of calls that it ended.
    pub(super) ended_calls: Option<usize>,
    /// The number of streams that it ended.
    pub(super) ended_streams: Option<usize>,
}

impl AdminState {
    /// Closes an upstream or blocks a principal, and ends its calls and streams.
    ///
    /// # Errors
    ///
    /// The most changes are in force, the upstream is unknown, or the target is another one.
    pub(super) fn make_override(
        &self,
        target: &OverrideTarget,
        change: OperatorOverride,
    ) -> Result<OverrideEffect, AdminError> {
        match target {
            OverrideTarget::Upstream(id) => {
                let closing = change.closing_mode();
                let make = || {
                    let closed = self.catalog.closed(id);
                    let changed = closed.is_none_or(|closed| closed.mode != closing);
                    if self.catalog.close(id, closing) {
                        Ok(changed)
                    } else {
                        Err(AdminError::not_found("upstream", id.as_str()))
                    }
                };
                let changed = self.overrides.apply(target.clone(), change, make)?;
                let ended_calls = (closing == ClosingMode::Disabled).then(|| {
                    let own = |_: &_, item: &CatalogItem| item.tool.upstream == *id;
                    let parked = self.parking.stop(&|_, details| details.upstream == *id);
                    self.live.stop_all(own, StopReason::Disabled) + parked
                });
                Ok(OverrideEffect {
                    changed,
                    ended_calls,
                    ended_streams: None,
                })
            }
            OverrideTarget::Principal { issuer, subject } => {
                let subject = Subject::new(issuer.as_str(), subject.as_str());
                let digest = *subject.digest();
                let block = || Ok(self.blocked.block(subject));
                let changed = self.overrides.apply(target.clone(), change, block)?;
                let ended_calls = self.live.stop_all(
                    |principal, _| *principal.digest() == digest,
                    StopReason::Blocked,
                );
                let parked = self
                    .parking
                    .stop(&|_, details| *details.principal.digest() == digest);
                Ok(OverrideEffect {
                    changed,
                    ended_calls: Some(ended_calls + parked),
                    ended_streams: Some(self.front.end_streams(&digest)),
                })
            }
            OverrideTarget::Log(_) => {
                Err(AdminError::bad_request("a log level has no such effect"))
            }
        }
    }

    /// Reverts a change. Returns false if the state was like this already.
    pub(super) fn revert_override(&self, target: &OverrideTarget) -> bool {
        self.overrides.remove(target, || self.undo(target))
    }

    /// Undoes the effect of a change. Returns false if the state was like this already.
    pub(super) fn undo(&self, target: &OverrideTarget) -> bool {
        match target {
            OverrideTarget::Upstream(id) => self.catalog.reopen(id),
            OverrideTarget::Principal { issuer, subject } => {
                let subject = Subject::new(issuer.as_str(), subject.as_str());
                self.blocked.unblock(subject.digest())
            }
            OverrideTarget::Log(_) => {
                let reset = self.controls().map(|controls| controls.log.reset());
                if let Some(Err(error)) = &reset {
                    tracing::error!(error, "log level reset failed");
                }
                reset.is_some()
            }
        }
    }
}
