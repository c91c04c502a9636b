//! The record of one call: written once, when its reply ends or is dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_catalog::{CallRoute, CallTimings, StaleListSignal};
use weir_core::CallOutcome;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{Failure, FailureKind};
use weir_core::log_text::sanitize_text;
use weir_core::port::{AuditLog, CallAttempt, CallPermission, CallPermit, EndedCall};
use weir_core::reply::{Payload, PayloadSource, Reply, ReplyEnd};
use weir_core::trace;
use weir_core::trace::{FinishedCall, ServerSpan};
use weir_core::upstream::CarriedRevision;
use weir_wire::method::Method;
use weir_wire::{Revision, error_code, scan, unknown_tool};

use crate::answer_search;
use crate::call_subject::CallSubject;
use crate::cancelled_call::{CancelledCall, outcome_of};
use crate::live_calls::{CallPhase, LiveCallGuard};
use crate::reply_cleaning::with_removed_count;
use crate::reply_transform::{EndChanges, ReplyTransform};
use crate::schema_check::is_error;

/// Characters of a name in the log.
const MAX_PER_NAME: usize = 128;

/// A call under way. Dropping it records that the call was cancelled.
pub(super) struct CallRecord {
    audit: Arc<dyn AuditLog>,
    begun: RecordedCall,
    began: Instant,
    bytes: u64,
    written: bool,
    /// True once the call was handed to its upstream, unless it turned out that weir refused it
    /// there.
    is_upstreams: bool,
    /// Its entry among the running calls.
    live: Option<LiveCallGuard>,
    /// The timings of its upstream.
    timings: Option<Arc<CallTimings>>,
    /// The signal that the lists of its upstream may be stale.
    stale_lists: Option<Arc<StaleListSignal>>,
    carried_in: CarriedRevision,
    /// The changes of its content.
    changed: EndChanges,
}

/// The subject of a record, and the permit that the call holds until it ends.
pub(super) struct RecordedCall {
    pub(super) subject: Arc<CallSubject>,
    pub(super) verdict: CallPermission,
    pub(super) permit: CallPermit,
}

impl CallRecord {
    pub(super) fn begin(audit: Arc<dyn AuditLog>, begun: RecordedCall, began: Instant) -> Self {
        Self {
            audit,
            begun,
            began,
            bytes: 0,
            written: false,
            is_upstreams: false,
            live: None,
            timings: None,
            stale_lists: None,
            carried_in: CarriedRevision::default(),
            changed: EndChanges::default(),
        }
    }

    /// Sets the parts of the route that the end of the call needs: the timings of its upstream, and
    /// the signal for stale lists.
    pub(super) fn set_route(&mut self, route: &CallRoute) {
        self.timings = Some(route.timings.clone());
        self.stale_lists = Some(route.stale_lists.clone());
    }

    /// Marks that the call is handed to its upstream: it counts among the upstream's calls.
    pub(super) fn hand_to_upstream(&mut self) {
        self.is_upstreams = true;
    }

    /// Logs a failure, and takes the call out of the upstream's calls if weir refused it before it
    /// was sent. A cancelled call is neither.
    fn note_failure(&mut self, failure: &Failure) {
        if CancelledCall::is_source_of(failure) {
            return;
        }
        self.log(failure);
        if is_weirs_refusal(failure.kind()) && self.carried_in.revision().is_none() {
            self.is_upstreams = false;
        }
        if is_unknown_item(self.begun.subject.call.method, failure.kind())
            && let Some(stale_lists) = &self.stale_lists
        {
            stale_lists.send();
        }
    }

    /// Signals that the lists may be stale, if the result of the call reports an unknown tool.
    fn signal_stale_lists(&self, result: &[u8]) {
        let CallSubject { call, item, .. } = &*self.begun.subject;
        if call.method == Method::ToolsCall
            && first_text(result)
                .is_some_and(|text| unknown_tool::is_reported_by(&text, &item.tool.native))
            && let Some(stale_lists) = &self.stale_lists
        {
            stale_lists.send();
        }
    }

    /// The cell to which the upstream writes the revision that the call is carried in.
    pub(super) fn carried_in(&self) -> CarriedRevision {
        self.carried_in.clone()
    }

    /// Adds the entry of a call that was sent.
    pub(super) fn set_live(&mut self, live: LiveCallGuard) {
        self.live = Some(live);
    }

    /// Refuses the call if a secret in its arguments must not be passed on, and notes that.
    pub(super) fn search_arguments(&mut self) -> Result<(), Failure> {
        let CallSubject { call, item, .. } = &*self.begun.subject;
        let searched = answer_search::search_arguments(item, call);
        self.changed.secrets = searched.is_err().into();
        searched
    }

    /// Sets the phase that operators see.
    pub(super) fn set_phase(&self, phase: CallPhase) {
        if let Some(live) = &self.live {
            live.set_phase(phase);
        }
    }

    /// Ends a call that is not sent with a failure of weir.
    pub(super) fn refuse(self, failure: Failure) -> Reply {
        Reply::ended(self.finish(failure.into()))
    }

    /// Changes the end of the call's reply for the client, and writes the record with it.
    pub(super) fn end_reply(mut self, end: ReplyEnd, transform: &ReplyTransform) -> ReplyEnd {
        let (end, changed) = transform.clean(end);
        let of_whole = changed.removed.of_whole();
        let secrets = self.changed.secrets + changed.secrets;
        self.changed = EndChanges { secrets, ..changed };
        with_removed_count(of_whole, self.finish(transform.apply(end, of_whole)))
    }

    /// Polls a part of the call, unless an operator has stopped the call.
    pub(super) fn poll_unless_stopped<T>(
        &self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Failure>> {
        match &self.live {
            Some(live) => live.poll_unless_stopped(cx, work),
            None => work(cx).map(Ok),
        }
    }

    /// Writes the record, or attaches it to a result that is still arriving.
    fn finish(mut self, end: ReplyEnd) -> ReplyEnd {
        if let ReplyEnd::Complete(Payload::Whole(bytes))
        | ReplyEnd::InputRequired(Payload::Whole(bytes))
        | ReplyEnd::Parked { result: bytes, .. }
        | ReplyEnd::Task(bytes) = &end
        {
            self.bytes = bytes.len() as u64;
        }
        let outcome = match end {
            ReplyEnd::Complete(Payload::Stream(inner)) => {
                return ReplyEnd::Complete(Payload::Stream(Box::new(RecordedPayload {
                    inner,
                    record: self,
                    outcome: CallOutcome::Complete,
                })));
            }
            ReplyEnd::InputRequired(Payload::Stream(inner)) => {
                return ReplyEnd::InputRequired(Payload::Stream(Box::new(RecordedPayload {
                    inner,
                    record: self,
                    outcome: CallOutcome::InputRequired,
                })));
            }
            ReplyEnd::Complete(Payload::Whole(ref bytes)) if is_error(bytes) => {
                self.signal_stale_lists(bytes);
                CallOutcome::ToolError
            }
            ReplyEnd::Complete(_) => CallOutcome::Complete,
            ReplyEnd::InputRequired(_) | ReplyEnd::Parked { .. } => CallOutcome::InputRequired,
            ReplyEnd::Task(_) => CallOutcome::Task,
            ReplyEnd::Failed(ref failure) => {
                self.note_failure(failure);
                outcome_of(failure)
            }
        };
        self.write(outcome);
        end
    }

    /// Logs the failure of a call: one of its server or of weir as a warning, a refusal at debug
    /// level.
    fn log(&self, failure: &Failure) {
        let CallSubject { call, item, .. } = &*self.begun.subject;
        let (upstream, method) = (&item.tool.upstream, call.method_name());
        let reason = failure.reason();
        // Not computed unless the level is on.
        let name = || sanitize_text(&item.exposed, MAX_PER_NAME);
        match failure.kind() {
            FailureKind::TimedOut
            | FailureKind::Unavailable
            | FailureKind::BadAnswer
            | FailureKind::ResultUnknown
            | FailureKind::Internal => {
                tracing::warn!(%upstream, item = name(), %method, reason, cause = failure.cause(), "call failed");
            }
            FailureKind::Limit
            | FailureKind::Busy
            | FailureKind::MethodNotFound
            | FailureKind::InvalidParams
            | FailureKind::UnknownResource(_)
            | FailureKind::UnknownTask
            | FailureKind::BadArguments
            | FailureKind::MissingCapability(_)
            | FailureKind::Upstream(_)
            | FailureKind::Unauthenticated(_)
            | FailureKind::InsufficientScope(_)
            | FailureKind::Denied
            | FailureKind::Overloaded => {
                tracing::debug!(%upstream, item = name(), %method, reason, cause = failure.cause(), "call refused")
            }
        }
    }

    /// Ends without a reply.
    pub(super) fn end(mut self, failed: Option<&Failure>) {
        if let Some(failure) = failed {
            self.note_failure(failure);
        }
        self.write(failed.map_or(CallOutcome::Complete, outcome_of));
    }

    fn write(&mut self, outcome: CallOutcome) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let ended = Instant::now();
        let took = ended.saturating_duration_since(self.began);
        let RecordedCall {
            subject,
            verdict,
            permit,
        } = &mut self.begun;
        let CallSubject {
            principal,
            call,
            item,
        } = &**subject;
        let revision = self.carried_in.revision();
        // A refusal of weir is no failure of the upstream, which knows nothing of the call.
        if self.is_upstreams {
            item.tool
                .meter
                .record_call(call.method, outcome, took, trace::sent_span(&call.trace));
            if let Some(span) = &call.trace.span {
                record_span(span, call, item, outcome, took);
            }
            if let Some(timings) = &self.timings {
                timings.note(outcome, took, ended);
            }
        }
        if let Some(revision) = revision {
            item.tool.meter.count_revision(revision);
        }
        self.live = None;
        let attempt = CallAttempt {
            principal,
            call,
            item: Some(item),
        };
        let (changes, revision) = (self.changed.changes(), revision.map(Revision::as_str));
        let verdict = std::mem::take(verdict);
        let ended = EndedCall {
            outcome,
            took,
            bytes: self.bytes,
            changes,
            revision,
            verdict,
        };
        self.audit.record_end(&attempt, &ended);
        // Its permit is free from here on, not only when the client has read the last byte.
        *permit = CallPermit::free();
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        self.write(CallOutcome::Cancelled);
    }
}

/// True for the failures by which a server refuses an item that it does not have (any more). Names
/// of resources are a client's own, and say nothing about the list.
fn is_unknown_item(method: Method, kind: &FailureKind) -> bool {
    let FailureKind::Upstream(error) = kind else {
        return false;
    };
    matches!(method, Method::ToolsCall | Method::PromptsGet)
        && matches!(
            error.code,
            error_code::INVALID_PARAMS | error_code::METHOD_NOT_FOUND
        )
}

/// The text of the first block of a tool's result.
fn first_text(result: &[u8]) -> Option<Cow<'_, str>> {
    let content = &result[scan::find(result, "content")?];
    let block = &content[scan::elements(content).next()?];
    scan::string(&block[scan::find(block, "text")?])
}

/// True for the failures that weir decides by itself, about the call, its caller or its own
/// resources. A server may give the same reasons: then the call was carried to it.
fn is_weirs_refusal(kind: &FailureKind) -> bool {
    match kind {
        FailureKind::BadArguments
        | FailureKind::InvalidParams
        | FailureKind::UnknownResource(_)
        | FailureKind::UnknownTask
        | FailureKind::MethodNotFound
        | FailureKind::MissingCapability(_)
        | FailureKind::InsufficientScope(_)
        | FailureKind::Denied
        | FailureKind::Overloaded => true,
        FailureKind::Limit
        | FailureKind::Busy
        | FailureKind::Unauthenticated(_)
        | FailureKind::TimedOut
        | FailureKind::Unavailable
        | FailureKind::BadAnswer
        | FailureKind::ResultUnknown
        | FailureKind::Upstream(_)
        | FailureKind::Internal => false,
    }
}

/// Adds a call that is over to the span of its request.
fn record_span(
    span: &ServerSpan,
    call: &Call,
    item: &CatalogItem,
    outcome: CallOutcome,
    took: Duration,
) {
    let mut attributes = vec![
        (
            "mcp.method.name",
            call.extension.clone().map_or(
                trace::AttributeValue::Word(call.method.as_str()),
                trace::AttributeValue::Text,
            ),
        ),
        (
            "weir.upstream",
            trace::AttributeValue::Text(item.tool.upstream.as_str().into()),
        ),
    ];
    if call.method == Method::ToolsCall {
        attributes.push((
            "gen_ai.operation.name",
            trace::AttributeValue::Word("execute_tool"),
        ));
    }
    let name = item.tool.meter.name();
    attributes.extend(
        name.map(|(attribute, name)| (attribute, trace::AttributeValue::Text(name.clone()))),
    );
    let finished = FinishedCall {
        method: call.method_name(),
        took,
        outcome,
        attributes,
    };
    span.record_call(&call.trace, name.map(|(_, name)| name), finished);
}

/// A long result: the call ends with its last byte.
struct RecordedPayload {
    inner: Box<dyn PayloadSource>,
    record: CallRecord,
    outcome: CallOutcome,
}

impl PayloadSource for RecordedPayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Self { inner, record, .. } = self;
        record.set_phase(CallPhase::Answering);
        let chunk = record
            .poll_unless_stopped(cx, |cx| inner.poll_chunk(cx))
            .map(|chunk| chunk.unwrap_or_else(|stopped| Some(Err(stopped))));
        match &chunk {
            Poll::Ready(None) => self.record.write(self.outcome),
            Poll::Ready(Some(Err(failure))) => {
                self.record.note_failure(failure);
                self.record.write(outcome_of(failure));
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
