//! Spans of sampled requests. The sampling decision is made here, once a request; [`SpanSink`]
//! takes finished spans.
//!
//! A request that is not sampled costs two loads. A client's trace context is continued, but its
//! sampled flag counts only if the operator permits it (F17).

pub mod own_span;
mod trace_context;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwapOption;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;

pub use self::own_span::OwnSpan;
pub use self::trace_context::{TraceContext, sent_span};
use crate::call_outcome::CallOutcome;
use crate::names::request_name::RequestName;
use crate::port::environment::Random;

/// A span, in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
}

/// The value of a span's attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// One of a fixed set.
    Word(&'static str),
    /// A text.
    Text(Arc<str>),
    /// A number.
    Number(i64),
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Answering a client.
    Server,
    /// Asking an upstream.
    Client,
    /// weir's own work, for no request.
    Internal,
}

/// A span that is over.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// Its ids.
    pub context: SpanContext,
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` of its trace.
    pub state: Option<Arc<str>>,
    /// Its name, by the semantic conventions.
    pub name: String,
    /// Its kind.
    pub kind: SpanKind,
    /// The time of its beginning.
    pub began: SystemTime,
    /// The time of its end.
    pub ended: SystemTime,
    /// Its attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// True if its operation failed.
    pub failed: bool,
}

/// The receiver of finished spans.
pub trait SpanSink: Send + Sync {
    /// Takes a span, or loses and counts it. Never blocks.
    fn offer(&self, span: FinishedSpan);
}

/// The rules for sampling requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpanSampling {
    /// The share of requests that are sampled, from 0 to 1, unless a client decides.
    pub ratio: f64,
    /// True if a client decides for its requests, by the flag of its `traceparent`.
    pub by_clients: bool,
}

/// Requests below this number, of all 64-bit numbers, are sampled.
static SAMPLE_BELOW: AtomicU64 = AtomicU64::new(0);
static CLIENTS_DECIDE: AtomicBool = AtomicBool::new(false);
static SINK: ArcSwapOption<Arc<dyn SpanSink>> = ArcSwapOption::const_empty();

/// Sets the sampling from now on, and the sink of spans; without a sink, no request is sampled.
pub fn set_sampling(sink: Option<Arc<dyn SpanSink>>, sampling: SpanSampling) {
    // A cast from a float that is too large gives the largest number.
    let below = if sink.is_some() {
        (sampling.ratio * 2f64.powi(64)) as u64
    } else {
        0
    };
    SINK.store(sink.map(Arc::new));
    CLIENTS_DECIDE.store(sampling.by_clients, Ordering::Relaxed);
    SAMPLE_BELOW.store(below, Ordering::Relaxed);
}

/// The span of a sampled request. It ends once, at the latest when it is dropped: then no client
/// waited for the answer.
pub struct ServerSpan {
    context: SpanContext,
    parent: Option<[u8; 8]>,
    state: Option<Arc<str>>,
    method: &'static str,
    began: (SystemTime, Instant),
    target: OnceLock<(&'static str, Arc<str>)>,
    attributes: Mutex<Option<Vec<(&'static str, AttributeValue)>>>,
    log: tracing::Span,
}

impl ServerSpan {
    /// Its ids.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// The span of the log: lines that are logged within it name the trace.
    #[must_use]
    pub fn log(&self) -> &tracing::Span {
        &self.log
    }

    /// Sets the target of the request: a name that the catalog has, and its attribute.
    pub fn set_target(&self, attribute: &'static str, name: &Arc<str>) {
        // Of a batch of questions about one call the first counts; they are about the same.
        let _ = self.target.set((attribute, name.clone()));
    }

    /// Ends the span. Only the first time counts.
    pub fn end(
        &self,
        outcome: &'static str,
        failed: bool,
        more: Vec<(&'static str, AttributeValue)>,
    ) {
        let taken = self.attributes.lock().take();
        let Some(mut attributes) = taken else { return };
        attributes.extend(more);
        let target = self.target.get();
        attributes.extend(
            target.map(|(attribute, name)| (*attribute, AttributeValue::Text(name.clone()))),
        );
        offer(FinishedSpan {
            context: self.context,
            parent: self.parent,
            state: self.state.clone(),
            name: span_name(self.method, target.map(|(_, name)| name)),
            kind: SpanKind::Server,
            began: self.began.0,
            // By the monotonic clock.
            ended: self.began.0 + self.began.1.elapsed(),
            attributes: outcome_of(attributes, outcome, failed),
            failed,
        });
    }
}

/// A call to an upstream that is over.
#[derive(Debug)]
pub struct FinishedCall<'a> {
    /// The method of the call.
    pub method: &'a str,
    /// Its duration.
    pub took: std::time::Duration,
    /// Its outcome.
    pub outcome: CallOutcome,
    /// Further attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

impl Drop for ServerSpan {
    fn drop(&mut self) {
        self.end("cancelled", true, Vec::new());
    }
}

impl std::fmt::Debug for ServerSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerSpan({})", HEXLOWER.encode(&self.context.span))
    }
}

/// True if a request may be sampled, before its trace is known.
#[must_use]
pub fn may_sample(name: &RequestName) -> bool {
    CLIENTS_DECIDE.load(Ordering::Relaxed) || is_drawn(name)
}

fn is_drawn(name: &RequestName) -> bool {
    // The request's own number is used, because a client chooses the trace's.
    is_drawn_by(|| name.bits())
}

fn is_drawn_by(number: impl FnOnce() -> u64) -> bool {
    match SAMPLE_BELOW.load(Ordering::Relaxed) {
        0 => false,
        u64::MAX => true,
        below => mixed(number()) < below,
    }
}

fn offer(span: FinishedSpan) {
    if let Some(sink) = &*SINK.load() {
        sink.offer(span);
    }
}

/// `{method} {target}` (semantic conventions for MCP).
fn span_name(method: &str, target: Option<&Arc<str>>) -> String {
    target.map_or_else(|| method.to_owned(), |target| format!("{method} {target}"))
}

fn outcome_of(
    mut attributes: Vec<(&'static str, AttributeValue)>,
    outcome: &'static str,
    failed: bool,
) -> Vec<(&'static str, AttributeValue)> {
    attributes.push(("weir.outcome", AttributeValue::Word(outcome)));
    if failed {
        attributes.push(("error.type", AttributeValue::Word(outcome)));
    }
    attributes
}

/// Random bytes that are not all zero: those would be an invalid id.
fn nonzero<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes[N - 1] |= u8::from(bytes == [0; N]);
    bytes
}

/// Numbers in a row become ones without any order (the finalizer of splitmix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::trace_context::is_sampled;
    use super::*;
    use crate::port::environment::RepeatedByte;

    #[derive(Default)]
    struct CollectedSpans(Mutex<Vec<FinishedSpan>>);
    impl SpanSink for CollectedSpans {
        fn offer(&self, span: FinishedSpan) {
            self.0.lock().push(span);
        }
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn begin(trace: &TraceContext, bits: u64) -> Option<Arc<ServerSpan>> {
        ServerSpan::begin(
            trace,
            "tools/call",
            &RequestName::from_bits(bits),
            &RepeatedByte(7),
            Vec::new,
        )
    }

    // One test: the sampling is a setting of the whole process.
    // Proves F17.
    #[test]
    fn weir_decides_on_sampling_and_a_span_ends_once() {
        let kept = Arc::new(CollectedSpans::default());
        let sink = || Some(Arc::clone(&kept) as Arc<dyn SpanSink>);
        let taken = || std::mem::take(&mut *kept.0.lock());
        let forced = TraceContext {
            parent: Some(PARENT.into()),
            ..TraceContext::default()
        };
        let never = SpanSampling {
            ratio: 0.0,
            by_clients: false,
        };
        set_sampling(sink(), never);
        assert!(
            (0..100).all(|bits| begin(&forced, bits).is_none()),
            "a client's wish alone is none of weir's"
        );
        assert!(!is_sampled(&forced));
        set_sampling(
            sink(),
            SpanSampling {
                ratio: 0.01,
                ..never
            },
        );
        let chosen = (0..10_000)
            .filter(|bits| begin(&forced, *bits).is_some())
            .count();
        assert!((50..200).contains(&chosen), "{chosen} of 10000");
        taken();

        set_sampling(
            sink(),
            SpanSampling {
                by_clients: true,
                ..never
            },
        );
        assert!(
            begin(&forced, 1).is_some()
                && is_sampled(&forced)
                && begin(&TraceContext::default(), 1).is_none()
        );
        let unwanted = TraceContext {
            parent: Some(PARENT.replace("-01", "-00").into()),
            ..TraceContext::default()
        };
        assert!(begin(&unwanted, 1).is_none());
        assert_eq!(
            taken().pop().map(|span| span.attributes),
            Some(vec![
                ("weir.outcome", AttributeValue::Word("cancelled")),
                ("error.type", AttributeValue::Word("cancelled")),
            ])
        );

        set_sampling(
            sink(),
            SpanSampling {
                ratio: 1.0,
                ..never
            },
        );
        let span = begin(&forced, 1).expect("all are told of");
        span.set_target("gen_ai.tool.name", &"shop__order".into());
        span.end("ok", false, Vec::new());
        drop(span);
        let [span] = &taken()[..] else {
            panic!("a span is told of once")
        };
        assert_eq!(
            (span.name.as_str(), span.kind, span.failed),
            ("tools/call shop__order", SpanKind::Server, false)
        );
        assert_eq!(
            HEXLOWER.encode(&span.context.trace),
            "0af7651916cd43dd8448eb211c80319c"
        );
        assert_eq!(
            (
                span.parent.map(|parent| HEXLOWER.encode(&parent)),
                span.context.span
            ),
            (Some("b7ad6b7169203331".into()), [7; 8])
        );
        set_sampling(
            None,
            SpanSampling {
                ratio: 1.0,
                ..never
            },
        );
        assert!(begin(&forced, 1).is_none(), "nobody listens");
    }
}
