//! The event stream of a call: notifications as they come, keep-alive comments, then the response,
//! then the end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use weir_core::reply::{NoteKind, ReplyNote};
use weir_core::{Failure, ReplyEvent};
use weir_era::call_progress::CallProgress;
use weir_era::render;
use weir_layers::request::outcome::PendingOutcome;
use weir_wire::method::Method;
use weir_wire::sse::{self, StreamEncoder};

use crate::keep_alive;
use crate::reply::encode::response_context::{EncodedEnd, ResponseContext};
use crate::reply::encode::result_stream::ResultStream;
use crate::reply::encode::unknown_result::LostAnswer;
use crate::reply::running_call::{CallStep, OwnedCall};

/// The body.
pub(super) struct CallEventStream {
    context: ResponseContext,
    stage: EventStage,
    ready: VecDeque<Bytes>,
    /// Progress that came too soon after the last report: the newest is kept.
    held_progress: Option<ReplyNote>,
    progress: CallProgress,
    /// The earliest time of the next progress report.
    next_progress_at: Instant,
    wake: Pin<Box<Sleep>>,
    /// Fires when a drain is over: the call is cancelled then.
    forced: Pin<Box<WaitForCancellationFutureOwned>>,
    comment_at: Instant,
    counted: PendingOutcome,
}

/// The first event of a stream.
pub(super) enum FirstEvent {
    Note(ReplyNote),
    Message(Bytes),
}

enum EventStage {
    Calling(OwnedCall),
    /// Kept: dropping it would cancel the call while its result still arrives.
    Results(
        Box<ResultStream>,
        StreamEncoder,
        #[expect(dead_code, reason = "its drop is what it is kept for")] OwnedCall,
    ),
    Over,
}

impl CallEventStream {
    pub(super) fn new(
        context: ResponseContext,
        owned: OwnedCall,
        first: Option<FirstEvent>,
    ) -> Self {
        let now = Instant::now();
        let comment_at = now + context.limits().keep_alive;
        let forced = context.route.shared.shutdown.force().clone();
        let mut events = Self {
            context,
            stage: EventStage::Calling(owned),
            ready: VecDeque::new(),
            held_progress: None,
            progress: CallProgress::default(),
            next_progress_at: now,
            wake: Box::pin(sleep_until(comment_at)),
            forced: Box::pin(forced.cancelled_owned()),
            comment_at,
            counted: PendingOutcome::default(),
        };
        match first {
            Some(FirstEvent::Note(note)) => events.handle_note(note),
            Some(FirstEvent::Message(message)) => events.push_event(&message),
            None => events.comment(),
        }
        events
    }

    /// The outcome of the answer, known at its end.
    pub(super) fn pending_outcome(&self) -> PendingOutcome {
        self.counted.clone()
    }

    fn comment(&mut self) {
        self.ready.push_back(keep_alive::comment());
    }

    fn push_event(&mut self, message: &[u8]) {
        self.ready.push_back(encode_event(message));
    }

    fn handle_note(&mut self, mut note: ReplyNote) {
        if matches!(
            note.kind,
            NoteKind::Progress | NoteKind::Other(Method::Progress)
        ) {
            if note.kind == NoteKind::Progress {
                let Some(params) = self.progress.advance(&note.params) else {
                    return;
                };
                note.params = params;
            }
            let now = Instant::now();
            if now < self.next_progress_at {
                self.held_progress = Some(note);
                return;
            }
            self.next_progress_at = now + self.context.limits().progress_interval;
        }
        self.write_note(&note);
    }

    fn write_note(&mut self, note: &ReplyNote) {
        if let Some(message) = render::note_notification(note, self.context.token.as_ref()) {
            self.push_event(&message);
        }
    }

    /// Writes the held progress, if its time has come or `now` is absent.
    fn write_held_progress(&mut self, now: Option<Instant>) {
        if now.is_none_or(|now| now >= self.next_progress_at)
            && let Some(note) = self.held_progress.take()
        {
            self.next_progress_at = Instant::now() + self.context.limits().progress_interval;
            self.write_note(&note);
        }
    }

    fn write_end(&mut self, end: weir_core::ReplyEnd, owned: OwnedCall) {
        self.write_held_progress(None);
        match self.context.encode_end(end) {
            EncodedEnd::Message(rendered) => {
                self.counted.set(rendered.outcome);
                let event = encode_event(&rendered.message);
                self.ready.push_back(match rendered.memory {
                    Some(memory) => memory.hold(event),
                    None => event,
                });
                self.stage = EventStage::Over;
            }
            EncodedEnd::Stream(mut results) => {
                results.report_outcome_to(self.counted.clone());
                let mut encoder = StreamEncoder::default();
                self.ready.push_back(encoder.begin(None));
                self.stage = EventStage::Results(results, encoder, owned);
            }
        }
    }

    /// Ends a call that runs when a drain is over. The client would wait for its own timeout
    /// otherwise.
    fn poll_forced(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.stage, EventStage::Calling(_))
            || self.forced.as_mut().poll(cx).is_pending()
        {
            return;
        }
        if let EventStage::Calling(owned) = std::mem::replace(&mut self.stage, EventStage::Over) {
            self.write_end(LostAnswer::WithReplica.failure().into(), owned);
        }
    }

    /// Takes the next event of the call; `Ready` if the state changed.
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match &mut self.stage {
            EventStage::Over => Poll::Ready(Ok(())),
            EventStage::Calling(owned) => {
                let step = ready!(owned.poll_step(cx));
                match step {
                    CallStep::Event(ReplyEvent::Note(note)) => self.handle_note(note),
                    // Reports that were held go out before a question.
                    CallStep::Message(message) => {
                        self.write_held_progress(None);
                        self.push_event(&message);
                    }
                    // A call that asks its client sends questions as messages; any other call has
                    // no client to ask.
                    CallStep::Event(ReplyEvent::Ask(_)) => {}
                    CallStep::Event(ReplyEvent::End(end)) => {
                        if let EventStage::Calling(owned) =
                            std::mem::replace(&mut self.stage, EventStage::Over)
                        {
                            self.write_end(end, owned);
                        }
                    }
                    CallStep::Over => self.stage = EventStage::Over,
                }
                Poll::Ready(Ok(()))
            }
            EventStage::Results(results, encoder, _) => {
                match ready!(results.poll_chunk(cx)) {
                    Some(Ok(chunk)) => {
                        let mut out = Vec::new();
                        encoder.data(chunk, &mut out);
                        self.ready.extend(out);
                    }
                    Some(Err(failure)) => {
                        self.stage = EventStage::Over;
                        return Poll::Ready(Err(failure));
                    }
                    None => {
                        let last = encoder.end();
                        self.ready.push_back(last);
                        self.stage = EventStage::Over;
                    }
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Writes due comments and held progress; registers for the next of them.
    fn poll_time(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.stage, EventStage::Calling(_)) {
            return;
        }
        loop {
            let now = Instant::now();
            self.write_held_progress(Some(now));
            if now >= self.comment_at {
                self.comment();
                self.comment_at = now + self.context.limits().keep_alive;
            }
            let next = if self.held_progress.is_some() {
                self.next_progress_at.min(self.comment_at)
            } else {
                self.comment_at
            };
            if self.wake.deadline() != next {
                self.wake.as_mut().reset(next);
            }
            if !self.ready.is_empty() || self.wake.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }
}

fn encode_event(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 32);
    sse::write_event(&mut out, None, None, message);
    out.freeze()
}

use std::future::Future as _;

impl http_body::Body for CallEventStream {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let this = &mut *self;
        loop {
            if let Some(chunk) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if matches!(this.stage, EventStage::Over) {
                return Poll::Ready(None);
            }
            this.poll_forced(cx);
            this.poll_time(cx);
            if !this.ready.is_empty() {
                continue;
            }
            if let Err(failure) = ready!(this.poll_call(cx)) {
                return Poll::Ready(Some(Err(failure)));
            }
        }
    }
}
