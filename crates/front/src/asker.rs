//! Asks a legacy client what its call needs on its way: as requests on the call's own stream,
//! answered by POSTs.
//!
//! A legacy server's question goes out while its call runs on. A modern server ends its call with
//! its questions: they go out one by one, and with the answers the call is made again, so that the
//! client sees one call.

mod round;

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::ask::Ask;
use weir_core::port::Fut;
use weir_core::{Authenticated, Call, End, Reply, SessionKey};
use weir_wire::{Revision, scan};

use crate::questions::Questions;
use crate::settings::Settings;
use crate::stack::{Context as Request, Shared};
use round::Round;

/// Visits of one call whose end the client can be told of, the newest.
const MOST_ELICITATIONS: usize = 64;

/// What asks the client of one call.
pub(crate) struct Asker {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    known: Authenticated<()>,
    call: Arc<Call>,
    questions: Questions,
    /// The questions of a call that ended with them.
    round: Option<Round>,
    rounds: u32,
    /// URL elicitations of this call: the server's name, where it has one, and weir's.
    elicitations: Vec<(Option<Arc<str>>, String)>,
    /// False once nobody reads the stream any more.
    listening: bool,
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
            call,
            questions: Questions::new(request.shared.clone(), session, revision),
            round: None,
            rounds: 0,
            elicitations: Vec::new(),
            listening: true,
        })
    }

    /// The next message for the call's stream.
    pub(crate) fn message(&mut self) -> Option<Bytes> {
        self.questions.message()
    }

    /// The stream is lost: what was asked may still be answered, and nothing new is asked.
    pub(crate) fn deaf(&mut self) {
        self.listening = false;
        self.questions.mute();
    }

    /// Takes a question of a call that runs on.
    pub(crate) fn ask(&mut self, ask: Box<Ask>) {
        if !self.listening {
            // Dropped, it has no answer.
            return;
        }
        let own = ask.elicitation.clone();
        if let Some(elicitation) = self.questions.ask(ask) {
            if self.elicitations.len() >= MOST_ELICITATIONS {
                self.elicitations.remove(0);
            }
            self.elicitations.push((own, elicitation));
        }
    }

    /// The server tells that what a URL asked for is done: the client hears of it under weir's
    /// name.
    pub(crate) fn completed(&mut self, params: &[u8]) {
        let theirs =
            scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        let ours = self
            .elicitations
            .iter()
            .find(|(own, _)| own.as_deref() == theirs.as_deref() && own.is_some());
        if let Some((_, ours)) = ours {
            self.questions.completed(ours);
        }
    }

    /// What becomes of a call's end: itself, or `None` where it goes on.
    pub(crate) fn end(&mut self, end: End) -> Option<End> {
        self.withdraw_all();
        match end {
            End::InputRequired(payload) => self.begin(payload),
            End::Complete(payload) => {
                // A modern server does not say when a URL was visited: now it must have been.
                let done = self
                    .elicitations
                    .drain(..)
                    .filter(|(own, _)| own.is_none() && self.rounds > 0);
                done.for_each(|(_, ours)| self.questions.completed(&ours));
                Some(End::Complete(payload))
            }
            end => Some(end),
        }
    }

    /// Takes back what is still asked: its call is over.
    fn withdraw_all(&mut self) {
        self.questions.withdraw_all(self.listening);
    }

    /// Moves answers to whoever asked. `Ready` where the call ended and something comes of it; look
    /// at [`Asker::message`] too.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let round = &mut self.round;
        self.questions.poll(cx, |(key, method, outcome)| {
            if let Some(round) = round {
                round.answered(key, method, outcome);
            }
        });
        self.poll_round(cx)
    }
}
