//! The task book in memory: the tasks of each owner, with their states.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use weir_core::failure::{Failure, FailureKind};
use weir_core::port::{Clock, KeptTask, TaskBook};
use weir_core::{EndpointId, Principal};

use crate::store_operation::StoreOperation;

static ENTER: StoreOperation = StoreOperation::new("tasks", "enter");
static FIND: StoreOperation = StoreOperation::new("tasks", "find");

/// The limits of stored tasks and their states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskCaps {
    /// Of all owners.
    pub total: usize,
    /// Of one owner. All anonymous callers share one principal, so only the
    /// total binds it.
    pub per_owner: usize,
    /// Of all states together.
    pub bytes: usize,
    /// Of the states of one owner, so that no owner takes all of the room.
    pub owner_bytes: usize,
    /// The longest time that a task is stored.
    pub time: Duration,
}

impl Default for TaskCaps {
    fn default() -> Self {
        Self {
            total: 10_000,
            per_owner: 256,
            bytes: 64 << 20,
            owner_bytes: 16 << 20,
            time: Duration::from_secs(24 * 3600),
        }
    }
}

/// A task on its way to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTask {
    /// Its owner.
    pub principal: Principal,
    /// The endpoint that it began at.
    pub endpoint: EndpointId,
    /// The task.
    pub task: KeptTask,
    /// Its position in the list of its owner.
    pub position: u64,
    /// True if its owner has fetched the result.
    pub is_fetched: bool,
    /// The time that it has left.
    pub left: Duration,
}

/// The tasks of one process.
pub struct MemoryTasks {
    clock: Arc<dyn Clock>,
    caps: TaskCaps,
    table: Mutex<TaskTable>,
}

type TaskOwner = (Principal, EndpointId);

#[derive(Default)]
struct TaskTable {
    owners: HashMap<TaskOwner, BTreeMap<u64, TaskEntry>>,
    next: u64,
    total: usize,
    bytes: usize,
}

struct TaskEntry {
    task: KeptTask,
    until: Duration,
    /// True once its owner has fetched the result.
    fetched: bool,
}

impl TaskEntry {
    /// The rank among the entries that make room, lowest first; none for a result that its owner
    /// has not fetched.
    fn eviction_rank(&self) -> Option<u8> {
        if !self.task.settled {
            // Its server has it: it is only not listed any more.
            Some(0)
        } else if self.fetched || !self.task.has_result() {
            Some(1)
        } else {
            None
        }
    }
}

impl MemoryTasks {
    /// An empty store of tasks.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, caps: TaskCaps) -> Self {
        Self {
            clock,
            caps,
            table: Mutex::default(),
        }
    }

    fn enter_now(
        &self,
        owner: TaskOwner,
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure> {
        let now = self.clock.monotonic();
        let until = now + ttl.unwrap_or(self.caps.time).min(self.caps.time);
        let mut table = self.table.lock();
        // A task with a new state keeps its position in the list.
        let own = table.owners.get(&owner);
        let known = own.and_then(|own| {
            own.iter()
                .find(|(_, entry)| entry.task.name == task.name)
                .map(|(nth, _)| *nth)
        });
        table.remove(&owner, |_, entry| entry.until <= now);
        let evicted = if owner.0.is_anonymous() {
            Some(HashSet::new())
        } else {
            table.evicted_for(&owner, known, task.state.len(), &self.caps)
        };
        let is_full = |table: &TaskTable, evicted: &HashSet<u64>| {
            let gone = |nth: &u64| Some(*nth) == known || evicted.contains(nth);
            let own = table.owners.get(&owner).into_iter().flatten();
            let going = own.filter(|(nth, _)| gone(nth));
            let (count, bytes) = going.fold((0, 0), |(count, bytes), (_, entry)| {
                (count + 1, bytes + entry.task.state.len())
            });
            table.total - count >= self.caps.total
                || table.bytes - bytes + task.state.len() > self.caps.bytes
        };
        let evicted = evicted.filter(|evicted| {
            if is_full(&table, evicted) {
                table.sweep(now);
            }
            !is_full(&table, evicted)
        });
        let Some(evicted) = evicted else {
            drop(table);
            // The call was sent before: to make it again would run it twice.
            let text = "No more tasks can be kept now, so this one cannot be followed: the call may have run. Check before calling again";
            return Err(Failure::new(FailureKind::ResultUnknown, text));
        };
        table.remove(&owner, |nth, _| {
            Some(nth) == known || evicted.contains(&nth)
        });
        let nth = known.unwrap_or(table.next + 1);
        table.next = table.next.max(nth);
        table.total += 1;
        table.bytes += task.state.len();
        table.owners.entry(owner).or_default().insert(
            nth,
            TaskEntry {
                task,
                until,
                fetched: false,
            },
        );
        Ok(())
    }

    /// Copies all tasks, for another process.
    pub fn copy_all(&self) -> Vec<MovedTask> {
        let now = self.clock.monotonic();
        let table = self.table.lock();
        let of_owner = |((principal, endpoint), own): (&TaskOwner, &BTreeMap<u64, TaskEntry>)| {
            let alive = own.iter().filter(|(_, entry)| entry.until > now);
            let moved = alive.map(|(nth, entry)| MovedTask {
                principal: principal.clone(),
                endpoint: endpoint.clone(),
                task: entry.task.clone(),
                position: *nth,
                is_fetched: entry.fetched,
                left: entry.until - now,
            });
            moved.collect::<Vec<_>>()
        };
        table.owners.iter().flat_map(of_owner).collect()
    }

    /// Copies one task, for another process.
    pub fn copy(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        name: &str,
    ) -> Option<MovedTask> {
        let now = self.clock.monotonic();
        let table = self.table.lock();
        let mut own = table.tasks_of(principal, endpoint)?.iter();
        let (nth, entry) = own.find(|(_, entry)| &*entry.task.name == name)?;
        Some(MovedTask {
            principal: principal.clone(),
            endpoint: endpoint.clone(),
            task: entry.task.clone(),
            position: *nth,
            is_fetched: entry.fetched,
            left: entry.until.checked_sub(now)?,
        })
    }

    /// Puts in a task that was copied from another process, within the caps. A settled task of the
    /// same name stays, since it is the newer one.
    pub fn put(&self, moved: MovedTask) {
        let MovedTask {
            principal,
            endpoint,
            task,
            position,
            is_fetched,
            left,
        } = moved;
        let owner = (principal, endpoint);
        let name = task.name.clone();
        let known = self.find(&owner.0, &owner.1, &name);
        if known.is_some_and(|known| known.settled) {
            return;
        }
        if self.enter_now(owner.clone(), task, Some(left)).is_err() {
            // The caps of this process are full: the task is lost here.
            return;
        }
        let mut table = self.table.lock();
        table.set_position(&owner, &name, position);
        let own = table.owners.get_mut(&owner);
        let mut entries = own.into_iter().flat_map(BTreeMap::values_mut);
        if let Some(entry) = entries.find(|entry| entry.task.name == name) {
            entry.fetched = is_fetched;
        }
    }
}

impl TaskTable {
    fn tasks_of(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
    ) -> Option<&BTreeMap<u64, TaskEntry>> {
        self.owners.get(&(principal.clone(), endpoint.clone()))
    }

    /// Returns the entries of the owner that make room for a new one of this size, beside `known`,
    /// which it replaces; no value if they do not make enough.
    fn evicted_for(
        &self,
        owner: &TaskOwner,
        known: Option<u64>,
        size: usize,
        caps: &TaskCaps,
    ) -> Option<HashSet<u64>> {
        let own = self.owners.get(owner).into_iter().flatten();
        let others: Vec<_> = own.filter(|(nth, _)| Some(**nth) != known).collect();
        let mut count = others.len() + 1;
        let mut bytes = size;
        bytes += others
            .iter()
            .map(|(_, entry)| entry.task.state.len())
            .sum::<usize>();
        let mut candidates: Vec<_> = others
            .into_iter()
            .filter_map(|(nth, entry)| Some((entry.eviction_rank()?, *nth, entry)))
            .collect();
        candidates.sort_by_key(|(rank, nth, _)| (*rank, *nth));
        let mut evicted = HashSet::new();
        let mut candidates = candidates.into_iter();
        while count > caps.per_owner || bytes > caps.owner_bytes {
            let (_, nth, entry) = candidates.next()?;
            evicted.insert(nth);
            count -= 1;
            bytes -= entry.task.state.len();
        }
        Some(evicted)
    }

    /// Moves a task to a position in the list of its owner, unless another one has it.
    fn set_position(&mut self, owner: &TaskOwner, name: &str, position: u64) {
        let Some(own) = self.owners.get_mut(owner) else {
            return;
        };
        if own.contains_key(&position) {
            return;
        }
        let present = own.iter().find(|(_, entry)| &*entry.task.name == name);
        if let Some(present) = present.map(|(nth, _)| *nth)
            && let Some(entry) = own.remove(&present)
        {
            own.insert(position, entry);
            self.next = self.next.max(position);
        }
    }

    /// Removes the owner's entries that `gone` matches.
    fn remove(&mut self, owner: &TaskOwner, gone: impl Fn(u64, &TaskEntry) -> bool) {
        let Some(own) = self.owners.get_mut(owner) else {
            return;
        };
        let (total, bytes) = (&mut self.total, &mut self.bytes);
        own.retain(|nth, entry| {
            let stays = !gone(*nth, entry);
            if !stays {
                *total -= 1;
                *bytes -= entry.task.state.len();
            }
            stays
        });
        if own.is_empty() {
            self.owners.remove(owner);
        }
    }

    /// Removes the expired tasks of all owners.
    fn sweep(&mut self, now: Duration) {
        let owners: Vec<TaskOwner> = self.owners.keys().cloned().collect();
        for owner in owners {
            self.remove(&owner, |_, entry| entry.until <= now);
        }
    }
}

impl TaskBook for MemoryTasks {
    fn enter(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure> {
        ENTER.time(|| self.enter_now((principal.clone(), endpoint.clone()), task, ttl))
    }

    fn find(&self, principal: &Principal, endpoint: &EndpointId, name: &str) -> Option<KeptTask> {
        let now = self.clock.monotonic();
        let found = FIND.time(|| {
            let table = self.table.lock();
            table
                .tasks_of(principal, endpoint)?
                .values()
                .find(|entry| &*entry.task.name == name)
                .map(|entry| (entry.until, entry.task.clone()))
        });
        found
            .filter(|(until, _)| *until > now)
            .map(|(_, task)| task)
    }

    fn note_fetched(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        let mut table = self.table.lock();
        let own = table.owners.get_mut(&(principal.clone(), endpoint.clone()));
        let entries = own.into_iter().flat_map(BTreeMap::values_mut);
        entries
            .filter(|entry| &*entry.task.name == name)
            .for_each(|entry| entry.fetched = true);
    }

    fn forget(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.table
            .lock()
            .remove(&(principal.clone(), endpoint.clone()), |_, entry| {
                &*entry.task.name == name
            });
    }

    fn page(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        after: u64,
        most: usize,
    ) -> Vec<(u64, KeptTask)> {
        let now = self.clock.monotonic();
        let table = self.table.lock();
        let Some(own) = table.tasks_of(principal, endpoint) else {
            return Vec::new();
        };
        let rest = own
            .range(after.saturating_add(1)..)
            .filter(|(_, entry)| entry.until > now);
        rest.take(most)
            .map(|(nth, entry)| (*nth, entry.task.clone()))
            .collect()
    }
}

impl std::fmt::Debug for MemoryTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryTasks({} tasks)", self.table.lock().total)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use bytes::Bytes;

    use weir_testkit::FakeClock;

    use super::*;
    use crate::fake::principal;

    fn task(name: &str, size: usize) -> KeptTask {
        KeptTask {
            name: name.into(),
            state: Bytes::from("x".repeat(size)),
            settled: false,
        }
    }

    fn names(table: &MemoryTasks, principal: &Principal, endpoint: &EndpointId) -> Vec<String> {
        table
            .page(principal, endpoint, 0, 100)
            .iter()
            .map(|(_, task)| task.name.to_string())
            .collect()
    }

    // Proves R234, R282.
    #[tokio::test]
    async fn tasks_are_remembered_for_their_owners_within_bounds() {
        let clock = Arc::new(FakeClock::default());
        let caps = TaskCaps {
            total: 4,
            per_owner: 2,
            bytes: 100,
            owner_bytes: 100,
            time: Duration::from_secs(60),
        };
        let table = MemoryTasks::new(clock.clone(), caps);
        let (ann, bob) = (principal("ann"), principal("bob"));
        let (here, there) = (EndpointId::new("/mcp"), EndpointId::new("/other"));
        for name in ["1", "2", "3"] {
            table.enter(&ann, &here, task(name, 10), None).unwrap();
        }
        assert_eq!(names(&table, &ann, &here), ["2", "3"], "the oldest went");
        table.enter(&ann, &here, task("2", 20), None).unwrap();
        assert_eq!(
            names(&table, &ann, &here),
            ["2", "3"],
            "told of anew, in its place"
        );
        assert_eq!(table.page(&ann, &here, 2, 1)[0].1.name, "3".into());
        assert!(names(&table, &bob, &here).is_empty() && names(&table, &ann, &there).is_empty());
        assert_eq!(table.find(&bob, &here, "2"), None);
        assert_eq!(table.find(&ann, &here, "2").unwrap().state.len(), 20);
        assert_eq!(
            table
                .enter(&bob, &here, task("4", 90), None)
                .unwrap_err()
                .kind(),
            &FailureKind::ResultUnknown,
            "its call was sent"
        );
        table
            .enter(&bob, &here, task("4", 10), Some(Duration::from_secs(5)))
            .unwrap();
        clock.advance(Duration::from_secs(5));
        assert_eq!(table.find(&bob, &here, "4"), None, "its time is over");
        clock.advance(Duration::from_secs(60));
        table.enter(&bob, &here, task("5", 90), None).unwrap();
        assert!(names(&table, &ann, &here).is_empty());
        table.forget(&bob, &here, "5");
        assert_eq!(format!("{table:?}"), "MemoryTasks(0 tasks)");
    }

    #[tokio::test]
    async fn large_results_of_one_owner_leave_room_for_others() {
        let caps = TaskCaps {
            bytes: 100,
            owner_bytes: 30,
            ..TaskCaps::default()
        };
        let table = MemoryTasks::new(Arc::new(FakeClock::default()), caps);
        let (ann, bob) = (principal("ann"), principal("bob"));
        let here = EndpointId::new("/mcp");
        for n in 0..20 {
            table
                .enter(&ann, &here, task(&n.to_string(), 10), None)
                .unwrap();
        }
        assert_eq!(names(&table, &ann, &here), ["17", "18", "19"]);
        table.enter(&ann, &here, task("large", 25), None).unwrap();
        assert_eq!(names(&table, &ann, &here), ["large"]);
        table.enter(&bob, &here, task("1", 30), None).unwrap();
        assert_eq!(names(&table, &bob, &here), ["1"]);
    }

    fn result(name: &str) -> KeptTask {
        KeptTask {
            name: name.into(),
            state: Bytes::from_static(br#"{"status":"completed","result":{"content":[]}}"#),
            settled: true,
        }
    }

    #[tokio::test]
    async fn results_that_were_not_fetched_stay_for_their_time() {
        let caps = TaskCaps {
            per_owner: 3,
            ..TaskCaps::default()
        };
        let clock = Arc::new(FakeClock::default());
        let table = MemoryTasks::new(clock.clone(), caps);
        let ann = principal("ann");
        let here = EndpointId::new("/mcp");
        let hour = Some(Duration::from_secs(3600));
        for task in [result("unread"), result("read"), task("open", 10)] {
            table.enter(&ann, &here, task, hour).unwrap();
        }
        table.note_fetched(&ann, &here, "read");
        table.enter(&ann, &here, result("second"), hour).unwrap();
        assert_eq!(names(&table, &ann, &here), ["unread", "read", "second"]);
        table.enter(&ann, &here, result("third"), hour).unwrap();
        assert_eq!(names(&table, &ann, &here), ["unread", "second", "third"]);

        for task in [result("fourth"), task("open", 10)] {
            let refused = table.enter(&ann, &here, task, hour).unwrap_err();
            assert_eq!(refused.kind(), &FailureKind::ResultUnknown);
        }
        assert_eq!(names(&table, &ann, &here), ["unread", "second", "third"]);
        table.enter(&ann, &here, result("second"), hour).unwrap();
        assert_eq!(names(&table, &ann, &here), ["unread", "second", "third"]);
        clock.advance(Duration::from_secs(3600));
        table.enter(&ann, &here, result("fourth"), hour).unwrap();
        assert_eq!(names(&table, &ann, &here), ["fourth"]);
    }

    #[tokio::test]
    async fn copied_tasks_have_their_owner_time_and_position_in_another_process() {
        let (ann, bob) = (principal("ann"), principal("bob"));
        let here = EndpointId::new("/mcp");
        let before = MemoryTasks::new(Arc::new(FakeClock::default()), TaskCaps::default());
        let minute = Some(Duration::from_secs(60));
        before.enter(&ann, &here, task("open", 10), minute).unwrap();
        before.enter(&bob, &here, result("his"), minute).unwrap();
        before.enter(&ann, &here, result("read"), minute).unwrap();
        before.note_fetched(&ann, &here, "read");
        assert!(before.copy(&bob, &here, "read").is_none());
        let one = before.copy(&ann, &here, "read").unwrap();
        assert!(one.is_fetched && one.position == 3);

        let caps = TaskCaps {
            per_owner: 3,
            ..TaskCaps::default()
        };
        let clock = Arc::new(FakeClock::default());
        let after = MemoryTasks::new(clock.clone(), caps);
        before.copy_all().into_iter().for_each(|one| after.put(one));
        assert_eq!(names(&after, &ann, &here), ["open", "read"]);
        assert_eq!(names(&after, &bob, &here), ["his"]);
        assert_eq!(after.page(&ann, &here, 1, 5)[0], (3, result("read")));
        // New tasks follow, and a fetched result makes room, as before.
        after.enter(&ann, &here, result("new"), None).unwrap();
        assert_eq!(names(&after, &ann, &here), ["open", "read", "new"]);
        after.enter(&ann, &here, result("next"), None).unwrap();
        after.enter(&ann, &here, result("last"), None).unwrap();
        assert_eq!(names(&after, &ann, &here), ["new", "next", "last"]);
        // A settled state is newer than the one that comes late.
        after.put(MovedTask {
            task: task("new", 10),
            ..one
        });
        assert_eq!(after.find(&ann, &here, "new"), Some(result("new")));
        clock.advance(Duration::from_secs(60));
        assert_eq!(after.find(&bob, &here, "his"), None, "its time is over");
    }
}
