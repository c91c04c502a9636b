//! The task book with a copy in the shared store: a task outlives the replica that kept it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::EndpointId;
use weir_core::port::{BoxFuture, KeptTask, StoreError, TaskBook};
use weir_core::principal::Principal;

use crate::store_seal::StoreSeal;
use crate::task_list::{TaskListOwner, TaskListSeal};
use crate::task_writer::{MAX_TTL, TaskChange, TaskWriter};

/// The largest state with a copy. A larger one ends with its replica.
const MAX_STATE_BYTES: usize = 8 << 10;
/// The positions in a list of this replica alone are smaller. Those of all replicas are times.
const FIRST_SHARED_POSITION: u64 = 1 << 40;
/// The first byte of a copy, by whether the task is settled.
const OPEN: u8 = 0;
const SETTLED: u8 = 1;

/// The tasks of this replica, each with a copy in the shared store. The latter is written behind, and
/// read once a task is asked for whose replica has ended.
pub struct SharedTasks {
    local: Arc<dyn TaskBook>,
    writer: Arc<TaskWriter>,
    seal: TaskSeal,
    list_seal: TaskListSeal,
}

/// Names and seals copies of tasks.
pub(crate) struct TaskSeal(pub(crate) StoreSeal);

/// A task and its owner.
#[derive(Clone, Copy)]
struct SharedTaskOwner<'a> {
    principal: &'a Principal,
    endpoint: &'a EndpointId,
    name: &'a str,
}

impl SharedTasks {
    /// Tasks in `local`, copied by `writer`.
    pub(crate) fn new(local: Arc<dyn TaskBook>, writer: Arc<TaskWriter>, seal: TaskSeal) -> Self {
        let list_seal = TaskListSeal(seal.0.clone());
        Self {
            local,
            writer,
            seal,
            list_seal,
        }
    }

    /// A page of the list in the shared store.
    async fn read_page(
        &self,
        owner: TaskListOwner<'_>,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, KeptTask)>, StoreError> {
        let keys = self.list_seal.keys(owner);
        let (mut tasks, mut after) = (Vec::new(), after);
        loop {
            let wanted = most - tasks.len();
            let entries = self.writer.read_list(&keys, after, wanted).await?;
            let last = entries.last().map(|(position, _)| *position);
            let is_end = entries.len() < wanted;
            let open = |(position, sealed): (u64, String)| {
                Some((position, self.open_entry(owner, &sealed)?))
            };
            tasks.extend(entries.into_iter().filter_map(open));
            // Entries that do not open here leave room for those behind them.
            match last.filter(|_| !is_end && tasks.len() < most) {
                Some(last) => after = last,
                None => return Ok(tasks),
            }
        }
    }

    fn open_entry(&self, owner: TaskListOwner<'_>, sealed: &str) -> Option<KeptTask> {
        let listed = self.list_seal.open(owner, sealed)?;
        // A task of this replica has its newest state here.
        let own = self
            .local
            .find(owner.principal, owner.endpoint, &listed.name);
        Some(own.unwrap_or(listed))
    }

    async fn read_copy(&self, owner: SharedTaskOwner<'_>) -> Option<KeptTask> {
        let sealed = self.writer.read(&self.seal.shared_name(owner)).await;
        // Without an answer of the store, the task is asked for at its server, or counts as unknown.
        let plain = self.seal.open(owner, &sealed.ok()??)?;
        let is_settled = match *plain.first()? {
            OPEN => false,
            SETTLED => true,
            // The copy is of a later version.
            _ => return None,
        };
        Some(KeptTask {
            name: owner.name.into(),
            state: plain.slice(1..),
            settled: is_settled,
        })
    }
}

impl TaskBook for SharedTasks {
    fn enter(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        task: KeptTask,
        ttl: Option<Duration>,
    ) -> Result<(), Failure> {
        self.local.enter(principal, endpoint, task.clone(), ttl)?;
        let time = ttl.unwrap_or(MAX_TTL).min(MAX_TTL);
        // Tasks of anonymous senders are not listed: they could not be told apart.
        if !principal.is_anonymous() {
            let owner = TaskListOwner {
                principal,
                endpoint,
            };
            let change = self.list_seal.enter(owner, &task, time);
            if let Some(change) = change {
                self.writer.write_later(TaskChange::Listed(change));
            }
        }
        // The state of an open task is at its server: a copy would be of no use.
        if task.settled && task.state.len() <= MAX_STATE_BYTES {
            let owner = SharedTaskOwner {
                principal,
                endpoint,
                name: &task.name,
            };
            self.writer.write_later(TaskChange::Kept {
                name: self.seal.shared_name(owner),
                sealed: self.seal.seal(owner, SETTLED, &task.state),
                ttl: time,
            });
        }
        Ok(())
    }

    fn find(&self, principal: &Principal, endpoint: &EndpointId, name: &str) -> Option<KeptTask> {
        self.local.find(principal, endpoint, name)
    }

    fn find_moved<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        name: &'a str,
    ) -> BoxFuture<'a, Option<KeptTask>> {
        self.local.find_moved(principal, endpoint, name)
    }

    fn recover<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        name: &'a str,
    ) -> BoxFuture<'a, Option<KeptTask>> {
        Box::pin(self.read_copy(SharedTaskOwner {
            principal,
            endpoint,
            name,
        }))
    }

    fn note_fetched(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.local.note_fetched(principal, endpoint, name);
    }

    fn forget(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.local.forget(principal, endpoint, name);
        let owner = TaskListOwner {
            principal,
            endpoint,
        };
        let change = self.list_seal.remove(owner, name);
        self.writer.write_later(TaskChange::Listed(change));
        let name = self.seal.shared_name(SharedTaskOwner {
            principal,
            endpoint,
            name,
        });
        self.writer.write_later(TaskChange::Removed { name });
    }

    fn page(
        &self,
        principal: &Principal,
        endpoint: &EndpointId,
        after: u64,
        most: usize,
    ) -> Vec<(u64, KeptTask)> {
        self.local.page(principal, endpoint, after, most)
    }

    fn page_of_all<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(u64, KeptTask)>, Failure>> {
        Box::pin(async move {
            let is_of_this_replica = (1..FIRST_SHARED_POSITION).contains(&after);
            if is_of_this_replica {
                return Ok(self.page(principal, endpoint, after, most));
            }
            let owner = TaskListOwner {
                principal,
                endpoint,
            };
            match self.read_page(owner, after, most).await {
                Ok(page) => Ok(page),
                // The tasks of this replica are better than none.
                Err(_) if after == 0 => Ok(self.page(principal, endpoint, after, most)),
                Err(error) => {
                    let text = "The list of tasks cannot be continued now: try again later";
                    Err(Failure::new(FailureKind::Busy, text).because(error))
                }
            }
        })
    }
}

impl fmt::Debug for SharedTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTasks").finish_non_exhaustive()
    }
}

impl TaskSeal {
    fn shared_name(&self, owner: SharedTaskOwner<'_>) -> String {
        let digest = Sha256::digest(owner.purpose());
        let digest = HEXLOWER.encode(&digest[..16]);
        self.0.name(format_args!("t:{digest}"))
    }

    fn seal(&self, owner: SharedTaskOwner<'_>, kind: u8, state: &[u8]) -> String {
        let plain = [&[kind], state].concat();
        self.0.seal(&owner.purpose(), &plain)
    }

    fn open(&self, owner: SharedTaskOwner<'_>, sealed: &str) -> Option<Bytes> {
        self.0.open(&owner.purpose(), sealed)
    }
}

impl SharedTaskOwner<'_> {
    /// The purpose of the seal: the copy opens for this owner's task alone.
    fn purpose(&self) -> Vec<u8> {
        let endpoint = self.endpoint.as_str().as_bytes();
        [
            b"weir shared task ".as_slice(),
            self.principal.digest(),
            &(endpoint.len() as u64).to_be_bytes(),
            endpoint,
            self.name.as_bytes(),
        ]
        .concat()
    }
}
