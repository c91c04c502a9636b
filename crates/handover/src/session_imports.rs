//! The imports of the upstreams' sessions and child processes. They run at the same time: a child
//! that does not answer delays no other one, and no later message of the predecessor. Tasks that
//! began in them later are imported after all of them, one after the other.

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use weir_core::upstream::{HandoverSession, Upstream};
use weir_process::descriptors;

use crate::stores::MovableRecords;

/// The most later tasks that wait for their import. Beyond them the predecessor's messages wait.
const MAX_WAITING_TASKS: usize = 1024;

/// The imports. The predecessor's own limits bound their number.
pub(super) struct SessionImports {
    upstreams: Vec<Arc<dyn Upstream>>,
    /// The socket that receives descriptors of child processes.
    children: Option<UnixStream>,
    running: TaskTracker,
    /// The imports of later tasks, in their order.
    later: mpsc::Sender<(Arc<dyn Upstream>, HandoverSession)>,
    /// The task that makes them. It ends with the sender.
    importing: JoinHandle<()>,
}

impl SessionImports {
    /// No imports yet.
    pub(super) fn new(upstreams: Vec<Arc<dyn Upstream>>, children: Option<UnixStream>) -> Self {
        let (later, mut waiting) = mpsc::channel::<(Arc<dyn Upstream>, _)>(MAX_WAITING_TASKS);
        let running = TaskTracker::new();
        let imported = running.clone();
        let importing = tokio::spawn(async move {
            while let Some((upstream, session)) = waiting.recv().await {
                imported.wait().await;
                upstream.import_session(session).await;
            }
        });
        Self {
            upstreams,
            children,
            running,
            later,
            importing,
        }
    }

    /// Waits until the imports of all later tasks have ended. No other one begins.
    pub(super) async fn finish(self) {
        drop(self.later);
        let _panicked = self.importing.await;
    }

    /// Begins an import. The descriptors come in the order of the messages, so they are received
    /// before this returns.
    pub(super) async fn begin(&self, id: &str, description: Bytes, has_descriptors: bool) {
        let descriptors = match (&self.children, has_descriptors) {
            (Some(children), true) => match descriptors::receive(children).await {
                Ok(Some((_, descriptors))) => descriptors,
                Ok(None) | Err(_) => return,
            },
            (None, true) => return,
            (_, false) => Vec::new(),
        };
        // A child process whose upstream is gone from the config ends when its descriptors are
        // closed.
        let upstream = self
            .upstreams
            .iter()
            .find(|upstream| upstream.id().as_str() == id);
        let Some(upstream) = upstream else { return };
        let session = HandoverSession {
            description,
            descriptors,
        };
        if self.running.is_closed() {
            // The receiver ends with this value.
            let _open = self.later.send((upstream.clone(), session)).await;
        } else {
            self.running.spawn(upstream.clone().import_session(session));
        }
    }

    /// Returns a future that marks the arrival as complete once all imports have ended. Later ones
    /// are of tasks in the imported sessions and child processes.
    pub(super) fn complete(
        &self,
        records: &Arc<MovableRecords>,
    ) -> impl Future<Output = ()> + Send + use<> {
        self.running.close();
        let (running, records) = (self.running.clone(), records.clone());
        async move {
            running.wait().await;
            records.complete();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use tokio::sync::Barrier;
    use weir_core::HandoverArrival;
    use weir_store::{MemoryRecords, RecordCaps};
    use weir_testkit::FakeClock;

    use super::*;
    use crate::tests::meeting_upstream::meeting_upstreams;

    #[tokio::test(start_paused = true)]
    async fn sessions_do_not_wait_for_each_other_and_the_arrival_is_complete_after_all() {
        let sessions = ["one", "one", "two"];
        let all = Arc::new(Barrier::new(sessions.len() + 1));
        let imports = SessionImports::new(meeting_upstreams(&["one", "two"], &all), None);
        let arrival = HandoverArrival::awaited();
        let caps = RecordCaps {
            total: 1,
            per_principal: 1,
        };
        let own = MemoryRecords::new(Arc::new(FakeClock::new()), caps);
        let records = Arc::new(MovableRecords::new(own, arrival.clone()));
        let limit = Duration::from_secs(60);
        let begin_all = async {
            for id in sessions {
                imports.begin(id, Bytes::new(), false).await;
            }
        };
        tokio::time::timeout(limit, begin_all)
            .await
            .expect("no import delays the next message");
        let completing = tokio::spawn(imports.complete(&records));
        // The clock is paused: it moves on only once all tasks wait.
        tokio::time::sleep(limit).await;
        assert!(!arrival.is_complete(), "all imports still run");
        tokio::time::timeout(limit, all.wait())
            .await
            .expect("all sessions are imported at the same time");
        completing.await.unwrap();
        assert!(arrival.is_complete());
    }
}
