//! Lines of a child's output that are no messages, which are common.

use std::sync::OnceLock;

use bytes::Bytes;
use weir_core::log_text::sanitize_text;
use weir_upstream_core::upstream_record::UpstreamRecord;

/// The characters of a line that are kept.
const KEPT: usize = 200;

/// The beginning of the first such line of a child.
#[derive(Debug, Default)]
pub(super) struct NonMessageLines(OnceLock<String>);

impl NonMessageLines {
    /// Drops a line, and counts it. The first of an upstream is logged with its beginning.
    pub(super) fn drop_line(&self, record: &UpstreamRecord, line: &[u8]) {
        record.label.count_dropped("not_a_message");
        self.0.get_or_init(|| {
            let text = String::from_utf8_lossy(&line[..line.len().min(4 * KEPT)]).into_owned();
            let line = sanitize_text(&record.mask.apply(text.trim()), KEPT);
            // A program that prints such a line does so in each of its processes.
            if record.note_other_lines() {
                tracing::warn!(
                    upstream = %record.label.id, line,
                    "invalid message on child process stdout: log to stderr instead"
                );
            }
            line
        });
    }

    /// Returns a copy of the line that is being read, unless another one was noted before.
    pub(super) fn copy(&self, line: &Bytes) -> Bytes {
        if self.0.get().is_none() {
            line.clone()
        } else {
            Bytes::new()
        }
    }

    /// Returns the beginning of the first one, without secrets and control characters.
    pub(super) fn first(&self) -> Option<String> {
        self.0.get().cloned()
    }
}
