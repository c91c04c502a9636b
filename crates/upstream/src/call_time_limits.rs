//! The time limits of one call.
//!
//! The idle limit bounds the time between two signs of life: events, and chunks of a result that
//! streams. SSE comments and other calls' messages are no signs of life. Time in which a person is
//! asked a question does not count as idle. The hard limit bounds the whole call. When either
//! passes, the layers below are dropped, which cancels the call at the server, and the call fails
//! as timed out.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use weir_core::Failure;
use weir_core::port::Fut;
use weir_core::question::QuestionWait;
use weir_core::reply::{
    NoteKind, Payload, PayloadSource, Reply, ReplyEnd, ReplyEvent, ReplySource,
};
use weir_core::upstream::CallDeadlines;
use weir_upstream_core::started_reply::poll_next_event;

/// The called server: it records that a limit passed and makes the failure for the client.
pub(crate) trait TimeoutHandler: Send + Sync {
    /// Records that a call's limit passed: the hard one if `whole`, else the idle one.
    fn timed_out(&self, whole: bool) -> Failure;
}

/// The longest wait for a call's first event before its reply is handed on without it.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(1);

/// The limits of one call, counted from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimeLimits {
    idle: Duration,
    last: Instant,
    end: Instant,
}

impl CallTimeLimits {
    /// Returns the limits of a call that began at `begun`.
    pub(crate) fn new(deadlines: CallDeadlines, begun: Instant) -> Self {
        Self {
            idle: deadlines.idle,
            last: begun,
            end: begun + deadlines.hard,
        }
    }

    /// Returns the next time at which the call times out unless it shows life.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.end.min(self.last + self.idle)
    }

    fn record_activity(&mut self) {
        self.last = Instant::now();
    }
}

/// Runs a call within its limits. Returns the reply once its first event is known, or after
/// [`FIRST_EVENT_WAIT`].
pub(crate) async fn call_within_limits<S: TimeoutHandler + 'static>(
    server: S,
    limits: CallTimeLimits,
    mut running: Fut<'static, Reply>,
) -> Reply {
    let patience = limits.next_deadline().min(limits.last + FIRST_EVENT_WAIT);
    match tokio::time::timeout_at(patience, &mut running).await {
        Ok(reply) if reply.is_ended() => reply,
        Ok(reply) => enforce(server, limits, reply),
        Err(_) => enforce(server, limits, Reply::live(PendingReply::Call(running))),
    }
}

/// A call without a first event yet.
enum PendingReply {
    Call(Fut<'static, Reply>),
    Reply(Reply),
}

impl ReplySource for PendingReply {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        loop {
            match self {
                Self::Call(running) => *self = Self::Reply(ready!(running.as_mut().poll(cx))),
                Self::Reply(reply) => return poll_next_event(reply, cx),
            }
        }
    }
}

/// Holds a running reply to its limits.
fn enforce<S: TimeoutHandler + 'static>(server: S, limits: CallTimeLimits, reply: Reply) -> Reply {
    let timer = CallTimer {
        server,
        sleep: Box::pin(tokio::time::sleep_until(limits.next_deadline())),
        limits,
        asked: Vec::new(),
    };
    Reply::live(TimedReply {
        reply: Some(reply),
        timer: Some(timer),
    })
}

struct CallTimer<S> {
    server: S,
    limits: CallTimeLimits,
    sleep: Pin<Box<Sleep>>,
    /// The questions of the client that are open or were answered since the last look.
    asked: Vec<QuestionWait>,
}

impl<S: TimeoutHandler> CallTimer<S> {
    /// Returns the failure once a limit has passed.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        loop {
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.extend_for_questions();
            let next = self.limits.next_deadline();
            if next <= Instant::now() {
                return Poll::Ready(self.server.timed_out(self.limits.end <= next));
            }
            self.sleep.as_mut().reset(next);
        }
    }
}

impl<S> CallTimer<S> {
    /// Leaves the time of open questions out of the idle time.
    fn extend_for_questions(&mut self) {
        let now = Instant::now();
        let limits = &mut self.limits;
        self.asked.retain(|asked| {
            let lived = asked.ended().unwrap_or(now);
            limits.last = limits.last.max(lived);
            asked.ended().is_none()
        });
    }
}

struct TimedReply<S> {
    /// Absent once a limit has passed.
    reply: Option<Reply>,
    timer: Option<CallTimer<S>>,
}

impl<S: TimeoutHandler + 'static> ReplySource for TimedReply<S> {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        let (Some(reply), Some(timer)) = (&mut self.reply, &mut self.timer) else {
            return Poll::Ready(ReplyEvent::End(
                Failure::internal("a reply was read after its end").into(),
            ));
        };
        // A client that reads slowly has no more time than others.
        if timer.limits.end <= Instant::now() {
            let failure = timer.server.timed_out(true);
            self.reply = None;
            return Poll::Ready(ReplyEvent::End(failure.into()));
        }
        if let Poll::Ready(event) = poll_next_event(reply, cx) {
            // Only the mark is moved: the timer itself is set anew when it fires.
            if !matches!(&event, ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking) {
                timer.limits.record_activity();
            }
            return Poll::Ready(match event {
                ReplyEvent::Ask(ask) => {
                    timer.asked.push(ask.waiting());
                    ReplyEvent::Ask(ask)
                }
                ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(source))) => {
                    let held = TimedPayload {
                        source: Some(source),
                        timer: self.timer.take(),
                    };
                    ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(Box::new(held))))
                }
                event @ (ReplyEvent::Note(_) | ReplyEvent::End(_)) => event,
            });
        }
        let failure = ready!(timer.poll_expired(cx));
        self.reply = None;
        Poll::Ready(ReplyEvent::End(failure.into()))
    }
}

struct TimedPayload<S> {
    source: Option<Box<dyn PayloadSource>>,
    timer: Option<CallTimer<S>>,
}

impl<S: TimeoutHandler> PayloadSource for TimedPayload<S> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<bytes::Bytes, Failure>>> {
        let (Some(source), Some(timer)) = (&mut self.source, &mut self.timer) else {
            return Poll::Ready(None);
        };
        if timer.limits.end <= Instant::now() {
            self.source = None;
            return Poll::Ready(Some(Err(timer.server.timed_out(true))));
        }
        if let Poll::Ready(chunk) = source.poll_chunk(cx) {
            timer.limits.record_activity();
            return Poll::Ready(chunk);
        }
        let failure = ready!(timer.poll_expired(cx));
        self.source = None;
        Poll::Ready(Some(Err(failure)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream;
    use weir_core::FailureKind;
    use weir_core::reply::ReplyNote;

    use super::*;

    struct TestTimeoutHandler;

    impl TimeoutHandler for TestTimeoutHandler {
        fn timed_out(&self, whole: bool) -> Failure {
            Failure::new(FailureKind::TimedOut, if whole { "whole" } else { "idle" })
        }
    }

    const IDLE: Duration = Duration::from_millis(100);
    const HARD: Duration = Duration::from_millis(1050);

    fn note(kind: NoteKind) -> ReplyEvent {
        ReplyEvent::Note(ReplyNote {
            kind,
            params: Bytes::from_static(b"{}"),
        })
    }

    /// A reply with `times` such notes, one every `every`, and then its end.
    fn reply_of_notes(kind: NoteKind, every: Duration, times: usize) -> Reply {
        let events = stream::unfold(times, move |left| async move {
            tokio::time::sleep(every).await;
            let end = || {
                ReplyEvent::End(ReplyEnd::Complete(Payload::Whole(Bytes::from_static(
                    b"{}",
                ))))
            };
            Some((
                if left == 0 { end() } else { note(kind) },
                left.saturating_sub(1),
            ))
        });
        let events: Pin<Box<dyn futures_core::Stream<Item = ReplyEvent> + Send>> = Box::pin(events);
        let deadlines = CallDeadlines {
            connect: IDLE,
            idle: IDLE,
            hard: HARD,
        };
        enforce(
            TestTimeoutHandler,
            CallTimeLimits::new(deadlines, Instant::now()),
            Reply::live(events),
        )
    }

    /// Returns the number of notes, and the outcome.
    async fn outcome(mut reply: Reply) -> (usize, Result<(), String>) {
        let mut notes = 0;
        loop {
            match reply.next().await {
                Some(ReplyEvent::Note(_)) => notes += 1,
                Some(ReplyEvent::End(ReplyEnd::Failed(failure))) => {
                    return (notes, Err(failure.message().to_owned()));
                }
                _ => return (notes, Ok(())),
            }
        }
    }

    // Proves R143.
    #[tokio::test(start_paused = true)]
    async fn progress_extends_the_idle_limit_and_never_the_hard_one() {
        let (often, seldom) = (
            IDLE - Duration::from_millis(1),
            IDLE + Duration::from_millis(1),
        );
        assert_eq!(
            outcome(reply_of_notes(NoteKind::Progress, often, 5)).await,
            (5, Ok(())),
            "far longer than the idle limit"
        );
        assert_eq!(
            outcome(reply_of_notes(NoteKind::Progress, seldom, 5)).await,
            (0, Err("idle".to_owned()))
        );
        assert_eq!(
            outcome(reply_of_notes(NoteKind::Progress, often, 100)).await,
            (10, Err("whole".to_owned()))
        );
        assert_eq!(
            outcome(reply_of_notes(NoteKind::StillWorking, IDLE * 2 / 3, 5)).await,
            (1, Err("idle".to_owned())),
            "no life"
        );
    }

    /// A result without end.
    struct EndlessPayload;

    impl PayloadSource for EndlessPayload {
        fn poll_chunk(&mut self, _cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
            Poll::Ready(Some(Ok(Bytes::from_static(b"more"))))
        }
    }

    // Proves A12.
    #[tokio::test(start_paused = true)]
    async fn slow_reading_does_not_extend_the_hard_limit() {
        let deadlines = CallDeadlines {
            connect: IDLE,
            idle: IDLE,
            hard: HARD,
        };
        let limits = || CallTimeLimits::new(deadlines, Instant::now());
        let ended = Reply::ended(ReplyEnd::Complete(Payload::Stream(Box::new(
            EndlessPayload,
        ))));
        let mut reply = enforce(TestTimeoutHandler, limits(), ended);
        let Some(ReplyEvent::End(ReplyEnd::Complete(Payload::Stream(mut source)))) =
            reply.next().await
        else {
            panic!()
        };
        let mut chunks = 0;
        let failure = loop {
            match std::future::poll_fn(|cx| source.poll_chunk(cx)).await {
                Some(Ok(_)) => chunks += 1,
                Some(Err(failure)) => break failure,
                None => panic!("it ended"),
            }
            tokio::time::sleep(HARD / 3).await;
        };
        assert_eq!((chunks, failure.message()), (3, "whole"));
        let notes: Vec<ReplyEvent> = (0..100).map(|_| note(NoteKind::Progress)).collect();
        let notes: Pin<Box<dyn futures_core::Stream<Item = ReplyEvent> + Send>> =
            Box::pin(stream::iter(notes));
        let mut reply = enforce(TestTimeoutHandler, limits(), Reply::live(notes));
        let mut told = 0;
        while let Some(ReplyEvent::Note(_)) = reply.next().await {
            told += 1;
            tokio::time::sleep(HARD / 3).await;
        }
        assert_eq!(told, 3);
    }
}
