//! Has the allocator give back what a wave of work left behind.
//!
//! mimalloc has a heap for each thread. A block that another thread frees is only noted; its own
//! thread looks at the notes when it allocates much. Connections are freed by whichever worker sees
//! their end, so after a wave of them most of its memory stays with the process: nobody allocates
//! any more. mimalloc's own call for that moment is not safe to make from Rust. What every thread
//! can do is allocate: one that has made [`SLOW`] allocations beyond the fast path goes through all
//! of its heap, and what is free in it goes back to the system.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// As many allocations as mimalloc counts before a thread goes through its heap
/// (`MIMALLOC_GENERIC_COLLECT`), and some more: the count goes by thousands.
const SLOW: usize = 11_000;
/// A size that is beyond the fast path, which ends at 1 KiB.
const SIZE: usize = 2 << 10;

/// Between two rounds. What one round has freed the next gives back: mimalloc waits a second with
/// that.
const EVERY: Duration = Duration::from_secs(3);
/// Rounds after the last change.
const ROUNDS: usize = 4;
/// A change of what the process has that is worth looking for more.
const CHANGE: u64 = 2 << 20;

thread_local! {
    /// The last round that this thread took part in.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Decides when workers go through their heaps, and has them do it.
#[derive(Debug)]
pub(super) struct HeapTrimmer {
    /// What was used at the last round: memory of the process, and what is reserved of its budgets.
    before: [u64; 2],
    rounds: usize,
    next: Instant,
    round: usize,
    done: Arc<AtomicUsize>,
}

impl HeapTrimmer {
    pub(super) fn new() -> Self {
        Self {
            before: [0; 2],
            rounds: 0,
            next: Instant::now(),
            round: 0,
            done: Arc::default(),
        }
    }

    /// Called at each look at the memory.
    pub(super) fn look(&mut self, used: u64, reserved: u64, tasks: &TaskTracker) {
        let now = [used, reserved];
        if self
            .before
            .iter()
            .zip(now)
            .any(|(before, now)| before.abs_diff(now) >= CHANGE)
        {
            self.rounds = ROUNDS;
        }
        if self.rounds > 0 && Instant::now() >= self.next {
            self.rounds -= 1;
            self.next = Instant::now() + EVERY;
            self.before = now;
            self.round += 1;
            self.done = Arc::default();
        }
        let workers = Handle::current().metrics().num_workers();
        // A worker that is busy with something else for so long is not waited for.
        let is_over = Instant::now() >= self.next;
        if is_over || self.done.load(Ordering::Relaxed) >= workers {
            return;
        }
        // A worker takes what it finds, so some find more than one of these, and some none until
        // the next look.
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
    for _ in 0..SLOW {
        drop(black_box(Vec::<u8>::with_capacity(black_box(SIZE))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in so many seconds of looks at this use.
    async fn rounds(trimmer: &mut HeapTrimmer, used: u64, seconds: u64) -> usize {
        let (tasks, before) = (TaskTracker::new(), trimmer.round);
        for _ in 0..seconds * 4 {
            trimmer.look(used, 0, &tasks);
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        trimmer.round - before
    }

    #[tokio::test(start_paused = true)]
    async fn heaps_are_looked_through_after_changes_and_not_without() {
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
