//! The copy of records to standard output, beside the file. A pipe without a reader blocks only its
//! own thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::audit_service::audit_file::AuditFile;
use crate::audit_service::audit_thread::AuditThread;
use crate::audit_service::copy_backlog::{BACKLOG, dropped};
use crate::audit_service::otlp_export::AuditExporter;
use crate::record::SealedRecord;

/// The sinks of copies, beside the file.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditOutlets {
    pub(super) stdout: Option<SyncSender<Arc<SealedRecord>>>,
    pub(super) otlp: Option<AuditExporter>,
}

impl AuditOutlets {
    /// Offers a record to each sink. A sink without room drops and counts it.
    pub(super) fn offer(&self, sealed: SealedRecord) {
        if self.stdout.is_none() && self.otlp.is_none() {
            return;
        }
        let sealed = Arc::new(sealed);
        if let Some(stdout) = &self.stdout
            && stdout.try_send(sealed.clone()).is_err()
        {
            dropped("stdout", 1);
        }
        if let Some(otlp) = &self.otlp {
            otlp.offer(sealed);
        }
    }
}

/// Starts the thread that writes records to standard output; it ends with the sender.
///
/// # Errors
///
/// Standard output is closed, or the system has no thread.
pub(super) fn stdout() -> std::io::Result<(SyncSender<Arc<SealedRecord>>, AuditThread)> {
    let out = AuditFile::stdout()?;
    dropped("stdout", 0);
    let (sender, receiver) = sync_channel(BACKLOG);
    let worker = AuditThread::start("audit-stdout", move || write_records(&receiver, out))?;
    Ok((sender, worker))
}

fn write_records(receiver: &Receiver<Arc<SealedRecord>>, mut out: AuditFile) {
    while let Ok(first) = receiver.recv() {
        let mut count = 1;
        out.push(first.line.as_bytes());
        for sealed in receiver.try_iter().take(BACKLOG / 8) {
            out.push(sealed.line.as_bytes());
            count += 1;
        }
        if let Err(error) = out.flush() {
            tracing::error!(%error, "audit copy to standard output failed, stopped");
            dropped("stdout", count);
            return;
        }
    }
}
