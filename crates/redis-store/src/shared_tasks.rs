//! The task book with a copy in the shared store: a task outlives the replica that kept it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use weir_core::failure::Failure;
use weir_core::names::EndpointId;
use weir_core::port::{Fut, KeptTask, TaskBook};
use weir_core::principal::Principal;

use crate::store_seal::StoreSeal;
use crate::task_writer::{TaskChange, TaskValue, TaskWriter};

/// The largest state with a copy. A larger one ends with its replica.
const MAX_STATE_BYTES: usize = 8 << 10;
/// The longest time that a copy lives.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// The first byte of a copy, by whether the task is settled.
const OPEN: u8 = 0;
const SETTLED: u8 = 1;

/// The tasks of this replica, each with a copy in the shared store. The latter is written behind, and
/// read once a task is asked for whose replica has ended.
pub struct SharedTasks {
    local: Arc<dyn TaskBook>,
    writer: Arc<TaskWriter>,
    seal: TaskSeal,
}

/// Names and seals copies of tasks.
pub(crate) struct TaskSeal(pub(crate) StoreSeal);

/// A task and its owner.
#[derive(Clone, Copy)]
struct TaskOwner<'a> {
    principal: &'a Principal,
    endpoint: &'a EndpointId,
    name: &'a str,
}

impl SharedTasks {
    /// Tasks in `local`, copied by `writer`.
    pub(crate) fn new(local: Arc<dyn TaskBook>, writer: Arc<TaskWriter>, seal: TaskSeal) -> Self {
        Self {
            local,
            writer,
            seal,
        }
    }

    async fn read_copy(&self, owner: TaskOwner<'_>) -> Option<KeptTask> {
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
        // The state of an open task is at its server: a copy would be of no use.
        if task.settled && task.state.len() <= MAX_STATE_BYTES {
            let owner = TaskOwner {
                principal,
                endpoint,
                name: &task.name,
            };
            let value = TaskValue::Kept {
                sealed: self.seal.seal(owner, SETTLED, &task.state),
                ttl: ttl.unwrap_or(MAX_TTL).min(MAX_TTL),
            };
            let name = self.seal.shared_name(owner);
            self.writer.write_later(TaskChange { name, value });
        }
        Ok(())
    }

    fn find(&self, principal: &Principal, endpoint: &EndpointId, name: &str) -> Option<KeptTask> {
        self.local.find(principal, endpoint, name)
    }

    fn recover<'a>(
        &'a self,
        principal: &'a Principal,
        endpoint: &'a EndpointId,
        name: &'a str,
    ) -> Fut<'a, Option<KeptTask>> {
        Box::pin(self.read_copy(TaskOwner {
            principal,
            endpoint,
            name,
        }))
    }

    fn forget(&self, principal: &Principal, endpoint: &EndpointId, name: &str) {
        self.local.forget(principal, endpoint, name);
        let name = self.seal.shared_name(TaskOwner {
            principal,
            endpoint,
            name,
        });
        let value = TaskValue::Removed;
        self.writer.write_later(TaskChange { name, value });
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
}

impl fmt::Debug for SharedTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTasks").finish_non_exhaustive()
    }
}

impl TaskSeal {
    fn shared_name(&self, owner: TaskOwner<'_>) -> String {
        let digest = Sha256::digest(owner.purpose());
        let digest = HEXLOWER.encode(&digest[..16]);
        self.0.name(format_args!("t:{digest}"))
    }

    fn seal(&self, owner: TaskOwner<'_>, kind: u8, state: &[u8]) -> String {
        let plain = [&[kind], state].concat();
        self.0.seal(&owner.purpose(), &plain)
    }

    fn open(&self, owner: TaskOwner<'_>, sealed: &str) -> Option<Bytes> {
        self.0.open(&owner.purpose(), sealed)
    }
}

impl TaskOwner<'_> {
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
