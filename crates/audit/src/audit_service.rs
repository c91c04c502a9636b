//! The running audit: writes core's events of requests, calls and operators as lines to a file,
//! standard output and a collector. The format of a record and of the chain is in
//! [`crate::record`].
//!
//! A request puts an event into a bounded queue and goes on. One thread writes; it alone waits for
//! the disk.
//!
//! Calls have one chain, in the config's file. Refusals that are only counted have another, in a
//! file beside it, with a queue and a thread of its own: an unauthenticated client adds no record
//! to the chain of calls.

mod audit_file;
mod audit_thread;
mod copy_backlog;
mod event_places;
mod event_queue;
mod file_tail;
mod otlp_export;
mod outlets;
mod rotation;
mod writer;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::record::LogAudit;
use crate::record::{AuditRecorder, ChainHead, RefusalCounter};
use arc_swap::ArcSwapOption;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::failure::Failure;
use weir_core::port::{
    AuditLog, CallAttempt, Clock, EndedCall, GateDecision, OperatorAction, SenderEntrance,
};
use weir_upstream::UpstreamFactory;

use crate::audit_plan::{AuditFilePlan, AuditPlan};
use audit_file::AuditFile;
use audit_thread::AuditThread;
use event_queue::{AuditEventQueue, AuditWriterMessage};
use otlp_export::AuditExporter;
use outlets::AuditOutlets;
use writer::{
    ChainOrigin, ChainRole, OpenedAuditFile, RecordWriter, WriterChange, WriterOrders,
    WriterSettings,
};

/// The time that the start waits for its first record. After that calls are served, or refused,
/// without.
const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that the end of the process waits for a disk.
const RECORDS_GRACE: Duration = Duration::from_secs(5);
/// The same for refusals, if the disk hung for the calls.
const REFUSALS_GRACE: Duration = Duration::from_secs(1);
/// The same for a pipe and for a collector.
const COPIES_GRACE: Duration = Duration::from_secs(3);

/// The suffix of the file of refusals, after the path of the file of calls.
const REFUSALS: &str = ".refusals";
/// The maximum size of a file of refusals is this part of that of a file of calls.
const REFUSALS_PART: u64 = 4;
/// The smallest size of a file.
const SMALLEST: u64 = 64 << 10;
/// The capacity of the queue of refusals, in events.
const REFUSALS_QUEUE: usize = 4096;

/// The reason why the audit cannot keep records as configured.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be used.
    #[error("audit records cannot be kept in {path}: {why}")]
    File {
        /// The file's path.
        path: PathBuf,
        /// The reason.
        #[source]
        why: io::Error,
    },
    /// Standard output or a resource of the system failed.
    #[error("audit records cannot be written: {0}")]
    System(#[from] io::Error),
    /// The collector's TLS settings are invalid.
    #[error("audit records cannot be sent: {0}")]
    Collector(#[from] weir_upstream::TlsError),
}

/// The last records of the two chains, if known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainHeads {
    /// The last record of the chain of calls.
    pub calls: Option<ChainHead>,
    /// The last record of the chain of refusals.
    pub refusals: Option<ChainHead>,
}

/// The audit of a running weir, switched on or off.
pub struct AuditService {
    switch: Arc<AuditSwitch>,
    clock: Arc<dyn Clock>,
    running: Mutex<Option<RunningAudit>>,
}

/// The opened files and outlets for new settings, not yet in use.
pub struct PreparedAudit(Option<AuditTargets>);

struct AuditTargets {
    plan: AuditPlan,
    /// `None` if the files stay.
    places: Option<AuditFiles>,
    /// `None` if the copies stay.
    copies: Option<(AuditCopies, AuditOutlets)>,
}

/// The files of calls and of refusals.
struct AuditFiles {
    calls: OpenedAuditFile,
    refusals: OpenedAuditFile,
}

/// The threads and tasks that write copies of records beside the file.
struct AuditCopies {
    stop: CancellationToken,
    tasks: TaskTracker,
    stdout: Option<AuditThread>,
}

/// A chain being written: its queue and its thread.
struct ChainThread {
    queue: Arc<AuditEventQueue>,
    orders: Arc<Mutex<WriterOrders>>,
    worker: AuditThread,
}

struct RunningAudit {
    plan: AuditPlan,
    recorder: Arc<AuditRecorder>,
    calls: ChainThread,
    refusals: ChainThread,
    copies: AuditCopies,
    begun: Option<oneshot::Receiver<()>>,
}

impl fmt::Debug for PreparedAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &self.0 {
            None => "off",
            Some(targets) if targets.places.is_none() => "in its files",
            Some(_) => "in new files",
        };
        write!(f, "PreparedAudit({file})")
    }
}

impl AuditService {
    /// Starts the audit if there is a plan. Must be called inside a tokio runtime. A new chain
    /// continues after `left`, the last records of the previous process.
    ///
    /// # Errors
    ///
    /// Records cannot be kept as configured.
    pub fn start(
        plan: Option<&AuditPlan>,
        left: ChainHeads,
        clock: Arc<dyn Clock>,
        factory: &UpstreamFactory,
    ) -> Result<Self, AuditError> {
        let auditing = Self {
            switch: Arc::default(),
            clock,
            running: Mutex::default(),
        };
        let prepared = auditing.prepare(plan, factory)?;
        auditing.begin(prepared, left)?;
        Ok(auditing)
    }

    /// Waits until the first record is kept, so that no call is refused because weir has just
    /// started. The wait is bounded.
    pub async fn wait_for_first_record(&self) {
        let begun = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_mut().and_then(|running| running.begun.take())
        };
        if let Some(begun) = begun
            && tokio::time::timeout(FIRST_RECORD_TIMEOUT, begun)
                .await
                .is_err()
        {
            tracing::error!("audit not writable at start");
        }
    }

    /// Returns the audit port, which stays the same across reloads.
    pub fn port(&self) -> Arc<dyn AuditLog> {
        self.switch.clone()
    }

    /// Opens the files and outlets of new settings. The audit stays as it is before [`Self::take`].
    ///
    /// # Errors
    ///
    /// A file or outlet cannot be opened.
    pub fn prepare(
        &self,
        plan: Option<&AuditPlan>,
        factory: &UpstreamFactory,
    ) -> Result<PreparedAudit, AuditError> {
        let Some(plan) = plan else {
            return Ok(PreparedAudit(None));
        };
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let places = match &*running {
            Some(running) if is_same_place(&running.plan, plan) => None,
            _ => Some(AuditFiles::open(plan)?),
        };
        let copies = match &*running {
            Some(running) if has_same_copies(&running.plan, plan) => None,
            _ => Some(AuditCopies::start(plan, factory)?),
        };
        Ok(PreparedAudit(Some(AuditTargets {
            plan: plan.clone(),
            places,
            copies,
        })))
    }

    /// Applies prepared settings. The chain continues, also in another file.
    ///
    /// # Errors
    ///
    /// The system has no thread; only if the audit was off before.
    pub fn take(&self, prepared: PreparedAudit) -> Result<(), AuditError> {
        self.begin(prepared, ChainHeads::default())
    }

    fn begin(
        &self,
        PreparedAudit(ready): PreparedAudit,
        left: ChainHeads,
    ) -> Result<(), AuditError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *running, ready) {
            (_, None) => {
                self.switch.0.store(None);
                if let Some(running) = running.take() {
                    running.let_go();
                }
            }
            (Some(running), Some(ready)) => running.change(ready),
            (none, Some(ready)) => {
                let started = RunningAudit::start(ready, left, self.clock.clone())?;
                self.switch.0.store(Some(started.recorder.clone()));
                *none = Some(started);
            }
        }
        Ok(())
    }

    /// Leaves the chains and the paths of their files to the process that takes over. It continues
    /// after the returned records. Waits until the files are free, for a bounded time.
    pub async fn release_files(&self) -> ChainHeads {
        let waits = {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(running) = &*running else {
                return ChainHeads::default();
            };
            [&running.calls, &running.refusals].map(|book| {
                let (done, aside) = oneshot::channel();
                book.order(|orders| orders.aside = Some(done));
                // If the disk hangs, the next process finds the file locked and reports that.
                async move { tokio::time::timeout(RECORDS_GRACE, aside).await.ok()?.ok() }
            })
        };
        let [calls, refusals] = waits;
        let (calls, refusals) = tokio::join!(calls, refusals);
        ChainHeads { calls, refusals }
    }

    /// Records that the previous process has ended, with its last records if it sent them.
    pub fn record_predecessor_end(&self, last: ChainHeads) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            running
                .calls
                .order(|orders| orders.ended_before = Some(last.calls));
            running
                .refusals
                .order(|orders| orders.ended_before = Some(last.refusals));
        }
    }

    /// Writes all queued events and the record of the end, and waits for that for a bounded time.
    /// Returns the last records, if they were kept.
    pub async fn shutdown(&self) -> ChainHeads {
        self.switch.0.store(None);
        let running = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match running {
            Some(running) => running.end().await,
            None => ChainHeads::default(),
        }
    }
}

impl AuditCopies {
    fn none() -> (Self, AuditOutlets) {
        let tasks = TaskTracker::new();
        tasks.close();
        (
            Self {
                stop: CancellationToken::new(),
                tasks,
                stdout: None,
            },
            AuditOutlets::default(),
        )
    }

    fn start(
        plan: &AuditPlan,
        factory: &UpstreamFactory,
    ) -> Result<(Self, AuditOutlets), AuditError> {
        let mut copies = AuditCopies {
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            stdout: None,
        };
        let mut outlets = AuditOutlets::default();
        if plan.stdout && plan.file.is_some() {
            let (sender, worker) = outlets::stdout()?;
            (outlets.stdout, copies.stdout) = (Some(sender), Some(worker));
        }
        if let Some(settings) = &plan.otlp {
            let (exporter, work) =
                AuditExporter::new(factory.document_poster(settings)?, copies.stop.clone());
            copies.tasks.spawn(work);
            outlets.otlp = Some(exporter);
        }
        copies.tasks.close();
        Ok((copies, outlets))
    }
}

impl RunningAudit {
    fn start(ready: AuditTargets, left: ChainHeads, clock: Arc<dyn Clock>) -> io::Result<Self> {
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

    fn change(&mut self, ready: AuditTargets) {
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
    fn let_go(&self) {
        self.calls.order(|orders| orders.stop = true);
        self.refusals.order(|orders| orders.stop = true);
        self.copies.stop.cancel();
    }

    async fn end(self) -> ChainHeads {
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
        let writer = RecordWriter::new(queue.clone(), orders.clone(), role, settings, origin);
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

    fn order(&self, say: impl FnOnce(&mut WriterOrders)) {
        say(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
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
        orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last
            .take()
    }
}

impl Drop for AuditService {
    fn drop(&mut self) {
        let running = self
            .running
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running {
            running.let_go();
        }
    }
}

impl fmt::Debug for AuditService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Auditing({})",
            if self.switch.0.load().is_some() {
                "on"
            } else {
                "off"
            }
        )
    }
}

/// The audit port: the recorder while the audit is on, the log while it is off.
#[derive(Default)]
struct AuditSwitch(ArcSwapOption<AuditRecorder>);

impl AuditSwitch {
    fn with<T>(&self, tell: impl FnOnce(&dyn AuditLog) -> T) -> T {
        match &*self.0.load() {
            Some(recorder) => tell(&**recorder),
            None => tell(&LogAudit),
        }
    }
}

impl AuditLog for AuditSwitch {
    fn record_entrance(&self, entrance: &SenderEntrance<'_>) {
        self.with(|audit| audit.record_entrance(entrance));
    }

    fn record_decision(
        &self,
        attempt: &CallAttempt<'_>,
        decision: GateDecision<'_>,
    ) -> Result<(), Failure> {
        self.with(|audit| audit.record_decision(attempt, decision))
    }

    fn record_end(&self, attempt: &CallAttempt<'_>, ended: &EndedCall) {
        self.with(|audit| audit.record_end(attempt, ended));
    }

    fn record_operator_action(&self, action: &OperatorAction<'_>) {
        self.with(|audit| audit.record_operator_action(action));
    }
}

/// Reports if records continue in the same file.
fn is_same_place(old: &AuditPlan, new: &AuditPlan) -> bool {
    let path = |plan: &AuditPlan| plan.file.as_ref().map(|file| file.path.clone());
    path(old) == path(new) && (new.file.is_some() || old.stdout == new.stdout)
}

/// Reports if the copies stay as they are.
fn has_same_copies(old: &AuditPlan, new: &AuditPlan) -> bool {
    let beside = |plan: &AuditPlan| plan.stdout && plan.file.is_some();
    beside(old) == beside(new) && old.otlp == new.otlp
}

/// Returns the settings for refusals: a file beside that of the calls, rotated like it at a smaller
/// size.
fn refusals_plan(plan: &AuditPlan) -> AuditPlan {
    let file = plan.file.as_ref().map(|file| {
        let mut path = file.path.clone().into_os_string();
        path.push(REFUSALS);
        AuditFilePlan {
            path: path.into(),
            size: (file.size / REFUSALS_PART).max(SMALLEST),
            ..file.clone()
        }
    });
    AuditPlan {
        file,
        closed: false,
        queue: REFUSALS_QUEUE,
        ..plan.clone()
    }
}

impl AuditFiles {
    fn open(plan: &AuditPlan) -> Result<Self, AuditError> {
        let calls = open(plan)?;
        let refusals = match &calls {
            // A pipe or a device takes both chains.
            Some((journal, _)) if !journal.is_regular() => {
                Some((journal.twin()?, file_tail::AuditFileTail::empty()))
            }
            _ => open(&refusals_plan(plan))?,
        };
        Ok(Self { calls, refusals })
    }
}

fn open(plan: &AuditPlan) -> Result<OpenedAuditFile, AuditError> {
    let keys: Vec<_> = plan.key.iter().cloned().collect();
    match &plan.file {
        Some(file) => match AuditFile::open(&file.path, &keys) {
            Ok(place) => Ok(Some(place)),
            Err(why) => Err(AuditError::File {
                path: file.path.clone(),
                why,
            }),
        },
        None if plan.stdout => Ok(Some((
            AuditFile::stdout()?,
            file_tail::AuditFileTail::empty(),
        ))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
