//! Spans: what weir tells of the requests that it was chosen to tell of. Who is told of is decided
//! here, once a request; where spans go is behind [`SpanSink`].
//!
//! A request that is not told of costs two loads. What a client says of its trace is continued, but
//! its wish to be told of counts only where the operator says so (fault F17).

mod own;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwapOption;
use data_encoding::HEXLOWER;

pub use self::own::OwnSpan;
use crate::call::{RequestName, Trace};
use crate::port::Random;

/// A span, in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
}

/// What a span says beside its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One of a fixed set.
    Word(&'static str),
    /// A text.
    Text(Arc<str>),
    /// A number.
    Number(i64),
}

/// Whose work a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Answering a client.
    Server,
    /// Asking an upstream.
    Client,
    /// Nobody's but weir's own.
    Internal,
}

/// A span that is over.
#[derive(Clone, Debug)]
pub struct Span {
    /// Which it is.
    pub context: SpanContext,
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// The `tracestate` of its trace.
    pub state: Option<Arc<str>>,
    /// Its name, by the semantic conventions.
    pub name: String,
    /// Whose work it is.
    pub kind: SpanKind,
    /// When it began.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// What else it says.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether what it was for failed.
    pub failed: bool,
}

/// Where spans go that are over.
pub trait SpanSink: Send + Sync {
    /// Takes a span, or loses and counts it. Never blocks.
    fn offer(&self, span: Span);
}

/// Who is told of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// How many of those that nobody else decides on, from 0 to 1.
    pub ratio: f64,
    /// Whether a client decides for what it calls, by the flag of its `traceparent`.
    pub by_clients: bool,
}

/// Requests below this number, of all 64-bit numbers, are told of.
static BELOW: AtomicU64 = AtomicU64::new(0);
static BY_CLIENTS: AtomicBool = AtomicBool::new(false);
static SINK: ArcSwapOption<Arc<dyn SpanSink>> = ArcSwapOption::const_empty();

/// From now on these are told of, to this sink; `None`: none are.
pub fn tell(sink: Option<Arc<dyn SpanSink>>, sampling: Sampling) {
    // Of a cast from a float what is too large is the largest number.
    let below = if sink.is_some() {
        (sampling.ratio * 2f64.powi(64)) as u64
    } else {
        0
    };
    SINK.store(sink.map(Arc::new));
    BY_CLIENTS.store(sampling.by_clients, Ordering::Relaxed);
    BELOW.store(below, Ordering::Relaxed);
}

/// The span of a request that is told of. It ends once, at the latest when it is dropped: then
/// nobody waited for the answer.
pub struct ServerSpan {
    context: SpanContext,
    parent: Option<[u8; 8]>,
    state: Option<Arc<str>>,
    method: &'static str,
    began: (SystemTime, Instant),
    target: OnceLock<(&'static str, Arc<str>)>,
    attributes: Mutex<Option<Vec<(&'static str, Value)>>>,
    log: tracing::Span,
}

impl ServerSpan {
    /// Decides whether a request is told of. `trace` is what its client says of it, checked;
    /// `attributes` are made where it is.
    pub fn begin(
        trace: &Trace,
        (method, name): (&'static str, &RequestName),
        random: &dyn Random,
        attributes: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) -> Option<Arc<Self>> {
        let parent = trace.parent.as_deref().and_then(parse);
        let chosen = match parent {
            Some((_, sampled)) if BY_CLIENTS.load(Ordering::Relaxed) => sampled,
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

    /// Which it is.
    #[must_use]
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// The span of the log: what is logged within it names the trace.
    #[must_use]
    pub fn log(&self) -> &tracing::Span {
        &self.log
    }

    /// What the request turned out to be about: a name that the catalog has, and under which
    /// attribute.
    pub fn is_about(&self, attribute: &'static str, name: &Arc<str>) {
        // Of a batch of questions about one call the first counts; they are about the same.
        let _ = self.target.set((attribute, name.clone()));
    }

    /// The request is over. Only the first time counts.
    pub fn end(&self, outcome: &'static str, failed: bool, more: Vec<(&'static str, Value)>) {
        let taken = self
            .attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(mut attributes) = taken else { return };
        attributes.extend(more);
        let target = self.target.get();
        attributes.extend(target.map(|(attribute, name)| (*attribute, Value::Text(name.clone()))));
        offer(Span {
            context: self.context,
            parent: self.parent,
            state: self.state.clone(),
            name: named(self.method, target.map(|(_, name)| name)),
            kind: SpanKind::Server,
            began: self.began.0,
            // By the clock that nobody sets.
            ended: self.began.0 + self.began.1.elapsed(),
            attributes: outcome_of(attributes, outcome, failed),
            failed,
        });
    }

    /// The span of a call to an upstream that this request made: under the number that the upstream
    /// was told. Over now, begun before that.
    pub fn asked(&self, sent: &Trace, target: Option<&Arc<str>>, call: Asked<'_>) {
        let Some(context) = self::sent(sent) else {
            return;
        };
        let ended = SystemTime::now();
        offer(Span {
            context,
            parent: Some(self.context.span),
            state: self.state.clone(),
            name: named(call.method, target),
            kind: SpanKind::Client,
            began: ended.checked_sub(call.took).unwrap_or(ended),
            ended,
            attributes: outcome_of(call.attributes, call.outcome, call.failed),
            failed: call.failed,
        });
    }
}

/// A call to an upstream that is over.
pub struct Asked<'a> {
    /// What was called.
    pub method: &'a str,
    /// How long it took.
    pub took: std::time::Duration,
    /// How it ended, one of a fixed set of words.
    pub outcome: &'static str,
    /// Whether that is a failure.
    pub failed: bool,
    /// What else is known.
    pub attributes: Vec<(&'static str, Value)>,
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

/// Whether a request may be told of, before anything is known of its trace.
#[must_use]
pub fn may_tell(name: &RequestName) -> bool {
    BY_CLIENTS.load(Ordering::Relaxed) || is_drawn(name)
}

fn is_drawn(name: &RequestName) -> bool {
    // The request's own number, not the trace's: that one the client chooses.
    is_drawn_by(|| name.bits())
}

fn is_drawn_by(number: impl FnOnce() -> u64) -> bool {
    match BELOW.load(Ordering::Relaxed) {
        0 => false,
        u64::MAX => true,
        below => mixed(number()) < below,
    }
}

/// The span that an upstream was told, where weir tells of it.
#[must_use]
pub fn sent(trace: &Trace) -> Option<SpanContext> {
    trace.span.as_ref()?;
    parse(trace.parent.as_deref()?).map(|(context, _)| context)
}

/// Whether a `traceparent` that goes on says that its trace is told of: by weir's own decision, or
/// by its client's where that counts.
pub(crate) fn is_told(trace: &Trace) -> bool {
    let by_client = || {
        trace
            .parent
            .as_deref()
            .and_then(parse)
            .is_some_and(|(_, sampled)| sampled)
    };
    trace.span.is_some() || (BY_CLIENTS.load(Ordering::Relaxed) && by_client())
}

fn offer(span: Span) {
    if let Some(sink) = &*SINK.load() {
        sink.offer(span);
    }
}

/// `{method} {target}` (semantic conventions for MCP).
fn named(method: &str, target: Option<&Arc<str>>) -> String {
    target.map_or_else(|| method.to_owned(), |target| format!("{method} {target}"))
}

fn outcome_of(
    mut attributes: Vec<(&'static str, Value)>,
    outcome: &'static str,
    failed: bool,
) -> Vec<(&'static str, Value)> {
    attributes.push(("weir.outcome", Value::Word(outcome)));
    if failed {
        attributes.push(("error.type", Value::Word(outcome)));
    }
    attributes
}

/// Trace and span of a checked `traceparent`, and whether its sender tells of it.
fn parse(parent: &str) -> Option<(SpanContext, bool)> {
    let part = |at: std::ops::Range<usize>| parent.get(at);
    let trace = u128::from_str_radix(part(3..35)?, 16).ok()?.to_be_bytes();
    let span = u64::from_str_radix(part(36..52)?, 16).ok()?.to_be_bytes();
    let flags = u8::from_str_radix(part(53..55)?, 16).ok()?;
    Some((SpanContext { trace, span }, flags & 1 == 1))
}

/// Random bytes that are not all zero: those would be no id.
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
    use super::*;
    use crate::fakes::Sevens;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Span>>);
    impl SpanSink for Kept {
        fn offer(&self, span: Span) {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(span);
        }
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn begin(trace: &Trace, bits: u64) -> Option<Arc<ServerSpan>> {
        ServerSpan::begin(
            trace,
            ("tools/call", &RequestName::from_bits(bits)),
            &Sevens,
            Vec::new,
        )
    }

    // One test: what is told of is decided for the whole process.
    #[test]
    fn f17_weir_decides_what_is_told_of_and_a_span_ends_once() {
        let kept = Arc::new(Kept::default());
        let sink = || Some(Arc::clone(&kept) as Arc<dyn SpanSink>);
        let taken = || std::mem::take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner));
        let forced = Trace {
            parent: Some(PARENT.into()),
            ..Trace::default()
        };
        let never = Sampling {
            ratio: 0.0,
            by_clients: false,
        };
        tell(sink(), never);
        assert!(
            (0..100).all(|bits| begin(&forced, bits).is_none()),
            "a client's wish alone is none of weir's"
        );
        assert!(!is_told(&forced));
        tell(
            sink(),
            Sampling {
                ratio: 0.01,
                ..never
            },
        );
        let chosen = (0..10_000)
            .filter(|bits| begin(&forced, *bits).is_some())
            .count();
        assert!((50..200).contains(&chosen), "{chosen} of 10000");
        taken();

        tell(
            sink(),
            Sampling {
                by_clients: true,
                ..never
            },
        );
        assert!(
            begin(&forced, 1).is_some()
                && is_told(&forced)
                && begin(&Trace::default(), 1).is_none()
        );
        let unwanted = Trace {
            parent: Some(PARENT.replace("-01", "-00").into()),
            ..Trace::default()
        };
        assert!(begin(&unwanted, 1).is_none());
        assert_eq!(
            taken().pop().map(|span| span.attributes),
            Some(vec![
                ("weir.outcome", Value::Word("cancelled")),
                ("error.type", Value::Word("cancelled")),
            ])
        );

        tell(
            sink(),
            Sampling {
                ratio: 1.0,
                ..never
            },
        );
        let span = begin(&forced, 1).expect("all are told of");
        span.is_about("gen_ai.tool.name", &"shop__order".into());
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
        tell(
            None,
            Sampling {
                ratio: 1.0,
                ..never
            },
        );
        assert!(begin(&forced, 1).is_none(), "nobody listens");
    }
}
