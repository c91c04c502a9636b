//! The settings of the audit log.

use std::path::PathBuf;
use std::time::Duration;

use crate::record::{ArgumentRecording, AuditKey};
use weir_upstream::HttpUpstreamSettings;

/// The settings of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditPlan {
    /// The file, if there is one. Its outcome then decides if a record is kept.
    pub file: Option<AuditFilePlan>,
    /// True if records go to standard output. Its outcome decides if there is no file.
    pub stdout: bool,
    /// The collector that records are sent to.
    pub otlp: Option<HttpUpstreamSettings>,
    /// True if calls are refused while records cannot be written.
    pub closed: bool,
    /// The longest time before a record is synced to disk.
    pub sync: Duration,
    /// The number of records that may wait to be written.
    pub queue: usize,
    /// The form of arguments in records.
    pub shape: ArgumentRecording,
    /// The key that signs the chain.
    pub key: Option<AuditKey>,
}

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFilePlan {
    /// The path of the file.
    pub path: PathBuf,
    /// The size in bytes at which the file is rotated.
    pub size: u64,
    /// The number of rotated files that are kept.
    pub keep: usize,
    /// The time that rotated files are kept.
    pub keep_for: Option<Duration>,
}
