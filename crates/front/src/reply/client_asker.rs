//! Sends the questions of a call to its legacy client: as requests on the call's own stream,
//! answered by POSTs.
//!
//! A legacy server's question is sent while its call runs on. A modern server ends its call with
//! its questions: they are sent one by one, and with the answers the call is made again, so that
//! the client sees one call.

mod question_round;
mod rounds;

use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::time::Instant;
use weir_core::port::BoxFuture;
use weir_core::question::PendingQuestion;
use weir_core::{Authenticated, Call, Reply, ReplyEnd, SessionKey};
use weir_layers::request::request_context::HttpRequestContext as Request;
use weir_layers::settings::FrontSettings;
use weir_layers::state::FrontState;
use weir_router::CallRepeats;
use weir_wire::{Revision, scan};

use crate::reply::client_questions::ClientQuestions;
use question_round::QuestionRound;
pub(crate) use rounds::end_of_declined;

/// The most URL elicitations of one call that are remembered, for the notification of their
/// completion; the newest are kept.
const MAX_ELICITATIONS: usize = 64;

/// The asker of one call's client.
pub(crate) struct ClientAsker {
    shared: Arc<FrontState>,
    settings: Arc<FrontSettings>,
    sender: Authenticated<()>,
    call: Arc<Call>,
    questions: ClientQuestions,
    /// The questions of a modern server's call that ended with them.
    round: Option<QuestionRound>,
    /// The rounds in which the client was asked.
    rounds: u32,
    /// The repeats since then, for a server that has its client wait.
    repeats: CallRepeats,
    /// Digests of the URLs to which the client's user agreed.
    accepted: HashSet<[u8; 32]>,
    /// URL elicitations of this call: the server's name, if it gave one, and weir's.
    elicitations: Vec<(Option<Arc<str>>, String)>,
    /// False once the client no longer reads the stream.
    is_listening: bool,
}

/// The next step after the answers.
pub(crate) enum NextStep {
    /// The call is made again.
    Again(BoxFuture<'static, Reply>),
    /// The call ends.
    End(ReplyEnd),
}

impl ClientAsker {
    pub(crate) fn new(
        request: &Request,
        sender: &Authenticated<()>,
        session: SessionKey,
        revision: Revision,
        call: Arc<Call>,
    ) -> Box<Self> {
        Box::new(Self {
            shared: request.route.shared.clone(),
            settings: request.route.settings.clone(),
            sender: sender.for_payload(()),
            call,
            questions: ClientQuestions::new(request.route.shared.clone(), session, revision),
            round: None,
            rounds: 0,
            repeats: CallRepeats::default(),
            accepted: HashSet::new(),
            elicitations: Vec::new(),
            is_listening: true,
        })
    }

    /// The next message for the call's stream.
    pub(crate) fn next_message(&mut self) -> Option<Bytes> {
        self.questions.next_message()
    }

    /// Marks the stream as lost: open questions may still be answered, but no new one is sent.
    pub(crate) fn stop_asking(&mut self) {
        self.is_listening = false;
        self.questions.discard_outgoing();
    }

    /// Sends a question of a running call.
    pub(crate) fn ask(&mut self, ask: Box<PendingQuestion>) {
        if !self.is_listening {
            // A dropped ask counts as unanswered.
            return;
        }
        let own = ask.elicitation.clone();
        if let Some(elicitation) = self.questions.ask_running(ask) {
            if self.elicitations.len() >= MAX_ELICITATIONS {
                self.elicitations.remove(0);
            }
            self.elicitations.push((own, elicitation));
        }
    }

    /// Reports a finished URL elicitation to the client under weir's name.
    pub(crate) fn complete_elicitation(&mut self, params: &[u8]) {
        let theirs =
            scan::find(params, "elicitationId").and_then(|range| scan::string(&params[range]));
        let ours = self
            .elicitations
            .iter()
            .find(|(own, _)| own.as_deref() == theirs.as_deref() && own.is_some());
        if let Some((_, ours)) = ours {
            self.questions.notify_elicitation_complete(ours);
        }
    }

    /// Handles a call's end: returns it, or `None` if the call goes on.
    /// `deadline` is that of the call that ended.
    pub(crate) fn handle_end(
        &mut self,
        end: ReplyEnd,
        deadline: Option<Instant>,
    ) -> Option<ReplyEnd> {
        self.withdraw_all();
        match end {
            ReplyEnd::InputRequired(payload) => self.begin_round(payload, deadline),
            ReplyEnd::Complete(payload) => {
                // A modern server does not report visits of a URL: its result implies the visit.
                let done = self
                    .elicitations
                    .drain(..)
                    .filter(|(own, _)| own.is_none() && self.rounds > 0);
                done.for_each(|(_, ours)| self.questions.notify_elicitation_complete(&ours));
                Some(ReplyEnd::Complete(payload))
            }
            end @ (ReplyEnd::Parked { .. } | ReplyEnd::Task(_) | ReplyEnd::Failed(_)) => Some(end),
        }
    }

    /// Withdraws all open questions: their call is over.
    pub(crate) fn withdraw_all(&mut self) {
        self.questions.withdraw_all(self.is_listening);
    }

    /// Delivers answers to their askers. `Ready` if the call ended and a next step follows;
    /// poll [`ClientAsker::next_message`] too.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<NextStep> {
        let round = &mut self.round;
        self.questions.poll(cx, |(key, method, outcome)| {
            if let Some(round) = round {
                round.take_answer(key, method, outcome);
            }
        });
        self.poll_round(cx)
    }
}
