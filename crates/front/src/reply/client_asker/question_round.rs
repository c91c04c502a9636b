//! One round with a modern server: its questions are sent, the answers arrive, the call is made
//! again.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use tokio::time::Sleep;
use weir_era::server_questions;
use weir_wire::method::Method;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, error_code};

/// The questions of a call that ended with them.
pub(super) struct QuestionRound {
    /// The server's own state, unchanged.
    pub(super) state: Option<String>,
    pub(super) answers: Vec<(String, Bytes)>,
    /// The client's error, if it declined: the call gets no answers.
    pub(super) declined: Option<ErrorObject>,
    /// True if the client was asked; otherwise the call is only repeated after a delay.
    pub(super) asks: bool,
    pub(super) until: Pin<Box<Sleep>>,
}

impl QuestionRound {
    /// Takes an answer. An elicitation can express a refusal; sampling and roots cannot.
    pub(super) fn take_answer(
        &mut self,
        key: String,
        method: Method,
        outcome: Result<Bytes, Bytes>,
    ) {
        match (outcome, method) {
            (Ok(result), _) => self
                .answers
                .push((key, server_questions::lift_answer(&result))),
            (Err(_), Method::ElicitationCreate) => {
                self.answers
                    .push((key, Bytes::from_static(br#"{"action":"cancel"}"#)));
            }
            (Err(error), _) => {
                let unreadable =
                    |_| ErrorObject::new(error_code::INTERNAL_ERROR, "a malformed error");
                self.declined = Some(ErrorObject::parse(&error).unwrap_or_else(unreadable));
            }
        }
    }

    pub(super) fn responses(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        let mut object = ObjectWriter::new(&mut out);
        for (key, answer) in &self.answers {
            object.raw(key, answer);
        }
        object.end();
        out.freeze()
    }
}
