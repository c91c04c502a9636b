//! A future that is polled again at once after it woke itself.
//!
//! hyper hands a request's body to its service through a channel with both ends in one task. Asking
//! for the body therefore wakes the task that is asking. The scheduler treats a task that wakes
//! itself as one that yields: it goes behind all others, and an idle thread is woken to take it
//! over, which costs more than the whole request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{AtomicU8, Ordering};

/// The polls in a row before the task does yield.
const MAX_POLLS: usize = 4;

/// The future `inner`, polled again if it was woken during its poll.
pub(super) struct RepollOnWake<F> {
    inner: F,
    recorder: Option<(Arc<WakeRecorder>, Waker)>,
}

/// Records a wake, and passes it on only if no poll is running.
struct WakeRecorder {
    state: AtomicU8,
    task: Waker,
}

/// No poll is running.
const IDLE: u8 = 0;
/// The future is being polled.
const POLLED: u8 = 1;
/// A wake was recorded since.
const WOKEN: u8 = 2;

impl<F> RepollOnWake<F> {
    pub(super) fn new(inner: F) -> Self {
        Self {
            inner,
            recorder: None,
        }
    }

    pub(super) fn inner(&mut self) -> &mut F {
        &mut self.inner
    }

    /// The recorder of the current task: a future may move to another one.
    fn wake_recorder(&mut self, task: &Waker) -> (Arc<WakeRecorder>, Waker) {
        match &self.recorder {
            Some((recorder, waker)) if recorder.task.will_wake(task) => {
                (recorder.clone(), waker.clone())
            }
            _ => {
                let recorder = Arc::new(WakeRecorder {
                    state: AtomicU8::new(IDLE),
                    task: task.clone(),
                });
                let waker = Waker::from(recorder.clone());
                self.recorder.insert((recorder, waker)).clone()
            }
        }
    }
}

impl Wake for WakeRecorder {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake_by_ref();
        }
    }
}

impl<F: Future + Unpin> Future for RepollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let (recorder, waker) = self.wake_recorder(cx.waker());
        let mut own = Context::from_waker(&waker);
        for _ in 0..MAX_POLLS {
            recorder.state.store(POLLED, Ordering::Release);
            if let Poll::Ready(output) = Pin::new(&mut self.inner).poll(&mut own) {
                return Poll::Ready(output);
            }
            if recorder
                .state
                .compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return Poll::Pending;
            }
        }
        // The state stays recorded: the wake below covers all of them.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct RepollWakeCounter(AtomicUsize);

    impl Wake for RepollWakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<RepollWakeCounter>, Waker) {
        let count = Arc::new(RepollWakeCounter::default());
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again_without_its_task() {
        let (count, waker) = counted();
        let mut polls = 0;
        let mut prompt = RepollOnWake::new(poll_fn(|cx| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        assert!(
            Pin::new(&mut prompt)
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn future_that_always_wakes_itself_yields_in_the_end() {
        let (count, waker) = counted();
        let mut polls = 0;
        let mut prompt = RepollOnWake::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        for _ in 0..2 {
            assert!(
                Pin::new(&mut prompt)
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(polls, 2 * MAX_POLLS);
    }

    #[test]
    fn external_wake_reaches_the_latest_polling_task() {
        let kept = Mutex::new(None::<Waker>);
        let mut prompt = RepollOnWake::new(poll_fn(|cx| {
            *kept.lock() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let (first, waker) = counted();
        assert!(
            Pin::new(&mut prompt)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        kept.lock().take().unwrap().wake();
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
        let (second, waker) = counted();
        assert!(
            Pin::new(&mut prompt)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        kept.lock().take().unwrap().wake();
        assert_eq!(
            (
                first.0.load(Ordering::Relaxed),
                second.0.load(Ordering::Relaxed)
            ),
            (1, 1)
        );
    }
}
