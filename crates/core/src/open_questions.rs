//! The questions of one call that its client answers in a later request, in whole or in part.

use std::task::Context;

use bytes::Bytes;
use weir_wire::answer_shape::is_answer_shape;
use weir_wire::scan;

use crate::failure::Failure;
use crate::question::PendingQuestion;

/// The most open questions. A question beyond them is dropped, and its server learns that there is
/// no answer.
const MAX_OPEN_QUESTIONS: usize = 32;

/// A question under the key by which the client answers it.
#[derive(Debug)]
pub struct KeyedQuestion {
    /// The key.
    pub key: String,
    /// The question.
    pub ask: PendingQuestion,
}

/// The open questions of a call, in the order of asking. No key is used twice.
#[derive(Debug)]
pub struct OpenQuestions {
    open: Vec<KeyedQuestion>,
    /// The beginning of each key.
    prefix: String,
    /// The number of questions so far.
    asked: u64,
}

impl OpenQuestions {
    /// No questions. The keys begin with `prefix`.
    #[must_use]
    pub fn new(prefix: String) -> Self {
        Self {
            open: Vec::new(),
            prefix,
            asked: 0,
        }
    }

    /// Keeps a question for the client.
    pub fn keep(&mut self, ask: PendingQuestion) {
        if self.open.len() < MAX_OPEN_QUESTIONS {
            self.asked += 1;
            let key = format!("{}-{}", self.prefix, self.asked);
            self.open.push(KeyedQuestion { key, ask });
        }
    }

    /// Drops the questions that the server withdrew.
    pub fn drop_withdrawn(&mut self, cx: &mut Context<'_>) {
        let is_open = |open: &mut KeyedQuestion| open.ask.poll_withdrawn(cx).is_pending();
        self.open.retain_mut(is_open);
    }

    /// Drops all questions.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Checks `inputResponses`: each answer needs the shape that its question asks for. Questions
    /// without an answer stay open, and answers without a question are ignored (2026-07-28,
    /// basic/patterns/mrtr; SEP-2663).
    ///
    /// # Errors
    ///
    /// `InvalidParams`, with the key of the bad answer.
    pub fn check(&self, answers: &[u8]) -> Result<(), Failure> {
        for KeyedQuestion { key, ask } in &self.open {
            let given = scan::find(answers, key);
            if given.is_some_and(|range| !is_answer_shape(ask.question.method, &answers[range])) {
                let text = format!("`inputResponses.{key}` is no answer to what was asked");
                return Err(Failure::invalid_params(text));
            }
        }
        Ok(())
    }

    /// Sends the answers to the server, by the keys of their questions.
    pub fn answer(&mut self, answers: &Bytes) {
        self.settle(answers, Ok);
    }

    /// Sends the client's errors to the server, by the keys of their questions.
    pub fn refuse(&mut self, errors: &Bytes) {
        self.settle(errors, Err);
    }

    fn settle(&mut self, given: &Bytes, outcome: fn(Bytes) -> Result<Bytes, Bytes>) {
        for one in std::mem::take(&mut self.open) {
            match scan::find(given, &one.key) {
                Some(range) => one.ask.answer(outcome(given.slice(range))),
                None => self.open.push(one),
            }
        }
    }

    /// True if the server has asked.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        self.asked > 0
    }

    /// The open questions, in the order of asking.
    #[must_use]
    pub fn all(&self) -> &[KeyedQuestion] {
        &self.open
    }
}
