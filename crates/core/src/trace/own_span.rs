//! Spans of weir's own work, such as reading the lists of its upstreams.

use std::time::{Instant, SystemTime};

use crate::call_outcome::CallOutcome;
use crate::port::environment::Random;
use crate::trace::{
    AttributeValue, FinishedCall, FinishedSpan, SINK, SpanContext, SpanKind, is_drawn_by, nonzero,
    offer, outcome_of,
};

/// A sampled piece of weir's own work. No request caused it, so it begins a trace. If it is dropped
/// before its end, it is not recorded.
#[derive(Debug)]
pub struct OwnSpan {
    context: SpanContext,
    name: &'static str,
    began: (SystemTime, Instant),
}

impl OwnSpan {
    /// Decides if this is sampled: by the ratio, as for requests on which no client decides.
    pub fn begin(name: &'static str, random: &dyn Random) -> Option<Self> {
        let drawn = || u64::from_be_bytes(nonzero(random));
        if !is_drawn_by(drawn) || SINK.load().is_none() {
            return None;
        }
        let context = SpanContext {
            trace: nonzero(random),
            span: nonzero(random),
        };
        Some(Self {
            context,
            name,
            began: (SystemTime::now(), Instant::now()),
        })
    }

    /// Records the span of a request to an upstream that is part of it. It is over now, and began
    /// before that.
    pub fn record_call(&self, random: &dyn Random, call: FinishedCall<'_>) {
        let (ended, failed) = (SystemTime::now(), call.outcome.is_failed());
        offer(FinishedSpan {
            context: SpanContext {
                span: nonzero(random),
                ..self.context
            },
            parent: Some(self.context.span),
            state: None,
            name: call.method.to_owned(),
            kind: SpanKind::Client,
            began: ended.checked_sub(call.took).unwrap_or(ended),
            ended,
            attributes: outcome_of(call.attributes, call.outcome.as_str(), failed),
            failed,
        });
    }

    /// Ends the span.
    pub fn end(self, outcome: CallOutcome, attributes: Vec<(&'static str, AttributeValue)>) {
        let failed = outcome.is_failed();
        offer(FinishedSpan {
            context: self.context,
            parent: None,
            state: None,
            name: self.name.to_owned(),
            kind: SpanKind::Internal,
            began: self.began.0,
            ended: self.began.0 + self.began.1.elapsed(),
            attributes: outcome_of(attributes, outcome.as_str(), failed),
            failed,
        });
    }
}
