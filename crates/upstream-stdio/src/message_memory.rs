//! Memory for large messages of a server that sends each as one line or event.
//!
//! The request that such a message answers is known only when all of it was read. So it is read as
//! far as memory allows. Without memory it is skipped: the call that it answers fails, and the
//! others on the same channel go on.

use std::time::Duration;

use bytes::Bytes;
use weir_core::budget::{ByteBudget, ByteReservation};
use weir_wire::EnvelopeOutline;

/// The bytes that every channel has for its messages without the budget.
const FREE_BYTES: usize = 64 << 10;
/// The smallest part of memory that a message takes.
const MIN_SHARE: usize = 64 << 10;
/// The longest wait for memory that other messages hold. Meanwhile the server's output is not read.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

/// The memory of the message that is being read.
#[derive(Debug)]
pub struct MessageMemory {
    budget: ByteBudget,
    share: Option<ByteReservation>,
}

impl MessageMemory {
    /// Takes nothing of the budget yet.
    #[must_use]
    pub fn new(budget: ByteBudget) -> Self {
        Self {
            budget,
            share: None,
        }
    }

    /// Takes the memory for a message of so many bytes; false if other messages hold it.
    pub async fn cover(&mut self, size: usize) -> bool {
        let covered = self
            .share
            .as_ref()
            .map_or(FREE_BYTES, ByteReservation::bytes);
        if size <= covered {
            return true;
        }
        let share = self.share.get_or_insert_with(|| self.budget.empty());
        // A quarter more than needed, so that a long message asks seldom; less if that is not
        // available.
        let least = size - share.bytes();
        share.try_grow(least + (size / 4).max(MIN_SHARE)) || share.grow(least, MEMORY_WAIT).await
    }

    /// Returns the whole message, which holds its memory until its last part is dropped.
    pub fn hold(&mut self, message: Bytes) -> Bytes {
        match self.share.take() {
            Some(mut share) => {
                share.shrink(share.bytes().saturating_sub(message.len()));
                share.hold(message)
            }
            None => message,
        }
    }

    /// Releases the memory of the message.
    pub fn release(&mut self) {
        self.share = None;
    }
}

/// A message that is skipped. Only the id of the request that it answers is kept.
#[derive(Debug)]
pub struct SkippedMessage {
    outline: EnvelopeOutline,
    pub(crate) length: usize,
}

impl SkippedMessage {
    /// Starts with these first bytes of a message.
    #[must_use]
    pub fn new(begin: &[u8]) -> Self {
        let mut skipped = Self {
            outline: EnvelopeOutline::default(),
            length: 0,
        };
        skipped.feed(begin);
        skipped
    }

    /// Takes the next part of the message.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.length += chunk.len();
        self.outline.feed(chunk);
    }

    /// Returns the request that the message answers, once all of it was read.
    #[must_use]
    pub fn request(&self) -> Option<u64> {
        self.outline.answered_id()?.echoed_number()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_large_message_has_memory_until_its_last_part_is_dropped() {
        let budget = ByteBudget::new("results");
        budget.set_limit(1 << 20);
        let mut memory = MessageMemory::new(budget.clone());
        assert!(memory.cover(FREE_BYTES).await && budget.used() == 0);
        for size in (FREE_BYTES..=800 << 10).step_by(10 << 10) {
            assert!(memory.cover(size).await, "{size}");
            assert!((size..=(1 << 20)).contains(&budget.used()) || size == FREE_BYTES);
        }
        let message = memory.hold(Bytes::from(vec![b'x'; 700 << 10]));
        let part = message.slice(1..2);
        drop(message);
        assert_eq!(budget.used(), 700 << 10);
        assert!(!memory.cover(400 << 10).await, "another has the memory");
        memory.release();
        drop(part);
        assert_eq!(budget.used(), 0);
        assert!(memory.cover(1 << 20).await, "all there is");
    }

    #[test]
    fn skipped_message_still_yields_its_request_id() {
        let text = "x".repeat(500 << 10);
        for (message, expected) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{text}"}}}}"#),
                Some(7),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","result":{{"text":"{text}"}},"id":"8"}}"#),
                Some(8),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"text":"{text}"}}}}"#),
                None,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":9,"error":{{"code":1,"message":"{text}"}}}}"#),
                Some(9),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":10,"result":{{"x":NaN,"text":"{text}"}}}}"#),
                Some(10),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"text":"{text}"}}}}"#),
                None,
            ),
            (format!("no message {text}"), None),
        ] {
            let (begin, rest) = message.as_bytes().split_at(100 << 10);
            let mut skipped = SkippedMessage::new(begin);
            rest.chunks(16 << 10).for_each(|chunk| skipped.feed(chunk));
            assert_eq!(
                (skipped.request(), skipped.length),
                (expected, message.len())
            );
        }
    }
}
