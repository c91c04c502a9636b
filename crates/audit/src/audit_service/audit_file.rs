//! A file of records: locked, written behind its known end, and certain to be on the disk once it
//! is synced.
//!
//! Bytes written and not yet synced stay in memory and are written again after any error, at the
//! same place. A full disk, a torn write and a lost page need this one remedy, and leave no gap.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::audit_service::file_tail::AuditFileTail;
use crate::record::AuditKey;

/// An open file of records.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    /// False for a pipe or a device: it has no end to return to, and no sync.
    regular: bool,
    /// The number of bytes that are synced.
    synced: u64,
    /// The bytes after them, not yet synced.
    open: Vec<u8>,
    /// The number of those that were written.
    written: usize,
    /// The lock for a write to a pipe or device that several journals share.
    turn: Arc<Mutex<()>>,
}

impl AuditFile {
    /// Opens or creates a file for this process alone, and returns the state of its end.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, another process writes to it, or it is no file of records.
    pub(super) fn open(path: &Path, keys: &[AuditKey]) -> io::Result<(Self, AuditFileTail)> {
        let mut options = OpenOptions::new();
        // The names of callers and tools are for the owner alone.
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.open(path)?;
        let regular = file.metadata()?.is_file();
        if regular {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other("another process writes to it"));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        let synced = if regular { file.metadata()?.len() } else { 0 };
        let tail = AuditFileTail::read(&file, synced, keys)?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            regular,
            synced,
            open: Vec::new(),
            written: 0,
            turn: Arc::default(),
        };
        journal.open.extend(tail.separator.unwrap_or_default());
        Ok((journal, tail))
    }

    /// Checks the content of a file as [`Self::open`] does, without a change of it: another process
    /// may write to it.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, or it is no file of records.
    pub(super) fn check(path: &Path, keys: &[AuditKey]) -> io::Result<()> {
        let is_regular = match fs::metadata(path) {
            Ok(about) => about.is_file(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if !is_regular {
            return Ok(());
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        AuditFileTail::read(&file, length, keys).map(drop)
    }

    /// Returns standard output as a file: without a buffer, so that a written line is out.
    ///
    /// # Errors
    /// It is closed.
    pub(super) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let path = PathBuf::from("standard output");
        Ok(Self {
            path,
            file,
            regular: false,
            synced: 0,
            open: Vec::new(),
            written: 0,
            turn: Arc::default(),
        })
    }

    /// Returns a second journal of the same pipe or device: the records of both are whole lines
    /// there.
    ///
    /// # Errors
    ///
    /// The system has no file descriptor left.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let (path, file, turn) = (self.path.clone(), self.file.try_clone()?, self.turn.clone());
        Ok(Self {
            path,
            file,
            regular: self.regular,
            synced: 0,
            open: Vec::new(),
            written: 0,
            turn,
        })
    }

    /// Returns the file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's length, including bytes not yet synced.
    pub(super) fn length(&self) -> u64 {
        self.synced + self.open.len() as u64
    }

    /// Reports if the file can be rotated.
    pub(super) fn is_regular(&self) -> bool {
        self.regular
    }

    /// Reports if some bytes are not yet synced.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.open.is_empty()
    }

    /// Reports if another file, or no file, is at the path now.
    pub(super) fn is_moved(&self) -> bool {
        let (own, there) = (self.file.metadata(), fs::metadata(&self.path));
        match (own, there) {
            (Ok(own), Ok(there)) => (own.dev(), own.ino()) != (there.dev(), there.ino()),
            (Ok(_), Err(error)) => error.kind() == io::ErrorKind::NotFound,
            (Err(_), _) => false,
        }
    }

    /// Queues bytes; [`Self::flush`] writes them.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    /// Writes all queued bytes.
    ///
    /// # Errors
    ///
    /// Some bytes could not be written; the next flush writes them.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.regular {
            let at = self.synced + self.written as u64;
            self.file.write_all_at(&self.open[self.written..], at)?;
            self.written = self.open.len();
            return Ok(());
        }
        let turn = self.turn.clone();
        let _turn = turn.lock();
        while self.written < self.open.len() {
            match self.file.write(&self.open[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.open.clear();
        self.written = 0;
        Ok(())
    }

    /// Waits until all bytes are synced to the disk.
    ///
    /// # Errors
    ///
    /// The state of the disk is unknown; the next flush writes all unsynced bytes again.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Err(error) = self.file.sync_data() {
            self.written = 0;
            return Err(error);
        }
        self.synced += self.open.len() as u64;
        self.open.clear();
        self.written = 0;
        Ok(())
    }

    /// Gives up the file and returns the unsynced bytes, cut off from the file if possible.
    pub(super) fn abandon(mut self) -> Vec<u8> {
        if self.regular && !self.open.is_empty() && self.file.set_len(self.synced).is_err() {
            tracing::warn!(path = %self.path.display(), "audit records duplicated in the next file");
        }
        std::mem::take(&mut self.open)
    }

    /// Renames the file and writes on in it.
    ///
    /// # Errors
    ///
    /// The file keeps its name then.
    pub(super) fn move_to(&mut self, name: PathBuf) -> io::Result<()> {
        fs::rename(&self.path, &name)?;
        self.path = name;
        Ok(())
    }

    /// Renames the file to `name` and begins a new one at its path. All bytes must be synced
    /// before.
    ///
    /// # Errors
    ///
    /// The file keeps its name then, and writing continues.
    pub(super) fn rotate(&mut self, name: &Path) -> io::Result<()> {
        fs::rename(&self.path, name)?;
        match Self::open(&self.path, &[]) {
            Ok((fresh, _)) => {
                *self = fresh;
                // The renaming must survive a crash as the records do.
                if let Some(folder) = self
                    .path
                    .parent()
                    .filter(|folder| !folder.as_os_str().is_empty())
                {
                    File::open(folder)?.sync_all()?;
                }
                Ok(())
            }
            Err(error) => {
                fs::rename(name, &self.path)?;
                Err(error)
            }
        }
    }
}
