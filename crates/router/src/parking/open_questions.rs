//! The open questions of a parked call, as operators and the client see them.

use bytes::{Bytes, BytesMut};
use weir_core::parked::{KeyedQuestion, OpenQuestions};
use weir_wire::write::ObjectWriter;

/// The methods of the open questions, in the order of asking.
pub(super) fn asked_methods(open: &OpenQuestions) -> Vec<&'static str> {
    open.all()
        .iter()
        .map(|open| open.ask.question.method.as_str())
        .collect()
}

/// An `input_required` result with the open questions.
pub(super) fn input_required(open: &OpenQuestions) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    result.string("resultType", "input_required");
    result.with("inputRequests", |out| {
        let mut requests = ObjectWriter::new(out);
        for KeyedQuestion { key, ask } in open.all() {
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
