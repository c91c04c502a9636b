//! The record of one upstream that operators read: its last failure, the last lines of a process
//! that did not start, and the first output of each kind that was no message.

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use weir_core::Failure;
use weir_core::log_text::sanitize_text;
use weir_core::port::Clock;

use crate::secret_mask::SecretMask;
use crate::upstream_label::UpstreamLabel;

/// The fault of output of a server that is no message: of a line of a process, or of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFault {
    /// It is other text.
    OtherText,
    /// It is a part of a message over several lines.
    SeveralLines,
    /// A message follows other text.
    TextBeforeMessage,
    /// An event of a stream is no message.
    Event,
}

/// The characters of an event that the log has.
const KEPT_OF_EVENT: usize = 200;

/// The record of one upstream for its operators.
pub struct UpstreamRecord {
    /// The id of the upstream, for failures and the log.
    pub label: UpstreamLabel,
    /// The secrets of its config.
    pub mask: SecretMask,
    clock: Arc<dyn Clock>,
    /// The faults of its output that the log has reported.
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

    /// Drops an event that is no message, and counts it. The first one of an upstream is logged with
    /// its beginning.
    pub fn drop_event(&self, event: &[u8]) {
        self.label.count_dropped("not_a_message");
        if self.note_output_fault(OutputFault::Event) {
            let text = String::from_utf8_lossy(&event[..event.len().min(4 * KEPT_OF_EVENT)]);
            let event = sanitize_text(&self.mask.apply(text.trim()), KEPT_OF_EVENT);
            tracing::warn!(upstream = %self.label.id, event, "invalid message in an event stream of the upstream: event skipped");
        }
    }

    /// Notes output that is no message. True the first time for each fault.
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
