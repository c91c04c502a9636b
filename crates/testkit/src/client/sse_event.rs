//! A second, deliberately plain reader of server-sent events, so that tests do not check weir's
//! decoder with itself.

use bytes::{Bytes, BytesMut};

/// One event as it stood on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field.
    pub event: Option<String>,
    /// The `id:` field.
    pub id: Option<String>,
    /// The `retry:` field.
    pub retry: Option<u64>,
    /// The `data:` lines, joined by newlines.
    pub data: String,
    /// Comment lines before or in the event, without their colon.
    pub comments: Vec<String>,
}

/// Collects bytes and returns whole events. A block of comments alone is an event too, so that
/// tests see keep-alives.
#[derive(Debug, Default)]
pub(super) struct SseEventReader {
    buffer: BytesMut,
    /// The length of the prefix without the end of a block, so that a large event is searched once.
    searched: usize,
}

impl SseEventReader {
    pub(super) fn push(&mut self, bytes: &Bytes) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, if there is one.
    pub(super) fn next(&mut self) -> Option<SseEvent> {
        let Some((length, rest)) = block_end(&self.buffer, self.searched) else {
            // A separator may have begun in the last three bytes.
            self.searched = self.buffer.len().saturating_sub(3);
            return None;
        };
        self.searched = 0;
        let block = self.buffer.split_to(length);
        let _ = self.buffer.split_to(rest);
        Some(parse(&String::from_utf8_lossy(&block)))
    }

    /// The bytes of an incomplete event, such as those left at a stream's break.
    pub(super) fn remainder(&self) -> &[u8] {
        &self.buffer
    }
}

/// Finds the first blank line at or after `from`: length of the block, length of the separator.
fn block_end(buffer: &[u8], from: usize) -> Option<(usize, usize)> {
    let separators: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];
    let starts_with = |at: usize| {
        separators
            .iter()
            .find(|separator| buffer[at..].starts_with(separator))
    };
    (from..buffer.len()).find_map(|at| starts_with(at).map(|separator| (at, separator.len())))
}

fn parse(block: &str) -> SseEvent {
    let mut event = SseEvent::default();
    let mut data = Vec::new();
    for line in block.split(['\n', '\r']).filter(|line| !line.is_empty()) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => event.comments.push(value.to_owned()),
            "event" => event.event = Some(value.to_owned()),
            "id" => event.id = Some(value.to_owned()),
            "retry" => event.retry = value.parse().ok(),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.data = data.join("\n");
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_the_line_ending() {
        for newline in ["\n", "\r\n", "\r"] {
            let mut reader = SseEventReader::default();
            let text = [
                "event: message",
                "id: 7",
                "data: a",
                "data: b",
                "",
                ": ping",
                "",
                "data: open",
            ]
            .join(newline);
            reader.push(&Bytes::from(text));
            let first = reader.next();
            assert_eq!(
                first.as_ref().map(|event| event.data.as_str()),
                Some("a\nb")
            );
            assert_eq!(first.and_then(|event| event.id), Some("7".to_owned()));
            assert_eq!(
                reader.next().map(|event| event.comments),
                Some(vec!["ping".to_owned()])
            );
            assert_eq!(reader.next(), None);
            assert_eq!(reader.remainder(), b"data: open");
        }
    }
}
