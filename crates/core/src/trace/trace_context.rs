//! The trace that a call belongs to, and the spans of requests in it.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;

use crate::names::request_name::RequestName;
use crate::port::environment::Random;
use crate::trace::{
    AttributeValue, CLIENTS_DECIDE, FinishedCall, FinishedSpan, SINK, ServerSpan, SpanContext,
    SpanKind, is_drawn, nonzero, offer, outcome_of, span_name,
};

/// W3C trace context of a call, as the client gave it (checked) or as weir began it.
#[derive(Clone, Debug, Default)]
pub struct TraceContext {
    /// A valid `traceparent`, if any.
    pub parent: Option<Arc<str>>,
    /// A valid `tracestate`, if any.
    pub state: Option<Arc<str>>,
    /// A valid `baggage`, if any.
    pub baggage: Option<Arc<str>>,
    /// weir's own span of the request, if it is recorded.
    pub span: Option<Arc<ServerSpan>>,
}

impl TraceContext {
    /// This trace, or the other one if this names no trace.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let span = self.span.or_else(|| other.span.clone());
        if self.parent.is_some() {
            return Self { span, ..self };
        }
        Self {
            parent: other.parent.clone(),
            state: other.state.clone(),
            span,
            ..self
        }
    }

    /// This trace with the parent of `nearer`, if that parent is a span of the same trace.
    #[must_use]
    pub fn below(self, nearer: &Self) -> Self {
        let trace_id = |trace: &Self| {
            trace
                .parent
                .as_deref()?
                .get(TRACE_ID_RANGE)
                .map(str::to_owned)
        };
        let own = trace_id(&self);
        if own.is_none() || own != trace_id(nearer) {
            return self;
        }
        Self {
            parent: nearer.parent.clone(),
            ..self
        }
    }

    /// The same trace one hop further: the span is one of weir's own, and the flag shows if weir
    /// records it. Each request to an upstream is a step of its own.
    #[must_use]
    pub fn next_hop(self, random: &dyn Random) -> Self {
        if self.parent.is_none() && self.span.is_none() {
            return self;
        }
        let mut span = [0; 8];
        random.fill(&mut span);
        // A span id of zeros is invalid.
        span[7] |= u8::from(span == [0; 8]);
        Self {
            parent: self.stepped_parent(span),
            ..self
        }
    }

    /// `00-<trace>-<span>-<flags>` with this span, made in one allocation: each call has one.
    fn stepped_parent(&self, span: [u8; 8]) -> Option<Arc<str>> {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let trace = &mut text[TRACE_ID_RANGE];
        match (&self.span, self.parent.as_deref()) {
            (Some(own), _) => HEXLOWER.encode_mut(&own.context().trace, trace),
            // It was checked when it was read.
            (None, Some(parent)) => trace.copy_from_slice(parent.get(TRACE_ID_RANGE)?.as_bytes()),
            (None, None) => return None,
        }
        HEXLOWER.encode_mut(&span, &mut text[SPAN_ID_RANGE]);
        let flags = [u8::from(is_sampled(self))];
        HEXLOWER.encode_mut(&flags, &mut text[FLAGS_RANGE]);
        std::str::from_utf8(&text).ok().map(Arc::from)
    }
}

/// The bytes of the trace id in a `traceparent`.
const TRACE_ID_RANGE: Range<usize> = 3..35;
/// The bytes of the span id.
const SPAN_ID_RANGE: Range<usize> = 36..52;
/// The bytes of the flags.
const FLAGS_RANGE: Range<usize> = 53..55;

impl ServerSpan {
    /// Decides if a request is sampled. `trace` is its client's trace context, checked;
    /// `attributes` are made for a sampled one only.
    pub fn begin(
        trace: &TraceContext,
        method: &'static str,
        name: &RequestName,
        random: &dyn Random,
        attributes: impl FnOnce() -> Vec<(&'static str, AttributeValue)>,
    ) -> Option<Arc<Self>> {
        let parent = trace.parent.as_deref().and_then(parse);
        let chosen = match parent {
            Some((_, sampled)) if CLIENTS_DECIDE.load(Ordering::Relaxed) => sampled,
            _ => is_drawn(name),
        };
        if !chosen || SINK.load().is_none() {
            return None;
        }
        let context = SpanContext {
            trace: parent.map_or_else(|| nonzero(random), |(parent, _)| parent.trace),
            span: nonzero(random),
        };
        let (trace_id, span_id) = (
            HEXLOWER.encode(&context.trace),
            HEXLOWER.encode(&context.span),
        );
        Some(Arc::new(Self {
            context,
            parent: parent.map(|(parent, _)| parent.span),
            state: trace.state.clone(),
            method,
            began: (SystemTime::now(), Instant::now()),
            target: OnceLock::new(),
            attributes: Mutex::new(Some(attributes())),
            log: tracing::info_span!("request", request = name.as_str(), trace_id, span_id),
        }))
    }

    /// The `traceparent` of this span, for another process that answers the request. The span of
    /// that process is a child of this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let SpanContext { trace, span } = &self.context;
        format!("00-{}-{}-01", HEXLOWER.encode(trace), HEXLOWER.encode(span))
    }

    /// Records the span of a call to an upstream that this request made, under the id that was sent
    /// to the upstream. It is over now, and began before that.
    pub fn record_call(
        &self,
        sent: &TraceContext,
        target: Option<&Arc<str>>,
        call: FinishedCall<'_>,
    ) {
        let Some(context) = self::sent_span(sent) else {
            return;
        };
        let (ended, failed) = (SystemTime::now(), call.outcome.is_failed());
        offer(FinishedSpan {
            context,
            parent: Some(self.context.span),
            state: self.state.clone(),
            name: span_name(call.method, target),
            kind: SpanKind::Client,
            began: ended.checked_sub(call.took).unwrap_or(ended),
            ended,
            attributes: outcome_of(call.attributes, call.outcome.as_str(), failed),
            failed,
        });
    }
}

/// The span that was sent to an upstream, if weir records it.
#[must_use]
pub fn sent_span(trace: &TraceContext) -> Option<SpanContext> {
    trace.span.as_ref()?;
    parse(trace.parent.as_deref()?).map(|(context, _)| context)
}

/// The sampled flag of an outgoing `traceparent`: by weir's own decision, or by its client's if
/// that counts.
pub(super) fn is_sampled(trace: &TraceContext) -> bool {
    let by_client = || {
        trace
            .parent
            .as_deref()
            .and_then(parse)
            .is_some_and(|(_, sampled)| sampled)
    };
    trace.span.is_some() || (CLIENTS_DECIDE.load(Ordering::Relaxed) && by_client())
}

/// Trace and span of a checked `traceparent`, and its sampled flag.
fn parse(parent: &str) -> Option<(SpanContext, bool)> {
    let part = |at: Range<usize>| parent.get(at);
    let trace = u128::from_str_radix(part(3..35)?, 16).ok()?.to_be_bytes();
    let span = u64::from_str_radix(part(36..52)?, 16).ok()?.to_be_bytes();
    let flags = u8::from_str_radix(part(53..55)?, 16).ok()?;
    Some((SpanContext { trace, span }, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::environment::RepeatedByte;

    // Proves R139.
    #[test]
    fn a_trace_goes_on_with_a_span_of_its_own() {
        let parent = |text: &str| TraceContext {
            parent: Some(text.into()),
            ..TraceContext::default()
        };
        let given = parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let stepped = given.clone().next_hop(&RepeatedByte(7));
        // The sampled flag is weir's to set, and weir does not record this one.
        let expected = "00-0af7651916cd43dd8448eb211c80319c-0707070707070707-00";
        assert_eq!(stepped.parent.as_deref(), Some(expected));
        assert_eq!(
            TraceContext::default().next_hop(&RepeatedByte(7)).parent,
            None
        );
        assert_eq!(TraceContext::default().or(&given).parent, given.parent);
        assert_eq!(stepped.or(&given).parent.as_deref(), Some(expected));
    }

    #[test]
    fn parent_of_the_same_trace_is_nearer() {
        let of = |parent: Option<&str>| TraceContext {
            parent: parent.map(Arc::from),
            ..TraceContext::default()
        };
        let client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let replica = "00-0af7651916cd43dd8448eb211c80319c-0707070707070707-01";
        let foreign = "00-1af7651916cd43dd8448eb211c80319c-0707070707070707-01";
        for (own, nearer, parent) in [
            (Some(client), Some(replica), Some(replica)),
            (Some(client), Some(foreign), Some(client)),
            (Some(client), None, Some(client)),
            (None, Some(replica), None),
            (None, None, None),
        ] {
            assert_eq!(of(own).below(&of(nearer)).parent.as_deref(), parent);
        }
    }
}
