//! The faults of a direction.

use std::time::Duration;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyDirection {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A fault of one direction. Counts of bytes are per connection and direction, from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toxic {
    /// Each piece waits this long, and up to `jitter` longer.
    Latency {
        /// The least delay.
        wait: Duration,
        /// The most added delay.
        jitter: Duration,
    },
    /// At most this many bytes a second.
    Bandwidth(u64),
    /// Writes of at most `bytes`, with a pause before each.
    Slice {
        /// Bytes in a write.
        bytes: usize,
        /// The pause.
        every: Duration,
    },
    /// Passes so many bytes, then none until the toxic is removed.
    StallAfter(u64),
    /// Passes so many bytes, then closes both sides in the ordinary way.
    CloseAfter(u64),
    /// Passes so many bytes, then resets both sides.
    ResetAfter(u64),
    /// Passes so many bytes, then closes this direction alone and swallows the rest.
    HalfCloseAfter(u64),
    /// Stops reading until the toxic is removed: the sender's window fills up.
    BlackHole,
    /// Inverts the bits of one byte.
    Corrupt {
        /// The offset of the byte, from 0.
        at: u64,
    },
    /// Passes every piece twice.
    Duplicate,
}
