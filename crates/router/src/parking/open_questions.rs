//! The open questions of a parked call, and the client's answers to them.

use std::task::Context;

use bytes::{Bytes, BytesMut};
use weir_core::failure::Failure;
use weir_core::parked::{KeyedQuestion, ParkedReply, is_answer_shape};
use weir_core::question::PendingQuestion;
use weir_wire::scan;
use weir_wire::write::ObjectWriter;

/// Questions that may be open at once. A server that asks more is not answered.
const MAX_OPEN_QUESTIONS: usize = 32;

/// Checks these `inputResponses`: each answer needs the shape that its question asks for.
/// Missing ones are asked for again, unknown ones ignored (specification 2026-07-28,
/// basic/patterns/mrtr).
///
/// # Errors
///
/// `InvalidParams`, with the key of the bad answer.
pub(super) fn check_answers(parked: &ParkedReply, answers: &[u8]) -> Result<(), Failure> {
    for open in &parked.open {
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
pub(super) fn pass_answers(mut parked: ParkedReply, answers: &Bytes) -> ParkedReply {
    let open = std::mem::take(&mut parked.open);
    for one in open {
        match scan::find(answers, &one.key) {
            Some(range) => one.ask.answer(Ok(answers.slice(range))),
            None => parked.open.push(one),
        }
    }
    parked
}

/// Keeps a question for the client.
pub(super) fn keep_question(parked: &mut ParkedReply, ask: PendingQuestion) {
    // If the question is dropped, the upstream learns that there is no answer.
    if parked.open.len() < MAX_OPEN_QUESTIONS {
        parked.asked += 1;
        parked.open.push(KeyedQuestion {
            key: format!("input-{}", parked.asked),
            ask,
        });
    }
}

/// Drops the questions that the upstream withdrew.
pub(super) fn drop_withdrawn(parked: &mut ParkedReply, cx: &mut Context<'_>) {
    let open = &mut parked.open;
    open.retain_mut(|open| open.ask.poll_withdrawn(cx).is_pending());
}

/// The methods of the open questions, in the order of asking.
pub(super) fn asked_methods(parked: &ParkedReply) -> Vec<&'static str> {
    parked
        .open
        .iter()
        .map(|open| open.ask.question.method.as_str())
        .collect()
}

/// An `input_required` result with the open questions.
pub(super) fn input_required(parked: &ParkedReply) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    result.string("resultType", "input_required");
    result.with("inputRequests", |out| {
        let mut requests = ObjectWriter::new(out);
        for KeyedQuestion { key, ask } in &parked.open {
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
