//! Progress of tasks that run at another replica, for clients of this one: it goes to the request
//! that waits for the task's result here, or else to the client's own standing stream.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use weir_core::session_notifier::SessionNotifier;
use weir_core::upstream::{OutboundCall, ProgressReports};
use weir_core::{Principal, SessionKey, UpstreamId};
use weir_upstream_core::task_holds::hold_time;
use weir_upstream_core::task_progress::{TaskProgress, TaskProgressHandle};
use weir_wire::scan;

/// The relays of one upstream. Their number is that of the calls that [`TaskProgress`] tracks.
#[derive(Debug)]
pub(crate) struct ProgressRelays {
    progress: Arc<TaskProgress>,
    last: AtomicU64,
    running: Mutex<RunningRelays>,
}

#[derive(Debug, Default)]
struct RunningRelays {
    tasks: JoinSet<()>,
    /// By the session of the client.
    ends: Vec<(SessionKey, AbortHandle)>,
}

/// The relay of a call that may become a task at another replica.
pub(crate) struct PendingRelay {
    relays: Arc<ProgressRelays>,
    session: SessionKey,
    handle: TaskProgressHandle,
    /// Opens the reports of the task, by the server's own id of it.
    open: Box<dyn FnOnce(&str) -> ProgressReports + Send>,
}

impl ProgressRelays {
    pub(crate) fn new(upstream: UpstreamId, notifier: Arc<SessionNotifier>) -> Arc<Self> {
        Arc::new(Self {
            progress: Arc::new(TaskProgress::new(upstream, notifier)),
            last: AtomicU64::new(0),
            running: Mutex::default(),
        })
    }

    /// Prepares the relay of a call. Absent if it becomes no task, or its client did not ask for
    /// progress.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        outbound: &OutboundCall,
        open: impl FnOnce(&str) -> ProgressReports + Send + 'static,
    ) -> Option<PendingRelay> {
        let session = outbound.call.session?;
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        Some(PendingRelay {
            relays: self.clone(),
            session,
            handle: self.progress.begin(id, outbound)?,
            open: Box::new(open),
        })
    }

    /// Returns the reports of a task that is relayed here, for a request that waits for its result.
    pub(crate) fn listen(&self, principal: &Principal, native: &str) -> Option<ProgressReports> {
        let task = (principal.clone(), Arc::from(native));
        if !self.progress.tracks(&task) {
            return None;
        }
        Some(Box::pin(self.progress.listen(task)?))
    }

    /// Ends the relays for clients whose sessions ended here.
    pub(crate) fn end_sessions(&self, sessions: &HashSet<SessionKey>) {
        let mut running = self.running.lock();
        let ended = running
            .ends
            .extract_if(.., |(session, _)| sessions.contains(session));
        ended.for_each(|(_, end)| end.abort());
    }

    /// Ends all relays.
    pub(crate) fn end_all(&self) {
        *self.running.lock() = RunningRelays::default();
    }
}

impl PendingRelay {
    /// Begins the relay for the task that the call became.
    pub(crate) fn begin(self, created: &Bytes) {
        let native = scan::find(created, "taskId").and_then(|at| scan::string(&created[at]));
        let Some(native) = native else { return };
        let Self {
            relays,
            session,
            handle,
            open,
        } = self;
        handle.set_task(created);
        let (mut reports, time) = (open(&native), hold_time(created));
        let relay = async move {
            let relayed = async {
                while let Some(report) = reports.next().await {
                    handle.take_report(&report);
                }
            };
            // The other replica ends the reports with the task, once a request shows its end.
            let _in_time = timeout(time, relayed).await;
        };
        let mut running = relays.running.lock();
        while running.tasks.try_join_next().is_some() {}
        running.ends.retain(|(_, end)| !end.is_finished());
        let end = running.tasks.spawn(relay);
        running.ends.push((session, end));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::future::poll_fn;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::sync::mpsc;
    use weir_core::call::LogMessages;
    use weir_core::session_notifier::{SessionMessage, SessionReceiver};

    use super::*;
    use crate::call_form::tests::outbound;

    const TASK: &str = "task-1";

    struct RelayedTask {
        relays: Arc<ProgressRelays>,
        notifier: Arc<SessionNotifier>,
        session: SessionKey,
        principal: Principal,
        /// Reports of the other replica.
        reports: mpsc::Sender<Bytes>,
    }

    impl RelayedTask {
        fn begin() -> Self {
            let notifier = Arc::<SessionNotifier>::default();
            let relays = ProgressRelays::new(UpstreamId::new("one").unwrap(), notifier.clone());
            let outbound = outbound();
            let (reports, mut received) = mpsc::channel(8);
            let open = move |native: &str| -> ProgressReports {
                assert_eq!(native, TASK);
                Box::pin(futures_util::stream::poll_fn(move |cx| {
                    received.poll_recv(cx)
                }))
            };
            let relay = relays.prepare(&outbound, open).unwrap();
            relay.begin(&Bytes::from(format!(
                r#"{{"taskId":"{TASK}","ttlMs":60000}}"#
            )));
            Self {
                relays,
                notifier,
                session: outbound.call.session.unwrap(),
                principal: outbound.principal,
                reports,
            }
        }

        fn standing_stream(&self) -> SessionReceiver {
            self.notifier.open_receiver(self.session, LogMessages::None)
        }

        async fn report(&self, progress: u32) {
            let report = format!(r#"{{"progressToken":"own","progress":{progress}}}"#);
            self.reports.send(report.into()).await.unwrap();
        }
    }

    async fn next(stream: &mut SessionReceiver) -> Bytes {
        let message = timeout(
            Duration::from_secs(10),
            poll_fn(|cx| stream.poll_message(cx)),
        );
        let SessionMessage::TaskProgress(upstream, task, report) = message.await.unwrap() else {
            panic!("no progress")
        };
        assert_eq!((upstream.as_str(), task.as_deref()), ("one", Some(TASK)));
        report
    }

    #[tokio::test]
    async fn progress_of_another_replica_reaches_the_standing_stream_unless_a_request_waits() {
        let task = RelayedTask::begin();
        let mut standing = task.standing_stream();
        task.report(1).await;
        assert_eq!(
            &next(&mut standing).await[..],
            br#"{"progressToken":"own","progress":1}"#
        );
        assert!(task.relays.listen(&task.principal, "another").is_none());
        let mut waiting = task.relays.listen(&task.principal, TASK).unwrap();
        task.report(2).await;
        let report = timeout(Duration::from_secs(10), waiting.next())
            .await
            .unwrap();
        assert_eq!(
            &report.unwrap()[..],
            br#"{"progressToken":"own","progress":2}"#
        );
        drop(waiting);
        task.report(3).await;
        assert_eq!(
            &next(&mut standing).await[..],
            br#"{"progressToken":"own","progress":3}"#
        );
        assert!(
            poll_fn(|cx| standing.poll_message(cx).map(drop))
                .now_or_never()
                .is_none()
        );
    }

    #[tokio::test]
    async fn relay_ends_with_its_task_and_with_the_session_of_its_client() {
        let over = RelayedTask::begin();
        drop(over.reports);
        let left = RelayedTask::begin();
        left.relays
            .end_sessions(&HashSet::from([SessionKey([1; 16])]));
        assert!(left.relays.listen(&left.principal, TASK).is_some());
        left.relays.end_sessions(&HashSet::from([left.session]));
        let ended = async {
            for relays in [&over.relays, &left.relays] {
                while relays
                    .progress
                    .tracks(&(left.principal.clone(), TASK.into()))
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
