//! Heads of HTTP/2 frames (RFC 9113), read as the bytes pass in chunks of any size, and the limit
//! on idle frames.
//!
//! HTTP/2 libraries show neither to a server or a client. The reader or writer of the bytes feeds
//! them to this parser.

use std::io::IoSlice;
use std::time::Instant;

/// The type of a DATA frame.
pub const DATA: u8 = 0;
/// The type of a HEADERS frame.
pub const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// The flag of a stream's last DATA or HEADERS frame.
pub const END_STREAM: u8 = 1;
/// The flag of a DATA or HEADERS frame with padding.
pub const PADDED: u8 = 8;

/// The length of the client connection preface (RFC 9113, section 3.4).
pub const PREFACE: usize = 24;
const HEAD: usize = 9;

/// Returns the bytes that a vectored write took of its slices, if it took `written` bytes.
pub fn written_parts<'a>(
    slices: &'a [IoSlice<'_>],
    written: usize,
) -> impl Iterator<Item = &'a [u8]> {
    slices.iter().scan(written, |left, slice| {
        let part = slice.len().min(*left);
        *left -= part;
        Some(&slice[..part])
    })
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload, padding included.
    pub length: usize,
    /// Bytes of padding in a DATA frame, including the length byte.
    pub padding: usize,
    /// The frame's type.
    pub kind: u8,
    /// The frame's flags.
    pub flags: u8,
    /// The stream's id; 0 is the connection.
    pub stream: u32,
}

/// A parsed piece of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePiece {
    /// A frame's head; for a padded DATA frame with the padding's length, the first byte of its
    /// payload.
    Head(FrameHead),
    /// A setting: its name and value.
    Setting(u16, u32),
    /// The increment of a `WINDOW_UPDATE` for this stream.
    Window(u32, u32),
}

/// A parser that follows the frames of one direction.
#[derive(Debug)]
pub struct FrameParser {
    /// Bytes before the head of the first frame.
    preface: usize,
    head: [u8; HEAD],
    filled: usize,
    current: FrameHead,
    /// Bytes left of the current frame's payload.
    left: usize,
    /// The entry of a `SETTINGS` or `WINDOW_UPDATE` payload that is being read.
    entry: [u8; 6],
    entered: usize,
}

impl FrameParser {
    /// A parser for a direction that begins with this many bytes that are not frames: [`PREFACE`]
    /// for a client's bytes, else 0.
    #[must_use]
    pub const fn new(preface: usize) -> Self {
        let current = FrameHead {
            length: 0,
            padding: 0,
            kind: 0,
            flags: 0,
            stream: 0,
        };
        Self {
            preface,
            head: [0; HEAD],
            filled: 0,
            current,
            left: 0,
            entry: [0; 6],
            entered: 0,
        }
    }

    /// Takes the next bytes of the direction and passes each parsed piece to `seen`.
    pub fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(FramePiece)) {
        let skipped = self.preface.min(bytes.len());
        self.preface -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let part = (HEAD - self.filled).min(bytes.len());
                self.head[self.filled..self.filled + part].copy_from_slice(&bytes[..part]);
                self.filled += part;
                bytes = &bytes[part..];
                if self.filled == HEAD {
                    self.begin(&mut seen);
                }
                continue;
            }
            let part = self.left.min(bytes.len());
            self.payload(&bytes[..part], &mut seen);
            self.left -= part;
            bytes = &bytes[part..];
        }
    }

    fn begin(&mut self, seen: &mut impl FnMut(FramePiece)) {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = self.head;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        self.current = FrameHead {
            length,
            padding: 0,
            kind,
            flags,
            stream,
        };
        (self.left, self.filled, self.entered) = (length, 0, 0);
        if length == 0 || !self.is_padded_data() {
            seen(FramePiece::Head(self.current));
        }
    }

    const fn is_padded_data(&self) -> bool {
        self.current.kind == DATA && self.current.flags & PADDED != 0
    }

    /// Reads the length of a DATA frame's padding, and the entries of the two frame types about
    /// windows.
    fn payload(&mut self, bytes: &[u8], seen: &mut impl FnMut(FramePiece)) {
        let size = match self.current.kind {
            DATA if self.left == self.current.length && self.is_padded_data() => {
                self.current.padding = (1 + usize::from(bytes[0])).min(self.current.length);
                return seen(FramePiece::Head(self.current));
            }
            SETTINGS => 6,
            WINDOW_UPDATE => 4,
            _ => return,
        };
        for byte in bytes {
            self.entry[self.entered] = *byte;
            self.entered += 1;
            if self.entered < size {
                continue;
            }
            self.entered = 0;
            let [a, b, c, d, e, f] = self.entry;
            seen(match size {
                6 => FramePiece::Setting(
                    u16::from_be_bytes([a, b]),
                    u32::from_be_bytes([c, d, e, f]),
                ),
                _ => FramePiece::Window(
                    self.current.stream,
                    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
                ),
            });
        }
    }
}

/// The burst of idle frames that a peer may send. An idle frame asks for work and carries no data.
pub const IDLE_FRAMES: u32 = 1000;
/// The idle frames a peer may send each second beyond the burst of [`IDLE_FRAMES`].
pub const IDLE_FRAMES_A_SECOND: u32 = 100;

/// The budget of idle frames of one connection's peer.
#[derive(Debug)]
pub struct IdleFrames {
    left: f64,
    /// The time of the last refill of `left`.
    counted: Instant,
}

impl IdleFrames {
    /// The budget of a connection that begins at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            left: f64::from(IDLE_FRAMES),
            counted: now,
        }
    }

    /// Adds to the budget, such as for a frame that this side sent.
    pub fn add(&mut self, more: u32) {
        self.left = (self.left + f64::from(more)).min(f64::from(IDLE_FRAMES));
    }

    /// Takes idle frames that arrived by `now` from the budget; false once it is overdrawn.
    #[must_use]
    pub fn take(&mut self, frames: u32, now: Instant) -> bool {
        let time = now.duration_since(std::mem::replace(&mut self.counted, now));
        let more = time.as_secs_f64() * f64::from(IDLE_FRAMES_A_SECOND);
        self.left = (self.left + more).min(f64::from(IDLE_FRAMES)) - f64::from(frames);
        self.left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectored_write_takes_the_first_bytes_of_its_slices() {
        let slices = [&b"ab"[..], b"", b"cde", b"f"].map(IoSlice::new);
        for written in 0..=6 {
            let parts: Vec<&[u8]> = written_parts(&slices, written).collect();
            assert_eq!(parts.concat(), b"abcdef"[..written], "{written}");
        }
    }
}
