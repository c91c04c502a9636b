//! The list of an owner's tasks of all replicas: names and summaries in the shared store, in the order
//! of their beginning.

use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use weir_core::names::EndpointId;
use weir_core::port::KeptTask;
use weir_core::principal::Principal;

use crate::store_seal::StoreSeal;

/// The longest summary with an entry: it has no result, so that only a strange one is longer.
const MAX_SUMMARY_BYTES: usize = 2 << 10;
/// The first byte of an entry, by whether the task is settled.
const OPEN: u8 = 0;
const SETTLED: u8 = 1;

/// The list of one owner on one endpoint.
#[derive(Clone, Copy)]
pub(crate) struct TaskListOwner<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) endpoint: &'a EndpointId,
}

/// The keys of one list, in one slot.
#[derive(Clone, Debug)]
pub(crate) struct TaskListKeys {
    /// A sorted set of fields by position.
    pub(crate) order: String,
    /// A hash of entries by field.
    pub(crate) entries: String,
}

/// A change of a list.
#[derive(Debug)]
pub(crate) struct TaskListChange {
    pub(crate) keys: TaskListKeys,
    pub(crate) field: String,
    /// The sealed entry and its time to live; no entry any more without one.
    pub(crate) entry: Option<(String, Duration)>,
}

/// Names and seals the entries of lists.
#[derive(Clone)]
pub(crate) struct TaskListSeal(pub(crate) StoreSeal);

impl TaskListSeal {
    /// The keys of an owner's list.
    pub(crate) fn keys(&self, owner: TaskListOwner<'_>) -> TaskListKeys {
        let digest = HEXLOWER.encode(&Sha256::digest(owner.purpose())[..16]);
        TaskListKeys {
            order: self.0.name(format_args!("l:{{{digest}}}:order")),
            entries: self.0.name(format_args!("l:{{{digest}}}:entries")),
        }
    }

    /// The change for a task in its present state. No value for one that cannot be listed.
    pub(crate) fn enter(
        &self,
        owner: TaskListOwner<'_>,
        task: &KeptTask,
        ttl: Duration,
    ) -> Option<TaskListChange> {
        let summary = task.summary()?;
        let name_length = u16::try_from(task.name.len()).ok()?;
        if summary.len() > MAX_SUMMARY_BYTES {
            return None;
        }
        let kind = if task.settled { SETTLED } else { OPEN };
        let plain = [
            &[kind],
            name_length.to_be_bytes().as_slice(),
            task.name.as_bytes(),
            &summary,
        ]
        .concat();
        let sealed = self.0.seal(&owner.purpose(), &plain);
        Some(TaskListChange {
            keys: self.keys(owner),
            field: field_name(&task.name),
            entry: Some((sealed, ttl)),
        })
    }

    /// The change for a task that is not kept any more.
    pub(crate) fn remove(&self, owner: TaskListOwner<'_>, name: &str) -> TaskListChange {
        TaskListChange {
            keys: self.keys(owner),
            field: field_name(name),
            entry: None,
        }
    }

    /// The task of an entry; no value for one that does not open here, or of a later version.
    pub(crate) fn open(&self, owner: TaskListOwner<'_>, sealed: &str) -> Option<KeptTask> {
        let plain = self.0.open(&owner.purpose(), sealed)?;
        let settled = match *plain.first()? {
            OPEN => false,
            SETTLED => true,
            _ => return None,
        };
        let name_length = u16::from_be_bytes(plain.get(1..3)?.try_into().ok()?);
        let name_end = 3 + usize::from(name_length);
        let name = std::str::from_utf8(plain.get(3..name_end)?).ok()?;
        Some(KeptTask {
            name: name.into(),
            state: Bytes::slice(&plain, name_end..),
            settled,
        })
    }
}

impl TaskListOwner<'_> {
    /// The purpose of the seal: an entry opens for this owner's list alone.
    fn purpose(&self) -> Vec<u8> {
        let endpoint = self.endpoint.as_str().as_bytes();
        [
            b"weir listed task ".as_slice(),
            self.principal.digest(),
            endpoint,
        ]
        .concat()
    }
}

/// The field of a task: names are long.
fn field_name(name: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(name)[..16])
}
