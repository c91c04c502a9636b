//! Lines of a child's output that are no messages, which are common.

use std::sync::OnceLock;

use weir_core::log_text::sanitize_text;
use weir_upstream_core::upstream_record::{OutputFault, UpstreamRecord};
use weir_wire::{EnvelopeOutline, scan};

/// The characters of a line that are kept.
const KEPT: usize = 200;

/// The beginning of the first such line of a child.
#[derive(Debug, Default)]
pub(super) struct NonMessageLines(OnceLock<String>);

impl NonMessageLines {
    /// Drops a line, and counts it. The first one of an upstream with each fault is logged with its
    /// beginning.
    pub(super) fn drop_line(&self, record: &UpstreamRecord, line: &[u8]) {
        record.label.count_dropped("not_a_message");
        let fault = output_fault(line);
        // A program that prints such a line does so in each of its processes.
        let is_new = record.note_output_fault(fault);
        if !is_new && self.0.get().is_some() {
            return;
        }
        let text = String::from_utf8_lossy(&line[..line.len().min(4 * KEPT)]).into_owned();
        let line = sanitize_text(&record.mask.apply(text.trim()), KEPT);
        if is_new {
            log_fault(record, fault, &line);
        }
        self.0.get_or_init(|| line);
    }

    /// Returns the beginning of the first one, without secrets and control characters.
    pub(super) fn first(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

fn log_fault(record: &UpstreamRecord, fault: OutputFault, line: &str) {
    match fault {
        OutputFault::OtherText => {
            tracing::warn!(upstream = %record.label.id, line, "invalid message on child process stdout: log to stderr instead");
        }
        OutputFault::SeveralLines => {
            tracing::warn!(upstream = %record.label.id, line, "message over several lines on child process stdout: write each message on one line");
        }
        OutputFault::TextBeforeMessage => {
            tracing::warn!(upstream = %record.label.id, line, "text before a message on child process stdout: log to stderr instead");
        }
        // A process writes no events.
        OutputFault::Event => {}
    }
}

/// Returns the fault of a line that is no message. A message behind other text is not taken: the
/// line may be a log of messages that the child exchanges with another server, and their ids are
/// those of other requests.
fn output_fault(line: &[u8]) -> OutputFault {
    let line = scan::trim(line);
    let first = line.first();
    let is_inner = matches!(first, Some(b'"' | b'}' | b']'));
    if is_inner || line == b"[" || EnvelopeOutline::of(line).is_incomplete() {
        return OutputFault::SeveralLines;
    }
    let is_object = first == Some(&b'{');
    let has_version = memchr::memmem::find(line, b"{\"jsonrpc\"").is_some();
    if has_version && !is_object {
        OutputFault::TextBeforeMessage
    } else {
        OutputFault::OtherText
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_is_no_message_has_its_fault() {
        for (line, fault) in [
            ("listening on 8080", OutputFault::OtherText),
            ("{ level: 'info' }", OutputFault::OtherText),
            (r#"{"level": "info"}"#, OutputFault::OtherText),
            ("{\n", OutputFault::SeveralLines),
            ("[\r\n", OutputFault::SeveralLines),
            (r#"  "jsonrpc": "2.0","#, OutputFault::SeveralLines),
            (" }\n", OutputFault::SeveralLines),
            (r#"{"jsonrpc": "2.0","#, OutputFault::SeveralLines),
            (
                r#"loading...{"jsonrpc":"2.0","id":7,"result":{}}"#,
                OutputFault::TextBeforeMessage,
            ),
        ] {
            assert_eq!(output_fault(line.as_bytes()), fault, "{line}");
        }
    }
}
