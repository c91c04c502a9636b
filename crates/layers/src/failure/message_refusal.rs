//! The refusals of a message before it is carried out.

use weir_wire::message::MessageError;
use weir_wire::params::ParamsError;

/// A message that is not valid, or not at this point of its session.
#[derive(Debug)]
pub enum MessageRefusal {
    /// The bytes are no JSON-RPC message: the error's code and text.
    Malformed {
        /// The JSON-RPC code.
        code: i64,
        /// The text of the error.
        text: String,
    },
    /// Parameters are wrong, and the era of the request is not known yet.
    WrongParams(String),
    /// Parameters of a request whose era is known are wrong.
    InvalidParams(String),
    /// A header is missing, given twice, or differs from the body.
    HeaderMismatch(String),
    /// The revision is not supported.
    UnsupportedRevision {
        /// The revision as the client wrote it.
        requested: String,
    },
    /// The method does not exist in 2026-07-28.
    MethodNotServed,
    /// A legacy request names no session.
    SessionMissing,
    /// A legacy request names a session twice.
    SessionRepeated,
    /// The named session is over, unknown, or belongs to another caller.
    SessionUnknown,
    /// The version header is given twice, or names a revision that weir does not have.
    VersionUnknown,
    /// A response came without a session.
    ResponseWithoutSession,
    /// A batch came outside of a session of 2025-03-26.
    BatchNotAllowed,
    /// `initialize` came within a batch.
    InitializeInBatch,
    /// The answers of a batch exceed its memory.
    NoRoomInBatch(String),
}

impl MessageRefusal {
    /// The refusal of parameters that cannot be read.
    pub fn wrong_params(error: ParamsError) -> Self {
        Self::WrongParams(error.to_string())
    }
}

impl From<MessageError> for MessageRefusal {
    fn from(error: MessageError) -> Self {
        Self::Malformed {
            code: error.code,
            text: error.text,
        }
    }
}
