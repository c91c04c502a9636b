//! The outcome of a call to an upstream.

use crate::failure::Failure;

/// The outcome of a call to an upstream, as metrics, spans and the audit name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// A result that is not an error.
    Complete,
    /// A tool's own error.
    ToolError,
    /// The call waits for input of the client.
    InputRequired,
    /// The call became a task.
    Task,
    /// The call ended early: its client or an operator cancelled it, or its client disconnected.
    Cancelled,
    /// A failure, with its [`Failure::reason`].
    Failed(&'static str),
}

impl CallOutcome {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ToolError => "tool_error",
            Self::InputRequired => "input_required",
            Self::Task => "task",
            Self::Cancelled => "cancelled",
            Self::Failed(reason) => reason,
        }
    }

    /// True if the call did not bring what it was made for: `error.type` names the outcome then. A
    /// call that waits for input, or that became a task, did not fail.
    #[must_use]
    pub const fn is_failed(self) -> bool {
        match self {
            Self::Complete | Self::InputRequired | Self::Task => false,
            Self::ToolError | Self::Cancelled | Self::Failed(_) => true,
        }
    }
}

impl From<&Failure> for CallOutcome {
    fn from(failure: &Failure) -> Self {
        Self::Failed(failure.reason())
    }
}
