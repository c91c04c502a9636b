//! What arrives for one request on a channel that it shares with others.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use weir_wire::{Message, Request};

/// Notifications kept for a call whose client reads slowly; beyond this the oldest goes.
const KEPT: usize = 256;

/// The messages of one request, in the order they came. It has one reader.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Arrived>);

#[derive(Debug, Default)]
struct Arrived {
    messages: VecDeque<Message>,
    closed: bool,
    waker: Option<Waker>,
}

impl Inbox {
    /// Puts a message in.
    pub(crate) fn push(&self, message: Message) {
        let mut arrived = self.lock();
        if arrived.messages.len() >= KEPT && matches!(message, Message::Notification(_)) {
            arrived.messages.pop_front();
        }
        arrived.messages.push_back(message);
        wake(arrived);
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        let mut arrived = self.lock();
        arrived.closed = true;
        wake(arrived);
    }

    /// The next message; `None` once it is closed and empty.
    pub(crate) fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut arrived = self.lock();
        if let Some(message) = arrived.messages.pop_front() {
            return Poll::Ready(Some(message));
        }
        if arrived.closed {
            return Poll::Ready(None);
        }
        arrived.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes out the requests that nobody has read.
    pub(crate) fn questions(&self) -> Vec<Request> {
        let waiting = std::mem::take(&mut self.lock().messages);
        let question = |message| if let Message::Request(request) = message { Some(request) } else { None };
        waiting.into_iter().filter_map(question).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the reader, after the lock is given back.
fn wake(mut arrived: MutexGuard<'_, Arrived>) {
    let waker = arrived.waker.take();
    drop(arrived);
    if let Some(waker) = waker {
        waker.wake();
    }
}
