//! Failures of requests: the one error of every layer. [`response_table`] turns them into
//! responses.

mod error_tables;
pub mod failure_data;
pub mod message_refusal;
pub mod request_refusal;
pub mod response_table;
mod task_error;

use std::convert::Infallible;

use http::{HeaderName, HeaderValue};
use weir_core::Failure;
use weir_core::port::ReplicaId;
use weir_listen::OtherProcess;
use weir_wire::{RequestId, Revision};

pub use self::error_tables::{
    ErrorRow, MessageErrorRow, RefusalRow, error_table, message_error_table, refusal_table,
};
pub use self::message_refusal::MessageRefusal;
pub use self::request_refusal::RequestRefusal;
pub use self::response_table::{
    accepted, into_answer, into_message_answer, message_error, no_content, ok, ok_message,
    redirect, refusal_answer, render_failure,
};
pub use self::task_error::task_state_for_modern;
use crate::http::answer;
use crate::http::body::HttpAnswer;
use crate::request::message_labels::MessageLabels;
use crate::request::request_span::RequestSpan;

/// The answer to a request, or its failure.
pub type RequestResult = Result<HttpAnswer, RequestFailure>;

/// A failure, and the labels of its request for the metrics.
#[derive(Debug)]
pub struct RequestFailure(Box<LabelledCause>);

#[derive(Debug)]
struct LabelledCause {
    cause: FailureCause,
    labels: MessageLabels,
    /// The trace span of the request.
    span: Option<RequestSpan>,
}

/// The cause of a failure.
#[derive(Debug)]
pub enum FailureCause {
    /// The request is refused by its head, its sender or a limit.
    Refused {
        /// The reason, with its status in the table.
        refusal: RequestRefusal,
        /// Headers with computed values.
        headers: Vec<(HeaderName, HeaderValue)>,
    },
    /// The message is not valid, or not at this point.
    Message {
        /// Absent for a notification, a response, and a message whose id cannot be read.
        id: Option<RequestId>,
        /// The reason, with its code in the table.
        refusal: MessageRefusal,
    },
    /// The request could not be carried out.
    Call {
        /// The id of the request.
        id: RequestId,
        /// The failure.
        failure: Failure,
        /// The revision that the client speaks.
        revision: Revision,
        /// True for `tools/call`: a failure that a model can act on is a result.
        tool_call: bool,
    },
    /// Another replica owns the subject of the request. The handler sends the request there; the
    /// replica that it is sent to answers with this, if it does not own the subject either.
    Elsewhere(ReplicaId),
    /// Another process of a graceful restart has the parked call or the session of the request, as
    /// far as this one knows. The handler sends the request there.
    InProcess(OtherProcess),
    /// A layer panicked. The request's id is lost with it.
    Panicked,
}

impl RequestFailure {
    /// A message that is refused.
    pub fn message(id: Option<&RequestId>, refusal: MessageRefusal) -> Self {
        let id = id.cloned();
        FailureCause::Message { id, refusal }.into()
    }

    /// A failed request of any method but `tools/call`.
    pub fn call(id: &RequestId, revision: Revision, failure: Failure) -> Self {
        let cause = FailureCause::Call {
            id: id.clone(),
            failure,
            revision,
            tool_call: false,
        };
        cause.into()
    }

    /// The failure under these labels of its request.
    pub fn labelled(mut self, labels: MessageLabels) -> Self {
        self.0.labels = labels;
        self
    }

    /// The replica that owns the subject of the request, if that is the reason for the failure.
    pub fn elsewhere(&self) -> Option<&ReplicaId> {
        let FailureCause::Elsewhere(owner) = &self.0.cause else {
            return None;
        };
        Some(owner)
    }

    /// The other process of a graceful restart that has the subject of the request, if that is the
    /// reason for the failure.
    pub fn in_process(&self) -> Option<OtherProcess> {
        let FailureCause::InProcess(process) = self.0.cause else {
            return None;
        };
        Some(process)
    }

    /// The same failure with another owner.
    pub fn about_owner(&self, owner: ReplicaId) -> Self {
        self.relabel(FailureCause::Elsewhere(owner).into())
    }

    /// The failure with the span of its request. The span ends with the answer that the failure
    /// becomes.
    pub(crate) fn in_span(mut self, span: RequestSpan) -> Self {
        self.0.span = Some(span);
        self
    }

    /// Takes the span of a traced request, for another answer than that of this failure.
    pub fn take_span(&mut self) -> Option<RequestSpan> {
        self.0.span.take()
    }

    /// Another failure under the labels of this one.
    pub fn relabel(&self, other: Self) -> Self {
        other.labelled(self.0.labels)
    }

    /// An answer under the labels of this failure.
    pub fn label_answer(&self, answer: HttpAnswer) -> HttpAnswer {
        answer::with_labels(answer, self.0.labels)
    }

    /// True if another process may answer the request.
    pub fn is_of_another_process(&self) -> bool {
        self.in_process().is_some() || self.elsewhere().is_some()
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
pub fn with_labels(answered: RequestResult, labels: MessageLabels) -> RequestResult {
    match answered {
        Ok(answer) => Ok(answer::with_labels(answer, labels)),
        Err(failure) => Err(failure.labelled(labels)),
    }
}

impl From<FailureCause> for RequestFailure {
    fn from(cause: FailureCause) -> Self {
        Self(Box::new(LabelledCause {
            cause,
            labels: MessageLabels::NONE,
            span: None,
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
