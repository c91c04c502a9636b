//! The two pipes of a child process as one shared channel: outgoing messages in order, incoming
//! messages dispatched to their requests.
//!
//! Messages are dispatched by request id and progress token. A message with neither goes to the
//! only call, if only one runs and the child never had calls of another principal. Otherwise it is
//! dropped, because a guess would show one client's messages to another: a message may come late,
//! when its call is over.

pub(crate) mod child_request;
mod child_silence;
mod outgoing_message;
mod pending_child_request;
mod unreadable_answer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use weir_core::port::SessionListObserver;
use weir_core::upstream::ListKinds;
use weir_core::{CapabilityClass, Principal, SessionKey};
use weir_era::{server_questions, upstream_messages};
use weir_upstream_core::list_items;
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::out_of_call_requests::{ClientSession, OutOfCallClient, OutOfCallRequests};
use weir_upstream_core::outbox::{Outbox, OutboxLane, OutgoingMessage, PushOutcome};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::method::Method;
use weir_wire::{Message, Notification, Request, Revision, meta, scan};

pub(crate) use child_silence::ChildSilence;
pub use outgoing_message::OutgoingPurpose;
pub use pending_child_request::PendingChildRequest;

use crate::child_relay::{ChildRelay, RelayRecipient};
use crate::child_subscriptions::ChildSubscriptions;
use crate::non_message_lines::NonMessageLines;

/// The most requests that wait to be written. A further caller waits for its turn.
const MAX_QUEUED_REQUESTS: usize = 256;
/// The most messages to the client itself that wait to be forwarded.
const MAX_OUT_OF_CALL: usize = 32;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The most URL elicitations of one call that are remembered; the newest are kept.
const MAX_ELICITATIONS: usize = 64;

/// The channel to one child.
#[derive(Debug)]
pub struct ChildChannel {
    /// The handles of its upstream.
    pub context: Arc<UpstreamContext>,
    outbox: Outbox<OutgoingPurpose>,
    /// Notified when the outbox is no longer empty.
    queued: Notify,
    /// The permits of requests that wait in the outbox.
    requests: Arc<Semaphore>,
    state: Mutex<ChannelState>,
    /// Set for a modern child, which sends no requests and gets no answers.
    modern: AtomicBool,
    /// Set for a child with clients that can be asked: its requests belong to the newest call.
    asks: AtomicBool,
    /// Set for a child with calls of one client session alone: its log messages outside of calls
    /// are the client's.
    is_owned: AtomicBool,
    /// The recipient of messages outside of calls, for a child that belongs to one principal.
    out_of_call: OnceLock<mpsc::Sender<Message>>,
    /// The client session for messages outside of calls.
    pub(crate) client: ClientSession,
    /// The principal of the first call.
    first_principal: OnceLock<Principal>,
    /// Set once another principal called.
    has_several_principals: AtomicBool,
    over: CancellationToken,
    pub(super) other_lines: NonMessageLines,
    /// The subscriptions to single resources.
    pub(crate) subscriptions: ChildSubscriptions,
    /// The known lists of a child that belongs to one principal.
    pub(crate) lists: OnceLock<Arc<dyn SessionListObserver>>,
    /// The relay to the previous process, which still has open requests.
    relay: OnceLock<ChildRelay>,
    /// Set once the child belongs to another process, over a relay.
    is_handed_over: AtomicBool,
    pub(crate) silence: ChildSilence,
}

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestPurpose {
    /// The handshake, which must not be cancelled.
    Handshake,
    /// A list, a log level, a subscription.
    OwnRequest,
    /// A call: a message of the child without a request's name can only be about one of these.
    Call {
        /// True if such a call may have questions.
        asks: bool,
        /// The task with the result that it waits for.
        task: Option<Arc<str>>,
        /// The client's session, if it has one.
        session: Option<SessionKey>,
    },
}

#[derive(Debug)]
struct ChannelRequest {
    pending: Arc<PendingChildRequest>,
    purpose: RequestPurpose,
    /// The child's names of its URL elicitations in this call.
    elicitations: Vec<String>,
}

#[derive(Debug, Default)]
struct ChannelState {
    requests: HashMap<u64, ChannelRequest>,
    /// The reason for the end, once the channel is closed.
    closed: Option<Arc<str>>,
}

impl ChildChannel {
    /// Makes a channel without messages yet.
    #[must_use]
    pub fn new(context: Arc<UpstreamContext>) -> Arc<Self> {
        Arc::new(Self {
            context,
            outbox: Outbox::default(),
            queued: Notify::new(),
            requests: Arc::new(Semaphore::new(MAX_QUEUED_REQUESTS)),
            state: Mutex::default(),
            modern: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            is_owned: AtomicBool::new(false),
            out_of_call: OnceLock::new(),
            client: ClientSession::default(),
            first_principal: OnceLock::new(),
            has_several_principals: AtomicBool::new(false),
            over: CancellationToken::new(),
            other_lines: NonMessageLines::default(),
            subscriptions: ChildSubscriptions::default(),
            lists: OnceLock::new(),
            relay: OnceLock::new(),
            is_handed_over: AtomicBool::new(false),
            silence: ChildSilence::default(),
        })
    }

    /// Sends a message without an answer. An answer of weir's is never left out: if the child does
    /// not read and too much waits, the channel is closed.
    pub(crate) fn send(&self, message: Bytes) {
        if self.over.is_cancelled() {
            return;
        }
        let Some(share) = self.context.messages.try_reserve(message.len()) else {
            return self.overflowed();
        };
        match self.outbox.push(message, OutgoingPurpose::OneWay(share)) {
            PushOutcome::Idle(_) => self.queued.notify_one(),
            PushOutcome::Overflow => self.overflowed(),
            PushOutcome::Queued | PushOutcome::Over => {}
        }
    }

    /// Takes the next message to be written; waits until there is one. Cancel safe.
    pub async fn next_message(&self) -> Bytes {
        self.next_message_of(|_| true).await.message
    }

    /// Takes the next message of a wanted lane; waits until there is one. Cancel safe.
    pub async fn next_message_of(
        &self,
        is_wanted: impl Fn(OutboxLane) -> bool,
    ) -> OutgoingMessage<OutgoingPurpose> {
        loop {
            if let Some(next) = self.outbox.next_of(&is_wanted) {
                return next;
            }
            self.queued.notified().await;
        }
    }

    /// Notes that the child no longer reads. It may still answer earlier messages.
    pub(crate) fn close_input(&self) {
        let unsent = self.outbox.end();
        let state = self.state.lock();
        unsent
            .iter()
            .filter_map(|id| state.requests.get(id))
            .for_each(|request| request.pending.inbox.close());
    }

    fn overflowed(&self) {
        self.context.label.count_unread_session();
        self.close_input();
        self.close("it does not take the messages it is sent");
    }

    /// Takes one line of the child's output.
    pub fn receive(&self, line: &Bytes) {
        self.silence.note_message();
        let limits = message_limits();
        // Some runtimes write it before the first line of a stream.
        let line = &match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(message) => line.slice_ref(message),
            None => line.clone(),
        };
        let relayed = self
            .relay
            .get()
            .filter(|relay| relay.is_open())
            .map(|relay| (relay, line.clone()));
        match list_items::parse_without_bad_items(&self.context.record, line, &limits) {
            Ok(weir_wire::IncomingMessage::One(message)) => {
                let Some((relay, line)) = relayed else {
                    return self.dispatch(message);
                };
                let recipient = relay.recipient(&message, self.may_be_asked());
                if recipient != RelayRecipient::This {
                    relay.send(line);
                }
                if recipient != RelayRecipient::Other {
                    self.dispatch(message);
                }
            }
            Ok(weir_wire::IncomingMessage::Batch(items)) => {
                if let Some((relay, line)) = relayed {
                    relay.send(line);
                }
                for item in items {
                    match Message::parse(item.clone(), &limits) {
                        Ok(message) => self.dispatch(message),
                        Err(error) if self.fail_unreadable(&item, &error) => {}
                        Err(_) => self.context.label.count_dropped("bad_batch_item"),
                    }
                }
            }
            Err(error) => self.take_unreadable(line, &error),
        }
    }

    /// Relays the messages for the requests of the previous process: those up to this id. Must be
    /// called before any output is read.
    pub(super) fn relay_to(self: &Arc<Self>, socket: UnixStream, last_id: u64) {
        let (channel, closed) = (self.clone(), self.over.clone());
        let send = move |message| channel.send(message);
        let relay = ChildRelay::start(&self.context.tasks, socket, last_id, closed, send);
        // There is only one previous process.
        let _first = self.relay.set(relay);
    }

    /// Marks the child as another process's.
    pub(super) fn set_handed_over(&self) {
        self.is_handed_over.store(true, Ordering::Relaxed);
    }

    /// True once the child is another process's, which then handles the subscriptions.
    pub(super) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }

    /// True if this process may have to answer the child's questions: a call that may be asked
    /// runs, or the child's clients cannot be asked at all.
    fn may_be_asked(&self) -> bool {
        if !self.asks.load(Ordering::Relaxed) {
            return true;
        }
        self.state
            .lock()
            .requests
            .values()
            .any(|request| matches!(request.purpose, RequestPurpose::Call { asks: true, .. }))
    }

    /// True while a call runs, or the previous process, which may have some, is connected.
    pub(super) fn may_have_calls(&self) -> bool {
        if self.relay.get().is_some_and(ChildRelay::is_open) {
            return true;
        }
        let state = self.state.lock();
        let mut running = state.requests.values();
        running.any(|request| matches!(request.purpose, RequestPurpose::Call { .. }))
    }

    /// Returns the principal of the first call, and true if others called, too.
    pub(super) fn principals(&self) -> (Option<Principal>, bool) {
        (
            self.first_principal.get().cloned(),
            self.has_several_principals.load(Ordering::Relaxed),
        )
    }

    /// Takes over the principals from another process.
    pub(super) fn import_principals(&self, first: Option<Principal>, several: bool) {
        if let Some(first) = first {
            self.first_principal.get_or_init(|| first);
        }
        self.has_several_principals
            .store(several, Ordering::Relaxed);
    }

    /// Marks the child as a modern server.
    pub(crate) fn set_modern(&self) {
        self.modern.store(true, Ordering::Relaxed);
    }

    /// Notes the capabilities that were declared to the child. From now on the client of the last
    /// call is also asked outside of its calls, if it has a session.
    pub(crate) fn enable_questions(
        self: &Arc<Self>,
        class: CapabilityClass,
        session: Option<SessionKey>,
        revision: Revision,
    ) {
        self.asks.store(true, Ordering::Relaxed);
        self.client.set(session);
        let (sender, messages) = mpsc::channel(MAX_OUT_OF_CALL);
        if self.out_of_call.set(sender).is_ok() {
            let client = OutOfCallClient {
                context: self.context.clone(),
                session: self.client.clone(),
                class,
            };
            let (channel, over) = (self.clone(), self.over.clone());
            let serving = OutOfCallRequests::new(client, revision)
                .serve(messages, move |message| channel.send(message));
            self.context.tasks.spawn_endless(async move {
                let _over = over.run_until_cancelled_owned(serving).await;
            });
        }
    }

    /// Notes that all calls are of one client session.
    pub(crate) fn set_owned(&self) {
        self.is_owned.store(true, Ordering::Relaxed);
    }

    /// Notes the call of a principal, in this client session if it has one. True if the child last
    /// spoke to another client's session.
    pub(crate) fn record_call(&self, principal: &Principal, session: Option<SessionKey>) -> bool {
        if self.first_principal.get_or_init(|| principal.clone()) != principal {
            self.has_several_principals.store(true, Ordering::Relaxed);
        }
        let asks = self.asks.load(Ordering::Relaxed);
        session.is_some()
            && asks
            && self
                .client
                .set(session)
                .is_some_and(|before| Some(before) != session)
    }

    /// Closes the channel: no more messages will come.
    pub fn close(&self, why: &str) {
        let mut state = self.state.lock();
        if state.closed.is_none() {
            state.closed = Some(why.into());
        }
        for (_, request) in state.requests.drain() {
            request.pending.inbox.close();
        }
        drop(state);
        self.over.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed.is_some()
    }

    /// Returns the token that is cancelled once the channel is closed.
    pub fn closed(&self) -> CancellationToken {
        self.over.clone()
    }

    fn dispatch(&self, message: Message) {
        match &message {
            Message::Request(request) => self.handle_request(request, &message),
            Message::Notification(notification) => match notification.method.known() {
                Some(
                    method @ (Method::ToolsListChanged
                    | Method::PromptsListChanged
                    | Method::ResourcesListChanged),
                ) => {
                    let kinds = upstream_messages::changed_lists(method);
                    match self.lists.get() {
                        Some(lists) => {
                            lists.handle_list_changed(kinds);
                            self.context.list_changes.record(ListKinds::default());
                        }
                        None => self.context.list_changes.record(kinds),
                    }
                }
                Some(Method::Cancelled) => {
                    // It withdraws a question, of any call.
                    self.state
                        .lock()
                        .requests
                        .values()
                        .for_each(|request| drop(request.pending.inbox.push(message.clone())));
                    self.send_out_of_call(&message);
                }
                Some(Method::ElicitationComplete) => {
                    self.dispatch_elicitation_complete(notification, &message)
                }
                _ => match upstream_messages::updated_resource(notification) {
                    Some(uri) => {
                        if let Some(lists) = self.lists.get() {
                            lists.handle_resource_updated(&uri);
                        }
                        self.subscriptions.dispatch_update(&uri);
                    }
                    None => self.dispatch_to_request(message),
                },
            },
            Message::Response(_) => self.dispatch_to_request(message),
        }
    }

    /// Dispatches a message to its request.
    fn dispatch_to_request(&self, message: Message) {
        let state = self.state.lock();
        let request = match upstream_messages::request_of(&message) {
            Some(id) => state.requests.get(&id),
            // A response without a known id answers no request, and must not take the place of the
            // real one.
            None if matches!(message, Message::Response(_)) => {
                drop(state);
                return self.context.label.count_dropped("unknown_id");
            }
            // It may be late, and about another client's call.
            None if self.has_several_principals.load(Ordering::Relaxed) => None,
            None => state.unaddressed_call(),
        };
        match request {
            Some(request) => drop(request.pending.inbox.push(message)),
            None => {
                drop(state);
                if self.context.task_progress.take_progress(&message)
                    || (self.is_clients_log(&message) && self.send_out_of_call(&message))
                {
                    return;
                }
                self.context.label.count_dropped("unknown_addressee");
            }
        }
    }

    /// Handles a request of the child.
    fn handle_request(&self, request: &Request, message: &Message) {
        if self.modern.load(Ordering::Relaxed) {
            return self.context.label.count_dropped("server_request");
        }
        if !self.asks.load(Ordering::Relaxed) {
            // No client capability was declared to it.
            return self.send(upstream_messages::answer_request(request));
        }
        if !self.ask_call(request) && !self.send_out_of_call(message) {
            self.send(upstream_messages::answer_outside_call(request));
        }
    }

    /// Gives a question to the call that it belongs to; false if there is none.
    fn ask_call(&self, question: &Request) -> bool {
        let mut state = self.state.lock();
        let Some(call) = state.asked_call(question) else {
            return false;
        };
        let name = string_at(
            question.params.as_deref().unwrap_or_default(),
            &["elicitationId"],
        );
        call.elicitations.truncate(MAX_ELICITATIONS - 1);
        drop(call.elicitations.splice(0..0, name));
        let refused = call.pending.inbox.push(Message::Request(question.clone()));
        drop(state);
        if let Some(question) = refused {
            self.send(server_questions::no_answer_response(&question.id));
        }
        true
    }

    /// Dispatches the completion of a URL elicitation: to its call while that runs, else to the
    /// client.
    fn dispatch_elicitation_complete(&self, notification: &Notification, message: &Message) {
        let name = string_at(
            notification.params.as_deref().unwrap_or_default(),
            &["elicitationId"],
        );
        let state = self.state.lock();
        let mut calls = state.requests.values();
        match calls.find(|call| {
            name.as_ref()
                .is_some_and(|name| call.elicitations.contains(name))
        }) {
            Some(call) => drop(call.pending.inbox.push(message.clone())),
            None => drop(self.send_out_of_call(message)),
        }
    }

    /// True for a log message of a child with calls of one client session alone.
    fn is_clients_log(&self, message: &Message) -> bool {
        self.is_owned.load(Ordering::Relaxed)
            && matches!(message, Message::Notification(notification) if notification.method.known() == Some(Method::LogMessage))
    }

    /// Forwards a message to the client itself; false if there is no such client, or its queue is
    /// full.
    fn send_out_of_call(&self, message: &Message) -> bool {
        self.out_of_call
            .get()
            .is_some_and(|sender| sender.try_send(message.clone()).is_ok())
    }
}

impl ChannelState {
    /// Returns the call of a message without an address: the newest one, if all that run are of one
    /// client's session. Otherwise another client would get it.
    fn unaddressed_call(&self) -> Option<&ChannelRequest> {
        let calls = self.requests.iter().filter_map(|(id, request)| {
            let RequestPurpose::Call { session, .. } = request.purpose else {
                return None;
            };
            Some((*id, session, request))
        });
        let (newest, session, call) = calls.clone().max_by_key(|(id, ..)| *id)?;
        let mut others = calls.filter(|(id, ..)| *id != newest);
        others
            .all(|(_, other, _)| other.is_some() && other == session)
            .then_some(call)
    }

    /// Returns the call that a question of the child belongs to. A question of a task names it;
    /// other requests on this channel name no call. All calls of a child that asks are of one
    /// client's session, or they come one after another: the newest is asked.
    fn asked_call(&mut self, question: &Request) -> Option<&mut ChannelRequest> {
        let params = question.params.as_deref().unwrap_or_default();
        let about = string_at(params, &["_meta", meta::RELATED_TASK, "taskId"]);
        let calls = self
            .requests
            .iter_mut()
            .filter_map(|(id, request)| match &request.purpose {
                RequestPurpose::Call {
                    asks: true, task, ..
                } => {
                    let own = about.is_some() && task.as_deref() == about.as_deref();
                    Some(((own, *id), request))
                }
                RequestPurpose::Handshake
                | RequestPurpose::OwnRequest
                | RequestPurpose::Call { asks: false, .. } => None,
            });
        calls.max_by_key(|(order, _)| *order).map(|(_, call)| call)
    }
}

/// Finds a string deep in an object.
fn string_at(object: &[u8], path: &[&str]) -> Option<String> {
    let value = path.iter().try_fold(object, |within, name| {
        scan::find(within, name).map(|range| &within[range])
    })?;
    scan::string(value).map(Into::into)
}
