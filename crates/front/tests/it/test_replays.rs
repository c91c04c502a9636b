//! A replay log for tests of streams that nobody resumes.

use parking_lot::Mutex;

use bytes::Bytes;
use weir_core::SessionKey;
use weir_core::port::{BoxFuture, ReplayLog, ReplayedEvents, StoreError, StreamKey};

/// A replay log of streams that nobody resumes.
#[derive(Debug, Default)]
pub(crate) struct TestReplays {
    /// True if streams are recorded.
    is_recording: bool,
    events: Mutex<Vec<Bytes>>,
}

impl TestReplays {
    /// A log that records streams.
    pub(crate) fn recording() -> Self {
        Self {
            is_recording: true,
            ..Self::default()
        }
    }

    /// The last event of any stream.
    pub(crate) fn last_event(&self) -> String {
        let events = self.events.lock();
        String::from_utf8(events.last().unwrap().to_vec()).unwrap()
    }
}

impl ReplayLog for TestReplays {
    fn begin(&self, _: StreamKey, _: &dyn Fn() -> Bytes) -> bool {
        self.is_recording
    }
    fn append(&self, _: StreamKey, _: u64, event: Bytes) {
        self.events.lock().push(event);
    }
    fn end(&self, _: StreamKey) {}
    fn events_after(
        &self,
        _: StreamKey,
        _: u64,
    ) -> BoxFuture<'_, Result<Option<ReplayedEvents>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    fn watch_events(&self, _: StreamKey) -> Option<tokio::sync::watch::Receiver<u64>> {
        None
    }
    fn forget(&self, _: SessionKey) {}
    fn expire(&self) {}
}
