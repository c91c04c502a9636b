//! Makes the allocator return memory to the system after a wave of work.
//!
//! mimalloc has a heap for each thread. A block freed by another thread is only queued; its own
//! thread collects the queue when it allocates much. Connections are freed by the worker that sees
//! their end, so after a wave most of their memory stays with the idle process. mimalloc's own call
//! for this is unsafe in Rust. But every thread can allocate: after [`COLLECT_ALLOCATIONS`]
//! allocations beyond the fast path a thread collects its whole heap, and free blocks return to the
//! system.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// The number of allocations after which a thread collects its heap (`MIMALLOC_GENERIC_COLLECT`),
/// and some more: mimalloc counts in thousands.
const COLLECT_ALLOCATIONS: usize = 11_000;
/// A size beyond the fast path, up to 1 KiB.
const ALLOCATION_BYTES: usize = 2 << 10;

/// The time between two rounds. A round returns the memory that the previous one freed, because
/// mimalloc delays that by a second.
const ROUND_INTERVAL: Duration = Duration::from_secs(3);
/// The rounds after the last change.
const ROUNDS: usize = 4;
/// The change of used memory that starts new rounds.
const MIN_CHANGE: u64 = 2 << 20;

thread_local! {
    /// The last round that this thread took part in.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Decides at which times workers collect their heaps, and makes them do it.
#[derive(Debug)]
pub(super) struct HeapTrimmer {
    /// The memory of the process and the reserved bytes of its budgets, at the last round.
    before: [u64; 2],
    rounds: usize,
    next: Instant,
    round: usize,
    done: Arc<AtomicUsize>,
}

impl HeapTrimmer {
    pub(crate) fn new() -> Self {
        Self {
            before: [0; 2],
            rounds: 0,
            next: Instant::now(),
            round: 0,
            done: Arc::default(),
        }
    }

    /// Starts or continues a round. Call it at each measurement of memory.
    pub(super) fn update(&mut self, used: u64, reserved: u64, tasks: &TaskTracker) {
        let now = [used, reserved];
        if self
            .before
            .iter()
            .zip(now)
            .any(|(before, now)| before.abs_diff(now) >= MIN_CHANGE)
        {
            self.rounds = ROUNDS;
        }
        if self.rounds > 0 && Instant::now() >= self.next {
            self.rounds -= 1;
            self.next = Instant::now() + ROUND_INTERVAL;
            self.before = now;
            self.round += 1;
            self.done = Arc::default();
        }
        let workers = Handle::current().metrics().num_workers();
        // A worker that is busy for this long is not waited for.
        let is_over = Instant::now() >= self.next;
        if is_over || self.done.load(Ordering::Relaxed) >= workers {
            return;
        }
        // Idle workers take these tasks, so some run several and others wait for the next
        // measurement.
        for _ in 0..workers {
            let (round, done) = (self.round, self.done.clone());
            tasks.spawn(async move {
                if LAST.replace(round) != round {
                    allocate();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

fn allocate() {
    for _ in 0..COLLECT_ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(black_box(
            ALLOCATION_BYTES,
        ))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of rounds in so many seconds of measurements of this use.
    async fn rounds(trimmer: &mut HeapTrimmer, used: u64, seconds: u64) -> usize {
        let (tasks, before) = (TaskTracker::new(), trimmer.round);
        for _ in 0..seconds * 4 {
            trimmer.update(used, 0, &tasks);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        trimmer.round - before
    }

    #[tokio::test(start_paused = true)]
    async fn heap_is_trimmed_only_after_memory_changes() {
        let mut trimmer = HeapTrimmer::new();
        assert_eq!(rounds(&mut trimmer, 100 << 20, 60).await, ROUNDS);
        assert_eq!(rounds(&mut trimmer, (100 << 20) + 1000, 60).await, 0);
        assert_eq!(
            rounds(&mut trimmer, 200 << 20, 6).await,
            2,
            "no more often while it grows"
        );
        assert_eq!(rounds(&mut trimmer, 150 << 20, 60).await, ROUNDS);
        assert_eq!(
            trimmer.done.load(Ordering::Relaxed),
            1,
            "the one worker there is"
        );
    }
}
