//! The standing stream (GET) of a session whose client can be asked. A server's question there names no call: it belongs to the
//! call that is running, or else to the client itself, on its own standing stream.
//!
//! Source: 2025-11-25 transports, "Listening for Messages from the Server": such messages should have nothing to do with a
//! running request. Many servers ask there in the middle of a call all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::bell::Ring;
use weir_core::reply::Event;
use weir_core::{CapabilityClass, SessionKey};
use weir_era::hop::{self, Heard};
use weir_era::{asks, carry};
use weir_wire::method::Method;
use weir_wire::{Message, Request, Revision, scan};

use crate::asking::Asking;
use crate::inbox::Inbox;
use crate::site::Site;

/// Whom the messages of a session's standing stream are for.
#[derive(Debug)]
pub(crate) struct Standing {
    site: Arc<Site>,
    /// The client whose own session this is; calls of several clients of one principal may run in a session of none.
    client: Option<SessionKey>,
    class: CapabilityClass,
    /// The calls that run, the newest last.
    calls: Mutex<BTreeMap<u64, Arc<Inbox>>>,
}

/// A call's ear at the standing stream. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct Entry {
    standing: Arc<Standing>,
    id: u64,
    inbox: Arc<Inbox>,
}

/// What the server asked the client itself.
pub(crate) struct Alone {
    pub(crate) standing: Arc<Standing>,
    asking: Asking,
}

impl Standing {
    /// Of a session whose server was told of `class`; `None` where nobody behind it can be asked.
    pub(crate) fn new(site: &Arc<Site>, class: CapabilityClass, client: Option<SessionKey>) -> Option<Arc<Self>> {
        let class = class.cut(carry::TO_LEGACY);
        let standing = || Self { site: site.clone(), client, class, calls: Mutex::default() };
        (class != CapabilityClass::BASE).then(|| Arc::new(standing()))
    }

    /// Lets the call with this id hear.
    pub(crate) fn enter(self: &Arc<Self>, id: u64) -> Entry {
        let inbox = Arc::<Inbox>::default();
        self.lock().insert(id, inbox.clone());
        Entry { standing: self.clone(), id, inbox }
    }

    /// Leads a message to the call it is for; gives back what is for none.
    fn lead(&self, message: Message) -> Option<Message> {
        let calls = self.lock();
        let only = || calls.values().next().filter(|_| calls.len() == 1);
        let inbox = match &message {
            Message::Request(request) if request.method.known().is_some_and(asks::is_question) => match self.client {
                // All calls are of one client: it is asked in the one that it made last.
                Some(_) => calls.values().next_back(),
                None => only(),
            },
            Message::Notification(told) => match told.method.known() {
                Some(Method::Progress) => hop::addressee(&message).and_then(|id| calls.get(&id)),
                Some(Method::LogMessage) => only(),
                Some(Method::Cancelled) => {
                    calls.values().for_each(|call| call.push(message.clone()));
                    None
                }
                _ => None,
            },
            Message::Request(_) | Message::Response(_) => None,
        };
        match inbox {
            Some(inbox) => inbox.push(message),
            None => return Some(message),
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Inbox>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// The next message for the call.
    pub(crate) fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Message> {
        match self.inbox.poll_message(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(message),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.standing.lock().remove(&self.id);
    }
}

impl Alone {
    /// Of a server of this revision.
    pub(crate) fn new(standing: Arc<Standing>, revision: Revision) -> Self {
        Self { standing, asking: Asking::new(revision) }
    }

    /// Takes a message of the stream; gives what is to be answered at once.
    pub(crate) fn take(&mut self, message: Message) -> Option<Bytes> {
        match self.standing.lead(message)? {
            Message::Request(request) => self.asked(&request),
            Message::Notification(told) => {
                let params = told.params.unwrap_or_default();
                match told.method.known() {
                    Some(Method::Cancelled) => {
                        if let Some(id) = hop::withdrawn(&params) {
                            self.asking.withdraw(&id);
                        }
                    }
                    Some(Method::ElicitationComplete) => self.visited(&params),
                    // Lists and resources are watched in sessions of their own.
                    Some(_) => {}
                    None => self.standing.site.dropped("unknown_notification"),
                }
                None
            }
            Message::Response(_) => {
                self.standing.site.dropped("unknown_id");
                None
            }
        }
    }

    /// Tells the server what came from the client.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, tell: impl FnMut(Bytes)) {
        self.asking.poll(cx, tell);
    }

    fn asked(&mut self, request: &Request) -> Option<Bytes> {
        let Some(client) = self.standing.client else { return Some(hop::answer_alone(request)) };
        let lifted = match hop::asked(self.standing.class, request) {
            Heard::Ask(lifted) => lifted,
            Heard::Reply(answer) => return Some(answer),
            _ => return None,
        };
        let ask = match self.asking.ask(&self.standing.site, *lifted) {
            Ok(Event::Ask(ask)) => ask,
            Ok(_) => return None,
            Err(refusal) => return Some(refusal),
        };
        let unheard = self.standing.site.bells.ring(&client, Ring::Ask(ask)).err()?;
        // Its client has no stream on which it could be asked outside of its calls.
        self.asking.withdraw(&request.id);
        drop(unheard);
        Some(hop::answer_alone(request))
    }

    /// What a URL asked for is done, maybe long after the call that asked.
    fn visited(&self, params: &[u8]) {
        let Some(client) = self.standing.client else { return };
        let name = scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        if let Some(name) = name.filter(|_| self.standing.class.has(CapabilityClass::ELICITATION_URL)) {
            let ring = Ring::Visited(self.standing.site.id.clone(), (*name).into());
            // A client that is not there sees it when it comes back to the page or calls again.
            let _unheard = self.standing.site.bells.ring(&client, ring);
        }
    }
}
