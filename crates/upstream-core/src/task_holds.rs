//! The tasks that run at an upstream, with the sessions and child processes that are held open for
//! them: a server may know a task only where it began. A hold ends with its task, with the session
//! of its client, and at the latest with the time for which the server keeps the task. A session that
//! another replica took over has not ended: its holds stay where the tasks run.
//!
//! At a graceful restart the holds move with the session or child process. Calls that began before
//! go on in this process, and may become tasks there: the next process learns of these tasks later.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use weir_core::instant::millis;
use weir_core::upstream::OutboundCall;
use weir_core::{Principal, SessionKey};
use weir_era::tasks;
use weir_wire::scan;

use crate::background_tasks::BackgroundTasks;
use crate::exported::{ExportedClient, ExportedOwner};
use crate::task_progress::{ExportedTaskProgress, TaskProgress, TaskProgressHandle};

/// The longest time for which a connection or child is held open for a task.
const MAX_HOLD_TIME: Duration = Duration::from_secs(3600);
/// The most holds of one upstream. Beyond them the principal with the most loses its oldest.
const MAX_HOLDS: usize = 4096;
/// The most holds of one principal; the oldest goes first. All anonymous callers share one
/// principal, so only the total binds it.
const MAX_HOLDS_OF_A_PRINCIPAL: usize = 256;
/// The most tasks of one upstream that are known to have ended here. The oldest goes first.
const MAX_ENDED: usize = 1024;
/// The most descriptions that wait to be sent to the next process. It does not hold further tasks.
const MAX_WAITING_DESCRIPTIONS: usize = 1024;

/// The principal and the client session of a call that may become a task.
#[derive(Clone, Debug)]
pub struct TaskOwner {
    principal: Principal,
    session: Option<SessionKey>,
}

impl TaskOwner {
    /// The owner of the task that a call becomes.
    pub fn of(outbound: &OutboundCall) -> Self {
        Self {
            principal: outbound.principal.clone(),
            session: outbound.call.session,
        }
    }
}

/// A hold as one process describes it to the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportedTaskHold {
    owner: ExportedOwner,
    /// The client's session in which the task began.
    client: Option<ExportedClient>,
    native: String,
    /// The rest of its time, in milliseconds: none for a task that is over.
    left_ms: u64,
    /// The progress notifications that its client asked for.
    progress: Option<ExportedTaskProgress>,
}

/// The sessions and child processes that the next process has, and in which calls of this one go
/// on.
#[derive(Debug, Default)]
struct MovedPlaces {
    /// By address.
    places: HashMap<usize, MovedPlace>,
    descriptions: Option<mpsc::Sender<Bytes>>,
}

/// One of them.
struct MovedPlace {
    /// Makes its description with one more task.
    describe: Box<dyn Fn(ExportedTaskHold) -> Option<Bytes> + Send>,
    /// While there is a reference, no other value gets the address.
    _place: Weak<dyn Send + Sync>,
}

/// A task to hold something for, and the most time for that.
struct HeldTask<'a> {
    owner: TaskOwner,
    native: &'a str,
    time: Duration,
}

/// The holds of one upstream, or of one instance of it. Clones share them.
#[derive(Clone, Debug)]
pub struct TaskHolds {
    tasks: BackgroundTasks,
    table: Arc<Mutex<TaskHoldTable>>,
}

#[derive(Debug, Default)]
struct TaskHoldTable {
    owners: HashMap<Principal, BTreeMap<u64, TaskHold>>,
    count: usize,
    last: u64,
    /// The latest tasks with a hold that ended with the task: clients may read them once more.
    ended: VecDeque<(Principal, Arc<str>)>,
    /// Notified when the last hold ends.
    none_left: Arc<Notify>,
    moved: MovedPlaces,
}

/// A background task that owns the held value. Dropping the hold ends it.
#[derive(Debug)]
struct TaskHold {
    native: Arc<str>,
    session: Option<SessionKey>,
    /// The address of the held session or child process.
    held: Option<usize>,
    until: Instant,
    /// The tracking of the task's progress, which ends with the hold.
    tracked: Option<TaskProgressHandle>,
    keeper: AbortHandle,
}

impl TaskHolds {
    /// Makes the table of an upstream with these background tasks.
    pub fn new(tasks: BackgroundTasks) -> Self {
        Self {
            tasks,
            table: Arc::default(),
        }
    }

    /// Notes the MCP task of this `CreateTaskResult`. Keeps the session or child process in which it
    /// began alive for it, and the tracking of its progress.
    pub fn hold<T: Send + Sync + ?Sized + 'static>(
        &self,
        owner: TaskOwner,
        created: &Bytes,
        held: Option<Arc<T>>,
        tracked: Option<TaskProgressHandle>,
    ) {
        let native = scan::find(created, "taskId").and_then(|at| scan::string(&created[at]));
        if let Some(native) = native {
            let time = hold_time(created);
            let task = HeldTask {
                owner,
                native: &native,
                time,
            };
            self.add(task, held, tracked);
        }
    }

    /// Tasks that begin, or are over, in sessions and child processes after their export: each as
    /// the description that its [`TaskHolds::export`] makes.
    pub fn tasks_after_export(&self) -> mpsc::Receiver<Bytes> {
        let (descriptions, later) = mpsc::channel(MAX_WAITING_DESCRIPTIONS);
        self.table.lock().moved.descriptions = Some(descriptions);
        later
    }

    /// Describes the holds on a session or child process for the next process, which has it from
    /// now on. `describe` makes the descriptions of later tasks.
    pub fn export<T: Send + Sync + 'static>(
        &self,
        held: &Arc<T>,
        describe: impl Fn(ExportedTaskHold) -> Option<Bytes> + Send + 'static,
    ) -> Vec<ExportedTaskHold> {
        let moved = MovedPlace {
            describe: Box::new(describe),
            _place: Arc::downgrade(held) as Weak<dyn Send + Sync>,
        };
        let held = address(held);
        let mut table = self.table.lock();
        table.moved.places.insert(held, moved);
        let all = table.owners.iter();
        let all = all.flat_map(|(owner, own)| own.values().map(move |hold| (owner, hold)));
        all.filter(|(_, hold)| hold.held == Some(held))
            .map(|(owner, hold)| hold.export(owner))
            .collect()
    }

    /// Takes over the holds on a session or child process of another process, and ends those of
    /// tasks that are over there.
    pub fn import<T: Send + Sync + ?Sized + 'static>(
        &self,
        exported: Vec<ExportedTaskHold>,
        held: &Arc<T>,
        progress: &Arc<TaskProgress>,
    ) {
        for hold in exported {
            let Some(principal) = hold.owner.principal() else {
                continue;
            };
            if hold.left_ms == 0 {
                self.release(&principal, &hold.native);
                continue;
            }
            let session = hold.client.as_ref().and_then(ExportedClient::session);
            let tracked = session.zip(hold.progress).and_then(|(client, exported)| {
                progress.import(exported, &principal, client, &hold.native)
            });
            let task = HeldTask {
                owner: TaskOwner { principal, session },
                native: &hold.native,
                time: Duration::from_millis(hold.left_ms),
            };
            self.add(task, Some(held.clone()), tracked);
        }
    }

    fn add<T: Send + Sync + ?Sized + 'static>(
        &self,
        task: HeldTask<'_>,
        held: Option<Arc<T>>,
        tracked: Option<TaskProgressHandle>,
    ) {
        let HeldTask {
            owner,
            native,
            time,
        } = task;
        let TaskOwner { principal, session } = owner;
        let held_address = held.as_ref().map(address);
        let until = Instant::now() + time.min(MAX_HOLD_TIME);
        let mut table = self.table.lock();
        table.last += 1;
        let nth = table.last;
        let (holds, of) = (self.clone(), principal.clone());
        let keeper = self.tasks.spawn_endless(async move {
            tokio::time::sleep_until(until).await;
            drop(held);
            holds.table.lock().remove(&of, |one, _| one == nth);
        });
        // After the end of the upstream nothing is held.
        let Some(keeper) = keeper else { return };
        table.make_room(&principal);
        let hold = TaskHold {
            native: native.into(),
            session,
            held: held_address,
            until,
            tracked,
            keeper,
        };
        table.moved.describe(&hold, &principal);
        table.count += 1;
        table.owners.entry(principal).or_default().insert(nth, hold);
    }

    /// Ends the hold of a task that is over.
    pub fn release(&self, principal: &Principal, native: &str) {
        let mut table = self.table.lock();
        if table.holds(principal, native) {
            table.describe_end(principal, native);
            table.remove(principal, |_, hold| &*hold.native == native);
            if table.ended.len() >= MAX_ENDED {
                table.ended.pop_front();
            }
            table.ended.push_back((principal.clone(), native.into()));
        }
    }

    /// Returns true if there is a hold for this task, or was one until the task's end.
    pub fn knows(&self, principal: &Principal, native: &str) -> bool {
        let table = self.table.lock();
        let is_it =
            |(owner, ended): &(Principal, Arc<str>)| owner == principal && **ended == *native;
        table.holds(principal, native) || table.ended.iter().any(is_it)
    }

    /// Returns true if there is no hold.
    pub fn is_empty(&self) -> bool {
        self.table.lock().count == 0
    }

    /// Waits until there is no hold. Cancel safe.
    pub async fn wait_for_end(&self) {
        let none_left = self.table.lock().none_left.clone();
        loop {
            let mut notified = std::pin::pin!(none_left.notified());
            notified.as_mut().enable();
            if self.table.lock().count == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Returns a test for values that are held for a task now.
    pub fn held_values<T: ?Sized>(&self) -> impl Fn(&Arc<T>) -> bool + use<T> {
        let table = self.table.lock();
        let holds = table.owners.values().flat_map(BTreeMap::values);
        let held: HashSet<usize> = holds.filter_map(|hold| hold.held).collect();
        move |value| held.contains(&address(value))
    }

    /// Ends the holds of tasks that began in these sessions of clients.
    pub fn end_sessions(&self, sessions: &HashSet<SessionKey>) {
        let mut table = self.table.lock();
        let ended = |hold: &TaskHold| hold.session.is_some_and(|own| sessions.contains(&own));
        let owners: Vec<Principal> = table
            .owners
            .iter()
            .filter(|(_, own)| own.values().any(ended))
            .map(|(principal, _)| principal.clone())
            .collect();
        for principal in owners {
            table.remove(&principal, |_, hold| ended(hold));
        }
    }
}

/// The longest time for which anything is held for the task of this `CreateTaskResult`.
pub fn hold_time(created: &Bytes) -> Duration {
    let time = tasks::ttl(created).map_or(MAX_HOLD_TIME, Duration::from_millis);
    time.min(MAX_HOLD_TIME)
}

/// The address of a shared value, which no other value has while it lives.
fn address<T: ?Sized>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).cast::<()>().addr()
}

impl TaskHoldTable {
    fn holds(&self, principal: &Principal, native: &str) -> bool {
        let own = self.owners.get(principal);
        own.is_some_and(|own| own.values().any(|hold| &*hold.native == native))
    }

    /// Reports the end of a task to the next process, if that one holds it.
    fn describe_end(&mut self, principal: &Principal, native: &str) {
        let ended = self.owners.get_mut(principal).into_iter();
        for hold in ended.flat_map(BTreeMap::values_mut) {
            if &*hold.native == native {
                hold.until = Instant::now();
                self.moved.describe(hold, principal);
            }
        }
    }

    /// Ends holds until a further one of the principal fits.
    fn make_room(&mut self, principal: &Principal) {
        let own = self.owners.get(principal).map_or(0, BTreeMap::len);
        if !principal.is_anonymous() && own >= MAX_HOLDS_OF_A_PRINCIPAL {
            self.remove_oldest(&principal.clone());
        } else if self.count >= MAX_HOLDS {
            let largest = self.owners.iter().max_by_key(|(_, own)| own.len());
            if let Some(largest) = largest.map(|(principal, _)| principal.clone()) {
                self.remove_oldest(&largest);
            }
        }
    }

    fn remove_oldest(&mut self, principal: &Principal) {
        let own = self.owners.get(principal);
        if let Some(oldest) = own.and_then(|own| own.keys().next().copied()) {
            self.remove(principal, |nth, _| nth == oldest);
        }
    }

    /// Removes the principal's holds that `gone` matches.
    fn remove(&mut self, principal: &Principal, gone: impl Fn(u64, &TaskHold) -> bool) {
        let Some(own) = self.owners.get_mut(principal) else {
            return;
        };
        let before = own.len();
        own.retain(|nth, hold| !gone(*nth, hold));
        self.count -= before - own.len();
        if own.is_empty() {
            self.owners.remove(principal);
        }
        if self.count == 0 {
            self.none_left.notify_waiters();
        }
    }
}

impl TaskHold {
    fn export(&self, owner: &Principal) -> ExportedTaskHold {
        ExportedTaskHold {
            owner: ExportedOwner::of(Some(owner)),
            client: self.session.map(ExportedClient::of),
            native: self.native.to_string(),
            left_ms: millis(self.until.duration_since(Instant::now())),
            progress: self.tracked.as_ref().and_then(TaskProgressHandle::export),
        }
    }
}

impl MovedPlaces {
    /// Describes a hold to the next process, if that one has the session or child process.
    fn describe(&self, hold: &TaskHold, owner: &Principal) {
        let place = hold.held.and_then(|held| self.places.get(&held));
        if let (Some(place), Some(descriptions)) = (place, &self.descriptions)
            && let Some(description) = (place.describe)(hold.export(owner))
        {
            // The link to the next process may have ended.
            let _unread = descriptions.try_send(description);
        }
    }
}

impl fmt::Debug for MovedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedPlace").finish_non_exhaustive()
    }
}

impl Drop for TaskHold {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
