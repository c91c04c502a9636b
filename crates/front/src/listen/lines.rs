//! Line ends of HTTP/1.1 heads. hyper's parser takes a bare LF for the end of a line, as RFC 9112 (2.2) allows. A proxy in
//! front of weir may not, and then the two see different headers in the same bytes (fault A07).
//!
//! hyper shows nothing of this afterwards, so the bytes are looked at before it: a bare LF in a head is handed on as NUL,
//! which the parser refuses with 400. Bytes read while a request is being answered are not looked at: they may be a body.

/// Follows the lines of one head after the other.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The number of the head that is being read.
    head: Option<usize>,
    /// The byte before the next one.
    last: u8,
    /// The line so far is not empty.
    filled: bool,
    /// There was a line before this one, so that an empty one ends the head.
    begun: bool,
    /// The head is complete; the rest is a body, or the next request of a client that does not wait.
    over: bool,
}

impl Lines {
    /// Looks at bytes that were just read. `head` is the number of the head they belong to, `None` while a request is being
    /// answered.
    pub(super) fn read(&mut self, bytes: &mut [u8], head: Option<usize>) {
        if head.is_some() && head != self.head {
            self.head = head;
            self.over = false;
            // A client that does not wait may be in the middle of a line.
            self.begun = matches!(self.last, b'\r' | b'\n');
            self.filled = self.last != 0 && !self.begun;
        }
        if head.is_some() && !self.over {
            self.follow(bytes);
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    fn follow(&mut self, bytes: &mut [u8]) {
        let (mut from, mut last) = (0, self.last);
        // Line by line: what stands between two line feeds is looked at only for whether it is there.
        while let Some(length) = memchr::memchr(b'\n', &bytes[from..]) {
            let at = from + length;
            let before = if length == 0 { last } else { bytes[at - 1] };
            let filled = self.filled || is_filled(&bytes[from..at]);
            from = at + 1;
            if before != b'\r' {
                bytes[at] = 0;
                (self.filled, last) = (filled, 0);
                continue;
            }
            if self.begun && !filled {
                self.over = true;
                return;
            }
            self.begun |= filled;
            (self.filled, last) = (false, b'\n');
        }
        self.filled |= is_filled(&bytes[from..]);
    }
}

/// True if a line has more than carriage returns: nearly always the first byte tells.
fn is_filled(line: &[u8]) -> bool {
    line.iter().any(|byte| *byte != b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is handed on of these reads of one head.
    fn handed_on(reads: &[&str]) -> String {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for read in reads {
            let mut bytes = read.as_bytes().to_vec();
            lines.read(&mut bytes, Some(0));
            all.extend(bytes);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    const GOOD: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\n{\n\"body\": 1\n}\n\nPOST";

    #[test]
    fn a07_good_lines_pass_however_they_are_cut() {
        for first in 0..GOOD.len() {
            for second in first..GOOD.len() {
                let reads = [&GOOD[..first], &GOOD[first..second], &GOOD[second..]];
                assert_eq!(handed_on(&reads), GOOD, "{reads:?}");
            }
        }
        let led = format!("\r\n\r\n{GOOD}");
        assert_eq!(handed_on(&[&led]), led, "empty lines before the first are allowed");
    }

    #[test]
    fn a07_a_bare_line_feed_in_a_head_becomes_nul() {
        let head = &GOOD[..GOOD.find('{').unwrap_or(0)];
        for (at, _) in head.match_indices("\r\n") {
            let bare = format!("{}{}", &GOOD[..at], &GOOD[at + 1..]);
            for cut in 0..bare.len() {
                let seen = handed_on(&[&bare[..cut], &bare[cut..]]);
                assert_eq!(seen.as_bytes()[at], 0, "{bare:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn bytes_of_a_request_that_is_being_answered_pass() {
        let mut lines = Lines::default();
        lines.read(&mut GOOD.as_bytes().to_vec(), Some(0));
        let mut body = b"a\nb\n\nc".to_vec();
        lines.read(&mut body, None);
        assert_eq!(body, b"a\nb\n\nc");
        let mut next = b"\r\nGET / HTTP/1.1\nHost: a\r\n\r\n".to_vec();
        lines.read(&mut next, Some(1));
        assert_eq!(next, b"\r\nGET / HTTP/1.1\0Host: a\r\n\r\n");
    }

    /// The second head began in a read that was not looked at, and ends in this one: its body is no head.
    #[test]
    fn a25_a_head_cut_anywhere_by_a_client_that_does_not_wait_passes() {
        for cut in 1..GOOD.len() {
            let mut lines = Lines::default();
            lines.read(&mut GOOD.as_bytes()[..cut].to_vec(), None);
            let mut rest = GOOD.as_bytes()[cut..].to_vec();
            lines.read(&mut rest, Some(1));
            if cut < GOOD.find('{').unwrap_or(0) {
                assert_eq!(String::from_utf8_lossy(&rest), &GOOD[cut..], "cut at {cut}");
            }
        }
    }
}
