//! The dispatcher of a session's standing stream (GET). A server's question there names no call: it
//! belongs to the call that is running, or else to the client itself, on the client's own standing
//! stream.
//!
//! Source: specification 2025-11-25, Transports, "Listening for Messages from the Server": such
//! messages should not be related to a running request. Many servers send questions of a call there
//! all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use weir_core::{CapabilityClass, SessionKey};
use weir_era::{capability_forwarding, server_questions, upstream_messages};
use weir_upstream_core::out_of_call_requests::{ClientSession, OutOfCallClient, OutOfCallRequests};
use weir_upstream_core::request_inbox::{RequestInbox, copy_out_of_chunk};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::{Message, Request, RequestId, Revision};

use crate::session_channel::SessionChannel;

/// The recipients of the messages of a session's standing stream.
#[derive(Debug)]
pub(crate) struct StandingStream {
    client: OutOfCallClient,
    /// The running requests, the newest last, and true for those that may have questions.
    calls: Mutex<BTreeMap<u64, (Arc<RequestInbox>, RequestKind)>>,
    /// The channel of a session that another process owns: its stream ends with the last call here.
    left: OnceLock<Weak<SessionChannel>>,
}

/// The outcome of dispatching a message.
enum DispatchOutcome {
    /// A call has it.
    Taken,
    /// It is a question to a call with too many questions.
    Refused(Box<Request>),
    /// It belongs to no call.
    ForNoCall(Box<Message>),
}

/// The kind of a registered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A client's call that may have questions.
    AskingCall,
    /// Any other call of a client.
    Call,
    /// A request of weir's own. Log messages beside it are not about it: they go to a call, or to
    /// the client of the session.
    Own,
}

/// The registration of a call at the standing stream. Dropping it removes the call.
#[derive(Debug)]
pub(crate) struct CallRegistration {
    standing: Arc<StandingStream>,
    id: u64,
    inbox: Arc<RequestInbox>,
}

/// The reader of the stream. Messages of no call go to the client itself.
#[derive(Debug)]
pub(crate) struct StandingReader {
    standing: Arc<StandingStream>,
    out_of_call: OutOfCallRequests,
}

impl StandingStream {
    /// Makes the dispatcher of a session with the declared `class`; absent if its client cannot be
    /// asked.
    pub(crate) fn new(
        context: &Arc<UpstreamContext>,
        class: CapabilityClass,
        session: Option<SessionKey>,
    ) -> Option<Arc<Self>> {
        let class = class.cut(capability_forwarding::TO_LEGACY);
        let client = || OutOfCallClient {
            context: context.clone(),
            session: ClientSession::new(session),
            class,
        };
        (class != CapabilityClass::BASE).then(|| {
            Arc::new(Self {
                client: client(),
                calls: Mutex::default(),
                left: OnceLock::new(),
            })
        })
    }

    /// Makes the dispatcher of a session with a client that cannot be asked: messages there can
    /// only be about tasks, or log messages to the client of the session.
    pub(crate) fn without_questions(
        context: &Arc<UpstreamContext>,
        session: Option<SessionKey>,
    ) -> Arc<Self> {
        let client = OutOfCallClient {
            context: context.clone(),
            session: ClientSession::new(session),
            class: CapabilityClass::BASE,
        };
        Arc::new(Self {
            client,
            calls: Mutex::default(),
            left: OnceLock::new(),
        })
    }

    /// Registers the request with this id.
    pub(crate) fn register(self: &Arc<Self>, id: u64, kind: RequestKind) -> CallRegistration {
        let context = &self.client.context;
        let inbox = Arc::new(RequestInbox::new(context.messages.clone()));
        self.calls.lock().insert(id, (inbox.clone(), kind));
        CallRegistration {
            standing: self.clone(),
            id,
            inbox,
        }
    }

    /// Stops the reading of the stream of a session that another process owns now, once no call
    /// here can be asked on it any more: most servers allow only one reader.
    pub(crate) fn stop_after_last_call(&self, channel: &Arc<SessionChannel>) {
        let _first = self.left.set(Arc::downgrade(channel));
        if self.calls.lock().is_empty() {
            channel.stop_listening();
        }
    }

    fn remove(&self, id: u64) {
        let is_last = {
            let mut calls = self.calls.lock();
            calls.remove(&id).is_some() && calls.is_empty()
        };
        let left = self.left.get().filter(|_| is_last);
        if let Some(channel) = left.and_then(Weak::upgrade) {
            channel.stop_listening();
        }
    }

    /// Dispatches a message to its call.
    fn dispatch(&self, message: Message) -> DispatchOutcome {
        let message = copy_out_of_chunk(message);
        let calls = self.calls.lock();
        let of_clients = || {
            let is_call = |kind: &RequestKind| *kind != RequestKind::Own;
            calls.values().filter(move |(_, kind)| is_call(kind))
        };
        let only = || of_clients().next().filter(|_| of_clients().count() == 1);
        let asking = || {
            let may_ask = |kind: &RequestKind| *kind == RequestKind::AskingCall;
            calls.values().filter(move |(_, kind)| may_ask(kind))
        };
        let call = match &message {
            Message::Request(request)
                if request
                    .method
                    .known()
                    .is_some_and(server_questions::is_question) =>
            {
                match self.client.session.get() {
                    // All calls are of one client: its newest call is asked.
                    Some(_) => asking().next_back(),
                    None => asking().next().filter(|_| asking().count() == 1),
                }
            }
            Message::Notification(notification) => match notification.method.known() {
                Some(Method::Progress) => {
                    upstream_messages::request_of(&message).and_then(|id| calls.get(&id))
                }
                Some(Method::LogMessage) => only(),
                Some(Method::Cancelled) => {
                    calls
                        .values()
                        .for_each(|(call, _)| drop(call.push(message.clone())));
                    None
                }
                _ => None,
            },
            Message::Request(_) | Message::Response(_) => None,
        };
        match call {
            Some((inbox, _)) => inbox
                .push(message)
                .map_or(DispatchOutcome::Taken, |refused| {
                    DispatchOutcome::Refused(Box::new(refused))
                }),
            None => DispatchOutcome::ForNoCall(Box::new(message)),
        }
    }
}

impl CallRegistration {
    /// Polls the next message for the call.
    pub(crate) fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Message> {
        match self.inbox.poll_message(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(message),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Ends the registration. The questions that the call has `heard`, and those that it has not
    /// taken, go to another call of the session's client, because they may be meant for that.
    /// Returns those that no call takes. In a session without a client a question came while no
    /// other call could be asked, so it is meant for none.
    pub(crate) fn pass_questions_on(self, heard: Vec<Request>) -> Vec<RequestId> {
        self.standing.remove(self.id);
        let left = heard.into_iter().chain(self.inbox.take_questions());
        if self.standing.client.session.get().is_none() {
            return left.map(|question| question.id).collect();
        }
        left.filter_map(|question| {
            let id = question.id.clone();
            match self.standing.dispatch(Message::Request(question)) {
                DispatchOutcome::Taken => None,
                DispatchOutcome::Refused(_) | DispatchOutcome::ForNoCall(_) => Some(id),
            }
        })
        .collect()
    }
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        self.standing.remove(self.id);
    }
}

impl StandingReader {
    /// Reads a server of this revision.
    pub(crate) fn new(standing: Arc<StandingStream>, revision: Revision) -> Self {
        let out_of_call = OutOfCallRequests::new(standing.client.clone(), revision);
        Self {
            standing,
            out_of_call,
        }
    }

    /// Takes a message of the stream. Returns the response that is to be sent at once.
    pub(crate) fn take(&mut self, message: Message) -> Option<Bytes> {
        match self.standing.dispatch(message) {
            DispatchOutcome::Taken => None,
            DispatchOutcome::Refused(question) => {
                Some(server_questions::no_answer_response(&question.id))
            }
            DispatchOutcome::ForNoCall(message) => self.out_of_call.take(*message),
        }
    }

    /// Sends the client's answers to the server.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, tell: impl FnMut(Bytes)) {
        self.out_of_call.poll(cx, tell);
    }
}
