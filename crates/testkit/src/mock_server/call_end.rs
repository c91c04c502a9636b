//! The counter of ended calls: each call counts once.

use std::sync::Arc;

use crate::mock_server::state::MockState;

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallEnd {
    Completed,
    Cancelled,
    Abandoned,
}

/// The guard of one call's end. Dropped without an end, the client went away.
#[derive(Debug)]
pub(super) struct CallEndGuard {
    pub(super) shared: Arc<MockState>,
    tool: Option<String>,
    ended: Option<CallEnd>,
}

impl CallEndGuard {
    pub(super) fn new(shared: Arc<MockState>, tool: Option<String>) -> Self {
        Self {
            shared,
            tool,
            ended: None,
        }
    }

    /// Counts this end, unless one was counted already.
    pub(super) fn end(&mut self, ended: CallEnd) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(ended);
        if let Some(tool) = &self.tool {
            self.shared.change(|inner| {
                let counts = inner.counts.entry(tool.clone()).or_default();
                match ended {
                    CallEnd::Completed => counts.completed += 1,
                    CallEnd::Cancelled => counts.cancelled += 1,
                    CallEnd::Abandoned => counts.abandoned += 1,
                }
            });
        }
    }
}

impl Drop for CallEndGuard {
    fn drop(&mut self) {
        self.end(CallEnd::Abandoned);
    }
}
