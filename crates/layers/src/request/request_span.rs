//! The trace span of a request, from its decoding to the end of its answer.

use std::sync::Arc;

use weir_core::trace::{AttributeValue, ServerSpan, SpanContext};

use crate::request::outcome::RequestOutcome;

/// The span. Dropped before its end, it ends as cancelled.
#[derive(Debug)]
pub struct RequestSpan(Arc<ServerSpan>);

impl RequestSpan {
    /// Takes a span that has begun.
    pub(crate) fn new(span: Arc<ServerSpan>) -> Self {
        Self(span)
    }

    /// Ends the span of an item of a batch, which has no status of its own.
    pub(crate) fn end_item(&self, outcome: RequestOutcome) {
        self.0
            .end(outcome.as_str(), outcome != RequestOutcome::Ok, Vec::new());
    }

    /// Ends the span with the answer. Without an answer there is no status.
    pub(crate) fn end(&self, outcome: RequestOutcome, status: Option<u16>) {
        let status = status.map(|status| {
            let number = AttributeValue::Number(status.into());
            ("http.response.status_code", number)
        });
        let status = status.into_iter().collect();
        self.0
            .end(outcome.as_str(), outcome != RequestOutcome::Ok, status);
    }

    /// The span, for its children: calls to upstreams, and the span of another replica that answers
    /// the request.
    pub fn server_span(&self) -> Arc<ServerSpan> {
        self.0.clone()
    }

    /// The trace and span ids.
    pub(crate) fn span_context(&self) -> SpanContext {
        self.0.context()
    }

    /// The span of the log.
    pub(crate) fn log_span(&self) -> &tracing::Span {
        self.0.log()
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        self.0
            .end(RequestOutcome::Cancelled.as_str(), true, Vec::new());
    }
}
