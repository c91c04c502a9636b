//! Counts how calls ended, each once, whatever way it did.

use std::sync::Arc;

use super::state::Shared;

/// A way to end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Completed,
    Cancelled,
    Abandoned,
}

/// The ending of one call. Dropped before any, it is the client that went away.
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

    /// Counts this end, unless there was one already.
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
