//! A request in flight over a child's line.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use weir_era::lower;
use weir_wire::{Message, Request};

use super::Pipe;
use crate::inbox::Inbox;

/// A request in flight. Unless it ended, dropping it tells the child.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) pipe: Arc<Pipe>,
    pub(super) inbox: Arc<Inbox>,
    pub(crate) id: u64,
    /// False for what must not be cancelled: the handshake.
    pub(super) cancels: bool,
}

impl Ticket {
    /// The next message for this request; `None` once the line is closed.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let message = ready!(self.inbox.poll_message(cx));
        // To a closed line nothing is told any more.
        self.cancels &= message.is_some();
        Poll::Ready(message)
    }

    /// The answer: result or error object; `None` once the line is closed. Everything before it is
    /// skipped.
    pub(crate) async fn answer(&mut self) -> Option<Result<Bytes, Bytes>> {
        loop {
            match std::future::poll_fn(|cx| self.poll_message(cx)).await? {
                Message::Response(response) => {
                    self.end();
                    return Some(response.outcome);
                }
                Message::Request(_) | Message::Notification(_) => {}
            }
        }
    }

    /// The end of a subscription, if this is one; else there is none, ever.
    pub(crate) async fn ended(subscription: Option<&mut Self>) {
        match subscription {
            Some(ticket) => drop(ticket.answer().await),
            None => std::future::pending().await,
        }
    }

    /// There is nothing to cancel any more.
    pub(crate) fn end(&mut self) {
        self.cancels = false;
    }

    /// The call is answered, and these questions that it heard are not, nor those that it did not
    /// hear yet: another call may be the one that they are for.
    pub(crate) fn leave(&mut self, heard: Vec<Request>) {
        self.pipe.lock().requests.remove(&self.id);
        let left = heard.into_iter().chain(self.inbox.questions());
        left.for_each(|question| self.pipe.sort(Message::Request(question)));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pipe.lock().requests.remove(&self.id);
        // Of what was not sent the child need not be told.
        if self.cancels && !self.pipe.outbox.take_back(self.id) {
            self.pipe.tell(lower::cancelled(self.id));
        }
    }
}
