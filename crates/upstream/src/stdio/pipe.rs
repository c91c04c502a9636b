//! The two pipes of a child process as one shared line: messages out in order, messages in sorted
//! to whom they belong.
//!
//! Calls are told apart by request id and progress token. What says neither is given to the only
//! call there is, if there is one and the child never had calls of another principal, and else
//! dropped: a guess would show one client's messages to another. A message may come late, when the
//! call that it is about is over.

mod ticket;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use weir_core::budget::Reservation;
use weir_core::catalog::SessionLists;
use weir_core::upstream::Kinds;
use weir_core::{CapabilityClass, Failure, FailureKind, Principal, SessionKey};
use weir_era::{asks, hop};
use weir_wire::method::Method;
use weir_wire::{ErrorObject, Limits, Message, Notification, Request, Revision, code, meta, scan};

pub(crate) use ticket::Ticket;

use super::other_lines::OtherLines;
use super::relay::{Recipient, Relay};
use crate::alone::{Alone, Client, ClientSession};
use crate::inbox::Inbox;
use crate::list_items;
use crate::outbox::{Outbox, Pushed};
use crate::site::Site;
use crate::told::Told;

/// Requests that wait to be written. Whoever makes one more waits until it is its turn.
const REQUESTS: usize = 256;
/// Messages for the client itself that wait to be led to it.
const ALONE: usize = 32;
/// The error of a call whose result was read over.
const NO_MEMORY: &str = "There was no memory for the result: it is large, and others have what weir holds results in. The call ran. \
                         Check before calling again, for less at once";
/// Names of what a child asked by URL in one call that are remembered, the newest.
const MOST_ELICITATIONS: usize = 64;

/// The line to one child.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) site: Arc<Site>,
    outbox: Outbox<Place>,
    /// Told where the outbox was empty and is no longer.
    queued: Notify,
    /// Places for requests that wait in the outbox.
    requests: Arc<Semaphore>,
    state: Mutex<State>,
    /// Set for a modern child: it asks nothing, and gets no answers.
    modern: AtomicBool,
    /// Set for a child whose clients can be asked: its requests belong to the newest call.
    asks: AtomicBool,
    /// Where what belongs to no call goes, of a child that is one principal's own.
    alone: OnceLock<mpsc::Sender<Message>>,
    /// The session of the client that is spoken to there.
    pub(crate) client: ClientSession,
    /// The principal whose call was the first.
    first: OnceLock<Principal>,
    /// Set once there was a call of another one.
    several: AtomicBool,
    over: CancellationToken,
    pub(super) other_lines: OtherLines,
    /// Updates of single resources, for the line that asked for them.
    pub(crate) told: Told,
    /// What is known of the lists of a child that is one principal's own.
    pub(crate) lists: OnceLock<Arc<SessionLists>>,
    /// The process before, of which requests still run.
    relay: OnceLock<Relay>,
    /// Set once the child is another process's, over a relay.
    is_given: AtomicBool,
}

/// The place of a message in the outbox: of a request one of so many, of another its share of the
/// memory of all that waits.
#[derive(Debug)]
enum Place {
    Request(#[expect(dead_code, reason = "its drop is what it is kept for")] OwnedSemaphorePermit),
    Message(#[expect(dead_code, reason = "its drop is what it is kept for")] Reservation),
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The handshake, which must not be cancelled.
    Handshake,
    /// A list, a level, a subscription.
    Errand,
    /// A call: what the child says without naming a request can only be about one of these.
    Call {
        /// Whether such a call may have questions.
        asks: bool,
        /// The task whose result it waits for.
        task: Option<Arc<str>>,
    },
}

#[derive(Debug)]
struct InFlight {
    inbox: Arc<Inbox>,
    purpose: Purpose,
    /// The child's own names of what it asked by URL in this call.
    elicitations: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    requests: HashMap<u64, InFlight>,
    /// Why the line is closed, once it is.
    closed: Option<Arc<str>>,
}

impl Pipe {
    /// A line on which nothing was said yet.
    pub(crate) fn new(site: Arc<Site>) -> Arc<Self> {
        Arc::new(Self {
            site,
            outbox: Outbox::default(),
            queued: Notify::new(),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            state: Mutex::default(),
            modern: AtomicBool::new(false),
            asks: AtomicBool::new(false),
            alone: OnceLock::new(),
            client: ClientSession::default(),
            first: OnceLock::new(),
            several: AtomicBool::new(false),
            over: CancellationToken::new(),
            other_lines: OtherLines::default(),
            told: Told::default(),
            lists: OnceLock::new(),
            relay: OnceLock::new(),
            is_given: AtomicBool::new(false),
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// `Unavailable` where the line is closed: nothing was sent.
    pub(crate) async fn request(
        self: &Arc<Self>,
        id: u64,
        body: Bytes,
        purpose: Purpose,
    ) -> Result<Ticket, Failure> {
        let inbox = Arc::new(Inbox::new(
            self.site.budgets.messages.clone(),
            self.site.owner(),
        ));
        let cancels = purpose != Purpose::Handshake;
        {
            let mut state = self.lock();
            if let Some(why) = &state.closed {
                return Err(self
                    .site
                    .fail(FailureKind::Unavailable, "The upstream ended")
                    .because(&**why));
            }
            state.requests.insert(
                id,
                InFlight {
                    inbox: inbox.clone(),
                    purpose,
                    elicitations: Vec::new(),
                },
            );
        }
        let mut ticket = Ticket {
            pipe: self.clone(),
            inbox,
            id,
            cancels: false,
        };
        let ended = || {
            self.site
                .fail(FailureKind::Unavailable, "The upstream ended")
        };
        let place = match self.requests.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => {
                let turn = Box::pin(
                    self.over
                        .run_until_cancelled(self.requests.clone().acquire_owned()),
                );
                turn.await.and_then(Result::ok)
            }
        };
        let place = place.ok_or_else(ended)?;
        match self.outbox.push_request(id, body, Place::Request(place)) {
            Pushed::Over => return Err(ended()),
            Pushed::Idle => self.queued.notify_one(),
            Pushed::Queued | Pushed::Overflow => {}
        }
        ticket.cancels = cancels;
        Ok(ticket)
    }

    /// Sends a message that wants no answer. An answer of weir's is never left out: where the child
    /// does not read and too much waits, the line is closed.
    pub(crate) fn tell(&self, message: Bytes) {
        if self.over.is_cancelled() {
            return;
        }
        let Some(share) = self
            .site
            .budgets
            .messages
            .try_reserve_of(self.site.owner(), message.len())
        else {
            return self.overflowed();
        };
        match self.outbox.push(message, Place::Message(share)) {
            Pushed::Idle => self.queued.notify_one(),
            Pushed::Overflow => self.overflowed(),
            Pushed::Queued | Pushed::Over => {}
        }
    }

    /// The next message to be written; waits until there is one. Cancel safe.
    pub(crate) async fn next_message(&self) -> Bytes {
        loop {
            if let Some((message, _place)) = self.outbox.next() {
                return message;
            }
            self.queued.notified().await;
        }
    }

    /// The child takes no messages any more. What it was sent it may still answer.
    pub(crate) fn unwritable(&self) {
        let unsent = self.outbox.end();
        let state = self.lock();
        unsent
            .iter()
            .filter_map(|id| state.requests.get(id))
            .for_each(|request| request.inbox.close());
    }

    fn overflowed(&self) {
        self.site.takes_no_messages();
        self.unwritable();
        self.close("it does not take the messages it is sent");
    }

    /// Takes one line of the child's output.
    pub(crate) fn receive(&self, line: Bytes) {
        let limits = Limits {
            max_batch: 1000,
            ..Limits::upstream()
        };
        let copy = self.other_lines.copy(&line);
        let relayed = self
            .relay
            .get()
            .filter(|relay| relay.is_open())
            .map(|relay| (relay, line.clone()));
        match list_items::parse(&self.site, line, &limits) {
            Ok(weir_wire::Incoming::One(message)) => {
                let Some((relay, line)) = relayed else {
                    return self.sort(message);
                };
                let recipient = relay.recipient(&message, self.may_be_asked());
                if recipient != Recipient::This {
                    relay.send(line);
                }
                if recipient != Recipient::Other {
                    self.sort(message);
                }
            }
            Ok(weir_wire::Incoming::Batch(items)) => {
                if let Some((relay, line)) = relayed {
                    relay.send(line);
                }
                for item in items {
                    match Message::parse(item, &limits) {
                        Ok(message) => self.sort(message),
                        Err(_) => self.site.dropped("bad_batch_item"),
                    }
                }
            }
            Err(_) => self.other_lines.note(&self.site, &copy),
        }
    }

    /// Relays what is for the requests of the process before: those up to this id. To be called
    /// before anything is read.
    pub(super) fn relay_to(self: &Arc<Self>, socket: UnixStream, last_id: u64) {
        let relay = Relay::start(self, socket, last_id);
        // There is one process before.
        let _first = self.relay.set(relay);
    }

    /// Marks the child as another process's.
    pub(super) fn set_given(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// True once the child is another process's: what it is subscribed to is that one's matter.
    pub(super) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// True where the child is not asked for an answer of this process alone: a call that may be
    /// asked runs, or nobody can be asked.
    fn may_be_asked(&self) -> bool {
        if !self.asks.load(Ordering::Relaxed) {
            return true;
        }
        self.lock()
            .requests
            .values()
            .any(|request| matches!(request.purpose, Purpose::Call { asks: true, .. }))
    }

    /// The principal whose call was the first, and whether there were calls of others.
    pub(super) fn principals(&self) -> (Option<Principal>, bool) {
        (
            self.first.get().cloned(),
            self.several.load(Ordering::Relaxed),
        )
    }

    /// Goes on with the principals of another process.
    pub(super) fn had_principals(&self, first: Option<Principal>, several: bool) {
        if let Some(first) = first {
            self.first.get_or_init(|| first);
        }
        self.several.store(several, Ordering::Relaxed);
    }

    /// A large message was read over for want of memory; it answered this request, where it
    /// answered one.
    pub(crate) fn skipped(&self, request: Option<u64>) {
        let Some(id) = request else {
            return self.site.dropped("no_memory");
        };
        let error = ErrorObject::new(code::INTERNAL_ERROR, NO_MEMORY);
        let message = weir_wire::write::error_response(Some(&id.into()), false, &error);
        match Message::parse(message, &Limits::upstream()) {
            Ok(message) => self.lead(message),
            Err(_) => self.site.dropped("no_memory"),
        }
    }

    /// The child turned out to be a modern server.
    pub(crate) fn set_modern(&self) {
        self.modern.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.modern.load(Ordering::Relaxed)
    }

    /// The child was told that its clients can be asked what is in the class: the client that
    /// called last is asked outside of its calls, too, where it has a session.
    pub(crate) fn set_asks(
        self: &Arc<Self>,
        (class, session): (CapabilityClass, Option<SessionKey>),
        revision: Revision,
    ) {
        self.asks.store(true, Ordering::Relaxed);
        self.client.set(session);
        let (sender, messages) = mpsc::channel(ALONE);
        if self.alone.set(sender).is_ok() {
            let client = Client {
                site: self.site.clone(),
                session: self.client.clone(),
                class,
            };
            let (pipe, over) = (self.clone(), self.over.clone());
            let serving =
                Alone::new(client, revision).serve(messages, move |message| pipe.tell(message));
            self.site.background(async move {
                let _over = over.run_until_cancelled_owned(serving).await;
            });
        }
    }

    /// A call of this principal begins, in this session of a client where it has one. True where
    /// the child has had another client's session to speak to.
    pub(crate) fn serves(&self, principal: &Principal, session: Option<SessionKey>) -> bool {
        if self.first.get_or_init(|| principal.clone()) != principal {
            self.several.store(true, Ordering::Relaxed);
        }
        let asks = self.asks.load(Ordering::Relaxed);
        session.is_some()
            && asks
            && self
                .client
                .set(session)
                .is_some_and(|before| Some(before) != session)
    }

    /// Nothing more will come.
    pub(crate) fn close(&self, why: &str) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.closed = Some(why.into());
        }
        for (_, request) in state.requests.drain() {
            request.inbox.close();
        }
        drop(state);
        self.over.cancel();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Done once the line is closed.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.over.clone()
    }

    fn sort(&self, message: Message) {
        match &message {
            Message::Request(request) => self.asked(request, &message),
            Message::Notification(told) => match told.method.known() {
                Some(
                    method @ (Method::ToolsListChanged
                    | Method::PromptsListChanged
                    | Method::ResourcesListChanged),
                ) => {
                    let kinds = hop::lists_of(method);
                    match self.lists.get() {
                        Some(lists) => {
                            lists.changed(kinds);
                            self.site.list_changed(Kinds::default());
                        }
                        None => self.site.list_changed(kinds),
                    }
                }
                Some(Method::Cancelled) => {
                    // It takes a question back, of whichever call.
                    self.lock()
                        .requests
                        .values()
                        .for_each(|request| drop(request.inbox.push(message.clone())));
                    self.alone(&message);
                }
                Some(Method::ElicitationComplete) => self.visited(told, &message),
                _ => match hop::updated(told) {
                    Some(uri) => {
                        if let Some(lists) = self.lists.get() {
                            lists.updated(&uri);
                        }
                        self.told.one(&uri);
                    }
                    None => self.lead(message),
                },
            },
            Message::Response(_) => self.lead(message),
        }
    }

    /// Leads a message to the request it belongs to.
    fn lead(&self, message: Message) {
        let state = self.lock();
        let request = match hop::addressee(&message) {
            Some(id) => state.requests.get(&id),
            // An answer without a name of weir's is none to any request, and would stand in the way
            // of the real one.
            None if matches!(message, Message::Response(_)) => {
                drop(state);
                return self.site.dropped("unknown_id");
            }
            // It may be late, and about a call of somebody else.
            None if self.several.load(Ordering::Relaxed) => None,
            None => state.only_call(),
        };
        match request {
            Some(request) => drop(request.inbox.push(message)),
            None => {
                drop(state);
                if !self.site.tracks.take(&self.site, &message) {
                    self.site.dropped("unknown_addressee");
                }
            }
        }
    }

    /// The child asks something.
    fn asked(&self, request: &Request, message: &Message) {
        if self.modern.load(Ordering::Relaxed) {
            return self.site.dropped("server_request");
        }
        if !self.asks.load(Ordering::Relaxed) {
            // It was told that nobody can be asked.
            return self.tell(hop::answer(request));
        }
        let mut state = self.lock();
        if let Some(call) = state.asking(request) {
            let name = text(
                request.params.as_deref().unwrap_or_default(),
                &["elicitationId"],
            );
            call.elicitations.truncate(MOST_ELICITATIONS - 1);
            drop(call.elicitations.splice(0..0, name));
            let refused = call.inbox.push(message.clone());
            drop(state);
            if let Some(question) = refused {
                self.tell(asks::unanswered(&question.id));
            }
            return;
        }
        drop(state);
        if !self.alone(message) {
            self.tell(hop::answer_alone(request));
        }
    }

    /// What a URL asked for is done: told in the call that asked, while it runs.
    fn visited(&self, told: &Notification, message: &Message) {
        let name = text(
            told.params.as_deref().unwrap_or_default(),
            &["elicitationId"],
        );
        let state = self.lock();
        let mut calls = state.requests.values();
        match calls.find(|call| {
            name.as_ref()
                .is_some_and(|name| call.elicitations.contains(name))
        }) {
            Some(call) => drop(call.inbox.push(message.clone())),
            None => drop(self.alone(message)),
        }
    }

    /// Leads a message to the client itself; false where there is none, or it has enough to do.
    fn alone(&self, message: &Message) -> bool {
        self.alone
            .get()
            .is_some_and(|sender| sender.try_send(message.clone()).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The call that a message without an address is about, where only one runs.
    fn only_call(&self) -> Option<&InFlight> {
        let mut calls = self
            .requests
            .values()
            .filter(|request| matches!(request.purpose, Purpose::Call { .. }));
        calls.next().filter(|_| calls.next().is_none())
    }

    /// Whose call a question of the child belongs to. Of a task it says which; else no request over
    /// this line says so. All calls of a child that asks are of one client's session, or they come
    /// one after another: the newest is asked.
    fn asking(&mut self, question: &Request) -> Option<&mut InFlight> {
        let params = question.params.as_deref().unwrap_or_default();
        let about = text(params, &["_meta", meta::RELATED_TASK, "taskId"]);
        let calls = self
            .requests
            .iter_mut()
            .filter_map(|(id, request)| match &request.purpose {
                Purpose::Call { asks: true, task } => {
                    let own = about.is_some() && task.as_deref() == about.as_deref();
                    Some(((own, *id), request))
                }
                _ => None,
            });
        calls.max_by_key(|(order, _)| *order).map(|(_, call)| call)
    }
}

/// A text deep in an object.
fn text(object: &[u8], path: &[&str]) -> Option<String> {
    let value = path.iter().try_fold(object, |within, name| {
        scan::find(within, name).map(|range| &within[range])
    })?;
    scan::string(value).map(Into::into)
}
