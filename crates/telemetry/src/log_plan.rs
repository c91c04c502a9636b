//! Settings of the log.

/// The format and filter of the log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LogPlan {
    /// The format of log lines.
    pub format: LogFormat,
    /// A level or filter. Absent: `info`.
    pub filter: Option<String>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Human-readable on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Human-readable.
    Human,
    /// One JSON object per line.
    Json,
}
