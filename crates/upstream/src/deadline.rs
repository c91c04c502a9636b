//! The time limits of one call.
//!
//! Idle is the time between two signs of life: events, and chunks of a result that streams. Comments and other calls'
//! messages are none. While a person is asked something, nobody is idle. Hard is the whole. When either passes, what is below is dropped, which tells the server, and the
//! call fails as timed out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use weir_core::Failure;
use weir_core::ask::Waiting;
use weir_core::reply::{End, Event, NoteKind, Payload, PayloadSource, Reply, ReplySource};
use weir_core::upstream::Deadlines;

use crate::column;
use crate::server::Server;

/// How long a call is waited for before its reply is given although nothing is known yet.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The limits of one call, counted from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    idle: Duration,
    last: Instant,
    end: Instant,
}

impl Limits {
    pub(crate) fn new(deadlines: Deadlines) -> Self {
        let now = Instant::now();
        Self { idle: deadlines.idle, last: now, end: now + deadlines.hard }
    }

    /// When the call has to show life, if nothing happens until then.
    pub(crate) fn next(&self) -> Instant {
        self.end.min(self.last + self.idle)
    }

    fn lived(&mut self) {
        self.last = Instant::now();
    }
}

/// Holds a running reply to its limits.
pub(crate) fn hold(server: Arc<Server>, limits: Limits, reply: Reply) -> Reply {
    let timer = Timer { server, sleep: Box::pin(tokio::time::sleep_until(limits.next())), limits, asked: Vec::new() };
    Reply::live(Held { reply: Some(reply), timer: Some(timer) })
}

struct Timer {
    server: Arc<Server>,
    limits: Limits,
    sleep: Pin<Box<Sleep>>,
    /// What the client was asked and has not, or not long ago, answered.
    asked: Vec<Waiting>,
}

impl Timer {
    /// The failure, once a limit has passed.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.asked();
            let next = self.limits.next();
            if next <= Instant::now() {
                return Poll::Ready(self.server.timed_out(self.limits.end <= next));
            }
            self.sleep.as_mut().reset(next);
        }
    }
}

impl Timer {
    /// Time in which a question was open does not count as idle.
    fn asked(&mut self) {
        let now = Instant::now();
        let limits = &mut self.limits;
        self.asked.retain(|asked| {
            let lived = asked.ended().unwrap_or(now);
            limits.last = limits.last.max(lived);
            asked.ended().is_none()
        });
    }
}

struct Held {
    /// Gone once a limit has passed.
    reply: Option<Reply>,
    timer: Option<Timer>,
}

impl ReplySource for Held {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let (Some(reply), Some(timer)) = (&mut self.reply, &mut self.timer) else {
            return Poll::Ready(Event::End(Failure::internal("a reply was read after its end").into()));
        };
        if let Poll::Ready(event) = column::next(reply, cx) {
            // Only a moved mark: the timer itself is set anew when it fires.
            if !matches!(&event, Event::Note(note) if note.kind == NoteKind::Waiting) {
                timer.limits.lived();
            }
            return Poll::Ready(match event {
                Event::Ask(ask) => {
                    timer.asked.push(ask.waiting());
                    Event::Ask(ask)
                }
                Event::End(End::Complete(Payload::Stream(source))) => {
                    let held = HeldPayload { source: Some(source), timer: self.timer.take() };
                    Event::End(End::Complete(Payload::Stream(Box::new(held))))
                }
                event => event,
            });
        }
        let failure = std::task::ready!(timer.poll_expired(cx));
        self.reply = None;
        Poll::Ready(Event::End(failure.into()))
    }
}

struct HeldPayload {
    source: Option<Box<dyn PayloadSource>>,
    timer: Option<Timer>,
}

impl PayloadSource for HeldPayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, Failure>>> {
        let (Some(source), Some(timer)) = (&mut self.source, &mut self.timer) else { return Poll::Ready(None) };
        if let Poll::Ready(chunk) = source.poll_chunk(cx) {
            timer.limits.lived();
            return Poll::Ready(chunk);
        }
        let failure = std::task::ready!(timer.poll_expired(cx));
        self.source = None;
        Poll::Ready(Some(Err(failure)))
    }
}
