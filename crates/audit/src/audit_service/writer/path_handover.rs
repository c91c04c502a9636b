//! The path of a chain's file in a graceful restart: left to the next process, and taken back if
//! that one failed.

use std::io;
use std::time::Duration;

use crate::audit_service::audit_file::AuditFile;
use crate::audit_service::file_tail::AuditFileTail;
use crate::audit_service::rotation;
use crate::audit_service::writer::left_path::LeftPath;
use crate::audit_service::writer::{AuditWriter, RETRY_INTERVAL};
use crate::record::{AuditChain, AuditLifecycle, ChainHead};

impl AuditWriter {
    /// Leaves the path to another process, which continues after the returned record. Later events
    /// here are a branch, in the renamed file.
    pub(super) fn step_aside(&mut self) -> ChainHead {
        self.count(true);
        self.record_life(AuditLifecycle::Left);
        let head = self.chain.head().clone();
        let path = self.plan.file.as_ref().map(|file| file.path.as_path());
        // A path that could not be taken back was left before.
        let own = |journal: &&mut AuditFile| journal.is_regular() && Some(journal.path()) == path;
        if let Some(journal) = self.journal.as_mut().filter(own)
            && let Err(error) = journal.move_to(rotation::rotated_name(journal.path(), head.seq))
        {
            tracing::error!(%error, "audit file rename failed during graceful restart");
            return head;
        }
        if self.journal.as_ref().is_some_and(AuditFile::is_regular) {
            self.left = Some(LeftPath {
                head: head.clone(),
                is_taken_back: false,
                has_failed: false,
            });
        }
        head
    }

    /// Notes that the process that was to take over has failed.
    pub(super) fn begin_return(&mut self) {
        if let Some(left) = &mut self.left {
            left.is_taken_back = true;
        }
    }

    /// The longest time until the next attempt to take the path back.
    pub(super) fn time_to_return(&self) -> Duration {
        match &self.left {
            Some(left) if left.is_taken_back => RETRY_INTERVAL,
            Some(_) | None => Duration::MAX,
        }
    }

    /// Takes the path back from a process that failed, once that process has let go of it.
    pub(super) fn take_path_back(&mut self) {
        let Some(left) = self.left.take_if(|left| left.is_taken_back) else {
            return;
        };
        match self.continue_at_path(&left.head) {
            Ok(()) => tracing::info!("audit file taken back after a failed graceful restart"),
            Err(error) => {
                if !left.has_failed {
                    tracing::warn!(%error, "audit file not taken back yet after a failed graceful restart");
                }
                let has_failed = true;
                self.left = Some(LeftPath { has_failed, ..left });
            }
        }
    }

    /// Continues the file at the path as the next process would have: after the records of the
    /// process that failed, or after `left` if it wrote none. The records of this process since then
    /// are a branch that has ended.
    fn continue_at_path(&mut self, left: &ChainHead) -> io::Result<()> {
        let Some(file) = self.plan.file.clone() else {
            return Ok(());
        };
        self.attempt(true)?;
        let keys: Vec<_> = self.plan.key.iter().cloned().collect();
        let (journal, tail) = AuditFile::open(&file.path, &keys)?;
        let last = self.chain.head().clone();
        let head = if tail == AuditFileTail::empty() {
            left.clone()
        } else {
            tail.head
        };
        self.chain = AuditChain::after(head, self.plan.key.clone()).named(self.role.chain());
        self.journal = Some(journal);
        (self.rotate_at, self.denied) = (file.size, 0);
        self.record_recovery(tail.torn);
        self.record_life(AuditLifecycle::Predecessor { last: Some(last) });
        Ok(())
    }
}
