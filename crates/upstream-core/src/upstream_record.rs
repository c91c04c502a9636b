//! The record of one upstream that operators read: its last failure, and the last lines of a
//! process that did not start.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use weir_core::Failure;
use weir_core::port::Clock;

use crate::secret_mask::SecretMask;
use crate::upstream_label::UpstreamLabel;

/// The record of one upstream for its operators.
pub struct UpstreamRecord {
    /// The id of the upstream, for failures and the log.
    pub label: UpstreamLabel,
    /// The secrets of its config.
    pub mask: SecretMask,
    clock: Arc<dyn Clock>,
    /// Set once the log has reported a line of its processes that is no message.
    prints_other_lines: OnceLock<()>,
    /// The last lines of the error stream of the process with the last failed start.
    last_lines: Mutex<Vec<String>>,
    /// The last failure's cause and its time.
    last_error: Mutex<Option<(String, SystemTime)>>,
}

impl UpstreamRecord {
    /// Makes an empty record.
    pub fn new(label: UpstreamLabel, mask: SecretMask, clock: Arc<dyn Clock>) -> Self {
        Self {
            label,
            mask,
            clock,
            prints_other_lines: OnceLock::new(),
            last_lines: Mutex::default(),
            last_error: Mutex::default(),
        }
    }

    /// Keeps a failure's cause for operators.
    pub fn note_error(&self, failure: &Failure) {
        *self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((failure.cause(), self.clock.wall()));
    }

    /// Returns the last failure's cause and its time.
    pub fn last_error(&self) -> Option<(String, SystemTime)> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps the last lines of a process whose start failed.
    pub fn note_lines(&self, lines: Vec<String>) {
        *self
            .last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Returns the last lines of a process whose start failed.
    pub fn last_lines(&self) -> Vec<String> {
        self.last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes that a process prints lines that are no messages. True the first time.
    pub fn note_other_lines(&self) -> bool {
        self.prints_other_lines.set(()).is_ok()
    }
}

impl std::fmt::Debug for UpstreamRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamRecord")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
