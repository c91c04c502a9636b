//! The event stream of a call: notifications as they come, keep-alive comments, then the response,
//! then the end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};
use weir_core::reply::{NoteKind, ReplyNote};
use weir_core::{Failure, ReplyEvent};
use weir_era::render;
use weir_wire::method::Method;
use weir_wire::sse::{self, StreamEncoder};

use super::stream::Results;
use super::{Asked, Ready};
use crate::keep_alive;
use crate::running::{Owned, Step};
use crate::tally::Later;

/// The body.
pub(super) struct Events {
    asked: Asked,
    stage: Stage,
    ready: VecDeque<Bytes>,
    /// Progress that came too soon after the last report: the newest is kept.
    held: Option<ReplyNote>,
    /// The earliest time of the next progress report.
    told_until: Instant,
    wake: Pin<Box<Sleep>>,
    comment_at: Instant,
    counted: Later,
}

/// The first event of a stream.
pub(super) enum First {
    Note(ReplyNote),
    Message(Bytes),
}

enum Stage {
    Calling(Owned),
    /// Kept: dropping it would cancel the call while its result still arrives.
    Results(
        Box<Results>,
        StreamEncoder,
        #[expect(dead_code, reason = "its drop is what it is kept for")] Owned,
    ),
    Over,
}

impl Events {
    pub(super) fn new(asked: Asked, owned: Owned, first: Option<First>) -> Self {
        let now = Instant::now();
        let comment_at = now + asked.limits().keep_alive;
        let mut events = Self {
            asked,
            stage: Stage::Calling(owned),
            ready: VecDeque::new(),
            held: None,
            told_until: now,
            wake: Box::pin(sleep_until(comment_at)),
            comment_at,
            counted: Later::new(),
        };
        match first {
            Some(First::Note(note)) => events.note(note),
            Some(First::Message(message)) => events.event(&message),
            None => events.comment(),
        }
        events
    }

    /// The outcome of the answer, known at its end.
    pub(super) fn counted(&self) -> Later {
        self.counted.clone()
    }

    fn comment(&mut self) {
        self.ready.push_back(keep_alive::comment());
    }

    fn event(&mut self, message: &[u8]) {
        self.ready.push_back(event(message));
    }

    fn note(&mut self, note: ReplyNote) {
        if matches!(
            note.kind,
            NoteKind::Progress | NoteKind::Other(Method::Progress)
        ) {
            let now = Instant::now();
            if now < self.told_until {
                self.held = Some(note);
                return;
            }
            self.told_until = now + self.asked.limits().progress_interval;
        }
        self.tell(&note);
    }

    fn tell(&mut self, note: &ReplyNote) {
        if let Some(message) = render::note_notification(note, self.asked.token.as_ref()) {
            self.event(&message);
        }
    }

    /// Writes the held progress, if its time has come or `now` is absent.
    fn release(&mut self, now: Option<Instant>) {
        if now.is_none_or(|now| now >= self.told_until)
            && let Some(note) = self.held.take()
        {
            self.told_until = Instant::now() + self.asked.limits().progress_interval;
            self.tell(&note);
        }
    }

    fn end(&mut self, end: weir_core::ReplyEnd, owned: Owned) {
        self.release(None);
        match self.asked.ready(end) {
            Ready::Message(said) => {
                self.counted.say(said.tally);
                let event = event(&said.message);
                self.ready.push_back(match said.memory {
                    Some(memory) => memory.hold(event),
                    None => event,
                });
                self.stage = Stage::Over;
            }
            Ready::Stream(mut results) => {
                results.count_in(self.counted.clone());
                let mut encoder = StreamEncoder::default();
                self.ready.push_back(encoder.begin(None));
                self.stage = Stage::Results(results, encoder, owned);
            }
        }
    }

    /// Takes the next event of the call; `Ready` if the state changed.
    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match &mut self.stage {
            Stage::Over => Poll::Ready(Ok(())),
            Stage::Calling(owned) => {
                let step = ready!(owned.poll_step(cx));
                match step {
                    Step::Event(ReplyEvent::Note(note)) => self.note(note),
                    // Reports that were held go out before a question.
                    Step::Message(message) => {
                        self.release(None);
                        self.event(&message);
                    }
                    // A call that asks its client sends questions as messages; any other call has
                    // no client to ask.
                    Step::Event(ReplyEvent::Ask(_)) => {}
                    Step::Event(ReplyEvent::End(end)) => {
                        if let Stage::Calling(owned) =
                            std::mem::replace(&mut self.stage, Stage::Over)
                        {
                            self.end(end, owned);
                        }
                    }
                    Step::Cancelled => self.stage = Stage::Over,
                }
                Poll::Ready(Ok(()))
            }
            Stage::Results(results, encoder, _) => {
                match ready!(results.poll_chunk(cx)) {
                    Some(Ok(chunk)) => {
                        let mut out = Vec::new();
                        encoder.data(chunk, &mut out);
                        self.ready.extend(out);
                    }
                    Some(Err(failure)) => {
                        self.stage = Stage::Over;
                        return Poll::Ready(Err(failure));
                    }
                    None => {
                        let last = encoder.end();
                        self.ready.push_back(last);
                        self.stage = Stage::Over;
                    }
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Writes due comments and held progress; registers for the next of them.
    fn poll_time(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.stage, Stage::Calling(_)) {
            return;
        }
        loop {
            let now = Instant::now();
            self.release(Some(now));
            if now >= self.comment_at {
                self.comment();
                self.comment_at = now + self.asked.limits().keep_alive;
            }
            let next = if self.held.is_some() {
                self.told_until.min(self.comment_at)
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

fn event(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 32);
    sse::write_event(&mut out, None, None, message);
    out.freeze()
}

use std::future::Future as _;

impl http_body::Body for Events {
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
            if matches!(this.stage, Stage::Over) {
                return Poll::Ready(None);
            }
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
