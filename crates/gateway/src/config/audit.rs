//! What the config says of the audit.

use std::path::PathBuf;
use std::time::Duration;

use weir_policy::audit::{Key, Shape};
use weir_upstream::HttpSettings;

/// How records are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditPlan {
    /// The file, where there is one: then it is what counts.
    pub file: Option<FilePlan>,
    /// Whether they go to standard output; that counts where there is no file.
    pub stdout: bool,
    /// The collector they are sent to.
    pub otlp: Option<HttpSettings>,
    /// Whether calls are refused while records cannot be kept.
    pub closed: bool,
    /// How long a record may wait until the disk has it.
    pub sync: Duration,
    /// How many records may wait to be written.
    pub queue: usize,
    /// What records say of arguments.
    pub shape: Shape,
    /// What the chain is signed with.
    pub key: Option<Key>,
}

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlan {
    /// Where it is.
    pub path: PathBuf,
    /// A file of so many bytes is put aside.
    pub size: u64,
    /// How many that were put aside stay.
    pub keep: usize,
    /// How long they stay.
    pub keep_for: Option<Duration>,
}
