//! The refusal to put a question to a client.

use bytes::Bytes;
use weir_wire::method::Method;
use weir_wire::{ErrorObject, error_code};

/// The reason for not putting a question to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionRefusal {
    /// The client did not declare this capability.
    Undeclared,
    /// The client declared the capability, but not this mode of it: by URL, or with tools.
    UndeclaredMode,
    /// The client's revision has no form for it.
    NotInRevision,
    /// The URL is neither https nor on the user's own machine: anyone on the network path could
    /// read or change the page.
    UnsafeUrl,
}

impl QuestionRefusal {
    /// The error for the server that asked.
    #[must_use]
    pub fn error(self) -> ErrorObject {
        match self {
            Self::Undeclared => ErrorObject::new(
                error_code::METHOD_NOT_FOUND,
                "The client cannot be asked for this",
            ),
            Self::UndeclaredMode => ErrorObject::new(
                error_code::INVALID_PARAMS,
                "The client did not say that it can be asked this way",
            ),
            Self::NotInRevision => ErrorObject::new(
                error_code::INVALID_PARAMS,
                "The client's protocol revision has no form for this",
            ),
            Self::UnsafeUrl => ErrorObject::new(error_code::INVALID_PARAMS, "The URL is not https"),
        }
    }

    /// The answer in place of the client's, to a question of this method. A form that the client's
    /// revision cannot show is answered as if the user had closed it.
    pub fn answer(self, method: Method) -> Result<Bytes, Bytes> {
        match (self, method) {
            (Self::NotInRevision, Method::ElicitationCreate) => {
                Ok(Bytes::from_static(br#"{"action":"cancel"}"#))
            }
            _ => Err(self.error().to_json()),
        }
    }
}
