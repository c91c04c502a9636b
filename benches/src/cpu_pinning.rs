//! The processors that this thread, and every process that it starts, runs on.

use anyhow::Result;

/// The guard that keeps the thread on one processor. Dropping it restores the former set.
#[derive(Debug)]
pub(crate) struct PinnedThread(platform::Allowed);

/// Keeps the thread on processor `core`, one of [`allowed`].
///
/// # Errors
/// The system has no such processor, or cannot do it.
pub(crate) fn pin(core: usize) -> Result<PinnedThread> {
    let before = platform::read()?;
    platform::write(&platform::only(core)?)?;
    Ok(PinnedThread(before))
}

/// The processors that this thread may run on; empty if the system does not report them.
pub(crate) fn allowed() -> Vec<usize> {
    platform::read().map_or_else(|_| Vec::new(), |allowed| platform::cores(&allowed))
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // Widening a set of processors fails no more than narrowing it did, and a thread that stays
        // pinned does no harm.
        let _ = platform::write(&self.0);
    }
}

#[cfg(target_os = "linux")]
mod platform {
    use anyhow::Result;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    pub(super) type Allowed = CpuSet;

    /// The calling thread.
    const THIS: Pid = Pid::from_raw(0);

    pub(super) fn read() -> Result<CpuSet> {
        Ok(sched_getaffinity(THIS)?)
    }

    pub(super) fn write(allowed: &CpuSet) -> Result<()> {
        Ok(sched_setaffinity(THIS, allowed)?)
    }

    pub(super) fn only(core: usize) -> Result<CpuSet> {
        let mut allowed = CpuSet::new();
        allowed.set(core)?;
        Ok(allowed)
    }

    pub(super) fn cores(allowed: &CpuSet) -> Vec<usize> {
        (0..CpuSet::count())
            .filter(|core| allowed.is_set(*core).unwrap_or(false))
            .collect()
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use anyhow::{Result, bail};

    pub(super) type Allowed = ();

    pub(super) fn read() -> Result<()> {
        bail!("only Linux keeps a process on one processor")
    }

    pub(super) fn write((): &()) -> Result<()> {
        read()
    }

    pub(super) fn only(_: usize) -> Result<()> {
        read()
    }

    pub(super) fn cores((): &()) -> Vec<usize> {
        Vec::new()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_thread_is_kept_on_its_processor_and_let_go_again() {
        let before = allowed();
        let core = *before.last().unwrap();
        let pinned = pin(core).unwrap();
        assert_eq!(allowed(), [core]);
        drop(pinned);
        assert_eq!(allowed(), before);
    }
}
