//! A machine of the simulation: a runtime of its own, whose time is the world's.
//!
//! The runtime has one thread, and its clock is paused: it moves only as far as the world lets it. A
//! host that crashes loses its runtime with all tasks. A frozen host runs nothing; when it goes on, its
//! clock has moved like that of a process that was stopped.

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, advance, sleep_until};
use weir_core::port::Clock;

/// The wall-clock time of the world at its beginning: 2026-08-01T00:00:00Z.
const EPOCH: Duration = Duration::from_secs(1_785_542_400);

/// The time of the world, as one host has it.
#[derive(Clone, Debug)]
pub(crate) struct HostClock {
    /// The moment at which the host began, by the world and by its runtime.
    born: Duration,
    birth: Instant,
}

impl HostClock {
    /// The time since the beginning of the world.
    pub(crate) fn now(&self) -> Duration {
        self.born + self.birth.elapsed()
    }

    fn instant(&self, at: Duration) -> Instant {
        self.birth + at.saturating_sub(self.born)
    }
}

impl Clock for HostClock {
    fn monotonic(&self) -> Duration {
        self.now()
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + self.now()
    }
}

/// A machine.
pub(crate) struct Host {
    runtime: Runtime,
    clock: HostClock,
    /// The world's time up to which it has run.
    ran_until: Duration,
    /// It runs nothing before this time.
    frozen_until: Duration,
}

impl Host {
    /// A machine that begins at this time of the world.
    pub(crate) fn begin(now: Duration) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        let birth = runtime.block_on(async { Instant::now() });
        Self {
            runtime,
            clock: HostClock { born: now, birth },
            ran_until: now,
            frozen_until: now,
        }
    }

    /// The time, as the host has it.
    pub(crate) fn clock(&self) -> HostClock {
        self.clock.clone()
    }

    /// Begins a task of the host.
    pub(crate) fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runtime.spawn(task);
    }

    /// Runs something at the host that needs its runtime.
    pub(crate) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.runtime.enter();
        work()
    }

    /// Stops the host until a time of the world.
    pub(crate) fn freeze(&mut self, until: Duration) {
        self.frozen_until = self.frozen_until.max(until);
    }

    /// Runs the host until a time of the world, unless it is frozen.
    pub(crate) fn run(&mut self, until: Duration) {
        if until <= self.frozen_until {
            return;
        }
        let missed = self.frozen_until.saturating_sub(self.ran_until);
        let end = self.clock.instant(until);
        self.runtime.block_on(async move {
            if !missed.is_zero() {
                // The clock first: no task sees the time in between.
                advance(missed).await;
            }
            sleep_until(end).await;
        });
        self.ran_until = until;
    }
}
