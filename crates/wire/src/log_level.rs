//! The log levels of `logging/setLevel` and `notifications/message`: those of RFC 5424, least
//! severe first.
//!
//! An MCP server sends them to its client; weir's own log has its own levels.

use std::fmt;

/// A level, ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// Normal operation.
    Info,
    /// Normal, but worth a look.
    Notice,
    /// An abnormal condition.
    Warning,
    /// An operation failed.
    Error,
    /// A component failed.
    Critical,
    /// Act at once.
    Alert,
    /// Unusable.
    Emergency,
}

impl LogLevel {
    /// Every level, least severe first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Returns the level of exactly this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_parse_back_and_are_ordered() {
        assert!(LogLevel::ALL.is_sorted());
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        for text in ["warn", "Debug", "", "trace"] {
            assert_eq!(LogLevel::parse(text), None);
        }
    }
}
