//! Processes by a descriptor (`pidfd_open(2)`), which means the same process for as long as it is
//! open. weir has one of each child, for the end of those whose keeper was lost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One process, whatever becomes of its number. Only Linux has such descriptors.
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

    use super::super::descendants::{ProcessKey, below, process, processes};
    use super::ProcessHandle;

    /// How often it is looked for what a process started while it was being stopped.
    const LOOKS: usize = 16;
    /// How often it is looked whether one is over.
    const AGAIN: Duration = Duration::from_millis(20);
    /// How long a killed process may take to be gone.
    const GOING: Duration = Duration::from_secs(1);

    impl ProcessHandle {
        /// The process that has this number now. `None` where there is none, or the system has no
        /// such descriptors.
        pub(in super::super) fn open(id: u32) -> Option<Self> {
            let id = Pid::from_raw(i32::try_from(id).ok()?)?;
            rustix::process::pidfd_open(id, PidfdFlags::empty())
                .ok()
                .map(Self)
        }

        /// The process of this key, if it is there.
        fn of((id, started): ProcessKey) -> Option<Self> {
            let opened = Self::open(u32::try_from(id).ok()?)?;
            // Its start says whether the number was another's by the time that it was opened.
            process(id)
                .is_some_and(|now| now.key == (id, started))
                .then_some(opened)
        }

        /// The number of the process; `None` once it is gone.
        fn id(&self) -> Option<i32> {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))
                .ok()?;
            let id = info.lines().find_map(|line| line.strip_prefix("Pid:"))?;
            id.trim().parse().ok().filter(|id| *id > 0)
        }

        fn signal(&self, signal: Signal) {
            // One that is over, or another user's.
            let _refused = rustix::process::pidfd_send_signal(&self.0, signal);
        }

        /// True once the process runs no more, whether or not it was waited for.
        fn is_over(&self) -> bool {
            let state = |id| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
            self.id().and_then(state).is_none_or(|stat| {
                stat.rsplit(')')
                    .next()
                    .is_some_and(|rest| rest.starts_with(" Z"))
            })
        }

        /// Returns once the process is over, at the latest after this time.
        async fn over(&self, within: Duration) {
            // The descriptor says so by itself, but no safe code can wait for it in tokio.
            let over = async {
                while !self.is_over() {
                    tokio::time::sleep(AGAIN).await;
                }
            };
            let _late = tokio::time::timeout(within, over).await;
        }

        /// Ends the process and what descends from it. `ask` asks it to end by itself, for which it
        /// has so much time.
        pub(in super::super) async fn end_with_descendants(
            self,
            ask: impl FnOnce(),
            time: Duration,
        ) {
            let mut family = Family {
                root: self,
                descendants: HashMap::new(),
            };
            // While all are still below it.
            family.look();
            ask();
            family.root.over(time).await;
            // What is stopped starts nothing more, so that none is overlooked.
            for _ in 0..LOOKS {
                family.signal(Signal::STOP);
                if !family.look() {
                    break;
                }
            }
            family.signal(Signal::KILL);
            for member in family.members() {
                member.over(GOING).await;
                // Where this is the first process of all, it is the parent of what has lost its
                // own.
                let _not_own = rustix::process::waitid(
                    WaitId::PidFd(member.as_fd()),
                    WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
                );
            }
        }
    }

    /// A process, and what was seen to descend from it.
    struct Family {
        root: ProcessHandle,
        descendants: HashMap<ProcessKey, ProcessHandle>,
    }

    impl Family {
        /// Looks for more descendants; true where there are some.
        fn look(&mut self) -> bool {
            let root = self.root.id();
            let all = processes();
            // Its number was its own all the while, or says nothing.
            let root = root.filter(|_| self.root.id().is_some());
            let known = all
                .iter()
                .filter(|process| self.descendants.contains_key(&process.key));
            let roots: HashSet<i32> = known.map(|process| process.key.0).chain(root).collect();
            let before = self.descendants.len();
            for key in below(&all, &roots) {
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
