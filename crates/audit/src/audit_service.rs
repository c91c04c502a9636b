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
mod audit_switch;
mod audit_targets;
mod audit_thread;
mod copy_backlog;
mod event_places;
mod event_queue;
mod file_tail;
mod otlp_export;
mod outlets;
mod rotation;
mod running_audit;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_core::port::{AuditLog, Clock};
use weir_upstream::UpstreamFactory;

use crate::audit_plan::AuditPlan;
use audit_switch::AuditSwitch;
use audit_targets::AuditTargets;
pub use audit_targets::{AuditError, check_files};
pub use running_audit::ChainHeads;
use running_audit::{RECORDS_GRACE, RunningAudit};

/// The time that the start waits for its first record. After that calls are served, or refused,
/// without.
const FIRST_RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// The audit of a running weir, switched on or off.
pub struct AuditService {
    switch: Arc<AuditSwitch>,
    clock: Arc<dyn Clock>,
    running: Mutex<Option<RunningAudit>>,
}

/// The opened files and outlets for new settings, not yet in use.
pub struct PreparedAudit(Option<AuditTargets>);

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
            let mut running = self.running.lock();
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
        let running = self.running.lock();
        let current = running.as_ref().map(|running| &running.plan);
        let targets = AuditTargets::open(current, plan, factory)?;
        Ok(PreparedAudit(Some(targets)))
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
        let mut running = self.running.lock();
        match (&mut *running, ready) {
            (_, None) => {
                self.switch.set(None);
                if let Some(running) = running.take() {
                    running.let_go();
                }
            }
            (Some(running), Some(ready)) => running.change(ready),
            (none, Some(ready)) => {
                let started = RunningAudit::start(ready, left, self.clock.clone())?;
                self.switch.set(Some(started.recorder.clone()));
                *none = Some(started);
            }
        }
        Ok(())
    }

    /// Leaves the chains and the paths of their files to the process that takes over. It continues
    /// after the returned records. Waits until the files are free, for a bounded time.
    pub async fn release_files(&self) -> ChainHeads {
        let waits = {
            let running = self.running.lock();
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

    /// Takes the paths of the files back from a process that was to take over and failed. If it
    /// still holds a file, this goes on until it has let go.
    pub fn take_back_files(&self) {
        let running = self.running.lock();
        if let Some(running) = &*running {
            for chain in [&running.calls, &running.refusals] {
                chain.order(|orders| orders.take_back = true);
            }
        }
    }

    /// Records that the previous process has ended, with its last records if it sent them.
    pub fn record_predecessor_end(&self, last: ChainHeads) {
        let running = self.running.lock();
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
        self.switch.set(None);
        let running = self.running.lock().take();
        match running {
            Some(running) => running.end().await,
            None => ChainHeads::default(),
        }
    }
}

impl Drop for AuditService {
    fn drop(&mut self) {
        let running = self.running.get_mut();
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
            if self.switch.is_on() { "on" } else { "off" }
        )
    }
}

#[cfg(test)]
mod tests;
