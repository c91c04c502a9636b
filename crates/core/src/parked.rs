//! Parked calls: calls that wait for an answer while their client is away. The client received the
//! questions as the end of its call, and will make the call again with the answers.
//!
//! The call at the upstream runs on in the meantime, unread: a [`ParkedReply`] holds its reply, and
//! dropping it cancels the call. [`crate::port::CallParking`] keeps parked calls, and bounds their
//! number and time.

pub(crate) mod parking;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_wire::method::Method;
use weir_wire::scan;
use weir_wire::write::ObjectWriter;

pub use crate::call::ParkedId;

use crate::failure::Failure;
use crate::names::request_name::RequestName;
use crate::names::{EndpointId, UpstreamId};
use crate::principal::Principal;
use crate::question::PendingQuestion;
use crate::reply::Reply;

/// Questions that may be open at once. A server that asks more is not answered.
const MAX_OPEN_QUESTIONS: usize = 32;

/// A call that waits. Dropping it cancels the call at the upstream.
#[derive(Debug)]
pub struct ParkedReply {
    reply: Reply,
    open: Vec<KeyedQuestion>,
    asked: u64,
}

/// The description of a parked call for operators: its owner, its item and its questions.
#[derive(Clone, Debug)]
pub struct ParkedCallDetails {
    /// The principal that made it.
    pub principal: Principal,
    /// The request that ended with its questions.
    pub request: RequestName,
    /// Its endpoint.
    pub endpoint: EndpointId,
    /// The upstream that it waits at.
    pub upstream: UpstreamId,
    /// The call's own method.
    pub method: &'static str,
    /// The name that the client uses.
    pub exposed: Arc<str>,
    /// The methods of the open questions, in the order of asking.
    pub questions: Vec<&'static str>,
}

/// A call that waits, as operators see it.
#[derive(Clone, Debug)]
pub struct ParkedCall {
    /// Its number among the parked calls of this process; it gives no access to the call.
    pub number: u64,
    /// Its description.
    pub details: ParkedCallDetails,
    /// The time waited so far.
    pub age: Duration,
    /// The time left to wait.
    pub left: Duration,
}

/// A question under the key by which the client answers it. Keys are never used again in the same
/// call.
#[derive(Debug)]
struct KeyedQuestion {
    key: String,
    ask: PendingQuestion,
}

impl ParkedReply {
    /// A call without open questions.
    #[must_use]
    pub fn new(reply: Reply) -> Self {
        Self {
            reply,
            open: Vec::new(),
            asked: 0,
        }
    }

    /// Checks these `inputResponses`: each answer needs the shape that its question asks for.
    /// Missing ones are asked for again, unknown ones ignored (specification 2026-07-28,
    /// basic/patterns/mrtr).
    ///
    /// # Errors
    ///
    /// `InvalidParams`, with the key of the bad answer.
    fn check(&self, answers: &[u8]) -> Result<(), Failure> {
        for open in &self.open {
            let Some(range) = scan::find(answers, &open.key) else {
                continue;
            };
            if !is_answer_shape(open.ask.question.method, &answers[range]) {
                let text = format!(
                    "`inputResponses.{}` is no answer to what was asked",
                    open.key
                );
                return Err(Failure::invalid_params(text));
            }
        }
        Ok(())
    }

    /// Passes the answers to the upstream; unanswered questions stay open.
    fn pass_answers(mut self, answers: &Bytes) -> Self {
        let open = std::mem::take(&mut self.open);
        for one in open {
            match scan::find(answers, &one.key) {
                Some(range) => one.ask.answer(Ok(answers.slice(range))),
                None => self.open.push(one),
            }
        }
        self
    }

    /// Keeps a question for the client.
    fn take(&mut self, ask: PendingQuestion) {
        // If the question is dropped, the upstream learns that there is no answer.
        if self.open.len() < MAX_OPEN_QUESTIONS {
            self.asked += 1;
            self.open.push(KeyedQuestion {
                key: format!("input-{}", self.asked),
                ask,
            });
        }
    }

    fn asked(&self) -> Vec<&'static str> {
        self.open
            .iter()
            .map(|open| open.ask.question.method.as_str())
            .collect()
    }

    /// An `input_required` result with the open questions.
    fn questions(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(512);
        let mut result = ObjectWriter::new(&mut out);
        result.string("resultType", "input_required");
        result.with("inputRequests", |out| {
            let mut requests = ObjectWriter::new(out);
            for KeyedQuestion { key, ask } in &self.open {
                requests.with(key, |out| {
                    let question = &ask.question;
                    ObjectWriter::new(out)
                        .string("method", question.method.as_str())
                        .raw("params", &question.params)
                        .end();
                });
            }
            requests.end();
        });
        result.end();
        out.freeze()
    }
}

/// True if a value has the shape of the result of a question.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "three of the 38 methods are questions"
)]
pub fn is_answer_shape(method: Method, value: &[u8]) -> bool {
    let member = |name: &str| scan::find(value, name).map(|range| &value[range]);
    let starts =
        |name: &str, with: &[u8]| member(name).is_some_and(|value| with.contains(&value[0]));
    scan::is_object(value)
        && match method {
            Method::ElicitationCreate => {
                let action = member("action").and_then(scan::string);
                matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
                    && member("content")
                        .is_none_or(|content| scan::is_object(content) || content == b"null")
            }
            Method::SamplingCreateMessage => {
                starts("role", b"\"") && starts("model", b"\"") && starts("content", b"{[")
            }
            Method::RootsList => starts("roots", b"["),
            _ => false,
        }
}
