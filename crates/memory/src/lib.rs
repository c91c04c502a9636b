//! The watch over the memory and file descriptors of the process. The memory limit is divided among
//! budgets for incoming data. If memory gets short all the same, the client side is put under
//! pressure (fault F10).

mod heap_trimmer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use weir_core::Budgets;
use weir_core::hold::HoldLimits;
use weir_core::supervision::run_supervised;
use weir_core::telemetry::instruments;
use weir_front::{MemoryPressure, PressureHandle};
use weir_store::ReplayCaps;

use heap_trimmer::HeapTrimmer;
use weir_config::Config;

/// The time between two measurements. A process takes hundreds of megabytes in less only if each
/// request does.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two measurements from three quarters of the limit on, because the rest fills
/// sooner.
const NEAR_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The time between two counts of open descriptors: each is an entry of a folder to be read.
const DESCRIPTOR_INTERVAL: Duration = Duration::from_secs(1);
/// The value for no limit.
const NO_LIMIT: u64 = u64::MAX;
/// The percentages of the limit at which each stage begins and ends. They differ, so that the stage
/// does not flap.
const NEAR: (u64, u64) = (92, 88);
const ACUTE: (u64, u64) = (95, 92);

/// The running watch. Dropping it stops it.
#[derive(Debug)]
pub struct MemoryWatch {
    budget: Arc<AtomicU64>,
    budgets: Budgets,
    stop: DropGuard,
    tasks: TaskTracker,
}

impl MemoryWatch {
    /// Starts the watch. Must be called inside a tokio runtime.
    pub fn start(config: &Config, pressure: PressureHandle, budgets: Budgets) -> Self {
        let budget = Arc::new(AtomicU64::new(budget(config)));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        budgets.divide(divided(config));
        budgets.hold.set_limits(hold(config));
        count_descriptors(&budgets);
        let counted = budgets.clone();
        let counting = run_supervised("count of descriptors", move || count(counted.clone()));
        tasks.spawn(stop.clone().run_until_cancelled_owned(counting));
        let of_watch = (budget.clone(), pressure, budgets.clone(), tasks.clone());
        let work = run_supervised("memory watch", move || {
            let (budget, pressure, budgets, tasks) = of_watch.clone();
            watch(budget, pressure, budgets, tasks)
        });
        tasks.spawn(stop.clone().run_until_cancelled_owned(work));
        Self {
            budget,
            budgets,
            stop: stop.drop_guard(),
            tasks,
        }
    }

    /// Applies another config from the next measurement on.
    pub fn replace(&self, config: &Config) {
        self.budget.store(budget(config), Ordering::Relaxed);
        self.budgets.divide(divided(config));
        self.budgets.hold.set_limits(hold(config));
    }

    /// Ends the watch, and waits for its tasks.
    pub async fn shutdown(self) {
        let Self { stop, tasks, .. } = self;
        drop(stop);
        tasks.close();
        tasks.wait().await;
    }
}

async fn watch(
    budget: Arc<AtomicU64>,
    pressure: PressureHandle,
    budgets: Budgets,
    tasks: TaskTracker,
) {
    let (mut before, mut trimmer) = (MemoryPressure::None, HeapTrimmer::new());
    loop {
        let (used, most) = (used().unwrap_or(0), budget.load(Ordering::Relaxed));
        let now = shortage(before, used, most);
        if now != before {
            // Before the log, so that readers of the log can rely on the stage's effect.
            pressure.set(now);
            log_stage(now, used, most);
            before = now;
        }
        instruments().memory_used.record(used, &[]);
        instruments().memory_shortage.record(now as u64, &[]);
        budgets.measure();
        trimmer.update(used, budgets.reserved() as u64, &tasks);
        tokio::time::sleep(if used >= most / 4 * 3 {
            NEAR_CHECK_INTERVAL
        } else {
            CHECK_INTERVAL
        })
        .await;
    }
}

async fn count(budgets: Budgets) {
    loop {
        let open = count_descriptors(&budgets);
        tokio::time::sleep(DESCRIPTOR_INTERVAL.saturating_mul(1 + open / 4096)).await;
    }
}

/// Counts the open descriptors, records and returns the count.
fn count_descriptors(budgets: &Budgets) -> u32 {
    // If the system gives no numbers, only the limits of connections hold.
    let (Some(most), Ok(folder)) = (most_descriptors(), std::fs::read_dir("/proc/self/fd")) else {
        return 0;
    };
    let open = folder.count();
    budgets.descriptors.observe(most, open);
    instruments().descriptors_open.record(open as u64, &[]);
    u32::try_from(open).unwrap_or(u32::MAX)
}

/// Returns the process's limit of descriptors.
fn most_descriptors() -> Option<usize> {
    let limits = read("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn log_stage(shortage: MemoryPressure, used: u64, most: u64) {
    match shortage {
        MemoryPressure::None => tracing::info!(used, most, "memory pressure over"),
        MemoryPressure::Near => {
            tracing::warn!(used, most, "memory pressure: keep-alive and list cache off")
        }
        MemoryPressure::Acute => {
            tracing::error!(used, most, "memory limit reached: new requests get 503")
        }
    }
}

/// Returns the next stage, from the used memory and the limit.
fn shortage(before: MemoryPressure, used: u64, most: u64) -> MemoryPressure {
    if most == NO_LIMIT {
        return MemoryPressure::None;
    }
    let is_in = |(begin, end): (u64, u64), stage| {
        let bound = if before >= stage { end } else { begin };
        u128::from(used) * 100 >= u128::from(most) * u128::from(bound)
    };
    if is_in(ACUTE, MemoryPressure::Acute) {
        MemoryPressure::Acute
    } else if is_in(NEAR, MemoryPressure::Near) {
        MemoryPressure::Near
    } else {
        MemoryPressure::None
    }
}

/// Returns the memory limit of the config, or else nine tenths of the control group's. Memory stays
/// within 1.1 times the divided limit, and the kernel kills the process beyond the group's.
fn budget(config: &Config) -> u64 {
    let of_group = || of_group(&read("/sys/fs/cgroup/memory.max")?);
    config.memory.or_else(of_group).unwrap_or(NO_LIMIT)
}

/// Returns the part of a control group's limit that is divided; `None` without a limit.
fn of_group(limit: &str) -> Option<u64> {
    limit.trim().parse::<u64>().ok().map(|limit| limit / 10 * 9)
}

/// Returns the memory to divide: the limit, or else the machine's memory.
fn divided(config: &Config) -> usize {
    let machine = || {
        let line = read("/proc/meminfo")?;
        let total = line
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        total
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
            .map(|kilobytes| kilobytes * 1024)
    };
    let memory = Some(budget(config))
        .filter(|budget| *budget != NO_LIMIT)
        .or_else(machine);
    memory.map_or(usize::MAX, |memory| {
        usize::try_from(memory).unwrap_or(usize::MAX)
    })
}

/// Returns the caps of the replay logs: in all at most a sixteenth of the memory, even if the
/// config allows more.
pub fn replays(config: &Config) -> ReplayCaps {
    ReplayCaps {
        total: config.replays.total.min(divided(config) / 16),
        ..config.replays
    }
}

/// Returns the bounds of held results: in all at most a sixteenth of the memory, and of one call at
/// most half of that.
fn hold(config: &Config) -> HoldLimits {
    let total = config.hold.total.min(divided(config) / 16);
    HoldLimits {
        total,
        per_call: config.hold.per_call.min(total / 2),
    }
}

/// Returns the most bytes of cached list pages: at most a thirty-second of the memory.
pub fn pages(config: &Config) -> usize {
    config
        .front
        .limits
        .page_cache_bytes
        .min(divided(config) / 32)
}

/// Returns the resident memory of the process in bytes.
fn used() -> Option<u64> {
    let status = read("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes * 1024)
}

/// Reads a file that the kernel generates, so there is no disk to wait for.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves F10.
    #[test]
    fn memory_pressure_stages_have_hysteresis() {
        let walk = [
            (50, MemoryPressure::None),
            (91, MemoryPressure::None),
            (92, MemoryPressure::Near),
            (94, MemoryPressure::Near),
            (89, MemoryPressure::Near),
            (87, MemoryPressure::None),
            (89, MemoryPressure::None),
            (95, MemoryPressure::Acute),
            (93, MemoryPressure::Acute),
            (91, MemoryPressure::Near),
            (94, MemoryPressure::Near),
            (200, MemoryPressure::Acute),
            (10, MemoryPressure::None),
        ];
        let mut stage = MemoryPressure::None;
        for (used, expected) in walk {
            stage = shortage(stage, used << 30, 100 << 30);
            assert_eq!(stage, expected, "{used}");
        }
        assert_eq!(
            shortage(MemoryPressure::Acute, u64::MAX, NO_LIMIT),
            MemoryPressure::None
        );
        assert_eq!(shortage(MemoryPressure::None, 1, 1), MemoryPressure::Acute);
    }

    #[test]
    fn limit_is_nine_tenths_of_the_control_groups() {
        assert_eq!(of_group("1000000000\n"), Some(900_000_000));
        assert_eq!(of_group("max\n"), None);
    }

    #[test]
    fn used_memory_and_descriptor_limit_are_read() {
        assert!(most_descriptors().is_some_and(|most| most > 64));
        assert!(used().is_some_and(|used| (1 << 20..1 << 40).contains(&used)));
    }
}
