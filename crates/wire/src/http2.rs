//! Frames of HTTP/2 (RFC 9113) by their heads, as their bytes pass however they are cut, and the
//! bound of those that bring nothing.
//!
//! The protocol's libraries show neither, to a server or to a client. Whoever reads or writes the
//! bytes feeds them here.

use std::time::Instant;

/// The type of a frame that carries a body.
pub const DATA: u8 = 0;
/// The type of a frame that carries a head.
pub const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
/// The flag of a stream's last frame of data or of headers.
pub const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// The length of what a client writes before its first frame (3.4).
pub const PREFACE: usize = 24;
const HEAD: usize = 9;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload, padding included.
    pub length: usize,
    /// Bytes of padding in a frame of data, with the byte that says how many they are.
    pub padding: usize,
    /// The type.
    pub kind: u8,
    /// The flags.
    pub flags: u8,
    /// The stream; 0 is the connection.
    pub stream: u32,
}

/// A piece of a frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A frame's head; of padded data together with the first byte of its payload.
    Head(FrameHead),
    /// A setting: its name and value.
    Setting(u16, u32),
    /// The increment of a `WINDOW_UPDATE` for this stream.
    Window(u32, u32),
}

/// Follows the frames of one direction.
#[derive(Debug)]
pub struct FrameParser {
    /// Bytes before the next frame's head.
    preface: usize,
    head: [u8; HEAD],
    filled: usize,
    current: FrameHead,
    /// Bytes left of the current frame's payload.
    left: usize,
    /// The entry of a payload that is being read.
    entry: [u8; 6],
    entered: usize,
}

impl FrameParser {
    /// A direction that begins with so many bytes that are no frames: [`PREFACE`] where a client
    /// writes, else 0.
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

    /// Takes the next bytes of the direction, and gives what is in them to `seen`.
    pub fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Seen)) {
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

    fn begin(&mut self, seen: &mut impl FnMut(Seen)) {
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
            seen(Seen::Head(self.current));
        }
    }

    const fn is_padded_data(&self) -> bool {
        self.current.kind == DATA && self.current.flags & PADDED != 0
    }

    /// Reads how much of a frame of data is padding, and the entries of the two types that say
    /// something about windows.
    fn payload(&mut self, bytes: &[u8], seen: &mut impl FnMut(Seen)) {
        let size = match self.current.kind {
            DATA if self.left == self.current.length && self.is_padded_data() => {
                self.current.padding = (1 + usize::from(bytes[0])).min(self.current.length);
                return seen(Seen::Head(self.current));
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
                6 => Seen::Setting(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])),
                _ => Seen::Window(
                    self.current.stream,
                    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff,
                ),
            });
        }
    }
}

/// How many frames that ask for work and bring none may come at once, and how many more each
/// second.
pub const IDLE_FRAMES: u32 = 1000;
/// See [`IDLE_FRAMES`].
pub const IDLE_FRAMES_A_SECOND: u32 = 100;

/// The frames of a peer that bring nothing, of which a connection takes only so many.
#[derive(Debug)]
pub struct IdleFrames {
    left: f64,
    /// When `left` was last counted.
    counted: Instant,
}

impl IdleFrames {
    /// The bound of a connection that begins at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            left: f64::from(IDLE_FRAMES),
            counted: now,
        }
    }

    /// Lets so many more come, such as for a frame of one's own.
    pub fn add(&mut self, more: u32) {
        self.left = (self.left + f64::from(more)).min(f64::from(IDLE_FRAMES));
    }

    /// Counts idle frames that came by `now`; false once they are too many.
    #[must_use]
    pub fn take(&mut self, frames: u32, now: Instant) -> bool {
        let time = now.duration_since(std::mem::replace(&mut self.counted, now));
        let more = time.as_secs_f64() * f64::from(IDLE_FRAMES_A_SECOND);
        self.left = (self.left + more).min(f64::from(IDLE_FRAMES)) - f64::from(frames);
        self.left >= 0.0
    }
}
