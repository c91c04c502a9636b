//! Processes by a descriptor (`pidfd_open(2)`), which refers to the same process for as long as it
//! is open. weir has one for each child, to end the children of a lost keeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One process, independent of its number. Only Linux has such descriptors.
#[derive(Debug)]
pub(super) struct ProcessHandle(OwnedFd);

impl From<OwnedFd> for ProcessHandle {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl From<ProcessHandle> for OwnedFd {
    fn from(process: ProcessHandle) -> Self {
        process.0
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{HashMap, HashSet};
    use std::os::fd::{AsFd as _, AsRawFd as _};
    use std::time::Duration;

    use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

    use super::super::descendants::{ProcessKey, descendants_of, process, processes};
    use super::ProcessHandle;

    /// The most looks for processes that were started while their parents were being stopped.
    const MAX_SCANS: usize = 16;
    /// The interval between two looks at a process that is to end.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    /// The longest time that a killed process may take to be gone.
    const KILL_WAIT: Duration = Duration::from_secs(1);

    impl ProcessHandle {
        /// Opens the process that has this number now. Absent if there is no such process, or the
        /// system has no such descriptors.
        pub(in super::super) fn open(id: u32) -> Option<Self> {
            let id = Pid::from_raw(i32::try_from(id).ok()?)?;
            rustix::process::pidfd_open(id, PidfdFlags::empty())
                .ok()
                .map(Self)
        }

        /// Opens the process of this key, if it still runs.
        fn of((id, started): ProcessKey) -> Option<Self> {
            let opened = Self::open(u32::try_from(id).ok()?)?;
            // The start time shows if the number was reused before it was opened.
            process(id)
                .is_some_and(|now| now.key == (id, started))
                .then_some(opened)
        }

        /// Returns the number of the process; absent once it is gone.
        fn id(&self) -> Option<i32> {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))
                .ok()?;
            let id = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
            id.trim().parse().ok().filter(|id| *id > 0)
        }

        fn signal(&self, signal: Signal) {
            // Fails for a process that is over, or is another user's.
            let _refused = rustix::process::pidfd_send_signal(&self.0, signal);
        }

        /// True once the process no longer runs, even if it was not waited for.
        fn is_over(&self) -> bool {
            let state = |id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
            self.id().and_then(state).is_none_or(|stat| {
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.starts_with(" Z"))
            })
        }

        /// Returns once the process is over, at the latest after this time.
        async fn wait_until_over(&self, within: Duration) {
            // The descriptor becomes readable at the end, but safe code cannot wait for that in
            // tokio.
            let over = async {
                while !self.is_over() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            let _late = tokio::time::timeout(within, over).await;
        }

        /// Ends the process and its descendants. `ask` requests the end; the process has `time` to
        /// follow.
        pub(in super::super) async fn end_with_descendants(
            self,
            ask: impl FnOnce(),
            time: Duration,
        ) {
            let mut family = ProcessFamily {
                root: self,
                descendants: HashMap::new(),
            };
            // While all are still descendants of it.
            family.scan();
            ask();
            family.root.wait_until_over(time).await;
            // A stopped process starts no other, so that no descendant is overlooked.
            for _ in 0..MAX_SCANS {
                family.signal(Signal::STOP);
                if !family.scan() {
                    break;
                }
            }
            family.signal(Signal::KILL);
            for member in family.members() {
                member.wait_until_over(KILL_WAIT).await;
                // If this is the first process of all (PID 1), it is the parent of orphans.
                let _not_own = rustix::process::waitid(
                    WaitId::PidFd(member.as_fd()),
                    WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
                );
            }
        }
    }

    /// A process and its descendants as they were seen.
    struct ProcessFamily {
        root: ProcessHandle,
        descendants: HashMap<ProcessKey, ProcessHandle>,
    }

    impl ProcessFamily {
        /// Looks for more descendants. True if it found some.
        fn scan(&mut self) -> bool {
            let root = self.root.id();
            let all = processes();
            // The number is valid only if the process still exists after the reading.
            let root = root.filter(|_| self.root.id().is_some());
            let known = all
                .iter()
                .filter(|process| self.descendants.contains_key(&process.key));
            let roots: HashSet<i32> = known.map(|process| process.key.0).chain(root).collect();
            let before = self.descendants.len();
            for key in descendants_of(&all, &roots) {
                if !self.descendants.contains_key(&key)
                    && let Some(handle) = ProcessHandle::of(key)
                {
                    self.descendants.insert(key, handle);
                }
            }
            self.descendants.len() > before
        }

        fn members(&self) -> impl Iterator<Item = &ProcessHandle> {
            std::iter::once(&self.root).chain(self.descendants.values())
        }

        fn signal(&self, signal: Signal) {
            self.members().for_each(|member| member.signal(signal));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::time::Duration;

    use super::ProcessHandle;

    impl ProcessHandle {
        pub(in super::super) fn open(_id: u32) -> Option<Self> {
            None
        }

        pub(in super::super) async fn end_with_descendants(
            self,
            ask: impl FnOnce(),
            _time: Duration,
        ) {
            ask();
        }
    }
}
