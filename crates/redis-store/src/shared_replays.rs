//! Replay logs with a copy in the shared store: a client whose replica ended resumes its stream at
//! another one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_core::SessionKey;
use weir_core::port::{BoxFuture, LOST_ANSWER, ReplayLog, ReplayedEvents, StoreError, StreamKey};

use crate::replay_seal::ReplayField;
use crate::replay_writer::ReplayWriter;

/// The replay logs of this replica, each with a copy in the shared store. The latter is written
/// behind, and read once a stream is resumed that is not known here.
pub struct SharedReplays {
    local: Arc<dyn ReplayLog>,
    writer: Arc<ReplayWriter>,
    /// One log is restored at a time.
    restoring: Mutex<()>,
}

impl SharedReplays {
    /// Logs in `local`, copied by `writer`.
    pub(crate) fn new(local: Arc<dyn ReplayLog>, writer: Arc<ReplayWriter>) -> Self {
        Self {
            local,
            writer,
            restoring: Mutex::default(),
        }
    }

    /// Changes the time that the copies live after their last change.
    pub fn set_age(&self, age: Duration) {
        self.writer.set_age(age);
    }

    async fn recover_from_store(&self, key: StreamKey) -> bool {
        // Without an answer of the store the stream counts as unknown: the client's request ends at
        // its own time limit.
        let Ok(fields) = self.writer.read(key).await else {
            return false;
        };
        let Some(log) = FetchedLog::of_fields(fields) else {
            return false;
        };
        let _turn = self.restoring.lock();
        // Another request may have restored it meanwhile.
        self.local.watch_events(key).is_some() || self.restore(key, log)
    }

    fn restore(&self, key: StreamKey, log: FetchedLog) -> bool {
        if !self.local.begin(key, &Bytes::new) {
            return false;
        }
        for (seq, event) in log.events {
            self.local.append(key, seq, event);
        }
        self.local.end(key);
        true
    }
}

impl ReplayLog for SharedReplays {
    fn begin(&self, key: StreamKey, lost_answer: &dyn Fn() -> Bytes) -> bool {
        let is_kept = self.local.begin(key, lost_answer);
        if is_kept {
            self.writer.begin(key, lost_answer());
        }
        is_kept
    }

    fn append(&self, key: StreamKey, seq: u64, event: Bytes) {
        self.local.append(key, seq, event.clone());
        self.writer.append(key, seq, event);
    }

    fn end(&self, key: StreamKey) {
        self.local.end(key);
        self.writer.end(key);
    }

    fn events_after(
        &self,
        key: StreamKey,
        seq: u64,
    ) -> BoxFuture<'_, Result<Option<ReplayedEvents>, StoreError>> {
        self.local.events_after(key, seq)
    }

    fn watch_events(&self, key: StreamKey) -> Option<watch::Receiver<u64>> {
        self.local.watch_events(key)
    }

    fn recover(&self, key: StreamKey) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.local.recover(key).await || self.recover_from_store(key).await })
    }

    fn forget(&self, session: SessionKey) {
        self.local.forget(session);
    }

    fn expire(&self) {
        self.local.expire();
    }
}

impl fmt::Debug for SharedReplays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReplays").finish_non_exhaustive()
    }
}

/// A log as it is resumed: all its events, with the answer or the event in place of it.
struct FetchedLog {
    events: Vec<(u64, Bytes)>,
}

impl FetchedLog {
    /// Returns the log of fields from the shared store; `None` if there is no log.
    fn of_fields(fields: Vec<(ReplayField, Bytes)>) -> Option<Self> {
        let (mut events, mut lost_answer, mut last) = (Vec::new(), None, None);
        for (field, value) in fields {
            match field {
                ReplayField::LostAnswer => lost_answer = Some(value),
                ReplayField::Event(seq) => events.push((seq, value)),
                ReplayField::End => last = value.as_ref().try_into().ok().map(u64::from_be_bytes),
            }
        }
        let lost_answer = lost_answer?;
        events.sort_unstable_by_key(|(seq, _)| *seq);
        let has_last = last.is_some_and(|last| {
            last == 0 || events.last().is_some_and(|(newest, _)| *newest == last)
        });
        if !has_last {
            events.push((LOST_ANSWER, lost_answer));
        }
        Some(Self { events })
    }
}
