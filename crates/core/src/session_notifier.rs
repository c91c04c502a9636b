//! Delivers an upstream's messages to the client of a session outside of all its calls.
//!
//! The holder of a client's standing stream opens a receiver; the code that speaks to an upstream
//! session of that client sends to it. There are no queues for clients without a stream: a message
//! that cannot be delivered now is returned to its sender.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use weir_wire::log_level::LogLevel;

use crate::call::{LogMessages, SessionKey};
use crate::list_kind::ListKinds;
use crate::names::UpstreamId;
use crate::question::PendingQuestion;

/// Messages that wait for a stream to be written to.
const MAX_QUEUED_MESSAGES: usize = 128;
/// The capacity that log messages leave to the others: a burst of them must not displace a question
/// or a change of a list.
const CAPACITY_WITHOUT_LOGS: usize = 32;
/// The newest completed URL elicitations that are remembered, for calls that wait for one.
const MAX_COMPLETED: usize = 256;
/// The longest name of an elicitation that is remembered, in bytes.
const LONGEST_REMEMBERED: usize = 512;

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
    /// The URL elicitations that upstreams lately reported as complete, by their own names.
    completed: watch::Sender<VecDeque<(UpstreamId, Arc<str>)>>,
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

    /// Remembers that an upstream reported a URL elicitation as complete, under its own name.
    pub fn record_elicitation_complete(&self, upstream: &UpstreamId, name: &str) {
        if name.len() > LONGEST_REMEMBERED {
            return;
        }
        self.completed.send_modify(|names| {
            if names.len() >= MAX_COMPLETED {
                names.pop_front();
            }
            names.push_back((upstream.clone(), name.into()));
        });
    }

    /// Waits until the upstream has reported a URL elicitation as complete whose name `is_awaited`;
    /// maybe it did so before. Cancel safe.
    pub async fn wait_for_elicitation(
        &self,
        upstream: &UpstreamId,
        is_awaited: impl Fn(&str) -> bool,
    ) {
        let mut completed = self.completed.subscribe();
        let is_there = |(of, name): &(UpstreamId, Arc<str>)| of == upstream && is_awaited(name);
        // The sender lives as long as `self`.
        let _seen = completed.wait_for(|names| names.iter().any(is_there)).await;
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

    #[tokio::test(start_paused = true)]
    async fn completed_elicitation_is_noticed_before_and_during_the_wait() {
        let notifier = Arc::<SessionNotifier>::default();
        let [shop, other] = ["shop", "other"].map(|name| UpstreamId::new(name).unwrap());
        let mut wait = Box::pin(notifier.wait_for_elicitation(&shop, |name| name == "sign-in"));
        assert!(futures_util::poll!(&mut wait).is_pending());
        notifier.record_elicitation_complete(&other, "sign-in");
        notifier.record_elicitation_complete(&shop, "pay");
        assert!(futures_util::poll!(&mut wait).is_pending());
        notifier.record_elicitation_complete(&shop, "sign-in");
        wait.await;
        notifier
            .wait_for_elicitation(&shop, |name| name == "sign-in")
            .await;
        for nth in 0..2 * MAX_COMPLETED {
            notifier.record_elicitation_complete(&shop, &nth.to_string());
            notifier.record_elicitation_complete(&shop, &"x".repeat(LONGEST_REMEMBERED + 1));
        }
        assert_eq!(notifier.completed.borrow().len(), MAX_COMPLETED);
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
