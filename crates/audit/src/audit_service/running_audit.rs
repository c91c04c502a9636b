//! The two chains while they are written, their change by new settings, and their end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_core::port::Clock;

use crate::audit_plan::AuditPlan;
use crate::audit_service::audit_targets::{
    AuditCopies, AuditFiles, AuditTargets, REFUSALS_QUEUE, refusals_plan,
};
use crate::audit_service::audit_thread::AuditThread;
use crate::audit_service::event_queue::{AuditEventQueue, AuditWriterMessage};
use crate::audit_service::writer::{
    AuditWriter, ChainOrigin, ChainRole, WriterChange, WriterOrders, WriterSettings,
};
use crate::record::{AuditRecorder, ChainHead, RefusalCounter};

/// The time that the end of the process waits for a disk.
pub(super) const RECORDS_GRACE: Duration = Duration::from_secs(5);
/// The same for refusals, if the disk hung for the calls.
const REFUSALS_GRACE: Duration = Duration::from_secs(1);
/// The same for a pipe and for a collector.
const COPIES_GRACE: Duration = Duration::from_secs(3);

/// The last records of the two chains, if known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainHeads {
    /// The last record of the chain of calls.
    pub calls: Option<ChainHead>,
    /// The last record of the chain of refusals.
    pub refusals: Option<ChainHead>,
}

/// Both chains, and the copies of their records.
pub(super) struct RunningAudit {
    pub(super) plan: AuditPlan,
    pub(super) recorder: Arc<AuditRecorder>,
    pub(super) calls: ChainThread,
    pub(super) refusals: ChainThread,
    copies: AuditCopies,
    pub(super) begun: Option<oneshot::Receiver<()>>,
}

/// A chain being written: its queue and its thread.
pub(super) struct ChainThread {
    queue: Arc<AuditEventQueue>,
    orders: Arc<Mutex<WriterOrders>>,
    worker: AuditThread,
}

impl RunningAudit {
    /// Starts both threads. A new chain continues after `left`.
    pub(super) fn start(
        ready: AuditTargets,
        left: ChainHeads,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let AuditTargets {
            plan,
            places,
            copies,
        } = ready;
        let (copies, outlets) = copies.unwrap_or_else(AuditCopies::none);
        let places = places.unwrap_or(AuditFiles {
            calls: None,
            refusals: None,
        });
        let counter = Arc::new(RefusalCounter::new(clock.clone()));
        let (calls, calls_end) = AuditEventQueue::new(plan.queue, plan.closed);
        let (refusals, refusals_end) = AuditEventQueue::of_refusals(REFUSALS_QUEUE, &calls);
        let (calls, refusals) = (Arc::new(calls), Arc::new(refusals));
        let role = ChainRole::Calls {
            overflow: refusals.clone(),
        };
        let recorder = Arc::new(AuditRecorder::new(
            clock.clone(),
            calls.clone(),
            plan.shape.clone(),
            counter.clone(),
        ));
        let settings = WriterSettings {
            clock: clock.clone(),
            plan: refusals_plan(&plan),
            outlets: outlets.clone(),
        };
        let (refusals, _) = ChainThread::start(
            refusals,
            refusals_end,
            ChainRole::Refusals { counter },
            settings,
            ChainOrigin {
                file: places.refusals,
                last: left.refusals,
            },
        )?;
        let settings = WriterSettings {
            clock,
            plan: plan.clone(),
            outlets,
        };
        let (calls, begun) = ChainThread::start(
            calls,
            calls_end,
            role,
            settings,
            ChainOrigin {
                file: places.calls,
                last: left.calls,
            },
        )?;
        Ok(Self {
            plan,
            recorder,
            calls,
            refusals,
            copies,
            begun: Some(begun),
        })
    }

    /// Applies new settings. The chains continue.
    pub(super) fn change(&mut self, ready: AuditTargets) {
        let AuditTargets {
            plan,
            places,
            copies,
        } = ready;
        let (copies, outlets) = copies.unzip();
        let (calls, refusals) = places.map(|places| (places.calls, places.refusals)).unzip();
        self.recorder.set_argument_recording(plan.shape.clone());
        self.calls.queue.set_closed(plan.closed);
        self.refusals.change(WriterChange {
            plan: refusals_plan(&plan),
            place: refusals,
            outlets: outlets.clone(),
        });
        self.calls.change(WriterChange {
            plan: plan.clone(),
            place: calls,
            outlets,
        });
        self.plan = plan;
        if let Some(copies) = copies {
            // The old copies end when the writers drop them, after their queued records.
            std::mem::replace(&mut self.copies, copies).stop.cancel();
        }
    }

    /// Stops the writers after their queued records, without waiting.
    pub(super) fn let_go(&self) {
        self.calls.order(|orders| orders.stop = true);
        self.refusals.order(|orders| orders.stop = true);
        self.copies.stop.cancel();
    }

    /// Ends both chains after their queued records, and waits for a bounded time. Returns the last
    /// records, if they were kept.
    pub(super) async fn end(self) -> ChainHeads {
        let Self {
            calls,
            refusals,
            copies,
            ..
        } = self;
        let calls = calls.end(RECORDS_GRACE).await;
        // Second, because denials beyond their part of the calls' file go to this one. If the first
        // disk hangs, this one probably does too.
        let refusals = refusals
            .end(if calls.is_some() {
                RECORDS_GRACE
            } else {
                REFUSALS_GRACE
            })
            .await;
        copies.stop.cancel();
        let stdout = async {
            match copies.stdout {
                Some(worker) => worker.wait_for_end(COPIES_GRACE).await,
                None => true,
            }
        };
        let otlp = tokio::time::timeout(COPIES_GRACE, copies.tasks.wait());
        let (poured, sent) = tokio::join!(stdout, otlp);
        if !poured || sent.is_err() {
            tracing::warn!("audit copies lost at shutdown");
        }
        ChainHeads { calls, refusals }
    }
}

impl ChainThread {
    /// Starts the thread of a chain that takes its events from `receiver`, the other end of
    /// `queue`. The returned receiver resolves when the first record is kept.
    fn start(
        queue: Arc<AuditEventQueue>,
        receiver: Receiver<AuditWriterMessage>,
        role: ChainRole,
        settings: WriterSettings,
        origin: ChainOrigin,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let orders = Arc::<Mutex<WriterOrders>>::default();
        let thread = role.thread();
        let writer = AuditWriter::new(queue.clone(), orders.clone(), role, settings, origin);
        let (begin, begun) = oneshot::channel();
        let worker = AuditThread::start(thread, move || writer.run(&receiver, begin))?;
        Ok((
            Self {
                queue,
                orders,
                worker,
            },
            begun,
        ))
    }

    /// Gives an order to the writer, which carries it out between two records.
    pub(super) fn order(&self, say: impl FnOnce(&mut WriterOrders)) {
        say(&mut self.orders.lock());
        self.queue.wake();
        self.worker.wake();
    }

    fn change(&self, change: WriterChange) {
        self.order(|orders| orders.change = Some(change.after(orders.change.take())));
    }

    /// Ends the chain and waits for a bounded time. Returns the last record, if it was kept.
    async fn end(self, within: Duration) -> Option<ChainHead> {
        self.order(|orders| orders.stop = true);
        let Self {
            queue,
            orders,
            worker,
        } = self;
        if !worker.wait_for_end(within).await {
            let records = queue.waiting();
            tracing::error!(records, "audit records lost at shutdown: disk hangs");
        }
        orders.lock().last.take()
    }
}
