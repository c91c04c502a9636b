//! Classification of messages from one upstream: the revision it speaks, the type of a result, the
//! call a message belongs to.
//!
//! Functions on single messages; the exchange itself belongs to the transports, `upstream-http` and
//! `upstream-stdio`.

mod dialect;
pub(crate) mod message_filter;
mod probe;

use bytes::Bytes;
use weir_core::failure::UpstreamError;
use weir_core::{Failure, FailureKind};
use weir_wire::{ErrorObject, error_code, scan};

pub use dialect::{ClientDeclaration, RevisionDialect};
pub use message_filter::{
    DropReason, MessageClass, MessageFilter, answer_outside_call, answer_request,
    cancelled_request, changed_lists, classify_request, log_level, request_of, updated_resource,
};
pub use probe::{
    DiscoveredServer, ProbeOutcome, initialize_result, is_modern_error, judge_probe,
    listed_versions, read_discover_result, read_initialize_result, revision_to_offer_instead,
    version_text,
};

/// The type of a modern `result`, by its `resultType` (2026-07-28, basic, "Results").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// The answer. Also if `resultType` is absent.
    Complete,
    /// The server wants input first.
    InputRequired,
    /// The work goes on as a task (SEP-2663).
    Task,
    /// A type that weir never negotiated: not a valid answer.
    Unknown,
}

/// Reads the `resultType` of a result object.
#[must_use]
pub fn read_result_type(result: &[u8]) -> ResultType {
    parse_result_type(scan::find(result, "resultType").map(|range| &result[range]))
}

/// The same for the raw `resultType` alone.
#[must_use]
pub fn parse_result_type(result_type: Option<&[u8]>) -> ResultType {
    let Some(text) = result_type else {
        return ResultType::Complete;
    };
    match scan::string(scan::trim(text)).as_deref() {
        Some("complete") => ResultType::Complete,
        Some("input_required") => ResultType::InputRequired,
        Some("task") => ResultType::Task,
        _ => ResultType::Unknown,
    }
}

/// A server's error object as the failure of a call. Its code, message and data are kept; the
/// rendering of failures decides if a client may see the code.
#[must_use]
pub fn failure(error: &Bytes) -> Failure {
    match ErrorObject::parse(error) {
        Ok(error) => {
            let ErrorObject {
                code,
                message,
                data,
            } = error;
            let shown = message.clone();
            Failure::new(
                FailureKind::Upstream(UpstreamError {
                    code,
                    message,
                    data,
                }),
                shown,
            )
        }
        Err(error) => Failure::new(
            FailureKind::BadAnswer,
            "The upstream sent an error without a code or a message",
        )
        .because(error.to_string()),
    }
}

/// The reason for sending a request again: each is a proof that no tool ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResendProof {
    /// The connection was not made, or the request not given to it.
    NotSent,
    /// The server reports that it did not read the request.
    Unread,
    /// The server does not know the session.
    SessionLost,
    /// The mirrored headers do not fit the server's newest schema (-32020, HTTP 400).
    HeaderMismatch,
    /// The server does not serve the request's revision (-32022, HTTP 400).
    Version,
}

impl ResendProof {
    /// The label in metrics.
    #[must_use]
    pub const fn metric_label(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Unread => "unread",
            Self::SessionLost => "session_lost",
            Self::HeaderMismatch => "header_mismatch",
            Self::Version => "version",
        }
    }
}

/// The proof that a modern error answer with HTTP 400 gives, if any.
#[must_use]
pub fn resend_proof(status: u16, error: &Bytes) -> Option<ResendProof> {
    let error = (status == 400)
        .then(|| ErrorObject::parse(error).ok())
        .flatten()?;
    match error.code {
        error_code::HEADER_MISMATCH => Some(ResendProof::HeaderMismatch),
        error_code::UNSUPPORTED_PROTOCOL_VERSION => Some(ResendProof::Version),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves R074.
    #[test]
    fn absent_result_type_is_complete_and_an_unknown_one_is_invalid() {
        for (result, expected) in [
            ("{}", ResultType::Complete),
            (r#"{"resultType":"complete"}"#, ResultType::Complete),
            (
                r#"{"x":{"resultType":"input_required"}}"#,
                ResultType::Complete,
            ),
            (
                r#"{"resultType":"input_required","inputRequests":{}}"#,
                ResultType::InputRequired,
            ),
            (r#"{"resultType":"task"}"#, ResultType::Task),
            (r#"{"resultType":"tasks"}"#, ResultType::Unknown),
            (r#"{"resultType":7}"#, ResultType::Unknown),
        ] {
            assert_eq!(read_result_type(result.as_bytes()), expected, "{result}");
        }
    }

    #[test]
    fn only_400_with_a_listed_code_proves_that_nothing_ran() {
        let error = |code: i64| Bytes::from(format!(r#"{{"code":{code},"message":"m"}}"#));
        assert_eq!(
            resend_proof(400, &error(-32020)),
            Some(ResendProof::HeaderMismatch)
        );
        assert_eq!(
            resend_proof(400, &error(-32022)),
            Some(ResendProof::Version)
        );
        for (status, code) in [
            (200, -32020),
            (500, -32022),
            (400, -32021),
            (400, -32602),
            (400, -32603),
        ] {
            assert_eq!(resend_proof(status, &error(code)), None, "{status} {code}");
        }
    }
}
