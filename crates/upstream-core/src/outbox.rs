//! The queue of messages to a server in a session, or over a shared channel, beside its requests:
//! answers, cancellations and notifications. Over a shared channel requests use the same queue, so
//! that each message keeps its place among them. A child process gets all in order.
//!
//! Over HTTP each message is a POST. A server may respond to one late: it may ask for the roots,
//! and wait for them, before it responds to the news that they changed. So the messages beside
//! requests have three lanes, and those of one lane are posted one after the other: a server that
//! does not read takes three connections for them at most.
//!
//! Messages to a server that does not read wait, and the queue is bounded. Of messages that a later
//! one supersedes only the newest are kept. A cancellation is dropped after a second, or if the
//! queue is full. Beyond the bound the session ends. An answer is never left out while the session
//! lasts. Requests are counted by their caller.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use weir_wire::Message;
use weir_wire::method::Method;

use crate::message_limits::message_limits;

/// The most waiting messages. One more ends the session.
const MAX_WAITING: usize = 256;
/// The most waiting bytes, unless a single message is larger.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// The most waiting answers to pings; the newest are kept. A server that pings faster than it reads
/// has seen that weir is alive.
const MAX_PONGS: usize = 8;
/// The most waiting progress notifications; the newest are kept.
const MAX_PROGRESS: usize = 8;
/// The longest wait of a cancellation, and the time limit of its post: a call that runs on for a
/// second is soon over anyway.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// The messages of one session or channel. `T` is sent along with a message.
#[derive(Debug)]
pub struct Outbox<T> {
    state: Mutex<OutboxState<T>>,
    over: CancellationToken,
}

#[derive(Debug)]
struct OutboxState<T> {
    waiting: VecDeque<OutboxEntry<T>>,
    /// The number of waiting requests.
    requests: usize,
    /// The bytes of the other messages.
    bytes: usize,
    /// The lanes in which [`Outbox::run`] is at work; all of them while the caller of
    /// [`Outbox::next_of`] is.
    is_posting: [bool; OutboxLane::COUNT],
}

#[derive(Debug)]
struct OutboxEntry<T> {
    kind: OutboxKind,
    message: Bytes,
    with: T,
    since: Instant,
}

/// A message whose turn it is.
#[derive(Debug, PartialEq, Eq)]
pub struct OutgoingMessage<T> {
    /// Its lane.
    pub lane: OutboxLane,
    /// True for the answer to a request of the server, which waits for it.
    pub is_answer: bool,
    /// The message.
    pub message: Bytes,
    /// What was queued with it.
    pub with: T,
}

/// The kind of a message, which decides if later messages supersede it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutboxKind {
    /// The answer to a question. It is sent in any case.
    Answer,
    /// A notification that is sent in any case.
    Notification,
    /// A request of this id, which may be withdrawn before it is sent.
    Request(u64),
    /// The answer to a ping.
    Pong,
    /// Progress with an answer.
    Report,
    /// `notifications/roots/list_changed`: one is enough for many.
    RootsChanged,
    /// `notifications/cancelled`.
    Cancel,
}

/// The messages that are posted one after the other, beside those of other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxLane {
    /// Answers, to pings too, and progress with answers.
    Answers,
    /// Cancellations.
    Cancellations,
    /// The other notifications.
    Notifications,
    /// Requests, which only a shared channel has.
    Requests,
}

impl OutboxLane {
    const COUNT: usize = Self::Requests as usize + 1;
}

/// The outcome of [`Outbox::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The message waits for its turn, or an equal one already waits.
    Queued,
    /// As `Queued`, and no message of this lane waited: [`Outbox::run`] is to be started for it, or
    /// the caller of [`Outbox::next_of`] to be woken.
    Idle(OutboxLane),
    /// The queue is full: this message ended the session.
    Overflow,
    /// The session was over before.
    Over,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        let state = OutboxState {
            waiting: VecDeque::new(),
            requests: 0,
            bytes: 0,
            is_posting: [false; OutboxLane::COUNT],
        };
        Self {
            state: Mutex::new(state),
            over: CancellationToken::new(),
        }
    }
}

impl<T> Outbox<T> {
    /// Queues a message.
    pub fn push(&self, message: Bytes, with: T) -> PushOutcome {
        let kind = OutboxKind::of(&message);
        let mut state = self.state.lock();
        if self.over.is_cancelled() {
            return PushOutcome::Over;
        }
        if !state.drop_superseded(kind) {
            return PushOutcome::Queued;
        }
        if state.messages() >= MAX_WAITING && !state.drop_cancel() && kind == OutboxKind::Cancel {
            return PushOutcome::Queued;
        }
        let too_many = state.messages() >= MAX_WAITING;
        if too_many || (state.messages() > 0 && state.bytes + message.len() > MAX_WAITING_BYTES) {
            state.clear();
            self.over.cancel();
            return PushOutcome::Overflow;
        }
        state.put(kind, message, with)
    }

    /// Queues a request.
    pub fn push_request(&self, id: u64, message: Bytes, with: T) -> PushOutcome {
        let mut state = self.state.lock();
        if self.over.is_cancelled() {
            PushOutcome::Over
        } else {
            state.put(OutboxKind::Request(id), message, with)
        }
    }

    /// Withdraws a request; false if it was sent already.
    pub fn withdraw_request(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let Some(at) = state
            .waiting
            .iter()
            .position(|waiting| waiting.kind == OutboxKind::Request(id))
        else {
            return false;
        };
        state.remove(at);
        true
    }

    /// Posts the waiting messages of a lane, one after the other, until none waits or the session
    /// is over.
    pub async fn run<F: Future<Output = ()>>(
        &self,
        lane: OutboxLane,
        mut post: impl FnMut(OutgoingMessage<T>) -> F,
    ) {
        while let Some(next) = self.next_in(lane) {
            let posting = self.over.run_until_cancelled(post(next));
            if lane == OutboxLane::Cancellations {
                // A server that has not responded by then has the cancellation, or will never get
                // it.
                let _late = timeout_at(Instant::now() + CANCEL_TIME, posting).await;
            } else {
                posting.await;
            }
        }
    }

    /// Ends the session. Returns the ids of the requests that were not sent.
    pub fn end(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        self.over.cancel();
        let id = |waiting: &OutboxEntry<T>| {
            if let OutboxKind::Request(id) = waiting.kind {
                Some(id)
            } else {
                None
            }
        };
        let unsent = state.waiting.iter().filter_map(id).collect();
        state.clear();
        unsent
    }

    /// Cancelled once the session is over because the server does not read its messages.
    pub fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Takes the next message of a wanted lane; absent if there is no such message. [`Self::push`]
    /// then reports when to ask again.
    pub fn next_of(&self, is_wanted: impl Fn(OutboxLane) -> bool) -> Option<OutgoingMessage<T>> {
        let mut state = self.state.lock();
        let next = state.take_first(is_wanted);
        state.is_posting = [next.is_some(); OutboxLane::COUNT];
        next
    }

    /// Takes the next message of a lane.
    fn next_in(&self, lane: OutboxLane) -> Option<OutgoingMessage<T>> {
        let mut state = self.state.lock();
        let next = state.take_first(|waiting| waiting == lane);
        state.is_posting[lane as usize] = next.is_some();
        next
    }
}

impl<T> OutboxState<T> {
    /// Returns the number of waiting messages that are no requests.
    fn messages(&self) -> usize {
        self.waiting.len() - self.requests
    }

    fn put(&mut self, kind: OutboxKind, message: Bytes, with: T) -> PushOutcome {
        if matches!(kind, OutboxKind::Request(_)) {
            self.requests += 1;
        } else {
            self.bytes += message.len();
        }
        self.waiting.push_back(OutboxEntry {
            kind,
            message,
            with,
            since: Instant::now(),
        });
        let lane = kind.lane();
        if std::mem::replace(&mut self.is_posting[lane as usize], true) {
            PushOutcome::Queued
        } else {
            PushOutcome::Idle(lane)
        }
    }

    fn take_first(&mut self, is_wanted: impl Fn(OutboxLane) -> bool) -> Option<OutgoingMessage<T>> {
        self.drop_late_cancels();
        let wanted = |waiting: &OutboxEntry<T>| is_wanted(waiting.kind.lane());
        let at = self.waiting.iter().position(wanted)?;
        let entry = self.remove(at)?;
        Some(OutgoingMessage {
            lane: entry.kind.lane(),
            is_answer: matches!(entry.kind, OutboxKind::Answer | OutboxKind::Pong),
            message: entry.message,
            with: entry.with,
        })
    }

    fn remove(&mut self, at: usize) -> Option<OutboxEntry<T>> {
        let gone = self.waiting.remove(at)?;
        if matches!(gone.kind, OutboxKind::Request(_)) {
            self.requests -= 1;
        } else {
            self.bytes -= gone.message.len();
        }
        Some(gone)
    }

    fn clear(&mut self) {
        self.waiting.clear();
        (self.requests, self.bytes) = (0, 0);
    }

    /// Drops messages that a message of this kind supersedes; false if the message itself is
    /// redundant.
    fn drop_superseded(&mut self, kind: OutboxKind) -> bool {
        match kind {
            OutboxKind::Answer | OutboxKind::Notification | OutboxKind::Request(_) => {}
            OutboxKind::Pong => self.keep_newest(kind, MAX_PONGS - 1),
            OutboxKind::Report => self.keep_newest(kind, MAX_PROGRESS - 1),
            OutboxKind::RootsChanged => {
                return self.waiting.iter().all(|waiting| waiting.kind != kind);
            }
            OutboxKind::Cancel => self.drop_late_cancels(),
        }
        true
    }

    fn keep_newest(&mut self, kind: OutboxKind, most: usize) {
        while self
            .waiting
            .iter()
            .filter(|waiting| waiting.kind == kind)
            .count()
            > most
        {
            let Some(oldest) = self.waiting.iter().position(|waiting| waiting.kind == kind) else {
                return;
            };
            self.remove(oldest);
        }
    }

    /// Drops the oldest cancellation; false if no cancellation waits.
    fn drop_cancel(&mut self) -> bool {
        let oldest = self
            .waiting
            .iter()
            .position(|waiting| waiting.kind == OutboxKind::Cancel);
        oldest.and_then(|oldest| self.remove(oldest)).is_some()
    }

    /// Drops the cancellations that waited for too long.
    fn drop_late_cancels(&mut self) {
        let now = Instant::now();
        let bytes = &mut self.bytes;
        self.waiting.retain(|waiting| {
            let is_late = waiting.kind == OutboxKind::Cancel
                && now.duration_since(waiting.since) >= CANCEL_TIME;
            if is_late {
                *bytes -= waiting.message.len();
            }
            !is_late
        });
    }
}

impl OutboxKind {
    fn of(message: &Bytes) -> Self {
        match Message::parse(message.clone(), &message_limits()) {
            // Of all requests of servers, only a ping has an empty answer.
            Ok(Message::Response(response)) if response.outcome.as_deref() == Ok(b"{}") => {
                Self::Pong
            }
            Ok(Message::Notification(notification)) => match notification.method.known() {
                Some(Method::Progress) => Self::Report,
                Some(Method::RootsListChanged) => Self::RootsChanged,
                Some(Method::Cancelled) => Self::Cancel,
                _ => Self::Notification,
            },
            _ => Self::Answer,
        }
    }

    fn lane(self) -> OutboxLane {
        match self {
            Self::Answer | Self::Pong | Self::Report => OutboxLane::Answers,
            Self::Cancel => OutboxLane::Cancellations,
            Self::Notification | Self::RootsChanged => OutboxLane::Notifications,
            Self::Request(_) => OutboxLane::Requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use weir_era::lower;
    use weir_wire::RequestId;

    use super::*;

    fn pong(id: usize) -> Bytes {
        lower::pong(&RequestId::from_text(&id.to_string()))
    }

    fn answer(id: usize) -> Bytes {
        lower::declined(&RequestId::from_text(&id.to_string()))
    }

    /// Returns the posted messages of a lane, in order.
    async fn run_and_collect(outbox: &Outbox<()>, lane: OutboxLane) -> Vec<Bytes> {
        let all = Mutex::new(Vec::new());
        outbox
            .run(lane, |next| {
                all.lock().push(next.message);
                std::future::ready(())
            })
            .await;
        all.into_inner()
    }

    /// Takes the messages of all lanes, in order.
    fn take_all(outbox: &Outbox<()>) -> Vec<Bytes> {
        std::iter::from_fn(|| outbox.next_of(|_| true))
            .map(|next| next.message)
            .collect()
    }

    #[test]
    fn answers_differ_from_progress_in_the_same_lane() {
        let outbox = Outbox::default();
        let report = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#;
        for message in [pong(1), Bytes::from(report), answer(2)] {
            outbox.push(message, ());
        }
        let next = || outbox.next_of(|lane| lane == OutboxLane::Answers);
        let answers: Vec<_> = std::iter::from_fn(next)
            .map(|next| next.is_answer)
            .collect();
        assert_eq!(answers, [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_pings_and_list_changes_coalesces_and_no_answer_is_left_out() {
        let outbox = Outbox::default();
        let (answers, notifications) = (OutboxLane::Answers, OutboxLane::Notifications);
        assert_eq!(outbox.push(answer(0), ()), PushOutcome::Idle(answers));
        let first_change = outbox.push(lower::roots_changed(), ());
        assert_eq!(first_change, PushOutcome::Idle(notifications));
        for id in 1..=6000 {
            assert_eq!(outbox.push(pong(id), ()), PushOutcome::Queued);
            assert_eq!(outbox.push(lower::roots_changed(), ()), PushOutcome::Queued);
        }
        assert_eq!(outbox.push(answer(1), ()), PushOutcome::Queued);
        let expected: Vec<_> = [answer(0)]
            .into_iter()
            .chain((6000 - MAX_PONGS + 1..=6000).map(pong))
            .chain([answer(1)])
            .collect();
        assert_eq!(run_and_collect(&outbox, answers).await, expected);
        let changes = run_and_collect(&outbox, notifications).await;
        assert_eq!(changes, [lower::roots_changed()]);
        let all_posted = outbox.push(pong(7), ());
        assert_eq!(all_posted, PushOutcome::Idle(answers));
    }

    #[tokio::test(start_paused = true)]
    async fn a_post_that_hangs_delays_its_own_lane_only() {
        let outbox = Outbox::default();
        outbox.push(lower::roots_changed(), ());
        let hanging = outbox.run(OutboxLane::Notifications, |_| std::future::pending());
        let others = async {
            for (message, lane) in [
                (answer(1), OutboxLane::Answers),
                (lower::cancelled(1), OutboxLane::Cancellations),
            ] {
                assert_eq!(outbox.push(message.clone(), ()), PushOutcome::Idle(lane));
                assert_eq!(run_and_collect(&outbox, lane).await, [message]);
            }
            let later = outbox.push(lower::roots_changed(), ());
            assert_eq!(later, PushOutcome::Queued, "behind the one that hangs");
        };
        tokio::select! {
            biased;
            () = hanging => unreachable!("its post never ends"),
            () = others => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn outbox_overflow_ends_the_session() {
        let outbox = Outbox::default();
        for id in 0..MAX_WAITING {
            assert_ne!(outbox.push(answer(id), ()), PushOutcome::Overflow);
        }
        assert!(!outbox.over().is_cancelled());
        assert_eq!(
            outbox.push(lower::cancelled(1), ()),
            PushOutcome::Queued,
            "it gives way to answers"
        );
        assert_eq!(outbox.push(answer(0), ()), PushOutcome::Overflow);
        assert!(outbox.over().is_cancelled());
        assert_eq!(outbox.push(answer(0), ()), PushOutcome::Over);
        assert!(
            run_and_collect(&outbox, OutboxLane::Answers)
                .await
                .is_empty()
        );
        let large = Outbox::default();
        assert_eq!(
            large.push(Bytes::from(vec![b' '; MAX_WAITING_BYTES + 1]), ()),
            PushOutcome::Idle(OutboxLane::Answers),
            "one alone is never too large"
        );
        assert_eq!(large.push(answer(0), ()), PushOutcome::Overflow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_waits_for_a_second_and_its_post_takes_no_longer() {
        let outbox = Arc::<Outbox<()>>::default();
        let posts = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        for id in 0..MAX_WAITING as u64 {
            assert_ne!(outbox.push(lower::cancelled(id), ()), PushOutcome::Overflow);
        }
        assert_eq!(
            outbox.push(lower::cancelled(0), ()),
            PushOutcome::Queued,
            "the oldest gave way"
        );
        let count = posts.clone();
        outbox
            .run(OutboxLane::Cancellations, |_| {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::pending()
            })
            .await;
        assert_eq!(began.elapsed(), CANCEL_TIME);
        assert_eq!(
            posts.load(Ordering::SeqCst),
            1,
            "by then the others were too late"
        );
        outbox.push(lower::cancelled(1), ());
        tokio::time::sleep(CANCEL_TIME).await;
        for id in 0..MAX_WAITING as u64 {
            assert_ne!(
                outbox.push(lower::cancelled(id), ()),
                PushOutcome::Overflow,
                "the late one made room"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_order_and_do_not_count_as_messages() {
        let outbox = Outbox::default();
        let request = |id: u64| Bytes::from(format!("request {id}"));
        for id in 0..2 * MAX_WAITING as u64 {
            assert_ne!(outbox.push_request(id, request(id), ()), PushOutcome::Over);
            if id == 1 {
                outbox.push(answer(1), ());
                outbox.push(lower::cancelled(0), ());
            }
        }
        assert!(
            outbox.withdraw_request(2) && !outbox.withdraw_request(2),
            "it was not sent"
        );
        let sent = take_all(&outbox);
        assert_eq!(
            sent[..5],
            [
                request(0),
                request(1),
                answer(1),
                lower::cancelled(0),
                request(3)
            ]
        );
        assert_eq!(sent.len(), 2 * MAX_WAITING + 1);
        assert!(!outbox.withdraw_request(0), "it was sent");
        let idle = PushOutcome::Idle(OutboxLane::Requests);
        assert_eq!(outbox.push_request(1, request(1), ()), idle);
        outbox.push(answer(1), ());
        outbox.push_request(2, request(2), ());
        assert_eq!(outbox.end(), [1, 2]);
        assert_eq!(outbox.push_request(3, request(3), ()), PushOutcome::Over);
        assert!(take_all(&outbox).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_are_not_wanted_keep_their_places() {
        let outbox = Outbox::default();
        let request = Bytes::from_static(b"request");
        outbox.push(answer(1), ());
        outbox.push_request(1, request.clone(), ());
        outbox.push(answer(2), ());
        let requests = OutboxLane::Requests;
        let next_request = || outbox.next_of(|lane| lane == requests);
        let taken = next_request().map(|next| (next.lane, next.message));
        assert_eq!(taken, Some((requests, request.clone())));
        assert_eq!(next_request(), None);
        let pushed = outbox.push_request(2, request.clone(), ());
        assert_eq!(pushed, PushOutcome::Idle(requests), "its caller is woken");
        assert_eq!(take_all(&outbox), [answer(1), answer(2), request]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_session_ends_a_post_that_hangs() {
        let outbox = Arc::<Outbox<()>>::default();
        outbox.push(answer(0), ());
        let own = outbox.clone();
        let running = tokio::spawn(async move {
            own.run(OutboxLane::Answers, |_| std::future::pending())
                .await;
        });
        tokio::task::yield_now().await;
        while outbox.push(answer(1), ()) != PushOutcome::Overflow {}
        assert!(running.await.is_ok());
    }
}
