//! The events of a reply, its end, and the bytes of its result.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use weir_wire::log_level::LogLevel;
use weir_wire::method::Method;

use crate::call::ParkedId;
use crate::failure::Failure;
use crate::question::PendingQuestion;

/// One event of a call.
#[derive(Debug)]
pub enum ReplyEvent {
    /// A notification for the client while the call runs.
    Note(ReplyNote),
    /// A question of the upstream for the client; the call goes on with the answer.
    Ask(Box<PendingQuestion>),
    /// The call is over; it is the last event.
    End(ReplyEnd),
}

/// A notification that belongs to a call.
#[derive(Debug, Clone)]
pub struct ReplyNote {
    /// The kind of notification.
    pub kind: NoteKind,
    /// The notification's `params` object as the upstream wrote it. Its `progressToken`, if any, is
    /// the upstream hop's.
    pub params: Bytes,
}

/// The kinds of notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// `notifications/progress`, already known to belong to this call and to increase.
    Progress,
    /// `notifications/message` of this level.
    Log(LogLevel),
    /// Any other notification.
    Other(Method),
    /// No notification: the server takes its time, and the client's response begins without waiting
    /// for the answer. It does not reset the idle timeout.
    StillWorking,
}

/// The end of a call.
#[derive(Debug)]
pub enum ReplyEnd {
    /// A complete result: the `result` object as the upstream wrote it.
    Complete(Payload),
    /// The upstream wants input first (`resultType: "input_required"`): the `result` object as the
    /// upstream wrote it.
    InputRequired(Payload),
    /// The upstream asked a question, and the call waits for the answer while parked: `result` has
    /// the questions, and a call made with [`crate::CallResumption::Parked`] of this id goes on
    /// with it.
    Parked {
        /// The name of the parked call.
        id: ParkedId,
        /// An `input_required` result object without a state.
        result: Bytes,
    },
    /// The work goes on as a task: a `CreateTaskResult` in the form of the tasks extension. Its
    /// `taskId` is the upstream's own on the way to the router, and the client's from there on.
    Task(Bytes),
    /// No result.
    Failed(Box<Failure>),
}

impl From<Failure> for ReplyEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

/// The bytes of a result: whole if they fitted a small buffer, else a stream of chunks.
pub enum Payload {
    /// All of it.
    Whole(Bytes),
    /// All of it, without its hidden characters: the client gets their number. Only the router
    /// makes it, and only in [`ReplyEnd::Complete`].
    Cleaned {
        /// The `result` object.
        result: Bytes,
        /// The number of characters and escape sequences that were removed: at least one.
        removed: u64,
    },
    /// More than weir buffers.
    Stream(Box<dyn PayloadSource>),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Cleaned { result, removed } => {
                write!(f, "Cleaned({} bytes, {removed} removed)", result.len())
            }
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A result that is still arriving. Dropping it cancels the call.
pub trait PayloadSource: Send {
    /// The next bytes of the `result` object; `None` after its closing brace. A failure ends it.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>>;

    /// The number of hidden characters and escape sequences removed from the chunks so far. A
    /// source around another one passes on the inner number.
    fn removed(&self) -> u64 {
        0
    }
}
