//! The record of one upstream that operators read: its last failure, and the last lines of a
//! process that did not start.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use weir_core::Failure;
use weir_core::port::Clock;

use crate::secret_mask::SecretMask;
use crate::upstream_label::UpstreamLabel;

/// The fault of a line of a process that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFault {
    /// It is other text.
    OtherText,
    /// It is a part of a message over several lines.
    SeveralLines,
    /// A message follows other text.
    TextBeforeMessage,
}

/// The record of one upstream for its operators.
pub struct UpstreamRecord {
    /// The id of the upstream, for failures and the log.
    pub label: UpstreamLabel,
    /// The secrets of its config.
    pub mask: SecretMask,
    clock: Arc<dyn Clock>,
    /// The faults of lines of its processes that the log has reported.
    output_faults: Mutex<Vec<OutputFault>>,
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
            output_faults: Mutex::default(),
            last_lines: Mutex::default(),
            last_error: Mutex::default(),
        }
    }

    /// Keeps a failure's cause for operators.
    pub fn note_error(&self, failure: &Failure) {
        *self.last_error.lock() = Some((failure.cause(), self.clock.wall()));
    }

    /// Returns the last failure's cause and its time.
    pub fn last_error(&self) -> Option<(String, SystemTime)> {
        self.last_error.lock().clone()
    }

    /// Keeps the last lines of a process whose start failed.
    pub fn note_lines(&self, lines: Vec<String>) {
        *self.last_lines.lock() = lines;
    }

    /// Returns the last lines of a process whose start failed.
    pub fn last_lines(&self) -> Vec<String> {
        self.last_lines.lock().clone()
    }

    /// Notes a line of a process that is no message. True the first time for each fault.
    pub fn note_output_fault(&self, fault: OutputFault) -> bool {
        let mut noted = self.output_faults.lock();
        let is_new = !noted.contains(&fault);
        if is_new {
            noted.push(fault);
        }
        is_new
    }
}

impl std::fmt::Debug for UpstreamRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamRecord")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
