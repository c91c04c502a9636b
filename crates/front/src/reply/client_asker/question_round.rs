//! One round with a modern server: its questions are sent, the answers arrive, the call is made
//! again.

use std::collections::HashMap;
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
    /// Digests of the URLs of questions that send the user to one, by their keys.
    pub(super) urls: HashMap<String, [u8; 32]>,
    /// The client's error, if it declined: the call gets no answers.
    pub(super) declined: Option<ErrorObject>,
    /// True if the server asked a question.
    pub(super) has_questions: bool,
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
        let error = match outcome {
            Ok(result) => match server_questions::lift_answer(method, &result) {
                Ok(answer) => return self.answers.push((key, answer)),
                Err(error) => error,
            },
            Err(error) => ErrorObject::parse(&error).unwrap_or_else(|_| {
                ErrorObject::new(error_code::INTERNAL_ERROR, "a malformed error")
            }),
        };
        if method == Method::ElicitationCreate {
            let cancelled = Bytes::from_static(br#"{"action":"cancel"}"#);
            self.answers.push((key, cancelled));
        } else {
            self.declined = Some(error);
        }
    }

    /// Digests of the URLs to which the user agreed.
    pub(super) fn accepted_urls(&self) -> impl Iterator<Item = [u8; 32]> {
        let accepted = |(key, answer): &(String, Bytes)| {
            let url = self.urls.get(key).copied();
            url.filter(|_| server_questions::is_accepted(answer))
        };
        self.answers.iter().filter_map(accepted)
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
