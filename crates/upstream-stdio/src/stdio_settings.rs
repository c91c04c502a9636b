//! The operator's settings for a server that weir starts itself. Already checked.

use std::path::PathBuf;
use std::time::Duration;

use weir_upstream_core::secret::SecretText;

/// A server that weir starts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StdioUpstreamSettings {
    /// The program, looked up in `PATH` of the child's environment.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The environment variables beside the minimal set; values are secrets.
    pub env: Vec<(String, SecretText)>,
    /// The working directory. Default: weir's own.
    pub cwd: Option<PathBuf>,
    /// The replicas that run it.
    pub instances: ChildInstances,
    /// The most processes at once if each principal has its own. One more is refused as busy,
    /// unless one was idle for [`session_idle`](weir_upstream_core::settings::UpstreamBounds::session_idle).
    pub max_processes: usize,
    /// The time limit from the start to the answer to the first message. Package runners download
    /// on their first start.
    pub start: Duration,
}

/// The replicas that run the child processes of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildInstances {
    /// Each replica runs its own.
    #[default]
    EachReplica,
    /// One replica runs them for all.
    One,
}
