//! The task that a message belongs to (2025-11-25, basic/utilities/tasks, "Associating Task-Related
//! Messages").

use std::borrow::Cow;

use bytes::Bytes;

use crate::splice::{MetaEdits, ObjectEdits};
use crate::{meta, scan, write};

/// The task that these `params` of a request or a notification, or this result, belong to.
#[must_use]
pub fn find(message: &[u8]) -> Option<Cow<'_, str>> {
    let about = &message[scan::find(message, "_meta")?];
    let task = &about[scan::find(about, meta::RELATED_TASK)?];
    scan::string(&task[scan::find(task, "taskId")?])
}

/// The same `params` or result with the task that they belong to, in place of one that they name.
#[must_use]
pub fn set(message: &Bytes, task: &str) -> Bytes {
    let related = MetaEdits::new().add(meta::RELATED_TASK, write::task_params(task));
    ObjectEdits::new().meta(related).apply_or_keep(message)
}
