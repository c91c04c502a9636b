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

use crate::SessionKey;
use crate::ask::Ask;
use crate::names::UpstreamId;
use crate::upstream::Kinds;

/// Messages that wait for a stream to be written to.
const WAITING: usize = 32;

/// A message for a client.
#[derive(Debug)]
pub enum Ring {
    /// A question.
    Ask(Box<Ask>),
    /// A notification in its wire form: the state of the client's tasks.
    Said(Bytes),
    /// The interaction at an elicited URL is complete: the upstream that asked for it, and that
    /// upstream's own `elicitationId`.
    Visited(UpstreamId, Arc<str>),
    /// An upstream announced that lists changed in the session that it has for this client.
    ListsChanged(UpstreamId, Kinds),
}

/// The open receivers, one a session: as many as there are standing streams.
#[derive(Debug, Default)]
pub struct Bells {
    lines: Mutex<HashMap<SessionKey, (u64, mpsc::Sender<Ring>)>>,
    next: AtomicU64,
}

/// A client's receiver. Dropping it closes it.
#[derive(Debug)]
pub struct Line {
    bells: Arc<Bells>,
    session: SessionKey,
    nth: u64,
    rings: mpsc::Receiver<Ring>,
}

impl Bells {
    /// Opens the receiver of a session; the one before it is closed.
    #[must_use]
    pub fn open(self: &Arc<Self>, session: SessionKey) -> Line {
        let (sender, rings) = mpsc::channel(WAITING);
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(session, (nth, sender));
        Line {
            bells: self.clone(),
            session,
            nth,
            rings,
        }
    }

    /// Sends a message to the client of a session.
    ///
    /// # Errors
    ///
    /// The session has no open receiver, or its client does not read: the message is returned.
    pub fn ring(&self, session: &SessionKey, ring: Ring) -> Result<(), Ring> {
        let sender = self.lock().get(session).map(|(_, sender)| sender.clone());
        match sender {
            Some(sender) => sender
                .try_send(ring)
                .map_err(mpsc::error::TrySendError::into_inner),
            None => Err(ring),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, (u64, mpsc::Sender<Ring>)>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The next message; pending for ever once another receiver was opened in place of this one.
    pub fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<Ring> {
        match self.rings.poll_recv(cx) {
            Poll::Ready(Some(ring)) => Poll::Ready(ring),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut lines = self.bells.lock();
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

    fn visited(name: &str) -> Ring {
        Ring::Visited(UpstreamId::new("u").unwrap(), name.into())
    }

    #[tokio::test]
    async fn only_the_newest_line_of_the_session_itself_rings() {
        let bells = Arc::<Bells>::default();
        let (own, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
        assert!(bells.ring(&own, visited("a")).is_err(), "nobody is there");
        let before = bells.open(own);
        let mut line = bells.open(own);
        drop(before);
        assert!(bells.ring(&other, visited("b")).is_err());
        bells.ring(&own, visited("c")).unwrap();
        assert!(
            matches!(poll_fn(|cx| line.poll_ring(cx)).await, Ring::Visited(_, name) if &*name == "c")
        );
        drop(line);
        assert!(bells.ring(&own, visited("d")).is_err());
        assert!(bells.lock().is_empty());
    }

    #[test]
    fn a_client_that_does_not_read_is_not_told_more() {
        let bells = Arc::<Bells>::default();
        let _line = bells.open(SessionKey([1; 16]));
        let taken = (0..100)
            .filter(|_| bells.ring(&SessionKey([1; 16]), visited("a")).is_ok())
            .count();
        assert_eq!(taken, WAITING);
    }
}
