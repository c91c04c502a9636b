//! Failures of requests: the one error of every layer. [`response_table`] turns them into responses.

mod error_tables;
pub(crate) mod failure_data;
pub(crate) mod message_refusal;
pub(crate) mod request_refusal;
pub(crate) mod response_table;

use std::convert::Infallible;

use http::{HeaderName, HeaderValue};
use weir_core::Failure;
use weir_wire::{RequestId, Revision};

pub use self::error_tables::{
    ErrorRow, MessageErrorRow, RefusalRow, error_table, message_error_table, refusal_table,
};
pub(crate) use self::message_refusal::MessageRefusal;
pub(crate) use self::request_refusal::RequestRefusal;
pub(crate) use self::response_table::{
    accepted, into_answer, message_error, no_content, ok, ok_message, redirect, refusal_answer,
    render_failure,
};
use crate::http::answer;
use crate::http::body::HttpAnswer;

/// The answer to a request, or its failure.
pub(crate) type RequestResult = Result<HttpAnswer, RequestFailure>;

/// A failure, and the labels of its request for the metrics.
#[derive(Debug)]
pub(crate) struct RequestFailure(Box<LabelledCause>);

#[derive(Debug)]
struct LabelledCause {
    cause: FailureCause,
    method: &'static str,
    era: &'static str,
}

/// The cause of a failure.
#[derive(Debug)]
pub(crate) enum FailureCause {
    /// The request is refused by its head, its sender or a limit.
    Refused {
        refusal: RequestRefusal,
        /// Headers with computed values.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
    /// The message is not valid, or not at this point.
    Message {
        /// Absent for a notification, a response, and a message whose id cannot be read.
        id: Option<RequestId>,
        refusal: MessageRefusal,
    },
    /// The request could not be carried out.
    Call {
        id: RequestId,
        failure: Failure,
        revision: Revision,
        /// True for `tools/call`: a failure that a model can act on is a result.
        tool_call: bool,
    },
    /// A layer panicked. The request's id is lost with it.
    Panicked,
}

impl RequestFailure {
    /// A message that is refused.
    pub(crate) fn message(id: Option<&RequestId>, refusal: MessageRefusal) -> Self {
        let id = id.cloned();
        FailureCause::Message { id, refusal }.into()
    }

    /// A failed request of any method but `tools/call`.
    pub(crate) fn call(id: &RequestId, revision: Revision, failure: Failure) -> Self {
        let cause = FailureCause::Call {
            id: id.clone(),
            failure,
            revision,
            tool_call: false,
        };
        cause.into()
    }

    /// The failure under these labels of its request.
    pub(crate) fn labelled(mut self, method: &'static str, era: &'static str) -> Self {
        (self.0.method, self.0.era) = (method, era);
        self
    }

    /// Adds a header with a computed value to a refusal. A text that is no valid header value is
    /// left out.
    pub(crate) fn with_header(mut self, name: HeaderName, value: String) -> Self {
        if let FailureCause::Refused { headers, .. } = &mut self.0.cause {
            headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        }
        self
    }
}

/// An answer or a failure under these labels of its request for the metrics.
pub(crate) fn with_labels(
    answered: RequestResult,
    method: &'static str,
    era: &'static str,
) -> RequestResult {
    match answered {
        Ok(answer) => Ok(answer::with_labels(answer, method, era)),
        Err(failure) => Err(failure.labelled(method, era)),
    }
}

impl From<FailureCause> for RequestFailure {
    fn from(cause: FailureCause) -> Self {
        Self(Box::new(LabelledCause {
            cause,
            method: "none",
            era: "none",
        }))
    }
}

impl From<Infallible> for RequestFailure {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<RequestRefusal> for RequestFailure {
    fn from(refusal: RequestRefusal) -> Self {
        let headers = Vec::new();
        FailureCause::Refused { refusal, headers }.into()
    }
}
