//! A bound on idle events of an SSE stream: comments, events without data, `retry` fields, and
//! events of types that carry no message. A server sends them every few seconds as keep-alives. A
//! server that sends them without end would take a processor for as long as weir reads the stream:
//! for ever on a standing stream, and up to the call's deadline on the stream of a call.

use tokio::time::Instant;
use weir_wire::http2_frames::IdleFrames;

/// The bytes without data of a message that count as one idle item.
const BYTES_PER_ITEM: usize = 1 << 10;

/// The idle items and bytes of one stream. A stream may have a thousand items, and a hundred more
/// each second.
#[derive(Debug)]
pub(crate) struct IdleEvents {
    left: IdleFrames,
    items: u32,
    /// Bytes without data of a message that are not counted as an item yet.
    bytes: usize,
    /// True if data of a message came since bytes were counted.
    has_data: bool,
}

/// The stream had more idle items than allowed.
#[derive(Debug, thiserror::Error)]
#[error("comments, empty events or events that are no messages, without end")]
pub(crate) struct IdleFlood;

impl IdleEvents {
    /// Starts the bound of a new stream.
    pub(crate) fn new() -> Self {
        Self {
            left: IdleFrames::new(Instant::now().into_std()),
            items: 0,
            bytes: 0,
            has_data: false,
        }
    }

    /// Counts an idle item.
    pub(crate) fn count_item(&mut self) {
        self.items = self.items.saturating_add(1);
    }

    /// Notes data of a message.
    pub(crate) fn note_data(&mut self) {
        self.has_data = true;
    }

    /// Counts bytes that were decoded to their end.
    ///
    /// # Errors
    /// [`IdleFlood`] if the stream had too many idle items.
    pub(crate) fn count_bytes(&mut self, bytes: usize) -> Result<(), IdleFlood> {
        self.bytes = if std::mem::take(&mut self.has_data) {
            0
        } else {
            self.bytes + bytes
        };
        let of_bytes = u32::try_from(self.bytes / BYTES_PER_ITEM).unwrap_or(u32::MAX);
        self.bytes %= BYTES_PER_ITEM;
        let items = std::mem::take(&mut self.items).saturating_add(of_bytes);
        if items == 0 || self.left.take(items, Instant::now().into_std()) {
            Ok(())
        } else {
            Err(IdleFlood)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_wire::http2_frames::{IDLE_FRAMES, IDLE_FRAMES_A_SECOND};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_takes_a_thousand_idle_items_and_a_hundred_more_each_second() {
        let mut idle = IdleEvents::new();
        for nth in 0..IDLE_FRAMES {
            idle.count_item();
            assert!(idle.count_bytes(0).is_ok(), "{nth}");
        }
        idle.count_item();
        assert!(idle.count_bytes(0).is_err());
        let mut idle = IdleEvents::new();
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(1)).await;
            (0..IDLE_FRAMES_A_SECOND - 1).for_each(|_| idle.count_item());
            assert!(idle.count_bytes(100).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_comment_without_end_is_counted_by_its_bytes_and_a_message_without_end_is_not() {
        let mut idle = IdleEvents::new();
        let taken = (0..)
            .take_while(|_| idle.count_bytes(64 << 10).is_ok())
            .count();
        assert_eq!(taken, 15, "about a mebibyte");
        let mut idle = IdleEvents::new();
        for _ in 0..10_000 {
            idle.note_data();
            assert!(idle.count_bytes(1000).is_ok());
        }
    }
}
