//! Messages for the client of a session that wait for a stream to be written to.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_era::server_questions;
use weir_wire::RequestId;

/// The most messages that may wait, and their bytes. A question beyond that is not sent, and a
/// plain notification is left out.
const MAX_OUTGOING: usize = 128;
const MAX_OUTGOING_BYTES: usize = 1 << 20;

/// Messages that wait for a stream to be written to.
#[derive(Debug, Default)]
pub struct OutgoingMessages {
    /// Each message, with the id of its question, if it is one.
    messages: VecDeque<(Option<RequestId>, Bytes)>,
    bytes: usize,
}

impl OutgoingMessages {
    /// Queues a message; with an id, it is a question.
    pub fn push(&mut self, question: Option<RequestId>, message: Bytes) {
        self.bytes += message.len();
        self.messages.push_back((question, message));
    }

    /// Queues a message that may be left out.
    pub fn queue_notification(&mut self, message: Bytes) {
        if self.has_room(message.len()) {
            self.push(None, message);
        }
    }

    /// Queues a log message, which leaves half of the room to the others.
    pub fn queue_log(&mut self, message: Bytes) {
        let is_half_free =
            self.messages.len() < MAX_OUTGOING / 2 && self.bytes < MAX_OUTGOING_BYTES / 2;
        if is_half_free {
            self.queue_notification(message);
        }
    }

    /// True if a message of this size may be queued.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.messages.len() < MAX_OUTGOING && self.bytes + bytes <= MAX_OUTGOING_BYTES
    }

    /// The next message.
    pub fn pop(&mut self) -> Option<Bytes> {
        let (_, message) = self.messages.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }

    /// Withdraws a question: removes the queued message, or cancels the request if it was already
    /// sent.
    pub fn withdraw(&mut self, id: &RequestId) {
        match self
            .messages
            .iter()
            .position(|(question, _)| question.as_ref() == Some(id))
        {
            Some(at) => {
                if let Some((_, gone)) = self.messages.remove(at) {
                    self.bytes -= gone.len();
                }
            }
            None => self.push(None, server_questions::question_cancelled(id)),
        }
    }

    /// Discards all messages.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdrawn_questions_to_a_client_that_does_not_read_do_not_pile_up() {
        let mut outgoing = OutgoingMessages::default();
        let id = |n: usize| RequestId::from_text(&format!("weir-{n}"));
        outgoing.push(Some(id(0)), Bytes::from_static(b"first"));
        assert_eq!(outgoing.pop().as_deref(), Some(&b"first"[..]), "written");
        for n in 1..10_000 {
            outgoing.push(Some(id(n)), Bytes::from_static(b"question"));
            outgoing.withdraw(&id(n));
            outgoing.queue_notification(Bytes::from_static(b"told"));
        }
        assert_eq!(outgoing.messages.len(), MAX_OUTGOING);
        assert!(!outgoing.has_room(0));
        outgoing.withdraw(&id(0));
        assert_eq!(
            outgoing.messages.len(),
            MAX_OUTGOING + 1,
            "that one the client has seen"
        );
        while outgoing.pop().is_some() {}
        assert_eq!(outgoing.bytes, 0);
        assert!(
            outgoing.has_room(MAX_OUTGOING_BYTES) && !outgoing.has_room(MAX_OUTGOING_BYTES + 1)
        );
    }
}
