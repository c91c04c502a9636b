//! Rounds with a modern server: its questions are sent, the answers arrive, the call is made again.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};
use weir_core::call::TaskMode;
use weir_core::failure::UpstreamError;
use weir_core::{Call, CallResumption, Failure, FailureKind, Payload, ReplyEnd, UpstreamQuestion};
use weir_era::{render, server_questions};
use weir_wire::method::Method;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, scan};

use crate::reply::client_asker::question_round::QuestionRound;
use crate::reply::client_asker::{ClientAsker, NextStep};
use crate::reply::client_questions::QuestionSource;

/// The most rounds of one call, against a server that never stops asking.
const MAX_ROUNDS: u32 = 16;
/// The most questions of one round.
const MAX_QUESTIONS: usize = 32;

impl ClientAsker {
    /// Begins a round; returns an end if no round is possible. A URL to which the user agreed is not
    /// asked for again: consent is not yet the visit, for which the server may still wait. If
    /// nothing else is asked, the call is only repeated, within the time of the call that ended.
    pub(super) fn begin_round(
        &mut self,
        payload: Payload,
        deadline: Option<Instant>,
    ) -> Option<ReplyEnd> {
        let bad = |text: &'static str| Some(Failure::new(FailureKind::BadAnswer, text).into());
        let Payload::Whole(result) = payload else {
            return bad("The server's request for input is too large");
        };
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
        let has_questions = !asked.is_empty();
        let (accepted, asked): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .map(|member| {
                let request = RoundRequest::read(&requests.slice(member.value.clone()));
                (member.key.decode().into_owned(), request)
            })
            .partition(|(_, request)| {
                let url = request.as_ref().and_then(RoundRequest::url_digest);
                url.is_some_and(|url| self.accepted.contains(&url))
            });
        let asks = !asked.is_empty();
        let wait = if asks {
            if !self.is_listening {
                return bad("The server asks for input, and the client went away");
            }
            self.rounds += 1;
            if self.rounds > MAX_ROUNDS {
                return bad("The server asks for input again and again");
            }
            self.repeats.reset();
            self.settings.limits.state_time
        } else {
            match self.repeats.next_delay(deadline) {
                Some(delay) => delay,
                None => return Some(still_waiting().into()),
            }
        };
        let consent = |(key, _)| (key, Bytes::from_static(br#"{"action":"accept"}"#));
        self.round = Some(QuestionRound {
            state: state.flatten(),
            answers: accepted.into_iter().map(consent).collect(),
            urls: HashMap::new(),
            declined: None,
            has_questions,
            asks,
            until: Box::pin(sleep(wait)),
        });
        for (key, request) in asked {
            // The method was checked for permission when the server's answer was read.
            if let Some(request) = request {
                self.send_round_question(key, &request);
            }
        }
        None
    }

    fn send_round_question(&mut self, key: String, request: &RoundRequest) {
        let RoundRequest(question) = request;
        let method = question.method;
        let elicitation = self.questions.elicitation_id(None);
        let url = request.url_digest();
        if let (Some(round), Some(url)) = (&mut self.round, url) {
            round.urls.insert(key.clone(), url);
        }
        let asker = QuestionSource::Round { key, method };
        match self.questions.send_question(question, &elicitation, asker) {
            Ok(()) if url.is_some() => self.elicitations.push((None, elicitation)),
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
        self.accepted.extend(round.accepted_urls());
        let answers = round.has_questions.then(|| round.responses());
        let resume = round.state.map(CallResumption::Upstream);
        let trace = self.call.trace.clone().next_hop(&*self.shared.ports.random);
        let call = Arc::new(Call {
            resume,
            input_responses: answers,
            is_continuation: true,
            trace,
            ..(*self.call).clone()
        });
        let (router, call) = (self.shared.router.clone(), self.sender.for_payload(call));
        Poll::Ready(NextStep::Again(Box::pin(
            async move { router.call(call).await },
        )))
    }
}

/// A question of a modern server, one of those that its call ended with.
struct RoundRequest(UpstreamQuestion);

impl RoundRequest {
    fn read(request: &Bytes) -> Option<Self> {
        let method = scan::find(request, "method").and_then(|range| scan::string(&request[range]));
        let params = scan::find(request, "params").map(|range| request.slice(range));
        Some(Self(UpstreamQuestion {
            method: Method::parse(&method?)?,
            params: params.unwrap_or_else(|| Bytes::from_static(b"{}")),
        }))
    }

    /// The digest of its URL, if it sends the user to one.
    fn url_digest(&self) -> Option<[u8; 32]> {
        let Self(UpstreamQuestion { method, params }) = self;
        let url = server_questions::elicited_url(params, *method)?;
        Some(Sha256::digest(&*url).into())
    }
}

/// The failure of a call whose server had its client wait for longer than the call's time.
fn still_waiting() -> Failure {
    let text = "The server still waits for what it asked for: call again later";
    Failure::new(FailureKind::TimedOut, text)
}

/// The end of a call that its client declined. A modern server gets no notice of it.
pub(crate) fn end_of_declined(call: &Call, error: &ErrorObject) -> ReplyEnd {
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
