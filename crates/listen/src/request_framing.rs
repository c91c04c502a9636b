//! The framing of HTTP/1.1 requests, followed byte by byte before the parser sees them.
//!
//! The parser is lenient as far as RFC 9112 allows it: a bare LF ends a line, a length beside
//! chunks is dropped, two equal lengths are one, and `chunked` may stand twice. A proxy in front of
//! weir may read the same bytes otherwise, and then the two see different requests in them (A07).
//! The parser hides these cases afterwards. So the end of such a line is passed on as NUL, which
//! the parser refuses with 400, and the connection ends.

/// The longest line that may frame a body.
const MAX_FRAMING_LINE: usize = 256;

/// Follows the requests of a connection, also of a client that does not wait for answers.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    state: FramingState,
    /// The byte before the next one.
    last: u8,
    /// The line so far has bytes other than carriage returns.
    filled: bool,
    /// A line came before this one, so that an empty one ends the head.
    begun: bool,
    /// The line, if it may frame the body.
    line: Vec<u8>,
    framing: Option<BodyFraming>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    /// Lines of a head.
    #[default]
    Head,
    /// Remaining bytes of a body.
    Body(u64),
    /// The size of a chunk so far; `true` while it has only digits.
    Size(u64, bool),
    /// Remaining bytes of a chunk and its end.
    Chunk(u64),
    /// Lines after the last chunk.
    Trailer,
    /// The parser refuses the rest, and the connection ends.
    Refused,
}

/// The framing that a head declares for its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    Length(u64),
    Chunked,
}

/// The error for a head that two readers could understand differently.
struct AmbiguousFraming;

impl RequestFraming {
    /// Examines bytes that were just read.
    pub(super) fn check(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                FramingState::Head => self.read_head(bytes, at),
                FramingState::Body(left) => {
                    let part = part_of(left, bytes.len() - at);
                    self.state = if part as u64 == left {
                        FramingState::Head
                    } else {
                        FramingState::Body(left - part as u64)
                    };
                    at + part
                }
                FramingState::Chunk(left) => {
                    let part = part_of(left, bytes.len() - at);
                    self.state = if part as u64 == left {
                        FramingState::Size(0, true)
                    } else {
                        FramingState::Chunk(left - part as u64)
                    };
                    at + part
                }
                FramingState::Size(size, digits) => {
                    self.read_chunk_size(bytes[at], size, digits);
                    at + 1
                }
                FramingState::Trailer => {
                    self.read_trailer(bytes[at]);
                    at + 1
                }
                FramingState::Refused => return,
            };
        }
    }

    /// Skips whole lines that do not frame the body, and takes the next line of the head, or its
    /// available part; returns the index of its end.
    fn read_head(&mut self, bytes: &mut [u8], from: usize) -> usize {
        let line_end = |from| memchr::memchr(b'\n', &bytes[from..]).map(|length| from + length);
        let (mut from, mut end) = (from, line_end(from));
        while let Some(behind) = end
            && self.begun
            && !self.filled
            && is_irrelevant_line(&bytes[from..behind])
        {
            self.last = b'\n';
            from = behind + 1;
            end = line_end(from);
        }
        let part = &bytes[from..end.unwrap_or(bytes.len())];
        self.keep_framing_line(part);
        self.filled |= part.iter().any(|byte| *byte != b'\r');
        let before = part.last().copied().unwrap_or(self.last);
        let Some(end) = end else {
            self.last = before;
            return bytes.len();
        };
        self.last = b'\n';
        if before != b'\r' || self.end_line().is_err() {
            bytes[end] = 0;
            self.state = FramingState::Refused;
        }
        end + 1
    }

    /// Keeps a line if its first byte may begin a framing header.
    fn keep_framing_line(&mut self, part: &[u8]) {
        let first = if self.filled {
            self.line.first()
        } else {
            part.first()
        };
        if first.is_some_and(|first| begins_framing(*first)) && self.line.len() <= MAX_FRAMING_LINE
        {
            self.line
                .extend_from_slice(&part[..part.len().min(MAX_FRAMING_LINE + 1)]);
        }
    }

    fn end_line(&mut self) -> Result<(), AmbiguousFraming> {
        let (filled, begun) = (std::mem::take(&mut self.filled), self.begun);
        if filled {
            self.begun = true;
            // The first line is the request line.
            let framing = if begun { self.take_framing() } else { Ok(()) };
            self.line.clear();
            return framing;
        }
        self.line.clear();
        if begun {
            self.begun = false;
            self.state = match self.framing.take() {
                None | Some(BodyFraming::Length(0)) => FramingState::Head,
                Some(BodyFraming::Length(length)) => FramingState::Body(length),
                Some(BodyFraming::Chunked) => FramingState::Size(0, true),
            };
        }
        Ok(())
    }

    /// Takes the framing of the body from the line; only one line may declare it.
    fn take_framing(&mut self) -> Result<(), AmbiguousFraming> {
        let Some(colon) = memchr::memchr(b':', &self.line) else {
            return Ok(());
        };
        let (name, value) = (&self.line[..colon], self.line[colon + 1..].trim_ascii());
        let framing = if name.eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(value)
                .ok()
                .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            BodyFraming::Length(
                digits
                    .and_then(|text| text.parse().ok())
                    .ok_or(AmbiguousFraming)?,
            )
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(AmbiguousFraming);
            }
            BodyFraming::Chunked
        } else {
            return Ok(());
        };
        let is_first = self.framing.replace(framing).is_none();
        if is_first && self.line.len() <= MAX_FRAMING_LINE {
            Ok(())
        } else {
            Err(AmbiguousFraming)
        }
    }

    /// Reads one byte of a chunk's size line. The parser refuses an invalid size.
    fn read_chunk_size(&mut self, byte: u8, size: u64, digits: bool) {
        let digit = (byte as char).to_digit(16).filter(|_| digits);
        self.state = match (byte, digit) {
            (b'\n', _) if size == 0 => FramingState::Trailer,
            // The chunk, and its CR and LF.
            (b'\n', _) => size
                .checked_add(2)
                .map_or(FramingState::Refused, FramingState::Chunk),
            (_, Some(digit)) => {
                let size = size
                    .checked_mul(16)
                    .and_then(|size| size.checked_add(u64::from(digit)));
                size.map_or(FramingState::Refused, |size| FramingState::Size(size, true))
            }
            (_, None) => FramingState::Size(size, false),
        };
        (self.last, self.filled) = (byte, false);
    }

    fn read_trailer(&mut self, byte: u8) {
        let ends_line = byte == b'\n' && self.last == b'\r';
        if ends_line && !self.filled {
            self.state = FramingState::Head;
        }
        self.filled = !ends_line && (self.filled || byte != b'\r');
        self.last = byte;
    }
}

/// Returns true if a whole line, without its LF, ends correctly and can neither frame a body nor
/// end a head.
fn is_irrelevant_line(line: &[u8]) -> bool {
    matches!(line, [first, .., b'\r'] if !begins_framing(*first) && *first != b'\r')
}

fn begins_framing(first: u8) -> bool {
    matches!(first, b'c' | b'C' | b't' | b'T')
}

fn part_of(left: u64, have: usize) -> usize {
    usize::try_from(left).map_or(have, |left| left.min(have))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes that are passed on for these reads.
    fn passed_on(reads: &[&str]) -> String {
        let mut framing = RequestFraming::default();
        let mut all = Vec::new();
        for read in reads {
            let mut bytes = read.as_bytes().to_vec();
            framing.check(&mut bytes);
            all.extend(bytes);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    const LENGTH: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 19\r\nX: b\r\n\r\n{\n\"body\": 1\n}\n\n\r\n\r\n";
    const CHUNKS: &str = "POST /mcp HTTP/1.1\r\ntransfer-encoding:\tCHUNKED \r\nContent-Type: a\r\n\r\n\
                          5;x=\"1\"\r\n{\n\n\n}\r\nA \r\n\n\n\n\nx\r\n\r\n\r\n\r\n0\r\nT: a\r\n\r\n";
    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nTe: trailers\r\n\r\n";

    fn pipelined() -> String {
        [LENGTH, CHUNKS, GET, "\r\n", CHUNKS, LENGTH].concat()
    }

    // Proves A07.
    #[test]
    fn good_requests_pass_however_they_are_cut() {
        let good = pipelined();
        for first in 0..good.len() {
            let step = 1 + first % 7;
            let (begin, mut rest) = good.split_at(first);
            let mut reads = vec![begin];
            while !rest.is_empty() {
                let (part, next) = rest.split_at(step.min(rest.len()));
                reads.push(part);
                rest = next;
            }
            assert_eq!(passed_on(&reads), good, "cut at {first}, then every {step}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// A line that comes in parts is never skipped whole.
        // Proves A07.
        #[test]
        fn refusals_do_not_depend_on_read_boundaries(
            parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..40),
            cuts in prop::collection::vec(1..40_usize, 1..8),
        ) {
            let sent = parts.concat();
            let each: Vec<&str> = sent.split("").collect();
            let (mut reads, mut rest) = (Vec::new(), &sent[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (read, next) = rest.split_at(rest.len().min(*cut));
                reads.push(read);
                rest = next;
            }
            let expected = passed_on(&each);
            prop_assert_eq!(passed_on(&[&sent]), expected.clone());
            prop_assert_eq!(passed_on(&reads), expected);
        }
    }

    /// Parts of heads and bodies, good and bad.
    const PARTS: [&str; 20] = [
        "POST /mcp HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n",
        "Host: a\r\n",
        "X: b\r\n",
        "Content-Type: a\r\n",
        "Content-Length: 3\r\n",
        "content-length: 7\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Content-",
        "Te",
        "x",
        ":",
        "3\r\nabc\r\n",
        "0\r\n",
        "\r\n",
        "\r\n",
        "\r\n\r\n",
        "x\r",
        "\n",
        "abc",
    ];

    // Proves A07.
    #[test]
    fn skipped_line_ends_with_crlf_too() {
        assert_eq!(
            passed_on(&["GET / HTTP/1.1\r\n", "\r", "X: a\r\n", "\n"]),
            "GET / HTTP/1.1\r\n\rX: a\r\n\0"
        );
    }

    // Proves A07.
    #[test]
    fn a_bare_line_feed_in_any_head_becomes_nul() {
        let good = pipelined();
        let mut heads = Vec::new();
        let mut from = 0;
        for part in [LENGTH, CHUNKS, GET] {
            heads.push((from, from + part.find("\r\n\r\n").unwrap_or(0) + 4));
            from += part.len();
        }
        for (begin, end) in heads {
            for (at, _) in good[begin..end].match_indices("\r\n") {
                let at = begin + at;
                let bare = format!("{}{}", &good[..at], &good[at + 1..]);
                for cut in [0, begin, at, at + 1] {
                    let seen = passed_on(&[&bare[..cut], &bare[cut..]]);
                    assert_eq!(seen.as_bytes()[at], 0, "{bare:?} cut at {cut}");
                }
            }
        }
    }

    // Proves A07.
    #[test]
    fn second_framing_header_is_refused() {
        let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
        let padded = format!("Content-Length:{}5\r\n", " ".repeat(300));
        for lines in [
            [length, length].concat(),
            [length, chunked].concat(),
            [chunked, length].concat(),
            [chunked, chunked].concat(),
            [length, "X: a\r\n", chunked].concat(),
            "Content-Length: 5, 5\r\n".to_owned(),
            "Content-Length: +5\r\n".to_owned(),
            "Content-Length:\r\n".to_owned(),
            "Transfer-Encoding: chunked, chunked\r\n".to_owned(),
            "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
            padded,
        ] {
            for before in ["", LENGTH, CHUNKS] {
                let sent = format!(
                    "{before}POST /mcp HTTP/1.1\r\nHost: a\r\n{lines}\r\n5\r\nabcde\r\n0\r\n\r\n{GET}"
                );
                let seen = passed_on(&[&sent]);
                let nul = seen.find('\0').unwrap_or_else(|| panic!("{lines:?} pass"));
                assert!(
                    nul > before.len() && nul < before.len() + 40 + lines.len(),
                    "{seen:?}"
                );
            }
        }
    }
}
