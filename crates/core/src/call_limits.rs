//! The limits of one running call: its permit at the upstream, and its time limits.
//!
//! The idle limit bounds the time between two signs of life: events, and chunks of a result that
//! streams. SSE comments and other calls' messages are no signs of life. Time in which a person is
//! asked a question does not count as idle. The hard limit bounds the whole call. When either
//! passes, the call's reply is dropped, which cancels the call at the server, and the call fails as
//! timed out.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::failure::{Failure, FailureKind};
use crate::question::QuestionWait;
use crate::reply_events::{NoteKind, Payload, PayloadSource, ReplyEnd, ReplyEvent};
use crate::upstream::CallDeadlines;

/// The called server: it records that a limit passed and makes the failure for the client.
pub trait TimeoutHandler: Send + Sync {
    /// Records a sign of life of the server.
    fn record_life(&self);

    /// Records that a call's limit passed.
    fn timed_out(&self, passed: PassedLimit) -> Failure;
}

/// A limit of a call that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedLimit {
    /// True for the hard limit, false for the idle one.
    pub is_hard: bool,
    /// The time for which the server left the call without a sign of life. Zero if it waits for an
    /// answer to its question, or for a client that reads slowly.
    pub silence: Duration,
}

/// The time limits of one call, counted from its start.
#[derive(Clone, Copy, Debug)]
pub struct CallTimeLimits {
    idle: Duration,
    last: Instant,
    end: Instant,
}

impl CallTimeLimits {
    /// Returns the limits of a call that began at `begun`.
    #[must_use]
    pub fn new(deadlines: CallDeadlines, begun: Instant) -> Self {
        Self {
            idle: deadlines.idle,
            last: begun,
            end: begun + deadlines.hard,
        }
    }

    /// Returns the last sign of life.
    #[must_use]
    pub fn last_activity(&self) -> Instant {
        self.last
    }

    /// Returns the next time at which the call times out unless it shows life.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.end.min(self.last + self.idle)
    }
}

/// The permit and the time limits of a running call. Dropping them frees the permit.
pub struct CallLimits {
    server: Box<dyn TimeoutHandler>,
    time: CallTimeLimits,
    sleep: Pin<Box<Sleep>>,
    /// The questions of the client that are open or were answered since the last look.
    asked: Vec<QuestionWait>,
    /// True if the server had sent nothing further at the last look.
    is_waiting: bool,
    _permit: OwnedSemaphorePermit,
}

impl CallLimits {
    /// Makes the limits of a call of `server`, with its permit there.
    #[must_use]
    pub fn new(
        server: impl TimeoutHandler + 'static,
        time: CallTimeLimits,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            server: Box::new(server),
            sleep: Box::pin(tokio::time::sleep_until(time.next_deadline())),
            time,
            asked: Vec::new(),
            is_waiting: true,
            _permit: permit,
        }
    }

    /// Returns the failure if the hard limit has passed.
    pub(crate) fn check_end(&mut self) -> Option<Failure> {
        (self.time.end <= Instant::now()).then(|| {
            self.extend_for_questions();
            self.expire(true)
        })
    }

    /// Takes an event as a sign of life, and notes a question.
    pub(crate) fn record_event(&mut self, event: &ReplyEvent) {
        self.is_waiting = false;
        match event {
            ReplyEvent::Note(note) if note.kind == NoteKind::StillWorking => return,
            // The failure may be weir's own.
            ReplyEvent::End(ReplyEnd::Failed(failure))
                if !matches!(failure.kind(), FailureKind::Upstream(_)) =>
            {
                return;
            }
            ReplyEvent::Ask(ask) => self.asked.push(ask.waiting()),
            ReplyEvent::Note(_) | ReplyEvent::End(_) => {}
        }
        self.record_activity();
    }

    /// Only the mark is moved: the timer itself is set anew when it fires.
    fn record_activity(&mut self) {
        self.is_waiting = false;
        self.time.last = Instant::now();
        self.server.record_life();
    }

    /// Returns the failure once a limit has passed. The server has sent nothing further.
    pub(crate) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        self.is_waiting = true;
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            self.extend_for_questions();
            let next = self.time.next_deadline();
            if next <= Instant::now() {
                return Poll::Ready(self.expire(self.time.end <= next));
            }
            self.sleep.as_mut().reset(next);
        }
    }

    fn expire(&self, is_hard: bool) -> Failure {
        let silence = if self.is_waiting {
            self.time.last.elapsed()
        } else {
            Duration::ZERO
        };
        self.server.timed_out(PassedLimit { is_hard, silence })
    }

    /// Leaves the time of open questions out of the idle time.
    fn extend_for_questions(&mut self) {
        let now = Instant::now();
        let time = &mut self.time;
        self.asked.retain(|asked| {
            let lived = asked.ended().unwrap_or(now);
            time.last = time.last.max(lived);
            asked.ended().is_none()
        });
    }

    /// Makes the end of a call with a result that streams: the limits hold until it is dropped.
    pub(crate) fn limit_result(mut self: Box<Self>, source: Box<dyn PayloadSource>) -> ReplyEnd {
        self.record_activity();
        ReplyEnd::Complete(Payload::Stream(Box::new(LimitedPayload {
            running: Some((source, self)),
        })))
    }
}

impl fmt::Debug for CallLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallLimits({:?})", self.time)
    }
}

struct LimitedPayload {
    /// Absent once a limit has passed.
    running: Option<(Box<dyn PayloadSource>, Box<CallLimits>)>,
}

impl PayloadSource for LimitedPayload {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        let Some((source, limits)) = &mut self.running else {
            return Poll::Ready(None);
        };
        let failure = match limits.check_end() {
            Some(failure) => failure,
            None => {
                if let Poll::Ready(chunk) = source.poll_chunk(cx) {
                    if !matches!(chunk, Some(Err(_))) {
                        limits.record_activity();
                    }
                    return Poll::Ready(chunk);
                }
                ready!(limits.poll_expired(cx))
            }
        };
        self.running = None;
        Poll::Ready(Some(Err(failure)))
    }

    fn removed(&self) -> u64 {
        let running = self.running.as_ref();
        running.map_or(0, |(source, _)| source.removed())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::{Arc, OnceLock};

    use futures_util::{StreamExt as _, stream};
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::reply::{Reply, ReplySource};
    use crate::reply_events::ReplyNote;

    struct TestTimeoutHandler;

    impl TimeoutHandler for TestTimeoutHandler {
        fn record_life(&self) {}

        fn timed_out(&self, passed: PassedLimit) -> Failure {
            let text = if passed.is_hard { "whole" } else { "idle" };
            Failure::new(FailureKind::TimedOut, text)
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
        let events: Pin<Box<dyn futures_util::Stream<Item = ReplyEvent> + Send>> = Box::pin(events);
        limit(Reply::live(events))
    }

    /// Puts a reply of a call that begins now within limits.
    fn limit(reply: Reply) -> Reply {
        limit_with(&Arc::new(Semaphore::new(1)), reply)
    }

    /// The same with a permit of `permits`.
    fn limit_with(permits: &Arc<Semaphore>, reply: Reply) -> Reply {
        let deadlines = CallDeadlines {
            connect: IDLE,
            idle: IDLE,
            hard: HARD,
            own_silence: None,
        };
        let time = CallTimeLimits::new(deadlines, Instant::now());
        let permit = permits.clone().try_acquire_owned().unwrap();
        reply.with_limits(|| CallLimits::new(TestTimeoutHandler, time, permit))
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

    /// Notes the signs of life and the limit that passed.
    #[derive(Clone, Default)]
    struct NotingTimeoutHandler(Arc<Mutex<(usize, Vec<PassedLimit>)>>);

    impl TimeoutHandler for NotingTimeoutHandler {
        fn record_life(&self) {
            self.0.lock().0 += 1;
        }

        fn timed_out(&self, passed: PassedLimit) -> Failure {
            self.0.lock().1.push(passed);
            Failure::new(FailureKind::TimedOut, "late")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_the_server_is_measured_from_its_last_sign_of_life() {
        let limits = |seen: &NotingTimeoutHandler, deadlines| {
            let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let time = CallTimeLimits::new(deadlines, Instant::now());
            CallLimits::new(seen.clone(), time, permit)
        };
        let (idle, hard) = (IDLE, HARD);
        let deadlines = CallDeadlines {
            idle,
            hard,
            ..CallDeadlines::CALL
        };
        let reported = |times| {
            let notes = stream::iter((0..times).map(|_| note(NoteKind::Progress)));
            let then = notes.chain(stream::pending());
            let events: Pin<Box<dyn futures_util::Stream<Item = ReplyEvent> + Send>> =
                Box::pin(then);
            Reply::live(events)
        };
        let seen = NotingTimeoutHandler::default();
        let reply = reported(3).with_limits(|| limits(&seen, deadlines));
        tokio::time::advance(IDLE / 2).await;
        outcome(reply).await.1.unwrap_err();
        let idle_passed = PassedLimit {
            is_hard: false,
            silence: IDLE,
        };
        assert_eq!(*seen.0.lock(), (3, vec![idle_passed]));

        let only_hard = CallDeadlines {
            idle: hard,
            ..deadlines
        };
        let seen = NotingTimeoutHandler::default();
        outcome(reported(0).with_limits(|| limits(&seen, only_hard)))
            .await
            .1
            .unwrap_err();
        let hard_passed = PassedLimit {
            is_hard: true,
            silence: HARD,
        };
        assert_eq!(*seen.0.lock(), (0, vec![hard_passed]));

        let seen = NotingTimeoutHandler::default();
        let mut reply = reported(100).with_limits(|| limits(&seen, only_hard));
        reply.next().await.unwrap();
        tokio::time::advance(HARD).await;
        outcome(reply).await.1.unwrap_err();
        let client_was_slow = PassedLimit {
            is_hard: true,
            silence: Duration::ZERO,
        };
        assert_eq!(*seen.0.lock(), (1, vec![client_was_slow]));
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
        let ended = Reply::ended(ReplyEnd::Complete(Payload::Stream(Box::new(
            EndlessPayload,
        ))));
        let mut reply = limit(ended);
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
        let notes: Pin<Box<dyn futures_util::Stream<Item = ReplyEvent> + Send>> =
            Box::pin(stream::iter(notes));
        let mut reply = limit(Reply::live(notes));
        let mut told = 0;
        while let Some(ReplyEvent::Note(_)) = reply.next().await {
            told += 1;
            tokio::time::sleep(HARD / 3).await;
        }
        assert_eq!(told, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_a_reply_ends_at_its_idle_limit() {
        let permits = Arc::new(Semaphore::new(1));
        let held = permits.clone();
        let pending = Reply::of_call(Box::pin(async move {
            let _held = held;
            std::future::pending().await
        }));
        let mut reply = limit_with(&permits, pending);
        assert_eq!(permits.available_permits(), 0);
        let Some(ReplyEvent::End(ReplyEnd::Failed(failure))) = reply.next().await else {
            panic!()
        };
        assert_eq!(failure.message(), "idle");
        assert_eq!(permits.available_permits(), 1);
        assert_eq!(Arc::strong_count(&permits), 1, "the call was dropped");
    }

    #[tokio::test]
    async fn permit_is_kept_until_the_end_and_with_a_result_that_streams() {
        let permits = Arc::new(Semaphore::new(1));
        let whole = || ReplyEnd::Complete(Payload::Whole(Bytes::new()));
        let ended = limit_with(&permits, Reply::ended(whole()));
        assert_eq!(permits.available_permits(), 1, "{ended:?} needs none");

        let notes = [note(NoteKind::Progress), ReplyEvent::End(whole())];
        let mut reply = limit_with(&permits, Reply::live(Box::pin(stream::iter(notes))));
        assert!(matches!(reply.next().await, Some(ReplyEvent::Note(_))));
        assert_eq!(permits.available_permits(), 0);
        assert!(matches!(reply.next().await, Some(ReplyEvent::End(_))));
        assert_eq!(permits.available_permits(), 1);

        let streamed = || {
            let source = Payload::Stream(Box::new(EndlessPayload));
            ReplyEvent::End(ReplyEnd::Complete(source))
        };
        let (running, ReplyEvent::End(end)) = (stream::iter([streamed()]), streamed()) else {
            panic!()
        };
        for reply in [Reply::live(Box::pin(running)), Reply::ended(end)] {
            let mut reply = limit_with(&permits, reply);
            let event = reply.next().await;
            drop(reply);
            assert_eq!(permits.available_permits(), 0);
            drop(event);
            assert_eq!(permits.available_permits(), 1);
        }
    }

    /// A call that runs until it is dropped. It notes the free permits of that moment.
    struct RunningSource {
        permits: Arc<Semaphore>,
        free_at_drop: Arc<OnceLock<usize>>,
    }

    impl ReplySource for RunningSource {
        fn poll_event(&mut self, _cx: &mut Context<'_>) -> Poll<ReplyEvent> {
            Poll::Pending
        }
    }

    impl Drop for RunningSource {
        fn drop(&mut self) {
            self.free_at_drop
                .set(self.permits.available_permits())
                .unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn permit_is_freed_after_the_call_is_cancelled() {
        for wait in [Duration::ZERO, HARD] {
            let (permits, free_at_drop) =
                (Arc::new(Semaphore::new(1)), Arc::<OnceLock<_>>::default());
            let source = RunningSource {
                permits: permits.clone(),
                free_at_drop: free_at_drop.clone(),
            };
            let mut reply = limit_with(&permits, Reply::live(source));
            // At the end of the idle limit, or after the hard one has passed.
            tokio::time::advance(wait).await;
            assert!(matches!(reply.next().await, Some(ReplyEvent::End(_))));
            assert_eq!(
                (free_at_drop.get(), permits.available_permits()),
                (Some(&0), 1)
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn limits_of_the_reply_that_a_call_returns_hold() {
        let source = stream::pending::<ReplyEvent>();
        let limited = limit(Reply::live(Box::pin(source)));
        let reply = Reply::of_call(Box::pin(async { limited }));
        assert_eq!(outcome(reply).await, (0, Err("idle".to_owned())));
    }
}
