//! The two pipes of a child process as one shared line: messages out in order, messages in sorted to whom they belong.
//!
//! Calls are told apart by request id and progress token. What says neither is given to the only call there is, if
//! there is one, and else dropped: a guess would show one client's messages to another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use weir_core::{Failure, FailureKind};
use weir_era::hop;
use weir_era::lower;
use weir_wire::method::Method;
use weir_wire::{Limits, Message};

use crate::inbox::Inbox;
use crate::site::Site;
use crate::told::Told;

/// Messages on their way to the child's input.
const OUT: usize = 256;

/// The line to one child.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) site: Arc<Site>,
    out: mpsc::Sender<Bytes>,
    state: Mutex<State>,
    /// Set for a modern child: it asks nothing, and gets no answers.
    modern: AtomicBool,
    /// Set for a child whose clients can be asked: its requests belong to the newest call.
    asks: AtomicBool,
    over: CancellationToken,
    /// Updates of single resources, for the line that asked for them.
    pub(crate) told: Told,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The handshake, which must not be cancelled.
    Handshake,
    /// A list, a level, a subscription.
    Errand,
    /// A tool call: what the child says without naming a request can only be about one of these.
    Call,
}

#[derive(Debug, Default)]
struct State {
    requests: HashMap<u64, (Arc<Inbox>, Purpose)>,
    /// Why the line is closed, once it is.
    closed: Option<Arc<str>>,
}

/// A request in flight. Unless it ended, dropping it tells the child.
#[derive(Debug)]
pub(crate) struct Ticket {
    pipe: Arc<Pipe>,
    inbox: Arc<Inbox>,
    pub(crate) id: u64,
    /// False for what must not be cancelled: the handshake.
    cancels: bool,
}

impl Pipe {
    /// A line, and what is to be written to the child's input.
    pub(crate) fn new(site: Arc<Site>) -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (out, written) = mpsc::channel(OUT);
        (
            Arc::new(Self {
                site,
                out,
                state: Mutex::default(),
                modern: AtomicBool::new(false),
                asks: AtomicBool::new(false),
                over: CancellationToken::new(),
                told: Told::default(),
            }),
            written,
        )
    }

    /// Sends a request.
    ///
    /// # Errors
    /// `Unavailable` where the line is closed: nothing was sent.
    pub(crate) async fn request(self: &Arc<Self>, id: u64, body: Bytes, purpose: Purpose) -> Result<Ticket, Failure> {
        let inbox = Arc::new(Inbox::default());
        {
            let mut state = self.lock();
            if let Some(why) = &state.closed {
                return Err(self.site.fail(FailureKind::Unavailable, "The upstream ended").because(&**why));
            }
            state.requests.insert(id, (inbox.clone(), purpose));
        }
        let mut ticket = Ticket { pipe: self.clone(), inbox, id, cancels: false };
        let sent = self.out.send(body).await;
        sent.map_err(|_| self.site.fail(FailureKind::Unavailable, "The upstream ended"))?;
        ticket.cancels = purpose != Purpose::Handshake;
        Ok(ticket)
    }

    /// Sends a message that wants no answer. Where the child does not read, it is dropped.
    pub(crate) fn tell(&self, message: Bytes) {
        if self.out.try_send(message).is_err() {
            self.site.dropped("not_read");
        }
    }

    /// Takes one line of the child's output.
    pub(crate) fn receive(&self, line: Bytes) {
        let limits = Limits { max_batch: 1000, ..Limits::upstream() };
        match weir_wire::Incoming::parse(line, &limits) {
            Ok(weir_wire::Incoming::One(message)) => self.sort(message),
            Ok(weir_wire::Incoming::Batch(items)) => {
                for item in items {
                    match Message::parse(item, &limits) {
                        Ok(message) => self.sort(message),
                        Err(_) => self.site.dropped("bad_batch_item"),
                    }
                }
            }
            // Servers that print to their output are common.
            Err(_) => self.site.dropped("not_a_message"),
        }
    }

    /// The child turned out to be a modern server.
    pub(crate) fn set_modern(&self) {
        self.modern.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.modern.load(Ordering::Relaxed)
    }

    /// The child was told that its clients can be asked.
    pub(crate) fn set_asks(&self) {
        self.asks.store(true, Ordering::Relaxed);
    }

    /// Nothing more will come.
    pub(crate) fn close(&self, why: &str) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.closed = Some(why.into());
        }
        for (_, (inbox, _)) in state.requests.drain() {
            inbox.close();
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
        if let Message::Request(request) = &message {
            if self.modern.load(Ordering::Relaxed) {
                return self.site.dropped("server_request");
            }
            if !self.asks.load(Ordering::Relaxed) {
                // It was told that nobody can be asked.
                return self.tell(hop::answer(request));
            }
            return match self.newest_call() {
                Some(inbox) => inbox.push(message),
                None => self.tell(hop::answer_alone(request)),
            };
        }
        if let Message::Notification(told) = &message
            && matches!(
                told.method.known(),
                Some(Method::ToolsListChanged | Method::PromptsListChanged | Method::ResourcesListChanged)
            )
        {
            return self.site.list_changed();
        }
        if let Message::Notification(told) = &message
            && let Some(uri) = hop::updated(told)
        {
            return self.told.one(&uri);
        }
        let inbox = {
            let state = self.lock();
            match hop::addressee(&message) {
                Some(id) => state.requests.get(&id).map(|(inbox, _)| inbox.clone()),
                None => {
                    let mut calls = state.requests.values().filter(|(_, purpose)| *purpose == Purpose::Call);
                    let only = calls.next().filter(|_| calls.next().is_none());
                    only.map(|(inbox, _)| inbox.clone())
                }
            }
        };
        match inbox {
            Some(inbox) => inbox.push(message),
            None => self.site.dropped("unknown_addressee"),
        }
    }

    /// Whose call a request of the child belongs to: over this line no request says so. All calls of a child that asks are
    /// of one client's session, or they come one after another.
    fn newest_call(&self) -> Option<Arc<Inbox>> {
        let state = self.lock();
        let calls = state.requests.iter().filter(|(_, (_, purpose))| *purpose == Purpose::Call);
        calls.max_by_key(|(id, _)| **id).map(|(_, (inbox, _))| inbox.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// The next message for this request; `None` once the line is closed.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let message = ready!(self.inbox.poll_message(cx));
        // To a closed line nothing is told any more.
        self.cancels &= message.is_some();
        Poll::Ready(message)
    }

    /// The answer: result or error object; `None` once the line is closed. Everything before it is skipped.
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
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pipe.lock().requests.remove(&self.id);
        if self.cancels {
            self.pipe.tell(lower::cancelled(self.id));
        }
    }
}
