//! Sessions that are being opened. A client that leaves before the shared store answers never learns
//! the id, so its session is removed.

use futures_util::future::join_all;
use weir_core::port::RecordKey;

use crate::sessions::session_table::{LegacySessions, session_key};

/// A session whose record is being written. If it is dropped before the end of the write, the
/// record is removed.
pub(super) struct SessionOpening<'a> {
    sessions: &'a LegacySessions,
    record: Option<RecordKey>,
}

impl<'a> SessionOpening<'a> {
    pub(super) fn new(sessions: &'a LegacySessions, record: &RecordKey) -> Self {
        Self {
            sessions,
            record: Some(record.clone()),
        }
    }

    /// The write has ended.
    pub(super) fn finish(mut self) {
        self.record = None;
    }
}

impl Drop for SessionOpening<'_> {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else {
            return;
        };
        self.sessions.anonymous.remove(&session_key(&record.id));
        self.sessions.abandoned.lock().push(record);
        self.sessions.ended_notify.notify_one();
    }
}

impl LegacySessions {
    /// Removes the records of sessions whose client left while they were written. Such a session
    /// has no other state: no request has named it.
    pub(super) async fn remove_abandoned(&self) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock());
        let removals = abandoned
            .iter()
            .map(|record| self.ports.records.remove(record));
        // A record that the store cannot remove now expires, or is removed by a write that waits.
        join_all(removals).await;
    }
}
