//! Delivers an upstream's messages to the client of a session outside of all its calls.
//!
//! The holder of a client's standing stream opens a receiver; the code that speaks to an upstream
//! session of that client sends to it. There are no queues for clients without a stream: a message
//! that cannot be delivered now is returned to its sender.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_wire::log_level::LogLevel;

use crate::call::{LogMessages, SessionKey};
use crate::completed_elicitations::CompletedElicitations;
use crate::list_kind::ListKinds;
use crate::names::UpstreamId;
use crate::question::PendingQuestion;

/// Messages that wait for a stream to be written to.
const MAX_QUEUED_MESSAGES: usize = 128;
/// The capacity that log messages leave to the others: a burst of them must not displace a question
/// or a change of a list.
const CAPACITY_WITHOUT_LOGS: usize = 32;

/// A message for a client.
#[derive(Debug)]
pub enum SessionMessage {
    /// A question.
    Ask(Box<PendingQuestion>),
    /// Progress of a task of the client: the upstream, its own id of the task if that is known, and
    /// the `params` of the notification under the client's own token.
    TaskProgress(UpstreamId, Option<Arc<str>>, Bytes),
    /// The interaction at an elicited URL is complete: the upstream that asked for it, and that
    /// upstream's own `elicitationId`.
    ElicitationComplete(UpstreamId, Arc<str>),
    /// An upstream announced that lists changed in the session that it has for this client.
    ListsChanged(UpstreamId, ListKinds),
    /// A log message.
    Log(Box<SessionLogMessage>),
}

/// A log message of an upstream to the client of a session.
#[derive(Debug)]
pub struct SessionLogMessage {
    /// The upstream.
    pub upstream: UpstreamId,
    /// Its level.
    pub level: LogLevel,
    /// The `params` of the notification.
    pub params: Bytes,
}

/// The open receivers, one a session: as many as there are standing streams.
#[derive(Debug, Default)]
pub struct SessionNotifier {
    receivers: Mutex<HashMap<SessionKey, OpenReceiver>>,
    next: AtomicU64,
    /// The completed URL elicitations of each upstream.
    completed: Mutex<HashMap<UpstreamId, Weak<CompletedElicitations>>>,
}

/// The notifier's side of a receiver.
#[derive(Debug)]
struct OpenReceiver {
    nth: u64,
    sender: mpsc::Sender<SessionMessage>,
    /// The log messages that the client wants.
    logs: LogMessages,
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
    /// Opens the receiver of a session, for these log messages; the one before it is closed.
    #[must_use]
    pub fn open_receiver(
        self: &Arc<Self>,
        session: SessionKey,
        logs: LogMessages,
    ) -> SessionReceiver {
        let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        self.receivers
            .lock()
            .insert(session, OpenReceiver { nth, sender, logs });
        SessionReceiver {
            notifier: self.clone(),
            session,
            nth,
            messages,
        }
    }

    /// Sets the log messages that the client of a session wants from now on.
    pub fn set_log_messages(&self, session: &SessionKey, logs: LogMessages) {
        if let Some(receiver) = self.receivers.lock().get_mut(session) {
            receiver.logs = logs;
        }
    }

    /// Sends a message to the client of a session. A log message that the client does not want, or
    /// that comes faster than the client reads, is dropped.
    ///
    /// # Errors
    ///
    /// The session has no open receiver, or its client does not read: the message is returned.
    pub fn notify(
        &self,
        session: &SessionKey,
        message: SessionMessage,
    ) -> Result<(), SessionMessage> {
        let receivers = self.receivers.lock();
        let Some(receiver) = receivers.get(session) else {
            return Err(message);
        };
        if let SessionMessage::Log(log) = &message {
            let has_room = receiver.sender.capacity() > CAPACITY_WITHOUT_LOGS;
            if !receiver.logs.include(log.level) || !has_room {
                return Ok(());
            }
        }
        receiver
            .sender
            .try_send(message)
            .map_err(mpsc::error::TrySendError::into_inner)
    }

    /// The URL elicitations that an upstream reported as complete. They are forgotten once nobody has
    /// them: the upstream itself has them as long as it is configured.
    #[must_use]
    pub fn completed_elicitations(&self, upstream: &UpstreamId) -> Arc<CompletedElicitations> {
        let mut all = self.completed.lock();
        if let Some(own) = all.get(upstream).and_then(Weak::upgrade) {
            return own;
        }
        all.retain(|_, completed| completed.strong_count() > 0);
        let own = Arc::new(CompletedElicitations::default());
        all.insert(upstream.clone(), Arc::downgrade(&own));
        own
    }
}

impl SessionReceiver {
    /// The next message; pending for ever once another receiver was opened in place of this one.
    pub fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<SessionMessage> {
        match self.messages.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(message),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for SessionReceiver {
    fn drop(&mut self) {
        let mut receivers = self.notifier.receivers.lock();
        if receivers
            .get(&self.session)
            .is_some_and(|receiver| receiver.nth == self.nth)
        {
            receivers.remove(&self.session);
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

    const NO_LOGS: LogMessages = LogMessages::None;

    fn log(level: LogLevel) -> SessionMessage {
        SessionMessage::Log(Box::new(SessionLogMessage {
            upstream: UpstreamId::new("u").unwrap(),
            level,
            params: Bytes::from_static(b"{}"),
        }))
    }

    #[test]
    fn a_burst_of_log_messages_leaves_room_for_others() {
        let notifier = Arc::<SessionNotifier>::default();
        let session = SessionKey([1; 16]);
        let mut receiver = notifier.open_receiver(session, LogMessages::ServerChoice);
        for _ in 0..10 * MAX_QUEUED_MESSAGES {
            notifier.notify(&session, log(LogLevel::Info)).unwrap();
        }
        for n in 0..CAPACITY_WITHOUT_LOGS {
            notifier.notify(&session, visited(&n.to_string())).unwrap();
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut logs = 0;
        while let Poll::Ready(SessionMessage::Log(_)) = receiver.poll_message(&mut cx) {
            logs += 1;
        }
        assert_eq!(logs, MAX_QUEUED_MESSAGES - CAPACITY_WITHOUT_LOGS);
    }

    #[test]
    fn only_log_messages_of_the_clients_level_are_delivered() {
        let notifier = Arc::<SessionNotifier>::default();
        let session = SessionKey([1; 16]);
        let mut receiver = notifier.open_receiver(session, LogMessages::ServerChoice);
        let mut delivered = |level| {
            notifier.notify(&session, log(level)).unwrap();
            let mut cx = Context::from_waker(std::task::Waker::noop());
            receiver.poll_message(&mut cx).is_ready()
        };
        assert!(delivered(LogLevel::Debug));
        notifier.set_log_messages(&session, LogMessages::From(LogLevel::Error));
        assert!(!delivered(LogLevel::Warning));
        assert!(delivered(LogLevel::Error));
    }

    #[tokio::test]
    async fn only_the_newest_receiver_of_the_session_gets_messages() {
        let notifier = Arc::<SessionNotifier>::default();
        let (own, other) = (SessionKey([1; 16]), SessionKey([2; 16]));
        assert!(
            notifier.notify(&own, visited("a")).is_err(),
            "nobody is there"
        );
        let before = notifier.open_receiver(own, NO_LOGS);
        let mut receiver = notifier.open_receiver(own, NO_LOGS);
        drop(before);
        assert!(notifier.notify(&other, visited("b")).is_err());
        notifier.notify(&own, visited("c")).unwrap();
        assert!(
            matches!(poll_fn(|cx| receiver.poll_message(cx)).await, SessionMessage::ElicitationComplete(_, name) if &*name == "c")
        );
        drop(receiver);
        assert!(notifier.notify(&own, visited("d")).is_err());
        assert!(notifier.receivers.lock().is_empty());
    }

    #[tokio::test]
    async fn completed_elicitations_of_one_upstream_leave_those_of_others() {
        let notifier = SessionNotifier::default();
        let [shop, other] = ["shop", "other"].map(|name| UpstreamId::new(name).unwrap());
        let [of_shop, of_other] = [&shop, &other].map(|id| notifier.completed_elicitations(id));
        of_shop.record("sign-in");
        (0..1000).for_each(|nth| of_other.record(&nth.to_string()));
        let known = notifier.completed_elicitations(&shop);
        known.wait_for(|name| name == "sign-in").await;
        drop((of_shop, known));
        let later = notifier.completed_elicitations(&shop);
        let mut wait = Box::pin(later.wait_for(|name| name == "sign-in"));
        assert!(futures_util::poll!(&mut wait).is_pending());
        drop(of_other);
        let _third = notifier.completed_elicitations(&UpstreamId::new("third").unwrap());
        assert_eq!(notifier.completed.lock().len(), 2);
    }

    #[test]
    fn client_that_does_not_read_gets_no_more_messages() {
        let notifier = Arc::<SessionNotifier>::default();
        let _receiver = notifier.open_receiver(SessionKey([1; 16]), NO_LOGS);
        let taken = (0..2 * MAX_QUEUED_MESSAGES)
            .filter(|_| notifier.notify(&SessionKey([1; 16]), visited("a")).is_ok())
            .count();
        assert_eq!(taken, MAX_QUEUED_MESSAGES);
    }
}
