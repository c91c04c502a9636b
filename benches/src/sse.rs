//! Events of an SSE body, fed in any chunks.
//!
//! It has only the parts that an MCP stream uses: `data` lines joined until a blank line. Names,
//! ids and retry times are skipped.

/// The longest event this tool takes; a longer one is an error of the peer.
const MAX_EVENT: usize = 64 << 20;

/// Collects lines into events.
#[derive(Debug, Default)]
pub(crate) struct EventLines {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

/// The peer sent more than [`MAX_EVENT`] without ending an event.
#[derive(Debug)]
pub(crate) struct EventTooLong;

impl EventLines {
    /// Takes the next bytes and calls `found` with the data of each event that is now complete.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        mut found: impl FnMut(&[u8]),
    ) -> Result<(), EventTooLong> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.line.is_empty() {
                self.take_line(head, &mut found);
            } else {
                self.line.extend_from_slice(head);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut found);
            }
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() + self.data.len() > MAX_EVENT {
            Err(EventTooLong)
        } else {
            Ok(())
        }
    }

    fn take_line(&mut self, line: &[u8], found: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            // An event without data (a priming event, a bare name) is no message.
            if std::mem::take(&mut self.has_data) && !self.data.is_empty() {
                found(&self.data);
            }
            self.data = Vec::new();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn split(text: &[u8], size: usize) -> Vec<String> {
        let mut events = EventLines::default();
        let mut all = Vec::new();
        for chunk in text.chunks(size) {
            events
                .push(chunk, |data| {
                    all.push(String::from_utf8_lossy(data).into_owned())
                })
                .unwrap();
        }
        all
    }

    #[test]
    fn any_chunking_gives_the_same_events() {
        let text =
            b": hello\n\nid: 1\ndata:\n\nevent: message\r\ndata: {\"a\":1}\r\n\r\ndata: x\ndata:y\n\ndata: unfinished";
        for size in 1..=text.len() {
            assert_eq!(split(text, size), ["{\"a\":1}", "x\ny"], "chunks of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = EventLines::default();
        assert!(events.push(&vec![b'x'; MAX_EVENT + 1], |_| {}).is_err());
    }
}
