//! The processes below the keeper: its children, their descendants, and the orphans that became the
//! keeper's own children.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use tokio::sync::oneshot;

/// A process by its number and its start time, so that a number that is used again is another
/// process.
pub(super) type ProcessKey = (i32, u64);

/// A process as the system shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    pub(super) key: ProcessKey,
    parent: i32,
    group: i32,
}

/// All processes that the keeper has to end.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    /// The children by process id, which is also their group's id. A child in this map is not
    /// waited for yet, so its number cannot be used again.
    children: HashMap<i32, ChildEntry>,
    /// The remaining processes of an ended child, to be killed as soon as they are children of this
    /// process.
    doomed: HashSet<ProcessKey>,
}

#[derive(Debug)]
struct ChildEntry {
    ended: oneshot::Sender<i32>,
    /// The child's descendants, as they were seen while the child was their ancestor.
    seen: HashSet<ProcessKey>,
}

impl Descendants {
    /// Adds a child that was just started. Returns a receiver of its `wait(2)` status.
    pub(super) fn add_child(&mut self, id: u32) -> oneshot::Receiver<i32> {
        let (ended, receiver) = oneshot::channel();
        if let Ok(id) = i32::try_from(id) {
            self.children.insert(
                id,
                ChildEntry {
                    ended,
                    seen: HashSet::new(),
                },
            );
        }
        receiver
    }

    /// Signals the group of a child that was not waited for.
    pub(super) fn signal(&self, id: u32, signal: Signal) {
        let child = i32::try_from(id)
            .ok()
            .filter(|id| self.children.contains_key(id))
            .and_then(Pid::from_raw);
        if let Some(child) = child {
            // A child that moved to another group is still a child.
            let _group_gone = rustix::process::kill_process_group(child, signal);
            let _ended = rustix::process::kill_process(child, signal);
        }
    }

    /// Notes the descendants of each child.
    pub(super) fn scan(&mut self) {
        let all = processes();
        let there: HashSet<ProcessKey> = all.iter().map(|process| process.key).collect();
        for (id, child) in &mut self.children {
            child.seen.retain(|key| there.contains(key));
            child
                .seen
                .extend(descendants_of(&all, &HashSet::from([*id])));
        }
    }

    /// Waits for all ended children, and ends the processes that they left behind.
    pub(super) fn reap(&mut self) {
        let over: Vec<Pid> = self
            .children
            .keys()
            .filter_map(|id| Pid::from_raw(*id))
            .filter(|id| has_ended(*id))
            .collect();
        for child in over {
            // The number and the group's number stay reserved until the child is waited for.
            let _group_gone = rustix::process::kill_process_group(child, Signal::KILL);
        }
        while let Ok(Some((id, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let id = id.as_raw_pid();
            if let Some(ChildEntry { ended, seen }) = self.children.remove(&id) {
                let left = processes()
                    .into_iter()
                    .filter(|process| process.group == id || seen.contains(&process.key));
                self.doomed.extend(left.map(|process| process.key));
                // The child's control task may be gone.
                let _unheard = ended.send(status.as_raw());
            }
        }
        self.end_doomed();
    }

    /// Kills the doomed processes that are children of this process. Their own children are
    /// reparented by that, and the next SIGCHLD calls this again.
    fn end_doomed(&mut self) {
        if self.doomed.is_empty() {
            return;
        }
        let all = processes();
        let roots: HashSet<i32> = all
            .iter()
            .filter(|process| self.doomed.contains(&process.key))
            .map(|process| process.key.0)
            .collect();
        self.doomed.extend(descendants_of(&all, &roots));
        let there: HashSet<ProcessKey> = all.iter().map(|process| process.key).collect();
        self.doomed.retain(|key| there.contains(key));
        kill_own(&all, |process| self.doomed.contains(&process.key));
    }

    /// Kills every child of this process. True once it has no children.
    pub(super) fn end_all(&mut self) -> bool {
        for id in self.children.keys().filter_map(|id| Pid::from_raw(*id)) {
            let _group_gone = rustix::process::kill_process_group(id, Signal::KILL);
        }
        kill_own(&processes(), |_| true);
        self.reap();
        matches!(
            rustix::process::wait(WaitOptions::NOHANG),
            Err(rustix::io::Errno::CHILD)
        )
    }
}

/// Kills children of this process. No child is waited for between the look at them and the signal,
/// so the number is still theirs.
fn kill_own(all: &[ProcessEntry], wanted: impl Fn(&ProcessEntry) -> bool) {
    let own = rustix::process::getpid().as_raw_pid();
    for process in all
        .iter()
        .filter(|process| process.parent == own && wanted(process))
    {
        if let Some(id) = Pid::from_raw(process.key.0) {
            // A process of another user stays, and is tried again.
            let _refused = rustix::process::kill_process(id, Signal::KILL);
        }
    }
}

/// True for a child that has ended and was not waited for. This call does not wait for it either.
fn has_ended(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(
        rustix::process::waitid(WaitId::Pid(child), options),
        Ok(Some(_))
    )
}

/// Returns the descendants of these processes, without the processes themselves.
pub(super) fn descendants_of(all: &[ProcessEntry], roots: &HashSet<i32>) -> Vec<ProcessKey> {
    let mut children: HashMap<i32, Vec<&ProcessEntry>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut parents) = (Vec::new(), roots.iter().copied().collect::<Vec<_>>());
    while let Some(parent) = parents.pop() {
        // Each is visited once and removed: numbers that were reused during the reading make no
        // circle.
        for process in children.remove(&parent).unwrap_or_default() {
            found.push(process.key);
            parents.push(process.key.0);
        }
    }
    found
}

/// Returns the processes that the system shows; an empty list on systems without `/proc`.
pub(super) fn processes() -> Vec<ProcessEntry> {
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = folder.flatten().filter_map(|entry| {
        entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
    });
    names.filter_map(process).collect()
}

/// Returns the process that has this number now.
pub(super) fn process(id: i32) -> Option<ProcessEntry> {
    entry(
        id,
        &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?,
    )
}

/// Parses `/proc/PID/stat` (`proc_pid_stat(5)`). The process name may have any characters, closing
/// brackets included.
fn entry(id: i32, stat: &str) -> Option<ProcessEntry> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // The 22nd field of all.
    let started = fields.nth(16)?.parse().ok()?;
    Some(ProcessEntry {
        key: (id, started),
        parent,
        group,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "41 (a) b (c) S 7 40 39 0 -1 4194560 84 0 0 0 0 0 0 0 20 0 1 0 12345 8 9";
        let read = entry(41, stat);
        assert_eq!(
            read,
            Some(ProcessEntry {
                key: (41, 12345),
                parent: 7,
                group: 40
            })
        );
        assert_eq!(entry(41, "41 (a"), None);
        assert_eq!(entry(41, "41 (a) S 7"), None);
    }

    #[test]
    fn descendants_are_found_through_all_generations() {
        let process = |id: i32, parent: i32| ProcessEntry {
            key: (id, 1),
            parent,
            group: id,
        };
        // 8 and 9 are each other's parents: numbers that were reused while the list was read.
        let all = [
            process(2, 1),
            process(3, 2),
            process(4, 3),
            process(5, 1),
            process(8, 9),
            process(9, 8),
        ];
        let mut found = descendants_of(&all, &HashSet::from([2]));
        found.sort_unstable();
        assert_eq!(found, [(3, 1), (4, 1)]);
        assert_eq!(descendants_of(&all, &HashSet::from([8])).len(), 2);
    }
}
