//! Requests and notifications of a server to the client of a session outside of all calls, and the
//! client's answers. They go to the client's own standing stream. In a session that belongs to no
//! single client a server's questions are refused (SEP-2260).

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use weir_core::reply::ReplyEvent;
use weir_core::session_notifier::{SessionLogMessage, SessionMessage};
use weir_core::{CapabilityClass, SessionKey};
use weir_era::upstream_messages::{self, MessageClass};
use weir_wire::method::Method;
use weir_wire::{Message, Request, Revision, scan};

use crate::server_questions::ServerQuestions;
use crate::upstream_context::UpstreamContext;

/// The client that a server speaks to.
#[derive(Clone, Debug)]
pub struct OutOfCallClient {
    /// The handles of the server.
    pub context: Arc<UpstreamContext>,
    /// The client that owns the session; absent for a session in which calls of several clients of
    /// one principal run.
    pub session: ClientSession,
    /// The capabilities that were declared to the server.
    pub class: CapabilityClass,
}

/// The client session that a server may speak to outside of its calls. For a child that several
/// sessions of one principal share, it is the session of the last call.
#[derive(Clone, Debug, Default)]
pub struct ClientSession(Arc<Mutex<Option<SessionKey>>>);

impl ClientSession {
    /// Makes the holder of this session.
    pub fn new(session: Option<SessionKey>) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    /// Returns the session, if the client has one.
    pub fn get(&self) -> Option<SessionKey> {
        *self.0.lock()
    }

    /// Replaces the session and returns the previous one.
    pub fn set(&self, session: Option<SessionKey>) -> Option<SessionKey> {
        std::mem::replace(&mut *self.0.lock(), session)
    }

    /// Removes the session if it is one of these.
    pub fn remove(&self, sessions: &HashSet<SessionKey>) {
        self.0.lock().take_if(|session| sessions.contains(session));
    }
}

/// The open requests of a server that belong to no call of the client.
#[derive(Debug)]
pub struct OutOfCallRequests {
    client: OutOfCallClient,
    asking: ServerQuestions,
}

impl OutOfCallRequests {
    /// Tracks requests of a server of this revision.
    pub fn new(client: OutOfCallClient, revision: Revision) -> Self {
        Self {
            client,
            asking: ServerQuestions::new(revision),
        }
    }

    /// Takes a message that belongs to no call. Returns the response that is to be sent at once.
    pub fn take(&mut self, message: Message) -> Option<Bytes> {
        match message {
            Message::Request(request) => self.handle_request(request),
            Message::Notification(_)
                if self.client.context.task_progress.take_progress(&message) =>
            {
                None
            }
            Message::Notification(notification) => {
                let params = notification.params.unwrap_or_default();
                match notification.method.known() {
                    Some(Method::Cancelled) => {
                        if let Some(id) = upstream_messages::cancelled_request(&params) {
                            self.asking.withdraw(&id);
                        }
                    }
                    Some(Method::ElicitationComplete) => self.notify_elicitation_complete(&params),
                    Some(Method::LogMessage) => self.notify_log(params),
                    // Lists and resources are watched in sessions of their own.
                    Some(_) => {}
                    None => self
                        .client
                        .context
                        .label
                        .count_dropped("unknown_notification"),
                }
                None
            }
            Message::Response(_) => {
                self.client.context.label.count_dropped("unknown_id");
                None
            }
        }
    }

    /// Sends the client's answers and progress to the server.
    pub fn poll(&mut self, cx: &mut Context<'_>, tell: impl FnMut(Bytes)) {
        self.asking.poll_answers(cx, tell);
    }

    /// Takes messages, and sends the client's answers, until the future is dropped.
    pub async fn serve(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        mut tell: impl FnMut(Bytes),
    ) {
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(message)) = messages.poll_recv(cx) {
                if let Some(answer) = self.take(message) {
                    tell(answer);
                }
            }
            self.poll(cx, &mut tell);
            Poll::<()>::Pending
        })
        .await;
    }

    fn handle_request(&mut self, request: Request) -> Option<Bytes> {
        let is_askable = self.client.class != CapabilityClass::BASE;
        let Some(session) = self.client.session.get().filter(|_| is_askable) else {
            return Some(upstream_messages::answer_outside_call(&request));
        };
        let (lifted, request) =
            match upstream_messages::classify_request(self.client.class, request) {
                MessageClass::Ask { lifted, request } => (lifted, request),
                MessageClass::Reply(answer) => return Some(answer),
                MessageClass::Note(_)
                | MessageClass::Answer(_)
                | MessageClass::Withdrawn(_)
                | MessageClass::ListChanged(_)
                | MessageClass::Ignored
                | MessageClass::Dropped { .. } => return None,
            };
        let ask = match self
            .asking
            .ask(&self.client.context.messages, *lifted, None)
        {
            Ok(ReplyEvent::Ask(ask)) => ask,
            Ok(_) => return None,
            Err(refusal) => return Some(refusal),
        };
        let unheard = self
            .client
            .context
            .notifier
            .notify(&session, SessionMessage::Ask(ask))
            .err()?;
        // The client has no stream on which it could be asked outside of its calls.
        self.asking.withdraw(&request.id);
        drop(unheard);
        Some(upstream_messages::answer_outside_call(&request))
    }

    /// Passes a log message to the client, if the session at the server is the client's alone.
    fn notify_log(&self, params: Bytes) {
        let OutOfCallClient {
            context, session, ..
        } = &self.client;
        let Some(session) = session.get() else {
            return context.label.count_dropped("unknown_addressee");
        };
        let Some(level) = upstream_messages::log_level(&params) else {
            return context.label.count_dropped("bad_log_level");
        };
        let Some(reservation) = context.messages.try_reserve(params.len()) else {
            return context.label.count_dropped("no_memory");
        };
        let log = SessionLogMessage {
            upstream: context.label.id.clone(),
            level,
            params: reservation.hold(params),
        };
        // Without a stream the client would not get it without weir either.
        let _undelivered = context
            .notifier
            .notify(&session, SessionMessage::Log(Box::new(log)));
    }

    /// Notifies the client that a URL elicitation is complete, maybe long after the call that
    /// asked. A client without a session has a call that waits for it.
    fn notify_elicitation_complete(&self, params: &[u8]) {
        let OutOfCallClient {
            context,
            session,
            class,
            ..
        } = &self.client;
        let name =
            scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        let Some(name) = name.filter(|_| class.has(CapabilityClass::ELICITATION_URL)) else {
            return;
        };
        context.completed_elicitations.record(&name);
        if let Some(session) = session.get() {
            let upstream = context.label.id.clone();
            let message = SessionMessage::ElicitationComplete(upstream, (*name).into());
            // A client without a stream sees it when it comes back to the page or calls again.
            let _unheard = context.notifier.notify(&session, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_an_earlier_client_leaves_the_client_of_the_last_call() {
        let [earlier, last] = [1, 2].map(|byte| SessionKey([byte; 16]));
        let client = ClientSession::new(Some(earlier));
        client.set(Some(last));
        client.remove(&HashSet::from([earlier]));
        assert_eq!(client.get(), Some(last));
        client.remove(&HashSet::from([earlier, last]));
        assert_eq!(client.get(), None);
    }
}
