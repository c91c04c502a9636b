//! Messages of a child that cannot be read, or were skipped. The request that such a message
//! answers fails at once, instead of at its deadline.

use bytes::Bytes;
use weir_core::FailureKind;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_wire::{
    EnvelopeOutline, ErrorObject, JsonLimits, Message, MessageError, error_code, scan,
};

use crate::child_channel::ChildChannel;

/// The text of a failure for an answer that cannot be read.
const UNREADABLE_TEXT: &str = "The upstream's answer is not a valid message";
/// The error of a call with a skipped result.
const NO_MEMORY_TEXT: &str = "There was no memory for the result: it is large, and others have what weir holds results in. The call ran. \
                         Check before calling again, for less at once";

impl ChildChannel {
    /// Takes a line that is no message. The requests that it answers fail. A line without the id of
    /// a request is dropped, and logged.
    pub(super) fn take_unreadable(&self, line: &Bytes, error: &MessageError) {
        if scan::trim(line).first() == Some(&b'[') {
            let items: Vec<_> = scan::elements(line).collect();
            // A loop without an early end: each item may answer a request.
            let failed = items
                .into_iter()
                .filter(|item| self.fail_unreadable(&line[item.clone()], error))
                .count();
            if failed > 0 {
                return;
            }
        } else if self.fail_unreadable(line, error) {
            return;
        }
        self.other_lines.drop_line(&self.context.record, line);
    }

    /// Fails the request that an unreadable message answers; false if it names none.
    pub(super) fn fail_unreadable(&self, message: &[u8], error: &MessageError) -> bool {
        let outline = EnvelopeOutline::of(message);
        let Some(id) = outline.answered_id().and_then(|id| id.echoed_number()) else {
            return false;
        };
        self.context.label.count_dropped("not_a_message");
        if self.relay_error(id, &format!("{UNREADABLE_TEXT}: {}", error.text)) {
            return true;
        }
        let label = &self.context.label;
        let failure = label.fail(FailureKind::BadAnswer, UNREADABLE_TEXT);
        let state = self.state.lock();
        match state.requests.get(&id) {
            Some(request) => {
                let refusal = FailedAttempt::new(failure.because(error.text.clone()));
                request.pending.refuse(refusal);
            }
            None => {
                drop(state);
                label.count_dropped("unknown_id");
            }
        }
        true
    }

    /// Notes that a large message was skipped for want of memory. Fails the request that it
    /// answered, if it answered one.
    pub fn fail_skipped(&self, request: Option<u64>) {
        self.silence.note_message();
        let Some(id) = request else {
            return self.context.label.count_dropped("no_memory");
        };
        if self.relay_error(id, NO_MEMORY_TEXT) {
            return;
        }
        match Message::parse(error_answer(id, NO_MEMORY_TEXT), &JsonLimits::upstream()) {
            Ok(message) => self.dispatch_to_request(message),
            Err(_) => self.context.label.count_dropped("no_memory"),
        }
    }

    /// Answers a request of the process that the relay leads to with an error; false if the request
    /// is of this process.
    fn relay_error(&self, id: u64, text: &str) -> bool {
        let relay = self.relay.get().filter(|relay| relay.is_open());
        let Some(relay) = relay.filter(|relay| relay.has_request(id)) else {
            return false;
        };
        relay.send(weir_wire::write::stdio_line(&error_answer(id, text)));
        true
    }
}

fn error_answer(id: u64, text: &str) -> Bytes {
    let error = ErrorObject::new(error_code::INTERNAL_ERROR, text);
    weir_wire::write::error_response(Some(&id.into()), false, &error)
}
