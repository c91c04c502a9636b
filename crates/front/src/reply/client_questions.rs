//! Questions to a legacy client on one of its streams, and the client's answers.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use weir_core::names::UpstreamId;
use weir_core::question::PendingQuestion;
use weir_core::{SessionKey, UpstreamQuestion};
use weir_era::server_questions::{self, QuestionLowering, QuestionRefusal};
use weir_layers::request::question_id::new_question_id;
use weir_layers::state::FrontState;
use weir_session::{AskGuard, ClientReply, OutgoingMessages};
use weir_wire::method::Method;
use weir_wire::write::{self, ObjectWriter};
use weir_wire::{RequestId, Revision};

/// The open questions of one stream.
pub(crate) struct ClientQuestions {
    pub(crate) shared: Arc<FrontState>,
    session: SessionKey,
    revision: Revision,
    open: Vec<OpenQuestion>,
    /// Messages for the stream.
    outgoing: OutgoingMessages,
}

/// A question that the client has not answered.
struct OpenQuestion {
    id: RequestId,
    from_client: mpsc::Receiver<ClientReply>,
    /// Routes the answer here.
    _hold: AskGuard,
    asker: QuestionSource,
}

/// The asker of a question.
pub(crate) enum QuestionSource {
    /// A server that waits.
    Running(Box<PendingQuestion>),
    /// A server that ended its call with questions, under this key.
    Round {
        /// The server's own name for the question.
        key: String,
        /// The method of the request.
        method: Method,
    },
}

/// An answer to a question of a round: its key, the method, and a result or an error object.
pub(crate) type RoundAnswer = (String, Method, Result<Bytes, Bytes>);

impl ClientQuestions {
    pub(crate) fn new(shared: Arc<FrontState>, session: SessionKey, revision: Revision) -> Self {
        Self {
            shared,
            session,
            revision,
            open: Vec::new(),
            outgoing: OutgoingMessages::default(),
        }
    }

    /// The next message for the stream.
    pub(crate) fn next_message(&mut self) -> Option<Bytes> {
        self.outgoing.pop()
    }

    /// Queues another message for the stream.
    pub(crate) fn queue_notification(&mut self, message: Bytes) {
        self.outgoing.queue_notification(message);
    }

    /// Queues a log message for the stream.
    pub(crate) fn queue_log(&mut self, message: Bytes) {
        self.outgoing.queue_log(message);
    }

    /// Discards the queue: no further message is written.
    pub(crate) fn discard_outgoing(&mut self) {
        self.outgoing.clear();
    }

    /// Returns true if all questions are answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The name of a URL elicitation towards the client.
    pub(crate) fn elicitation_id(&self, theirs: Option<(&UpstreamId, &str)>) -> String {
        elicitation_id(&self.shared, self.session, theirs)
    }

    /// Sends a question to the client; if that is impossible, returns the asker.
    ///
    /// # Errors
    /// The client's revision cannot express the question.
    pub(crate) fn send_question(
        &mut self,
        question: &UpstreamQuestion,
        elicitation: &str,
        asker: QuestionSource,
    ) -> Result<(), (QuestionRefusal, QuestionSource)> {
        let id = new_question_id(&self.shared);
        let wants_progress = matches!(&asker, QuestionSource::Running(ask) if ask.wants_progress);
        let lowering = QuestionLowering {
            revision: self.revision,
            id: &id,
            wants_progress,
            elicitation_id: elicitation,
        };
        let message = match server_questions::lower(question, &lowering) {
            Ok(message) => message,
            Err(unaskable) => return Err((unaskable, asker)),
        };
        let (from_client, hold) = self
            .shared
            .sessions
            .register_ask(self.session, Bytes::copy_from_slice(id.as_json()));
        self.outgoing.push(Some(id.clone()), message);
        self.open.push(OpenQuestion {
            id,
            from_client,
            _hold: hold,
            asker,
        });
        Ok(())
    }

    /// Sends the question of a server that waits; returns the name of its URL elicitation, if it is
    /// one.
    pub(crate) fn ask_running(&mut self, ask: Box<PendingQuestion>) -> Option<String> {
        if !self.outgoing.has_room(ask.question.params.len()) {
            // The client does not read. A dropped ask counts as unanswered.
            return None;
        }
        let theirs = ask
            .elicitation
            .as_ref()
            .map(|theirs| (&ask.upstream, &**theirs));
        let elicitation = self.elicitation_id(theirs);
        let question = ask.question.clone();
        match self.send_question(&question, &elicitation, QuestionSource::Running(ask)) {
            Ok(()) => server_questions::is_by_url(&question.params, question.method)
                .then_some(elicitation),
            Err((unaskable, QuestionSource::Running(ask))) => {
                ask.answer(unaskable.answer(question.method));
                None
            }
            Err((_, QuestionSource::Round { .. })) => None,
        }
    }

    /// Reports a finished URL elicitation: `notifications/elicitation/complete`.
    pub(crate) fn notify_elicitation_complete(&mut self, elicitation: &str) {
        let mut params = BytesMut::with_capacity(64);
        ObjectWriter::new(&mut params)
            .string("elicitationId", elicitation)
            .end();
        self.outgoing.queue_notification(write::notification(
            Method::ElicitationComplete.as_str(),
            Some(&params),
        ));
    }

    /// Withdraws all open questions; cancels them at the client if it still reads.
    pub(crate) fn withdraw_all(&mut self, listening: bool) {
        for open in self.open.drain(..).filter(|_| listening) {
            self.outgoing.withdraw(&open.id);
        }
    }

    /// Moves answers to the servers that wait, and answers of rounds to `rounds`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, mut rounds: impl FnMut(RoundAnswer)) {
        let mut at = 0;
        while at < self.open.len() {
            if self.poll_open(at, cx, &mut rounds) {
                at += 1
            } else {
                drop(self.open.swap_remove(at))
            }
        }
    }

    /// Polls one question; false once it is settled.
    fn poll_open(
        &mut self,
        at: usize,
        cx: &mut Context<'_>,
        rounds: &mut impl FnMut(RoundAnswer),
    ) -> bool {
        loop {
            let open = &mut self.open[at];
            if let QuestionSource::Running(ask) = &mut open.asker
                && ask.poll_withdrawn(cx).is_ready()
            {
                self.outgoing.withdraw(&open.id);
                return false;
            }
            let Poll::Ready(reply) = open.from_client.poll_recv(cx) else {
                return true;
            };
            match (reply, &mut open.asker) {
                (Some(ClientReply::Progress(params)), QuestionSource::Running(ask)) => {
                    ask.send_progress(params)
                }
                (Some(ClientReply::Progress(_)), QuestionSource::Round { .. }) => {}
                (Some(ClientReply::Answer(outcome)), _) => {
                    self.deliver_answer(at, outcome, rounds);
                    return false;
                }
                // The session is over, and with it the asker.
                (None, _) => return false,
            }
        }
    }

    fn deliver_answer(
        &mut self,
        at: usize,
        outcome: Result<Bytes, Bytes>,
        rounds: &mut impl FnMut(RoundAnswer),
    ) {
        let spent = QuestionSource::Round {
            key: String::new(),
            method: Method::Ping,
        };
        match std::mem::replace(&mut self.open[at].asker, spent) {
            QuestionSource::Running(ask) => ask.answer(outcome),
            QuestionSource::Round { key, method } => rounds((key, method, outcome)),
        }
    }
}

/// The name of a URL elicitation towards the client of a session. It is derived from the server's
/// own name, by which the server reports, in any call or outside of all, that the URL was visited.
pub(crate) fn elicitation_id(
    shared: &FrontState,
    session: SessionKey,
    theirs: Option<(&UpstreamId, &str)>,
) -> String {
    let Some((upstream, theirs)) = theirs else {
        return format!("weir-{}", shared.outer.request_name().as_str());
    };
    let mut digest = Sha256::new_with_prefix(session.0);
    digest.update(upstream.as_str());
    digest.update([0]);
    digest.update(theirs);
    format!("weir-{}", BASE64URL_NOPAD.encode(&digest.finalize()[..16]))
}
