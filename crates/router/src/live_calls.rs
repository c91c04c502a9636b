//! The running calls, as operators see and stop them.
//!
//! It owns no call. A call has an entry from the moment its tool is known until its record is
//! written, and checks the entry while it waits. An operator's stop is only written into the entry,
//! and the call ends itself.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use weir_core::call::Call;
use weir_core::catalog_item::CatalogItem;
use weir_core::failure::{BLOCKED, Failure, FailureKind, UPSTREAM_DISABLED};
use weir_core::fast::FastMap;
use weir_core::principal::Principal;

use crate::call_subject::CallSubject;
use crate::cancelled_call::CancelledCall;

/// Enough that calls seldom meet at one lock: each takes it twice, for an insertion and a removal.
const SHARDS: usize = 32;

/// The running calls. The calls in flight bound it.
#[derive(Default)]
pub struct LiveCalls {
    shards: [Mutex<FastMap<u64, Arc<LiveCallEntry>>>; SHARDS],
    last: AtomicU64,
}

/// A call as it runs now.
#[derive(Clone, Debug)]
pub struct LiveCall {
    /// Its number among the calls of this process.
    pub id: u64,
    /// The principal that makes it.
    pub principal: Principal,
    /// The call.
    pub call: Arc<Call>,
    /// The item that it calls.
    pub item: CatalogItem,
    /// The time since its beginning.
    pub age: Duration,
    /// Its phase.
    pub phase: CallPhase,
}

/// The phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallPhase {
    /// It waits for a permit among the calls in flight.
    Queued,
    /// It was handed to its upstream, and no event has come back yet.
    Sent,
    /// Its upstream has sent an event.
    Answering,
    /// Its upstream has asked its client a question.
    Asking,
}

impl CallPhase {
    const ALL: [Self; 4] = [Self::Queued, Self::Sent, Self::Answering, Self::Asking];

    /// A word for operators.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Answering => "answering",
            Self::Asking => "asking",
        }
    }
}

/// The operator's reason for stopping a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The operator cancelled it.
    Cancelled,
    /// Its upstream was disabled.
    Disabled,
    /// Its principal was blocked.
    Blocked,
}

impl StopReason {
    fn failure(self, phase: CallPhase) -> Failure {
        let unsent = phase == CallPhase::Queued;
        match self {
            Self::Blocked => Failure::new(FailureKind::Denied, BLOCKED),
            Self::Cancelled if unsent => Failure::new(
                FailureKind::Unavailable,
                "An operator cancelled this call before it was made",
            ),
            Self::Disabled if unsent => Failure::new(FailureKind::Unavailable, UPSTREAM_DISABLED),
            Self::Cancelled => Failure::new(
                FailureKind::ResultUnknown,
                "An operator cancelled this call; the tool may have run",
            ),
            Self::Disabled => Failure::new(
                FailureKind::ResultUnknown,
                "The server that has this was disabled by an operator during this call; the tool may have run",
            ),
        }
    }
}

struct LiveCallEntry {
    subject: Arc<CallSubject>,
    began: Instant,
    phase: AtomicU8,
    stop: OnceLock<StopReason>,
    /// The waker of the task that waits for the call's next event.
    waker: Mutex<Option<Waker>>,
}

impl LiveCalls {
    /// All calls that run, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<LiveCall> {
        let mut all = Vec::new();
        for at in 0..SHARDS {
            all.extend(
                self.shard(at as u64)
                    .iter()
                    .map(|(id, entry)| entry.seen(*id)),
            );
        }
        all.sort_by_key(|call| call.id);
        all
    }

    /// The number of running calls.
    #[must_use]
    pub fn count(&self) -> usize {
        (0..SHARDS).map(|at| self.shard(at as u64).len()).sum()
    }

    /// Stops a call; false if it does not run.
    pub fn stop(&self, id: u64, why: StopReason) -> bool {
        let entry = self.shard(id).get(&id).cloned();
        entry.inspect(|entry| entry.stop(why)).is_some()
    }

    /// Stops all calls that the predicate selects, and returns their number.
    pub fn stop_all(
        &self,
        which: impl Fn(&Principal, &CatalogItem) -> bool,
        why: StopReason,
    ) -> usize {
        let mut stopped = 0;
        for at in 0..SHARDS {
            let those: Vec<_> = {
                let shard = self.shard(at as u64);
                shard
                    .values()
                    .filter(|entry| which(&entry.subject.principal, &entry.subject.item))
                    .cloned()
                    .collect()
            };
            stopped += those.len();
            // Woken without the lock.
            those.iter().for_each(|entry| entry.stop(why));
        }
        stopped
    }

    /// Adds the entry of a call.
    pub(crate) fn begin(self: &Arc<Self>, subject: Arc<CallSubject>) -> LiveCallGuard {
        let entry = Arc::new(LiveCallEntry {
            subject,
            began: Instant::now(),
            phase: AtomicU8::new(CallPhase::Queued as u8),
            stop: OnceLock::new(),
            waker: Mutex::default(),
        });
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.shard(id).insert(id, entry.clone());
        LiveCallGuard {
            calls: self.clone(),
            id,
            entry,
        }
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, FastMap<u64, Arc<LiveCallEntry>>> {
        // The remainder is below the number of shards, for any width of a word.
        self.shards[(id % SHARDS as u64) as usize].lock()
    }
}

impl LiveCallEntry {
    fn seen(&self, id: u64) -> LiveCall {
        let subject = &self.subject;
        LiveCall {
            id,
            principal: subject.principal.clone(),
            call: subject.call.clone(),
            item: subject.item.clone(),
            age: self.began.elapsed(),
            phase: self.phase(),
        }
    }

    fn phase(&self) -> CallPhase {
        CallPhase::ALL[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    fn stop(&self, why: StopReason) {
        // The first reason counts.
        let _second = self.stop.set(why);
        let waiting = self.waker.lock().take();
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    fn stopped(&self) -> Option<Failure> {
        self.stop.get().map(|stop| {
            stop.failure(self.phase())
                .with_upstream(&self.subject.item.tool.upstream)
                .because(CancelledCall)
        })
    }

    /// Polls `work` unless the call was stopped; a pending task is woken when it is.
    fn poll_with<T>(
        &self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Failure>> {
        if let Some(failure) = self.stopped() {
            return Poll::Ready(Err(failure));
        }
        if let Poll::Ready(done) = work(cx) {
            return Poll::Ready(Ok(done));
        }
        {
            let mut waiting = self.waker.lock();
            if !waiting
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()))
            {
                *waiting = Some(cx.waker().clone());
            }
        }
        // It may have been stopped before the waker was set.
        self.stopped()
            .map_or(Poll::Pending, |failure| Poll::Ready(Err(failure)))
    }
}

/// A call's own entry. Dropping it takes the entry away.
pub(crate) struct LiveCallGuard {
    calls: Arc<LiveCalls>,
    id: u64,
    entry: Arc<LiveCallEntry>,
}

impl LiveCallGuard {
    /// The time of the call's beginning.
    pub(crate) fn begun(&self) -> Instant {
        self.entry.began
    }

    /// Sets the phase of the call.
    pub(crate) fn set_phase(&self, phase: CallPhase) {
        self.entry.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Waits for a part of the call, and drops it if an operator stops the call. As cancel safe as
    /// `work`.
    ///
    /// # Errors
    ///
    /// The call was stopped: the failure for its client.
    pub(crate) async fn unless_stopped<F: Future>(&self, work: F) -> Result<F::Output, Failure> {
        let mut work = pin!(work);
        poll_fn(|cx| self.entry.poll_with(cx, |cx| work.as_mut().poll(cx))).await
    }

    /// The same for a part that is polled.
    pub(crate) fn poll_unless_stopped<T>(
        &self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Failure>> {
        self.entry.poll_with(cx, work)
    }
}

impl Drop for LiveCallGuard {
    fn drop(&mut self) {
        let gone = self.calls.shard(self.id).remove(&self.id);
        // The subject may end with it: not under the lock.
        drop(gone);
    }
}

impl fmt::Debug for LiveCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveCalls({})", self.count())
    }
}
