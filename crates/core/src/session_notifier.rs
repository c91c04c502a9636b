//! Delivers an upstream's messages to the client of a session outside of all its calls.
//!
//! The holder of a client's standing stream opens a receiver; the code that speaks to an upstream
//! session of that client sends to it. There are no queues for clients without a stream: a message
//! that cannot be delivered now is returned to its sender.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::call::SessionKey;
use crate::list_kind::ListKinds;
use crate::names::UpstreamId;
use crate::question::PendingQuestion;

/// Messages that wait for a stream to be written to.
const MAX_QUEUED_MESSAGES: usize = 32;

/// A message for a client.
#[derive(Debug)]
pub enum SessionMessage {
    /// A question.
    Ask(Box<PendingQuestion>),
    /// A notification in its wire form: the state of the client's tasks.
    Notification(Bytes),
    /// The interaction at an elicited URL is complete: the upstream that asked for it, and that
    /// upstream's own `elicitationId`.
    ElicitationComplete(UpstreamId, Arc<str>),
    /// An upstream announced that lists changed in the session that it has for this client.
    ListsChanged(UpstreamId, ListKinds),
}

/// The open receivers, one a session: as many as there are standing streams.
#[derive(Debug, Default)]
pub struct SessionNotifier {
    receivers: Mutex<HashMap<SessionKey, (u64, mpsc::Sender<SessionMessage>)>>,
    next: AtomicU64,
}

/// A client's receiver. Dropping it closes it.
#[derive(Debug)]
pub struct SessionReceiver {
    notifier: Arc<SessionNotifier>,
    session: SessionKey,
    nth: u64,
    messages: mpsc::Receiver<SessionMessage>,
}

impl SessionNotifier {
    /// Opens the receiver of a session; the one before it is closed.
    #[must_use]
    pub fn open_receiver(self: &Arc<Self>, session: SessionKey) -> SessionReceiver {
        let (sender, rings) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(session, (nth, sender));
        SessionReceiver {
            notifier: self.clone(),
            session,
            nth,
            messages: rings,
        }
    }

    /// Sends a message to the client of a session.
    ///
    /// # Errors
    ///
    /// The session has no open receiver, or its client does not read: the message is returned.
    pub fn notify(&self, session: &SessionKey, ring: SessionMessage) -> Result<(), SessionMessage> {
        let sender = self.lock().get(session).map(|(_, sender)| sender.clone());
        match sender {
            Some(sender) => sender
                .try_send(ring)
                .map_err(mpsc::error::TrySendError::into_inner),
            None => Err(ring),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, (u64, mpsc::Sender<SessionMessage>)>> {
        self.receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionReceiver {
    /// The next message; pending for ever once another receiver was opened in place of this one.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<SessionMessage> {
        match self.messages.poll_recv(cx) {
            Poll::Ready(Some(ring)) => Poll::Ready(ring),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for SessionReceiver {
    fn drop(&mut self) {
        let mut lines = self.notifier.lock();
        if lines
            .get(&self.session)
            .is_some_and(|(nth, _)| *nth == self.nth)
        {
            lines.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::poll_fn;

    use super::*;

    fn visited(name: &str) -> SessionMessage {
        SessionMessage::ElicitationComplete(UpstreamId::new("u").unwrap(), name.into())
    }

    #[tokio::test]
    async fn only_the_newest_receiver_of_the_session_gets_messages() {
        let bells = Arc::<SessionNotifier>::default();
        let (own, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
        assert!(bells.notify(&own, visited("a")).is_err(), "nobody is there");
        let before = bells.open_receiver(own);
        let mut line = bells.open_receiver(own);
        drop(before);
        assert!(bells.notify(&other, visited("b")).is_err());
        bells.notify(&own, visited("c")).unwrap();
        assert!(
            matches!(poll_fn(|cx| line.poll_message(cx)).await, SessionMessage::ElicitationComplete(_, name) if &*name == "c")
        );
        drop(line);
        assert!(bells.notify(&own, visited("d")).is_err());
        assert!(bells.lock().is_empty());
    }

    #[test]
    fn client_that_does_not_read_gets_no_more_messages() {
        let bells = Arc::<SessionNotifier>::default();
        let _line = bells.open_receiver(SessionKey([1; 16]));
        let taken = (0..100)
            .filter(|_| bells.notify(&SessionKey([1; 16]), visited("a")).is_ok())
            .count();
        assert_eq!(taken, MAX_QUEUED_MESSAGES);
    }
}
