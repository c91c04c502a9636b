//! The messages that a legacy server is sent in a session beside its requests: answers to what it asked, cancels and
//! notifications. They are posted in order and one at a time, so that all of them together take one connection.
//!
//! A server that does not take them makes them wait, and what waits is bounded: of what a later message outdates only the newest
//! are kept, a cancel is given up after a second or where there is no room, and beyond the bound the session is over. An answer is
//! never left out while the session lasts.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use weir_wire::Message;
use weir_wire::method::Method;

use super::answer::limits;

/// Messages that may wait. One more ends the session.
const MOST_WAITING: usize = 256;
/// Bytes that may wait beside a message that is larger.
const MOST_BYTES: usize = 8 << 20;
/// Answers to pings that may wait, the newest: a server that pings faster than it reads has seen that weir is there.
const MOST_PONGS: usize = 8;
/// Reports of progress that may wait, the newest.
const MOST_REPORTS: usize = 8;
/// The longest wait of a cancel, and the time that its post may take: a call that runs on for a second is soon over anyway.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// The messages of one session. `T` is what a message is posted with.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    state: Mutex<State<T>>,
    over: CancellationToken,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: usize,
    /// True while [`Outbox::run`] is at work.
    is_posting: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    kind: Kind,
    message: Bytes,
    with: T,
    since: Instant,
}

/// What becomes of a message while others are before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is posted, whatever comes after it.
    Kept,
    /// The answer to a ping.
    Pong,
    /// Progress with an answer.
    Report,
    /// `notifications/roots/list_changed`: one says what many say.
    RootsChanged,
    /// `notifications/cancelled`.
    Cancel,
}

/// What [`Outbox::push`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The message waits for its turn, or another one says the same.
    Queued,
    /// The same, and [`Outbox::run`] is to be started.
    Idle,
    /// Too much waits already: with this message the session is over.
    Overflow,
    /// The session was over before.
    Over,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        let state = State { waiting: VecDeque::new(), bytes: 0, is_posting: false };
        Self { state: Mutex::new(state), over: CancellationToken::new() }
    }
}

impl<T> Outbox<T> {
    /// Puts a message behind those that wait.
    pub(crate) fn push(&self, message: Bytes, with: T) -> Pushed {
        let kind = Kind::of(&message);
        let mut state = self.lock();
        if self.over.is_cancelled() {
            return Pushed::Over;
        }
        if !state.make_room(kind) {
            return Pushed::Queued;
        }
        if state.waiting.len() >= MOST_WAITING && !state.drop_cancel() && kind == Kind::Cancel {
            return Pushed::Queued;
        }
        let too_many = state.waiting.len() >= MOST_WAITING;
        if too_many || (!state.waiting.is_empty() && state.bytes + message.len() > MOST_BYTES) {
            state.waiting.clear();
            state.bytes = 0;
            self.over.cancel();
            return Pushed::Overflow;
        }
        state.bytes += message.len();
        state.waiting.push_back(Waiting { kind, message, with, since: Instant::now() });
        if std::mem::replace(&mut state.is_posting, true) { Pushed::Queued } else { Pushed::Idle }
    }

    /// Posts what waits, one after the other, until nothing does or the session is over.
    pub(crate) async fn run<F: Future<Output = ()>>(&self, mut post: impl FnMut(Bytes, T) -> F) {
        while let Some(Waiting { kind, message, with, .. }) = self.next() {
            let posting = self.over.run_until_cancelled(post(message, with));
            if kind == Kind::Cancel {
                // A server that has not answered by then has it, or will never have it.
                let _late = timeout_at(Instant::now() + CANCEL_TIME, posting).await;
            } else {
                posting.await;
            }
        }
    }

    /// Ends the session.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.waiting.clear();
        state.bytes = 0;
        self.over.cancel();
    }

    /// Cancelled once the session is over because it did not take what it was sent.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// The next message; `None` where there is none, and then [`Self::push`] says when to run again.
    fn next(&self) -> Option<Waiting<T>> {
        let mut state = self.lock();
        state.drop_late();
        let next = state.waiting.pop_front();
        match &next {
            Some(next) => state.bytes -= next.message.len(),
            None => state.is_posting = false,
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Takes out what a message of this kind outdates; false where the message itself says nothing new.
    fn make_room(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Kept => {}
            Kind::Pong => self.keep_newest(kind, MOST_PONGS - 1),
            Kind::Report => self.keep_newest(kind, MOST_REPORTS - 1),
            Kind::RootsChanged => return self.waiting.iter().all(|waiting| waiting.kind != kind),
            Kind::Cancel => self.drop_late(),
        }
        true
    }

    fn keep_newest(&mut self, kind: Kind, most: usize) {
        while self.waiting.iter().filter(|waiting| waiting.kind == kind).count() > most {
            let Some(oldest) = self.waiting.iter().position(|waiting| waiting.kind == kind) else { return };
            if let Some(gone) = self.waiting.remove(oldest) {
                self.bytes -= gone.message.len();
            }
        }
    }

    /// Gives up the oldest cancel; false where none waits.
    fn drop_cancel(&mut self) -> bool {
        let oldest = self.waiting.iter().position(|waiting| waiting.kind == Kind::Cancel);
        let gone = oldest.and_then(|oldest| self.waiting.remove(oldest));
        self.bytes -= gone.as_ref().map_or(0, |gone| gone.message.len());
        gone.is_some()
    }

    /// Gives up the cancels that waited for too long.
    fn drop_late(&mut self) {
        let now = Instant::now();
        let bytes = &mut self.bytes;
        self.waiting.retain(|waiting| {
            let is_late = waiting.kind == Kind::Cancel && now.duration_since(waiting.since) >= CANCEL_TIME;
            if is_late {
                *bytes -= waiting.message.len();
            }
            !is_late
        });
    }
}

impl Kind {
    fn of(message: &Bytes) -> Self {
        match Message::parse(message.clone(), &limits()) {
            // Of all that servers ask, a ping alone is answered with nothing.
            Ok(Message::Response(response)) if response.outcome.as_deref() == Ok(b"{}") => Self::Pong,
            Ok(Message::Notification(notification)) => match notification.method.known() {
                Some(Method::Progress) => Self::Report,
                Some(Method::RootsListChanged) => Self::RootsChanged,
                Some(Method::Cancelled) => Self::Cancel,
                _ => Self::Kept,
            },
            _ => Self::Kept,
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

    /// What is posted, in order.
    async fn posted(outbox: &Outbox<()>) -> Vec<Bytes> {
        let all = Mutex::new(Vec::new());
        outbox
            .run(|message, ()| {
                all.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                std::future::ready(())
            })
            .await;
        all.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_pings_and_list_changes_coalesces_and_no_answer_is_left_out() {
        let outbox = Outbox::default();
        assert_eq!(outbox.push(answer(0), ()), Pushed::Idle);
        for id in 1..=6000 {
            assert_eq!(outbox.push(pong(id), ()), Pushed::Queued);
            assert_eq!(outbox.push(lower::roots_changed(), ()), Pushed::Queued);
        }
        assert_eq!(outbox.push(answer(1), ()), Pushed::Queued);
        let expected: Vec<_> = [answer(0), lower::roots_changed()]
            .into_iter()
            .chain((6000 - MOST_PONGS + 1..=6000).map(pong))
            .chain([answer(1)])
            .collect();
        assert_eq!(posted(&outbox).await, expected);
        assert_eq!(outbox.push(pong(7), ()), Pushed::Idle, "all was posted");
    }

    #[tokio::test(start_paused = true)]
    async fn one_more_than_may_wait_ends_the_session() {
        let outbox = Outbox::default();
        for id in 0..MOST_WAITING {
            assert_ne!(outbox.push(answer(id), ()), Pushed::Overflow);
        }
        assert!(!outbox.over().is_cancelled());
        assert_eq!(outbox.push(lower::cancelled(1), ()), Pushed::Queued, "it gives way to answers");
        assert_eq!(outbox.push(answer(0), ()), Pushed::Overflow);
        assert!(outbox.over().is_cancelled());
        assert_eq!(outbox.push(answer(0), ()), Pushed::Over);
        assert!(posted(&outbox).await.is_empty());
        let large = Outbox::default();
        assert_eq!(
            large.push(Bytes::from(vec![b' '; MOST_BYTES + 1]), ()),
            Pushed::Idle,
            "one alone is never too large"
        );
        assert_eq!(large.push(answer(0), ()), Pushed::Overflow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_waits_for_a_second_and_its_post_takes_no_longer() {
        let outbox = Arc::<Outbox<()>>::default();
        let posts = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        for id in 0..MOST_WAITING as u64 {
            assert_ne!(outbox.push(lower::cancelled(id), ()), Pushed::Overflow);
        }
        assert_eq!(outbox.push(lower::cancelled(0), ()), Pushed::Queued, "the oldest gave way");
        let count = posts.clone();
        outbox
            .run(|_, ()| {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::pending()
            })
            .await;
        assert_eq!(began.elapsed(), CANCEL_TIME);
        assert_eq!(posts.load(Ordering::SeqCst), 1, "by then the others were too late");
        outbox.push(lower::cancelled(1), ());
        tokio::time::sleep(CANCEL_TIME).await;
        for id in 0..MOST_WAITING as u64 {
            assert_ne!(outbox.push(lower::cancelled(id), ()), Pushed::Overflow, "the late one made room");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_session_ends_a_post_that_hangs() {
        let outbox = Arc::<Outbox<()>>::default();
        outbox.push(answer(0), ());
        let own = outbox.clone();
        let running = tokio::spawn(async move { own.run(|_, ()| std::future::pending()).await });
        tokio::task::yield_now().await;
        while outbox.push(answer(1), ()) != Pushed::Overflow {}
        assert!(running.await.is_ok());
    }
}
