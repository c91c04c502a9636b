//! The outcome of a request in `mcp.server.operation.duration`: one label, known at the end of the
//! answer.
//!
//! The status does not show it: a refused call, a tool's own error and an upstream that is down are
//! all HTTP 200.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::StatusCode;
use weir_core::{Failure, FailureKind};
use weir_router::CancelledCall;

/// The outcomes, from good to bad: the outcome of a batch is that of its worst item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestOutcome {
    /// The request succeeded.
    Ok,
    /// A tool answered with an error result.
    ToolError,
    /// A JSON-RPC error: a malformed envelope, an unknown method, tool or cursor, an upstream's own
    /// error.
    ProtocolError,
    /// The request was rejected: by its head, for want of credentials or scopes, by a rule, by a
    /// rate, a quota or another limit of the client itself, or for arguments against the tool's
    /// schema.
    Refused,
    /// weir or an upstream failed: not reached, too late, lost, no valid answer, or no capacity for
    /// the request. Capacity that all clients share is not the fault of the client that is refused.
    Failed,
    /// The client cancelled the request or disconnected before the end, an operator stopped the
    /// call, or its session ended.
    Cancelled,
}

impl RequestOutcome {
    const ALL: [Self; 6] = [
        Self::Ok,
        Self::ToolError,
        Self::ProtocolError,
        Self::Refused,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::ProtocolError => "protocol_error",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome of an answer without a message of its own. A redirection leads the client on.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        match status {
            status if status.is_success() || status.is_redirection() => Self::Ok,
            status if status.is_client_error() => Self::Refused,
            _ => Self::Failed,
        }
    }

    /// The outcome of a failure.
    pub fn of_failure(failure: &Failure) -> Self {
        if CancelledCall::is_source_of(failure) {
            return Self::Cancelled;
        }
        match failure.kind() {
            FailureKind::Busy if failure.is_own_limit() => Self::Refused,
            FailureKind::TimedOut
            | FailureKind::Unavailable
            | FailureKind::BadAnswer
            | FailureKind::ResultUnknown
            | FailureKind::Busy
            | FailureKind::Internal
            | FailureKind::Overloaded => Self::Failed,
            FailureKind::Limit
            | FailureKind::Denied
            | FailureKind::BadArguments
            | FailureKind::InsufficientScope(_)
            | FailureKind::Unauthenticated(_) => Self::Refused,
            FailureKind::MethodNotFound
            | FailureKind::InvalidParams
            | FailureKind::UnknownResource(_)
            | FailureKind::UnknownTask
            | FailureKind::MissingCapability(_)
            | FailureKind::Upstream(_) => Self::ProtocolError,
        }
    }

    /// The outcome of a result, from the text of its `isError`.
    pub fn of_result(is_error: Option<&[u8]>) -> Self {
        if is_error == Some(b"true") {
            Self::ToolError
        } else {
            Self::Ok
        }
    }
}

/// The outcome of an answer, among its extensions, if its status does not show it.
#[derive(Clone, Debug)]
pub enum ResponseOutcome {
    /// Known with the head.
    Now(RequestOutcome),
    /// Known at the end of the body.
    Later(PendingOutcome),
    /// Counted at the answer to the message that the request carried.
    Elsewhere,
}

impl ResponseOutcome {
    /// The outcome as it is known now.
    pub fn outcome(&self) -> RequestOutcome {
        match self {
            Self::Now(outcome) => *outcome,
            Self::Later(later) => later.outcome(),
            Self::Elsewhere => RequestOutcome::Ok,
        }
    }
}

/// An outcome that the body of an answer sets at its end; until then,
/// [`RequestOutcome::Cancelled`].
#[derive(Clone, Debug)]
pub struct PendingOutcome(Arc<AtomicU8>);

/// An outcome that is not known yet.
impl Default for PendingOutcome {
    fn default() -> Self {
        Self(Arc::new(AtomicU8::new(RequestOutcome::Cancelled as u8)))
    }
}

impl PendingOutcome {
    /// Sets the outcome, at the end of the body.
    pub fn set(&self, outcome: RequestOutcome) {
        self.0.store(outcome as u8, Ordering::Relaxed);
    }

    fn outcome(&self) -> RequestOutcome {
        RequestOutcome::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_exceeds_its_own_limit_is_refused() {
        let busy = || Failure::new(FailureKind::Busy, "too many");
        assert_eq!(
            RequestOutcome::of_failure(&busy().own_limit()),
            RequestOutcome::Refused
        );
        assert_eq!(
            RequestOutcome::of_failure(&busy()),
            RequestOutcome::Failed,
            "the capacity that all clients share"
        );
    }

    #[test]
    fn cancelled_call_is_no_failure() {
        for kind in [FailureKind::ResultUnknown, FailureKind::Denied] {
            let failure = Failure::new(kind, "stopped").because(CancelledCall);
            assert_eq!(
                RequestOutcome::of_failure(&failure),
                RequestOutcome::Cancelled
            );
        }
    }

    #[test]
    fn redirection_is_no_failure_of_weir() {
        for (status, outcome) in [
            (200, RequestOutcome::Ok),
            (202, RequestOutcome::Ok),
            (307, RequestOutcome::Ok),
            (304, RequestOutcome::Ok),
            (404, RequestOutcome::Refused),
            (503, RequestOutcome::Failed),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(RequestOutcome::of_status(status), outcome, "{status}");
        }
    }

    #[test]
    fn pending_outcome_is_read_as_it_was_set() {
        assert!(RequestOutcome::ALL.is_sorted());
        let later = PendingOutcome::default();
        assert_eq!(
            later.outcome(),
            RequestOutcome::Cancelled,
            "nothing was said"
        );
        for outcome in RequestOutcome::ALL {
            later.set(outcome);
            assert_eq!(ResponseOutcome::Later(later.clone()).outcome(), outcome);
        }
    }
}
