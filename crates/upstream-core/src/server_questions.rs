//! Requests of a legacy server in the middle of one call, and the client's answers on their way
//! back.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_core::budget::ByteReservation;
use weir_core::question::{AnswerEvent, AnswerReceiver, PendingQuestion};
use weir_core::reply::ReplyEvent;
use weir_era::server_questions::{self, LiftedQuestion};
use weir_wire::method::Method;
use weir_wire::{Request, RequestId, Revision};

use crate::message_budget::MessageBudget;

/// The most questions of one call that a server may have open. One more is answered with an error.
const MAX_OPEN_QUESTIONS: usize = 64;
/// The most bytes of those questions.
const MAX_QUESTION_BYTES: usize = 1 << 20;

/// The questions of one call.
#[derive(Debug)]
pub struct ServerQuestions {
    revision: Revision,
    open: Vec<OpenServerQuestion>,
}

#[derive(Debug)]
struct OpenServerQuestion {
    id: RequestId,
    method: Method,
    token: Option<Bytes>,
    /// The server's own id of the task that asks.
    task: Option<Arc<str>>,
    answers: AnswerReceiver,
    _reservation: ByteReservation,
    bytes: usize,
    /// The question as it came on a channel that several calls share: it may be meant for another
    /// call.
    shared: Option<Request>,
}

impl ServerQuestions {
    /// Tracks questions of a server of this revision.
    pub fn new(revision: Revision) -> Self {
        Self {
            revision,
            open: Vec::new(),
        }
    }

    /// Takes a question. Returns it for the client, or the refusal for the server. `shared` is the
    /// question as it came on a channel that the call shares with others.
    pub fn ask(
        &mut self,
        messages: &MessageBudget,
        lifted: LiftedQuestion,
        shared: Option<Request>,
    ) -> Result<ReplyEvent, Bytes> {
        let LiftedQuestion {
            id,
            mut question,
            progress_token: token,
            elicitation_id: elicitation,
            related_task: task,
        } = lifted;
        let bytes = question.params.len();
        let held: usize = self.open.iter().map(|open| open.bytes).sum();
        if self.open.len() >= MAX_OPEN_QUESTIONS || held + bytes > MAX_QUESTION_BYTES {
            return Err(server_questions::no_answer_response(&id));
        }
        let Some(reservation) = messages.try_reserve(bytes) else {
            return Err(server_questions::no_answer_response(&id));
        };
        if shared.is_none() {
            // Copied without the rest of the chunk it was read with.
            question.params = Bytes::copy_from_slice(&question.params);
        }
        let method = question.method;
        let (mut ask, answers) = PendingQuestion::new(question, messages.label.id.clone());
        ask.wants_progress = token.is_some();
        ask.elicitation = elicitation;
        ask.related_task.clone_from(&task);
        self.open.push(OpenServerQuestion {
            id,
            method,
            token,
            task,
            answers,
            _reservation: reservation,
            bytes,
            shared,
        });
        Ok(ReplyEvent::Ask(Box::new(ask)))
    }

    /// Withdraws a question that the server no longer waits for.
    pub fn withdraw(&mut self, id: &RequestId) {
        self.open.retain(|open| open.id != *id);
    }

    /// Ends the call and returns its open questions that came on a shared channel. The server may
    /// still wait for their answers in another call.
    pub fn take_shared(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.open)
            .into_iter()
            .filter_map(|open| open.shared)
            .collect()
    }

    /// Sends the client's answers and progress to the server.
    pub fn poll_answers(&mut self, cx: &mut Context<'_>, mut tell: impl FnMut(Bytes)) {
        let revision = self.revision;
        self.open.retain_mut(|open| {
            loop {
                match open.answers.poll_event(cx) {
                    Poll::Pending => return true,
                    Poll::Ready(AnswerEvent::Progress(params)) => {
                        let task = open.task.as_deref();
                        if let Some(report) = open.token.as_ref().and_then(|token| {
                            server_questions::progress_with_token(&params, token, task)
                        }) {
                            tell(report);
                        }
                    }
                    Poll::Ready(AnswerEvent::Answer(outcome)) => {
                        tell(server_questions::response(
                            revision,
                            &open.id,
                            open.method,
                            open.task.as_deref(),
                            outcome,
                        ));
                        return false;
                    }
                    Poll::Ready(AnswerEvent::NoAnswer) => {
                        tell(server_questions::no_answer_response(&open.id));
                        return false;
                    }
                }
            }
        });
    }
}
