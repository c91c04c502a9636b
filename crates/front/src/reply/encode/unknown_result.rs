//! The answers of a call whose own answer is lost: each states that the result is unknown.

use bytes::Bytes;
use weir_core::names::RequestName;
use weir_core::{Failure, FailureKind};
use weir_layers::failure;
use weir_layers::failure::failure_data::FailureContext;
use weir_wire::{RequestId, Revision};

use crate::reply::encode::ResponseContext;

/// The cause of a lost answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostAnswer {
    /// It was too large to keep for a client whose connection was lost.
    TooLarge,
    /// The replica that made the call ended.
    WithReplica,
    /// The session ended, or another replica took it over.
    WithSession,
    /// The client's connection was lost, and the call could not run on without it.
    WithConnection,
}

impl LostAnswer {
    /// The failure that the client gets instead.
    pub(crate) fn failure(self) -> Failure {
        let text = match self {
            Self::TooLarge => {
                "The result was too large to keep for a client whose connection was lost: it may have run. Check before \
                 calling again"
            }
            Self::WithReplica => {
                "The replica that made the call ended: the call may have run. Check before calling again"
            }
            Self::WithSession => {
                "The session ended or moved to another replica, so the call was cancelled: it may have run. Check before \
                 calling again"
            }
            Self::WithConnection => {
                "The connection was lost, and too many calls run without theirs, so the call was cancelled: it may have \
                 run. Check before calling again"
            }
        };
        Failure::new(FailureKind::ResultUnknown, text)
    }
}

/// The parts of a request that its answer needs when the result is unknown.
pub(crate) struct UnknownResult {
    id: RequestId,
    revision: Revision,
    is_tool_call: bool,
    request: RequestName,
}

impl UnknownResult {
    pub(super) fn of(context: &ResponseContext) -> Self {
        Self {
            id: context.id.clone(),
            revision: context.revision,
            is_tool_call: context.is_tool_call(),
            request: context.name,
        }
    }

    /// The message in place of a lost answer. It does not count as a failure: it may be made before
    /// the call runs.
    pub(crate) fn message(&self, lost: LostAnswer) -> Bytes {
        let context = FailureContext {
            revision: self.revision,
            tool_call: self.is_tool_call,
            request: &self.request,
        };
        failure::render_failure(&lost.failure(), context)
            .rendered_message(&self.id)
            .message
    }
}
