//! The reply to a call that runs at another replica.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use opentelemetry::KeyValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use weir_core::budget::{BudgetOwner, ByteReservation};
use weir_core::names::UpstreamId;
use weir_core::question::{AnswerEvent, AnswerReceiver, PendingQuestion, UpstreamQuestion};
use weir_core::reply::{Payload, PayloadSource, ReplyEnd, ReplyEvent, ReplySource};
use weir_core::telemetry::instruments;
use weir_core::upstream::CarriedRevision;
use weir_core::{Budgets, Failure, FailureKind};
use weir_wire::Revision;
use weir_wire::method::Method;

use crate::event_form::{AnswerForm, EndForm, EndKind, QuestionForm, read_note};
use crate::failure_form::FailureForm;
use crate::frame::{BadFrame, Frame, FrameKind};
use crate::frame_stream::{FrameStream, StreamLost};
use crate::progress_relay::PendingRelay;

/// The time beyond a call's own limit after which this replica gives it up. The replica that runs it
/// ends it by the limit itself.
const LIMIT_GRACE: Duration = Duration::from_secs(5);

/// The facts of a call that its reply needs.
pub(crate) struct ForwardedCall {
    pub(crate) upstream: UpstreamId,
    pub(crate) budgets: Budgets,
    /// True if the result is wanted whole.
    pub(crate) whole: bool,
    pub(crate) carried: CarriedRevision,
    /// The end of the call's time.
    pub(crate) until: Instant,
    /// The place among the calls in flight; it goes with a result that streams.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The most bytes of a result.
    pub(crate) max_reply: usize,
    /// The relay of the progress of the task that the call may become.
    pub(crate) relay: Option<PendingRelay>,
}

/// The reply to a call that runs at another replica. Dropping it cancels the call there.
pub(crate) struct ForwardedReply {
    call: ForwardedCall,
    /// Absent once a result streams.
    stream: Option<FrameStream>,
    /// The frame that was read before the reply began.
    first: Option<Frame>,
    questions: Vec<(u64, AnswerReceiver)>,
    /// A whole result that comes in chunks, with its memory.
    collected: Option<(BytesMut, ByteReservation)>,
    limit: Pin<Box<Sleep>>,
}

impl ForwardedReply {
    /// A reply whose first frame has come.
    pub(crate) fn new(call: ForwardedCall, stream: FrameStream, first: Frame) -> Self {
        let limit = Box::pin(sleep_until(call.until + LIMIT_GRACE));
        Self {
            call,
            stream: Some(stream),
            first: Some(first),
            questions: Vec::new(),
            collected: None,
            limit,
        }
    }

    /// Sends the answers that have come.
    fn poll_answers(&mut self, cx: &mut Context<'_>) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        self.questions.retain_mut(|(number, receiver)| {
            while let Poll::Ready(event) = receiver.poll_event(cx) {
                let (frame, is_last) = answer_frame(*number, event);
                stream.send(&frame);
                if is_last {
                    return false;
                }
            }
            true
        });
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, StreamLost>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(first));
        }
        match &mut self.stream {
            Some(stream) => stream.poll_frame(cx),
            None => Poll::Ready(Err(StreamLost("the reply is over".to_owned()))),
        }
    }

    /// Takes a frame; an event, if it has one.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of many kinds of frames a call has few"
    )]
    fn take(&mut self, frame: &Frame) -> Result<Option<ReplyEvent>, BadFrame> {
        match frame.kind {
            FrameKind::Note => Ok(Some(ReplyEvent::Note(read_note(frame)?))),
            FrameKind::Question => self.take_question(frame).map(Some),
            FrameKind::Withdrawn => {
                let form: AnswerForm = frame.facts()?;
                self.questions.retain(|(number, _)| *number != form.number);
                Ok(None)
            }
            FrameKind::End => self.take_end(frame).map(Some),
            FrameKind::Chunked => self.begin_chunks(frame),
            FrameKind::Chunk | FrameKind::ChunksEnd => self.take_chunk(frame),
            _ => Err(BadFrame),
        }
    }

    fn take_question(&mut self, frame: &Frame) -> Result<ReplyEvent, BadFrame> {
        let form: QuestionForm = frame.facts()?;
        let question = UpstreamQuestion {
            method: Method::parse(&form.method).ok_or(BadFrame)?,
            params: frame.part(0),
        };
        let (mut pending, receiver) = PendingQuestion::new(question, self.call.upstream.clone());
        pending.wants_progress = form.wants_progress;
        pending.elicitation = form.elicitation.map(Into::into);
        self.questions.push((form.number, receiver));
        Ok(ReplyEvent::Ask(Box::new(pending)))
    }

    fn take_end(&mut self, frame: &Frame) -> Result<ReplyEvent, BadFrame> {
        let form: EndForm = frame.facts()?;
        note_carried(&self.call.carried, form.carried.as_deref());
        let result = frame.part(0);
        let end = match form.kind {
            EndKind::Complete => ReplyEnd::Complete(Payload::Whole(result)),
            EndKind::InputRequired => ReplyEnd::InputRequired(Payload::Whole(result)),
            EndKind::Task => self.end_as_task(result),
            EndKind::Failed => {
                let failure = form.failure.ok_or(BadFrame)?;
                failure.into_failure(&self.call.upstream).into()
            }
        };
        Ok(ReplyEvent::End(end))
    }

    fn end_as_task(&mut self, created: Bytes) -> ReplyEnd {
        if let Some(relay) = self.call.relay.take() {
            relay.begin(&created);
        }
        ReplyEnd::Task(created)
    }

    fn begin_chunks(&mut self, frame: &Frame) -> Result<Option<ReplyEvent>, BadFrame> {
        let form: EndForm = frame.facts()?;
        note_carried(&self.call.carried, form.carried.as_deref());
        if self.call.whole || form.kind != EndKind::Complete {
            let owner = BudgetOwner::of_upstream(&self.call.upstream);
            let memory = self.call.budgets.results.empty_of(owner);
            self.collected = Some((BytesMut::new(), memory));
            return Ok(None);
        }
        let stream = self.stream.take().ok_or(BadFrame)?;
        let chunks = ForwardedChunks {
            stream,
            upstream: self.call.upstream.clone(),
            is_over: false,
            _permit: self.call.permit.take(),
        };
        Ok(Some(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(
            Box::new(chunks),
        )))))
    }

    fn take_chunk(&mut self, frame: &Frame) -> Result<Option<ReplyEvent>, BadFrame> {
        let (collected, memory) = self.collected.as_mut().ok_or(BadFrame)?;
        if frame.kind == FrameKind::Chunk {
            let chunk = frame.part(0);
            let fits = collected.len() + chunk.len() <= self.call.max_reply;
            if !fits || !memory.try_grow(chunk.len()) {
                let text = "There was no memory for the result: it is large. The call ran. Check before calling again, for less at once";
                let failure = Failure::new(FailureKind::BadAnswer, text);
                return Ok(Some(ReplyEvent::End(
                    failure.with_upstream(&self.call.upstream).into(),
                )));
            }
            collected.extend_from_slice(&chunk);
            return Ok(None);
        }
        let form: EndForm = frame.facts()?;
        let (bytes, memory) = self.collected.take().ok_or(BadFrame)?;
        let result = held_bytes(bytes, memory);
        let end = match (form.failure, form.kind) {
            (Some(failure), _) => failure.into_failure(&self.call.upstream).into(),
            (None, EndKind::InputRequired) => ReplyEnd::InputRequired(Payload::Whole(result)),
            (None, EndKind::Task) => self.end_as_task(result),
            (None, EndKind::Complete | EndKind::Failed) => {
                ReplyEnd::Complete(Payload::Whole(result))
            }
        };
        Ok(Some(ReplyEvent::End(end)))
    }
}

impl ReplySource for ForwardedReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        if self.limit.as_mut().poll(cx).is_ready() {
            let text = "The call took longer than it may: it was cancelled";
            let failure = Failure::new(FailureKind::TimedOut, text);
            let failure = failure.with_upstream(&self.call.upstream);
            return Poll::Ready(ReplyEvent::End(failure.into()));
        }
        loop {
            self.poll_answers(cx);
            let event = match ready!(self.poll_frame(cx)) {
                Ok(frame) => self.take(&frame),
                Err(lost) => {
                    count_forwarded(&self.call.upstream, "lost");
                    let failure = call_lost(&self.call.upstream, lost);
                    return Poll::Ready(ReplyEvent::End(failure.into()));
                }
            };
            match event {
                Ok(None) => {}
                Ok(Some(event)) => {
                    if matches!(event, ReplyEvent::End(_)) {
                        count_forwarded(&self.call.upstream, "answered");
                    }
                    return Poll::Ready(event);
                }
                Err(BadFrame) => {
                    let lost = StreamLost("invalid message of the replica".to_owned());
                    let failure = call_lost(&self.call.upstream, lost);
                    return Poll::Ready(ReplyEvent::End(failure.into()));
                }
            }
        }
    }
}

/// The chunks of a result.
struct ForwardedChunks {
    stream: FrameStream,
    upstream: UpstreamId,
    is_over: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl PayloadSource for ForwardedChunks {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = match ready!(self.stream.poll_frame(cx)) {
            Ok(frame) if frame.kind == FrameKind::Chunk => {
                return Poll::Ready(Some(Ok(frame.part(0))));
            }
            frame => frame,
        };
        self.is_over = true;
        let lost = |cause: &str| {
            let lost = StreamLost(cause.to_owned());
            Poll::Ready(Some(Err(call_lost(&self.upstream, lost))))
        };
        match frame.map(|frame| frame.facts::<EndForm>()) {
            Ok(Ok(EndForm { failure: None, .. })) => Poll::Ready(None),
            Ok(Ok(EndForm {
                failure: Some(failure),
                ..
            })) => Poll::Ready(Some(Err(failure.into_failure(&self.upstream)))),
            Ok(Err(BadFrame)) => lost("invalid message of the replica"),
            Err(StreamLost(cause)) => lost(&cause),
        }
    }
}

fn answer_frame(number: u64, event: AnswerEvent) -> (Frame, bool) {
    let form = |is_result| AnswerForm { number, is_result };
    match event {
        AnswerEvent::Progress(params) => (
            Frame::new(FrameKind::AnswerProgress, &form(false)).with(params),
            false,
        ),
        AnswerEvent::Answer(Ok(result)) => (
            Frame::new(FrameKind::Answer, &form(true)).with(result),
            true,
        ),
        AnswerEvent::Answer(Err(error)) => (
            Frame::new(FrameKind::Answer, &form(false)).with(error),
            true,
        ),
        AnswerEvent::NoAnswer => (Frame::new(FrameKind::NoAnswer, &form(false)), true),
    }
}

fn note_carried(carried: &CarriedRevision, revision: Option<&str>) {
    if let Some(revision) = revision.and_then(Revision::parse) {
        carried.note(revision);
    }
}

/// Bytes that give their memory back with the last reference to them.
fn held_bytes(bytes: BytesMut, memory: ByteReservation) -> Bytes {
    struct HeldBytes(
        Bytes,
        #[expect(dead_code, reason = "its drop is what it is kept for")] ByteReservation,
    );
    impl AsRef<[u8]> for HeldBytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(HeldBytes(bytes.freeze(), memory))
}

/// The failure of a call whose replica was lost.
pub(crate) fn call_lost(upstream: &UpstreamId, StreamLost(cause): StreamLost) -> Failure {
    let text = "The replica that runs the upstream was lost during the call: it may have run. Check before calling again";
    Failure::new(FailureKind::ResultUnknown, text)
        .with_upstream(upstream)
        .connection_lost()
        .because(cause)
}

/// Counts a forwarded call.
pub(crate) fn count_forwarded(upstream: &UpstreamId, result: &'static str) {
    let labels = [
        KeyValue::new("upstream", upstream.to_string()),
        KeyValue::new("result", result),
    ];
    instruments().upstream_forwarded.add(1, &labels);
}

/// Starts the counter of a result at 0: an alert would miss the first event of a series that appears
/// with it.
pub(crate) fn start_forwarded_at_zero(upstream: &UpstreamId, result: &'static str) {
    let labels = [
        KeyValue::new("upstream", upstream.to_string()),
        KeyValue::new("result", result),
    ];
    instruments().upstream_forwarded.add(0, &labels);
}

/// The failure of a request other than a call.
pub(crate) fn read_failure(frame: &Frame, upstream: &UpstreamId) -> Failure {
    match frame.facts::<FailureForm>() {
        Ok(form) => form.into_failure(upstream),
        Err(BadFrame) => call_lost(
            upstream,
            StreamLost("invalid message of the replica".to_owned()),
        ),
    }
}
