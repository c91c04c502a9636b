//! The counter of ended calls: each call counts once.

use std::sync::Arc;

use super::state::Shared;

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Completed,
    Cancelled,
    Abandoned,
}

/// The guard of one call's end. Dropped without an end, the client went away.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) shared: Arc<Shared>,
    tool: Option<String>,
    ended: Option<Ended>,
}

impl Ending {
    pub(super) fn new(shared: Arc<Shared>, tool: Option<String>) -> Self {
        Self {
            shared,
            tool,
            ended: None,
        }
    }

    /// Counts this end, unless one was counted already.
    pub(super) fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(ended);
        if let Some(tool) = &self.tool {
            self.shared.change(|inner| {
                let counts = inner.counts.entry(tool.clone()).or_default();
                match ended {
                    Ended::Completed => counts.completed += 1,
                    Ended::Cancelled => counts.cancelled += 1,
                    Ended::Abandoned => counts.abandoned += 1,
                }
            });
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.end(Ended::Abandoned);
    }
}
