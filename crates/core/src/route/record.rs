//! The record of one call: written once, when its reply ends or is dropped.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_wire::Revision;
use weir_wire::method::Method;

use super::check::is_error;
use super::clean::Removed;
use super::secrets;
use super::way::{Changed, Way};
use crate::call::Call;
use crate::catalog::{Item, Timings, plain};
use crate::failure::{Failure, FailureKind};
use crate::live::{Live, Phase};
use crate::port::{Attempt, Audit, Ended, Permit, Verdict};
use crate::principal::Principal;
use crate::reply::{End, Event, Payload, PayloadSource, Reply};
use crate::telemetry::is_failed;
use crate::trace::{self, Asked, ServerSpan};
use crate::upstream::CarriedIn;

/// Characters of a name in the log.
const MOST_OF_A_NAME: usize = 128;

/// A call under way. Dropping it records that the call was cancelled.
pub(super) struct Record {
    audit: Arc<dyn Audit>,
    begun: Begun,
    began: Instant,
    bytes: u64,
    written: bool,
    /// Its entry among the running calls.
    live: Option<Live>,
    /// The timings of its upstream.
    timings: Option<Arc<Timings>>,
    carried_in: CarriedIn,
    /// The changes of its content.
    changed: Changed,
}

/// The principal, call and item of a record, and the permit that the call holds until it ends.
pub(super) struct Begun {
    pub(super) principal: Principal,
    pub(super) call: Arc<Call>,
    pub(super) item: Item,
    pub(super) verdict: Verdict,
    pub(super) permit: Permit,
}

impl Record {
    pub(super) fn begin(audit: Arc<dyn Audit>, begun: Begun) -> Self {
        Self {
            audit,
            begun,
            began: Instant::now(),
            bytes: 0,
            written: false,
            live: None,
            timings: None,
            carried_in: CarriedIn::default(),
            changed: Changed::default(),
        }
    }

    /// Times the call from its beginning.
    pub(super) fn timed(&mut self, timings: Arc<Timings>) {
        self.timings = Some(timings);
    }

    /// The cell to which the upstream writes the revision that the call is carried in.
    pub(super) fn carried_in(&self) -> CarriedIn {
        self.carried_in.clone()
    }

    /// Adds the entry of a call that was sent.
    pub(super) fn runs(&mut self, live: Live) {
        self.live = Some(live);
    }

    /// Refuses the call if a secret in its arguments must not be passed on, and notes that.
    pub(super) fn search_arguments(&mut self) -> Result<(), Failure> {
        let searched = secrets::arguments(&self.begun.item, &self.begun.call);
        self.changed.secrets = searched.is_err().into();
        searched
    }

    fn is(&self, phase: Phase) {
        if let Some(live) = &self.live {
            live.is(phase);
        }
    }

    /// Wraps a reply so that its end writes the record.
    pub(super) fn on(self, reply: Reply, way: Way) -> Reply {
        let mut record = Some(self);
        reply.map(move |event| match event {
            Event::End(end) => {
                let (end, changed) = way.clean(end);
                let of_whole = changed.removed.of_whole();
                if let Some(record) = &mut record {
                    let secrets = record.changed.secrets + changed.secrets;
                    record.changed = Changed { secrets, ..changed };
                }
                let end = finish(way.pass(end, of_whole), record.take());
                Event::End(Removed::told(of_whole, end))
            }
            Event::Ask(ask) => {
                record.iter().for_each(|record| record.is(Phase::Asking));
                way.ask(ask)
            }
            Event::Note(note) => {
                record.iter().for_each(|record| record.is(Phase::Answering));
                Event::Note(way.note(note))
            }
        })
    }

    /// Logs the failure of a call: one of its server or of weir as a warning, a refusal at debug
    /// level.
    fn log(&self, failure: &Failure) {
        let Begun { call, item, .. } = &self.begun;
        let (upstream, method) = (&item.tool.upstream, call.method_name());
        let reason = failure.reason();
        // Not computed unless the level is on.
        let name = || plain(&item.exposed, MOST_OF_A_NAME);
        match failure.kind() {
            FailureKind::TimedOut
            | FailureKind::Unavailable
            | FailureKind::BadAnswer
            | FailureKind::ResultUnknown
            | FailureKind::Internal => {
                tracing::warn!(%upstream, item = name(), %method, reason, cause = failure.cause(), "call failed");
            }
            _ => {
                tracing::debug!(%upstream, item = name(), %method, reason, cause = failure.cause(), "call refused")
            }
        }
    }

    /// Ends without a reply.
    pub(super) fn end(mut self, outcome: &'static str) {
        self.write(outcome);
    }

    fn write(&mut self, outcome: &'static str) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let took = self.began.elapsed();
        let Begun {
            principal,
            call,
            item,
            verdict,
            permit,
        } = &mut self.begun;
        let revision = self.carried_in.revision();
        item.tool
            .meter
            .took(call.method, outcome, took, trace::sent(&call.trace));
        if let Some(revision) = revision {
            item.tool.meter.carried(revision);
        }
        if let Some(span) = &call.trace.span {
            told(span, call, item, (outcome, took));
        }
        if let Some(timings) = &self.timings {
            timings.note(outcome, took);
        }
        self.live = None;
        let attempt = Attempt {
            principal,
            call,
            item: Some(item),
        };
        let (changes, revision) = (self.changed.changes(), revision.map(Revision::as_str));
        let verdict = std::mem::take(verdict);
        let ended = Ended {
            outcome,
            took,
            bytes: self.bytes,
            changes,
            revision,
            verdict,
        };
        self.audit.ended(&attempt, &ended);
        // Its permit is free from here on, not only when the client has read the last byte.
        *permit = Permit::free();
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.write("cancelled");
    }
}

/// Adds a call that is over to the span of its request.
fn told(span: &ServerSpan, call: &Call, item: &Item, (outcome, took): (&'static str, Duration)) {
    let mut attributes = vec![
        (
            "mcp.method.name",
            call.extension
                .clone()
                .map_or(trace::Value::Word(call.method.as_str()), trace::Value::Text),
        ),
        (
            "weir.upstream",
            trace::Value::Text(item.tool.upstream.as_str().into()),
        ),
    ];
    if call.method == Method::ToolsCall {
        attributes.push(("gen_ai.operation.name", trace::Value::Word("execute_tool")));
    }
    let name = item.tool.meter.name();
    attributes.extend(name.map(|(attribute, name)| (attribute, trace::Value::Text(name.clone()))));
    let failed = is_failed(outcome);
    let asked = Asked {
        method: call.method_name(),
        took,
        outcome,
        failed,
        attributes,
    };
    span.asked(&call.trace, name.map(|(_, name)| name), asked);
}

/// Writes the record, or attaches it to a result that is still arriving.
fn finish(end: End, record: Option<Record>) -> End {
    let Some(mut record) = record else { return end };
    if let End::Complete(Payload::Whole(bytes))
    | End::InputRequired(Payload::Whole(bytes))
    | End::Parked { result: bytes, .. }
    | End::Task(bytes) = &end
    {
        record.bytes = bytes.len() as u64;
    }
    let outcome = match end {
        End::Complete(Payload::Stream(inner)) => {
            return End::Complete(Payload::Stream(Box::new(Arriving {
                inner,
                record,
                outcome: "complete",
            })));
        }
        End::InputRequired(Payload::Stream(inner)) => {
            return End::InputRequired(Payload::Stream(Box::new(Arriving {
                inner,
                record,
                outcome: "input_required",
            })));
        }
        End::Complete(Payload::Whole(ref bytes)) if is_error(bytes) => "tool_error",
        End::Complete(_) => "complete",
        End::InputRequired(_) | End::Parked { .. } => "input_required",
        End::Task(_) => "task",
        End::Failed(ref failure) => {
            record.log(failure);
            failure.reason()
        }
    };
    record.write(outcome);
    end
}

/// A long result: the call ends with its last byte.
struct Arriving {
    inner: Box<dyn PayloadSource>,
    record: Record,
    outcome: &'static str,
}

impl Arriving {
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Self { inner, record, .. } = self;
        let Some(live) = &record.live else {
            return inner.poll_chunk(cx);
        };
        live.is(Phase::Answering);
        live.poll_unless_stopped(cx, |cx| inner.poll_chunk(cx))
            .map(|chunk| chunk.unwrap_or_else(|stopped| Some(Err(stopped))))
    }
}

impl PayloadSource for Arriving {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let chunk = self.poll_inner(cx);
        match &chunk {
            Poll::Ready(None) => self.record.write(self.outcome),
            Poll::Ready(Some(Err(failure))) => {
                self.record.log(failure);
                self.record.write(failure.reason());
            }
            Poll::Ready(Some(Ok(bytes))) => self.record.bytes += bytes.len() as u64,
            Poll::Pending => {}
        }
        chunk
    }

    fn removed(&self) -> u64 {
        self.inner.removed()
    }
}
