//! Rounds with a modern server: its questions are sent, the answers arrive, the call is made again.

use std::borrow::Cow;
use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::sleep;
use weir_core::call::TaskMode;
use weir_core::failure::UpstreamError;
use weir_core::{Call, CallResumption, Failure, FailureKind, Payload, ReplyEnd, UpstreamQuestion};
use weir_era::{render, server_questions};
use weir_wire::method::Method;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, scan};

use super::question_round::QuestionRound;
use super::{ClientAsker, NextStep};
use crate::reply::client_questions::QuestionSource;

/// The most rounds of one call, against a server that never stops asking.
const MAX_ROUNDS: u32 = 16;
/// The most questions of one round.
const MAX_QUESTIONS: usize = 32;
/// The delay before the call is repeated for a server without questions, at first and at most.
const FIRST_REPEAT_DELAY: Duration = Duration::from_millis(100);
const MAX_REPEAT_DELAY: Duration = Duration::from_secs(5);

impl ClientAsker {
    /// Begins a round; returns an end if no round is possible.
    pub(super) fn begin_round(&mut self, payload: Payload) -> Option<ReplyEnd> {
        let bad = |text: &'static str| Some(Failure::new(FailureKind::BadAnswer, text).into());
        let Payload::Whole(result) = payload else {
            return bad("The server's request for input is too large");
        };
        if !self.is_listening {
            return bad("The server asks for input, and the client went away");
        }
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return bad("The server asks for input again and again");
        }
        let state = scan::find(&result, "requestState")
            .map(|range| scan::string(&result[range]).map(Cow::into_owned));
        if state == Some(None) {
            return bad("The server's `requestState` is not a string");
        }
        let requests = scan::find(&result, "inputRequests")
            .map(|range| result.slice(range))
            .unwrap_or_default();
        let asked: Vec<_> = scan::members(&requests).take(MAX_QUESTIONS + 1).collect();
        if asked.len() > MAX_QUESTIONS {
            return bad("The server asks for too much at once");
        }
        let wait = match asked.len() {
            0 => FIRST_REPEAT_DELAY
                .saturating_mul(1 << (self.rounds - 1))
                .min(MAX_REPEAT_DELAY),
            _ => self.settings.limits.state_time,
        };
        let asks = !asked.is_empty();
        let until = Box::pin(sleep(wait));
        self.round = Some(QuestionRound {
            state: state.flatten(),
            answers: Vec::new(),
            declined: None,
            asks,
            until,
        });
        for member in asked {
            let request = requests.slice(member.value.clone());
            self.send_round_question(member.key.decode().into_owned(), &request);
        }
        None
    }

    fn send_round_question(&mut self, key: String, request: &Bytes) {
        let method = scan::find(request, "method").and_then(|range| scan::string(&request[range]));
        let params = scan::find(request, "params").map(|range| request.slice(range));
        let params = params.unwrap_or_else(|| Bytes::from_static(b"{}"));
        // The method was checked for permission when the server's answer was read.
        let Some(method) = method.and_then(|method| Method::parse(&method)) else {
            return;
        };
        let (question, elicitation) = (
            UpstreamQuestion { method, params },
            self.questions.elicitation_id(None),
        );
        match self.questions.send_question(
            &question,
            &elicitation,
            QuestionSource::Round { key, method },
        ) {
            Ok(()) if server_questions::is_by_url(&question.params, method) => {
                self.elicitations.push((None, elicitation))
            }
            Err((unaskable, QuestionSource::Round { key, .. })) => {
                if let Some(round) = &mut self.round {
                    round.take_answer(key, method, unaskable.answer(method));
                }
            }
            Ok(()) | Err((_, QuestionSource::Running(_))) => {}
        }
    }

    /// The next step of a round, once all questions are answered.
    pub(super) fn poll_round(&mut self, cx: &mut Context<'_>) -> Poll<NextStep> {
        let Some(round) = &mut self.round else {
            return Poll::Pending;
        };
        let late = round.until.as_mut().poll(cx).is_ready();
        if let Some(error) = round.declined.take() {
            self.round = None;
            self.withdraw_all();
            return Poll::Ready(NextStep::End(end_of_declined(&self.call, &error)));
        }
        match (round.asks, self.questions.is_empty(), late) {
            (false, _, true) | (true, true, _) => {}
            (true, false, true) => {
                self.round = None;
                self.withdraw_all();
                let failure = Failure::new(
                    FailureKind::TimedOut,
                    "The client did not answer the server's questions",
                );
                return Poll::Ready(NextStep::End(failure.into()));
            }
            (_, _, false) => return Poll::Pending,
        }
        let Some(round) = self.round.take() else {
            return Poll::Pending;
        };
        let answers = round.asks.then(|| round.responses());
        let resume = round.state.map(CallResumption::Upstream);
        let trace = self.call.trace.clone().next_hop(&*self.shared.ports.random);
        let call = Arc::new(Call {
            resume,
            input_responses: answers,
            trace,
            ..(*self.call).clone()
        });
        let (router, call) = (self.shared.router.clone(), self.known.for_item(call));
        Poll::Ready(NextStep::Again(Box::pin(
            async move { router.call(call).await },
        )))
    }
}

/// The end of a call that its client declined. A modern server gets no notice of it.
fn end_of_declined(call: &Call, error: &ErrorObject) -> ReplyEnd {
    let text = format!(
        "The client did not give the input that the server asked for: {}",
        error.message
    );
    if call.method != Method::ToolsCall || matches!(call.task_mode, TaskMode::Wanted { .. }) {
        let error = UpstreamError {
            code: error.code,
            message: text.clone(),
            data: error.data.clone(),
        };
        return Failure::new(FailureKind::Upstream(error), text).into();
    }
    let mut out = BytesMut::with_capacity(128);
    let mut result = ObjectWriter::new(&mut out);
    render::tool_error(&mut result, &text);
    result.end();
    ReplyEnd::Complete(Payload::Whole(out.freeze()))
}
