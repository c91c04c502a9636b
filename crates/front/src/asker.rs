//! Asks a legacy client what its call needs on its way: as requests on the call's own stream, answered by POSTs.
//!
//! A legacy server's question goes out while its call runs on. A modern server ends its call with its questions: they go out
//! one by one, and with the answers the call is made again, so that the client sees one call.

mod round;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use weir_core::ask::Ask;
use weir_core::port::Fut;
use weir_core::{Authenticated, Call, End, Question, Reply, SessionKey};
use weir_era::asks::{self, Lowering, Unaskable};
use weir_wire::method::Method;
use weir_wire::write::{self, ObjectWriter};
use weir_wire::{RequestId, Revision, scan};

use crate::sessions::{AskHold, FromClient, Sessions};
use crate::settings::Settings;
use crate::stack::{Context as Request, Shared};
use round::Round;

/// What asks the client of one call.
pub(crate) struct Asker {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    known: Authenticated<()>,
    session: SessionKey,
    revision: Revision,
    call: Arc<Call>,
    open: Vec<Open>,
    /// Messages for the call's stream.
    outgoing: VecDeque<Bytes>,
    /// The questions of a call that ended with them.
    round: Option<Round>,
    rounds: u32,
    /// URL elicitations of this call: the server's name, where it has one, and weir's.
    elicitations: Vec<(Option<Arc<str>>, String)>,
    /// False once nobody reads the stream any more.
    listening: bool,
}

/// A question that the client was asked.
struct Open {
    id: RequestId,
    from_client: mpsc::Receiver<FromClient>,
    /// Leads the answer here.
    _hold: AskHold,
    asker: Asking,
}

/// Who asks.
enum Asking {
    /// A call that runs on.
    Running(Box<Ask>),
    /// One that ended: under this key.
    Round { key: String, method: Method },
}

/// What comes of the answers.
pub(crate) enum Outcome {
    /// The call goes on, made again.
    Again(Fut<'static, Reply>),
    /// It ends.
    End(End),
}

impl Asker {
    pub(crate) fn new(
        request: &Request,
        known: &Authenticated<()>,
        (session, revision): (SessionKey, Revision),
        call: Arc<Call>,
    ) -> Box<Self> {
        Box::new(Self {
            shared: request.shared.clone(),
            settings: request.settings.clone(),
            known: known.with(()),
            session,
            revision,
            call,
            open: Vec::new(),
            outgoing: VecDeque::new(),
            round: None,
            rounds: 0,
            elicitations: Vec::new(),
            listening: true,
        })
    }

    /// The next message for the call's stream.
    pub(crate) fn message(&mut self) -> Option<Bytes> {
        self.outgoing.pop_front()
    }

    /// The stream is lost: what was asked may still be answered, and nothing new is asked.
    pub(crate) fn deaf(&mut self) {
        self.listening = false;
        self.outgoing.clear();
    }

    /// Takes a question of a call that runs on.
    pub(crate) fn ask(&mut self, ask: Box<Ask>) {
        if !self.listening {
            // Dropped, it has no answer.
            return;
        }
        let (own, wants_progress) = (ask.elicitation.clone(), ask.wants_progress);
        match self.put(&ask.question, own, wants_progress) {
            Ok((id, from_client, hold)) => {
                self.open.push(Open { id, from_client, _hold: hold, asker: Asking::Running(ask) });
            }
            Err(unaskable) => {
                let method = ask.question.method;
                ask.answer(unaskable.answer(method));
            }
        }
    }

    /// Puts a question to the client.
    fn put(
        &mut self,
        question: &Question,
        own: Option<Arc<str>>,
        wants_progress: bool,
    ) -> Result<(RequestId, mpsc::Receiver<FromClient>, AskHold), Unaskable> {
        // Unique among all that this process asks, so also in the session.
        let id = RequestId::from_text(&format!("weir-{}", self.shared.request_name().as_str()));
        let elicitation = format!("weir-{}", self.shared.request_name().as_str());
        let lowering = Lowering { revision: self.revision, id: &id, wants_progress, elicitation: &elicitation };
        let message = asks::lower(question, &lowering)?;
        if asks::is_by_url(&question.params, question.method) {
            self.elicitations.push((own, elicitation));
        }
        let (from_client, hold) = Sessions::ask(&self.shared, self.session, Bytes::copy_from_slice(id.as_json()));
        self.outgoing.push_back(message);
        Ok((id, from_client, hold))
    }

    /// The server tells that what a URL asked for is done: the client hears of it under weir's name.
    pub(crate) fn completed(&mut self, params: &[u8]) {
        let theirs = scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        let ours = self.elicitations.iter().find(|(own, _)| own.as_deref() == theirs.as_deref() && own.is_some());
        if let Some((_, ours)) = ours {
            self.outgoing.push_back(completed(ours));
        }
    }

    /// What becomes of a call's end: itself, or `None` where it goes on.
    pub(crate) fn end(&mut self, end: End) -> Option<End> {
        self.withdraw_all();
        match end {
            End::InputRequired(payload) => self.begin(payload),
            End::Complete(payload) => {
                // A modern server does not say when a URL was visited: now it must have been.
                let done = self.elicitations.drain(..).filter(|(own, _)| own.is_none() && self.rounds > 0);
                self.outgoing.extend(done.map(|(_, ours)| completed(&ours)));
                Some(End::Complete(payload))
            }
            end => Some(end),
        }
    }

    /// Takes back what is still asked: its call is over.
    fn withdraw_all(&mut self) {
        for open in self.open.drain(..) {
            if self.listening {
                self.outgoing.push_back(asks::withdrawn(&open.id));
            }
        }
    }

    /// Moves answers to whoever asked. `Ready` where the call ended and something comes of it; look at
    /// [`Asker::message`] too.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut at = 0;
        while at < self.open.len() {
            if self.poll_open(at, cx) { at += 1 } else { drop(self.open.swap_remove(at)) }
        }
        self.poll_round(cx)
    }

    /// Looks at one question; false where it is settled.
    fn poll_open(&mut self, at: usize, cx: &mut Context<'_>) -> bool {
        loop {
            let open = &mut self.open[at];
            if let Asking::Running(ask) = &mut open.asker
                && ask.poll_withdrawn(cx).is_ready()
            {
                let told = asks::withdrawn(&open.id);
                self.outgoing.push_back(told);
                return false;
            }
            let Poll::Ready(said) = open.from_client.poll_recv(cx) else { return true };
            match (said, &mut open.asker) {
                (Some(FromClient::Progress(params)), Asking::Running(ask)) => ask.report(params),
                (Some(FromClient::Progress(_)), Asking::Round { .. }) => {}
                (Some(FromClient::Answer(outcome)), _) => {
                    self.answered(at, outcome);
                    return false;
                }
                // The session is over, and with it the call.
                (None, _) => return false,
            }
        }
    }

    fn answered(&mut self, at: usize, outcome: Result<Bytes, Bytes>) {
        let spent = Asking::Round { key: String::new(), method: Method::Ping };
        match std::mem::replace(&mut self.open[at].asker, spent) {
            Asking::Running(ask) => ask.answer(outcome),
            Asking::Round { key, method } => {
                if let Some(round) = &mut self.round {
                    round.answered(key, method, outcome);
                }
            }
        }
    }
}

/// `notifications/elicitation/complete`.
fn completed(elicitation: &str) -> Bytes {
    let mut params = BytesMut::with_capacity(64);
    ObjectWriter::new(&mut params).string("elicitationId", elicitation).end();
    write::notification(Method::ElicitationComplete.as_str(), Some(&params))
}
