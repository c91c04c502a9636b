//! What a server says to the client of a session outside of all its calls, and what that client
//! answers: on its own standing stream, where it has one. For a session of no client's own nobody
//! is asked (SEP-2260).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_core::bell::Ring;
use weir_core::reply::Event;
use weir_core::{CapabilityClass, SessionKey};
use weir_era::hop::{self, Heard};
use weir_wire::method::Method;
use weir_wire::{Message, Request, Revision, scan};

use crate::asking::Asking;
use crate::site::Site;

/// Who is spoken to.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) site: Arc<Site>,
    /// The client whose own session it is; calls of several clients of one principal may run in a
    /// session of none.
    pub(crate) session: ClientSession,
    /// What its server was told that it can be asked.
    pub(crate) class: CapabilityClass,
}

/// The session of the client that a server may speak to outside of its calls. Of a child that
/// several sessions of one principal share it is that of the last call.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientSession(Arc<Mutex<Option<SessionKey>>>);

impl ClientSession {
    pub(crate) fn new(session: Option<SessionKey>) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    pub(crate) fn get(&self) -> Option<SessionKey> {
        *self.lock()
    }

    /// Sets another one; gives the one before.
    pub(crate) fn set(&self, session: Option<SessionKey>) -> Option<SessionKey> {
        std::mem::replace(&mut *self.lock(), session)
    }

    fn lock(&self) -> MutexGuard<'_, Option<SessionKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server asked the client itself.
#[derive(Debug)]
pub(crate) struct Alone {
    client: Client,
    asking: Asking,
}

impl Alone {
    /// Of a server of this revision.
    pub(crate) fn new(client: Client, revision: Revision) -> Self {
        Self {
            client,
            asking: Asking::new(revision),
        }
    }

    /// Takes a message that is for no call; gives what is to be answered at once.
    pub(crate) fn take(&mut self, message: Message) -> Option<Bytes> {
        match message {
            Message::Request(request) => self.asked(&request),
            Message::Notification(_)
                if self.client.site.tracks.take(&self.client.site, &message) =>
            {
                None
            }
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
                    None => self.client.site.dropped("unknown_notification"),
                }
                None
            }
            Message::Response(_) => {
                self.client.site.dropped("unknown_id");
                None
            }
        }
    }

    /// Tells the server what came from the client.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, tell: impl FnMut(Bytes)) {
        self.asking.poll(cx, tell);
    }

    /// Takes what comes, and tells what the client answers, until it is dropped.
    pub(crate) async fn serve(
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

    fn asked(&mut self, request: &Request) -> Option<Bytes> {
        let Some(session) = self.client.session.get() else {
            return Some(hop::answer_alone(request));
        };
        let lifted = match hop::asked(self.client.class, request) {
            Heard::Ask(lifted) => lifted,
            Heard::Reply(answer) => return Some(answer),
            _ => return None,
        };
        let ask = match self.asking.ask(&self.client.site, *lifted, None) {
            Ok(Event::Ask(ask)) => ask,
            Ok(_) => return None,
            Err(refusal) => return Some(refusal),
        };
        let unheard = self
            .client
            .site
            .bells
            .ring(&session, Ring::Ask(ask))
            .err()?;
        // Its client has no stream on which it could be asked outside of its calls.
        self.asking.withdraw(&request.id);
        drop(unheard);
        Some(hop::answer_alone(request))
    }

    /// What a URL asked for is done, maybe long after the call that asked.
    fn visited(&self, params: &[u8]) {
        let Some(session) = self.client.session.get() else {
            return;
        };
        let name =
            scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        if let Some(name) = name.filter(|_| self.client.class.has(CapabilityClass::ELICITATION_URL))
        {
            let ring = Ring::Visited(self.client.site.id.clone(), (*name).into());
            // A client that is not there sees it when it comes back to the page or calls again.
            let _unheard = self.client.site.bells.ring(&session, ring);
        }
    }
}
