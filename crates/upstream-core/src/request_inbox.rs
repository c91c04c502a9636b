//! The messages for one request on a channel that it shares with others.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use weir_core::budget::ByteReservation;
use weir_wire::{JsonLimits, Message, Request};

use crate::message_budget::MessageBudget;

/// The most questions kept for a call. Further ones are returned to the caller, which refuses them.
const MAX_QUESTIONS: usize = 64;
/// The most memory of notifications and questions: some 3,000 small notifications. A server may
/// send its notifications faster than any client reads. Beyond this the oldest notifications are
/// dropped.
const MAX_INBOX_BYTES: usize = 1 << 20;
/// The memory of a waiting message besides its text.
const ENTRY_BYTES: usize = size_of::<(Message, Option<ByteReservation>)>();

/// The messages of one request, in the order they came. It has one reader.
#[derive(Debug)]
pub struct RequestInbox {
    messages: MessageBudget,
    arrived: Mutex<RequestInboxState>,
}

#[derive(Debug, Default)]
struct RequestInboxState {
    messages: VecDeque<(Message, Option<ByteReservation>)>,
    /// The memory of notifications and questions.
    bytes: usize,
    /// True once the response has come. A request has one response, and it is never dropped.
    is_answered: bool,
    closed: bool,
    waker: Option<Waker>,
}

impl RequestInbox {
    /// Makes an empty inbox. Waiting messages are also taken from `messages`.
    pub fn new(messages: MessageBudget) -> Self {
        Self {
            messages,
            arrived: Mutex::default(),
        }
    }

    /// Adds a message. Returns a question that there is no room for.
    pub fn push(&self, message: Message) -> Option<Request> {
        let mut arrived = self.arrived.lock();
        let reservation = match &message {
            Message::Response(_) if arrived.is_answered => return None,
            Message::Response(_) => {
                arrived.is_answered = true;
                None
            }
            Message::Notification(notification) => {
                let size = ENTRY_BYTES + notification.raw.len();
                arrived.make_room(size);
                match self.reserve(&arrived, size) {
                    Some(reservation) => Some(reservation),
                    // The next notification supersedes it.
                    None => return None,
                }
            }
            Message::Request(request) => {
                let has_room = arrived.count_questions() < MAX_QUESTIONS;
                match self
                    .reserve(&arrived, ENTRY_BYTES + request.raw.len())
                    .filter(|_| has_room)
                {
                    Some(reservation) => Some(reservation),
                    None => return Some(request.clone()),
                }
            }
        };
        arrived.bytes += size(&message);
        arrived.messages.push_back((message, reservation));
        wake(arrived);
        None
    }

    /// Ends the inbox: no more messages will come.
    pub fn close(&self) {
        let mut arrived = self.arrived.lock();
        arrived.closed = true;
        wake(arrived);
    }

    /// Polls the next message; absent once the inbox is closed and empty.
    pub fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut arrived = self.arrived.lock();
        if let Some((message, _)) = arrived.messages.pop_front() {
            arrived.bytes -= size(&message);
            return Poll::Ready(Some(message));
        }
        if arrived.closed {
            return Poll::Ready(None);
        }
        arrived.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Polls for a message, without taking it: true if there is one, false once the inbox is closed
    /// and empty.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut arrived = self.arrived.lock();
        let has_message = !arrived.messages.is_empty();
        if has_message || arrived.closed {
            return Poll::Ready(has_message);
        }
        arrived.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// True once the response has come.
    pub fn is_answered(&self) -> bool {
        self.arrived.lock().is_answered
    }

    /// Takes out the unread requests.
    pub fn take_questions(&self) -> Vec<Request> {
        let mut arrived = self.arrived.lock();
        arrived.bytes = 0;
        let waiting = std::mem::take(&mut arrived.messages);
        drop(arrived);
        let question = |(message, _)| {
            if let Message::Request(request) = message {
                Some(request)
            } else {
                None
            }
        };
        waiting.into_iter().filter_map(question).collect()
    }

    fn reserve(&self, arrived: &RequestInboxState, size: usize) -> Option<ByteReservation> {
        if arrived.bytes + size > MAX_INBOX_BYTES {
            return None;
        }
        self.messages.try_reserve(size)
    }
}

impl RequestInboxState {
    fn count_questions(&self) -> usize {
        self.messages
            .iter()
            .filter(|(message, _)| matches!(message, Message::Request(_)))
            .count()
    }

    /// Drops the oldest notifications until there is room for one of this size.
    fn make_room(&mut self, size_of_new: usize) {
        let is_notification =
            |(message, _): &(Message, _)| matches!(message, Message::Notification(_));
        while self.bytes + size_of_new > MAX_INBOX_BYTES {
            let Some(oldest) = self.messages.iter().position(is_notification) else {
                return;
            };
            if let Some((gone, _)) = self.messages.remove(oldest) {
                self.bytes -= size(&gone);
            }
        }
    }
}

/// Returns the memory that counts for a message. A response is bounded when it is read.
fn size(message: &Message) -> usize {
    match message {
        Message::Request(request) => ENTRY_BYTES + request.raw.len(),
        Message::Notification(notification) => ENTRY_BYTES + notification.raw.len(),
        Message::Response(_) => 0,
    }
}

/// Copies the message out of the chunk that it was read with: a few bytes of a large chunk keep all
/// of it in memory.
pub fn copy_out_of_chunk(message: Message) -> Message {
    let raw = match &message {
        Message::Request(request) => &request.raw,
        Message::Notification(notification) => &notification.raw,
        Message::Response(_) => return message,
    };
    Message::parse(Bytes::copy_from_slice(raw), &JsonLimits::upstream()).unwrap_or(message)
}

/// Wakes the reader after the lock is released.
fn wake(mut arrived: MutexGuard<'_, RequestInboxState>) {
    let waker = arrived.waker.take();
    drop(arrived);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::UpstreamId;
    use weir_core::budget::ByteBudget;

    use super::*;
    use crate::upstream_label::UpstreamLabel;

    fn message(text: &str) -> Message {
        Message::parse(
            Bytes::copy_from_slice(text.as_bytes()),
            &JsonLimits::upstream(),
        )
        .unwrap()
    }

    fn messages(budget: &ByteBudget) -> MessageBudget {
        let id = UpstreamId::new("one").unwrap();
        MessageBudget::new(UpstreamLabel { id }, budget.clone())
    }

    fn question(id: usize, padding: usize) -> Message {
        let padding = "x".repeat(padding);
        message(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list","params":{{"p":"{padding}"}}}}"#
        ))
    }

    fn note(padding: usize) -> Message {
        let padding = "x".repeat(padding);
        message(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"p":"{padding}"}}}}"#
        ))
    }

    fn drain(inbox: &RequestInbox) -> Vec<Message> {
        let mut cx = Context::from_waker(Waker::noop());
        let next = || match inbox.poll_message(&mut cx) {
            Poll::Ready(message) => message,
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn full_inbox_still_takes_the_response() {
        let budget = ByteBudget::new("messages");
        let inbox = RequestInbox::new(messages(&budget));
        let answer = || message(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(inbox.push(answer()).is_none());
        let refused = (0..1000)
            .filter(|id| inbox.push(question(*id, 10)).is_some())
            .count();
        assert_eq!(refused, 1000 - MAX_QUESTIONS, "each is given back");
        (0..100_000).for_each(|_| assert!(inbox.push(note(10)).is_none()));
        assert!(inbox.push(answer()).is_none());
        assert!(budget.used() <= MAX_INBOX_BYTES);
        let all = drain(&inbox);
        assert!(matches!(all[0], Message::Response(_)));
        let is_response = |message: &&Message| matches!(message, Message::Response(_));
        let answers = all.iter().filter(is_response).count();
        assert_eq!(answers, 1, "there is one answer to a request");
        let notifications = all.len() - 1 - MAX_QUESTIONS;
        assert!(notifications >= 2000, "a burst has room: {notifications}");
        drop(all);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn inbox_is_bounded_in_bytes_and_by_the_process_budget() {
        let budget = ByteBudget::new("messages");
        let inbox = RequestInbox::new(messages(&budget));
        let taken = (0..MAX_QUESTIONS)
            .filter(|id| inbox.push(question(*id, 60 << 10)).is_none())
            .count();
        assert!(
            taken < MAX_QUESTIONS && budget.used() <= MAX_INBOX_BYTES,
            "{taken}"
        );
        assert_eq!(inbox.take_questions().len(), taken);
        assert_eq!(budget.used(), 0);
        (0..100).for_each(|_| assert!(inbox.push(note(60 << 10)).is_none()));
        assert!(budget.used() <= MAX_INBOX_BYTES);
        assert!(drain(&inbox).len() >= 16, "the newest");
        budget.set_limit(1000);
        assert!(inbox.push(question(1, 2000)).is_some());
        assert!(inbox.push(question(1, 100)).is_none());
    }

    #[test]
    fn copied_message_does_not_keep_its_chunk() {
        let mut chunk = vec![b' '; 1 << 16];
        let text = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        chunk[..text.len()].copy_from_slice(text);
        let chunk = Bytes::from(chunk);
        let message = copy_out_of_chunk(
            Message::parse(chunk.slice(..text.len()), &JsonLimits::upstream()).unwrap(),
        );
        assert!(chunk.is_unique(), "nothing refers to it any more");
        assert!(matches!(message, Message::Request(request) if request.raw == text[..]));
    }
}
