//! The table of responses as rows of the documentation (`docs/errors.md`).

use bytes::Bytes;
use weir_core::call::RequestName;
use weir_core::failure::{AuthenticationDenial, UpstreamError};
use weir_core::{Failure, FailureKind};
use weir_wire::{Revision, error_code};

use crate::failure::failure_data::FailureContext;
use crate::failure::message_refusal::MessageRefusal;
use crate::failure::request_refusal::RequestRefusal;
use crate::failure::response_table::{FailureBody, log_and_render};
use crate::failure::response_table::{MessageRow, RefusalAdvice, refusal_response};

/// One row of the table of refusals before a message is read, for the docs.
#[derive(Debug)]
pub struct RefusalRow {
    /// The status.
    pub status: u16,
    /// The label of the metric; `None` if the refusal is not counted.
    pub reason: Option<&'static str>,
    /// The text of the body.
    pub text: &'static str,
    /// Headers that go with it, beside the computed ones.
    pub headers: String,
}

/// The table of refusals before a message is read.
#[must_use]
pub fn refusal_table() -> Vec<RefusalRow> {
    let row = |refusal| {
        let response = refusal_response(refusal);
        let has_challenge = matches!(
            refusal,
            RequestRefusal::CredentialsMissing
                | RequestRefusal::CredentialsInvalid
                | RequestRefusal::ScopesMissing
        );
        let computed = if has_challenge {
            "`WWW-Authenticate`"
        } else if refusal == RequestRefusal::RateLimited {
            "`Retry-After`, `RateLimit`, `RateLimit-Policy`"
        } else {
            ""
        };
        let headers = match response.advice {
            RefusalAdvice::None => computed.to_owned(),
            RefusalAdvice::RetryAfter(seconds) => format!("`Retry-After: {seconds}`"),
            RefusalAdvice::Allow(methods) => format!("`Allow: {methods}`"),
            RefusalAdvice::Close => "`Connection: close`".to_owned(),
            RefusalAdvice::CloseAndRetryAfter(seconds) => {
                format!("`Connection: close`, `Retry-After: {seconds}`")
            }
        };
        RefusalRow {
            status: response.status.as_u16(),
            reason: response.reason,
            text: response.text,
            headers,
        }
    };
    RequestRefusal::ALL.into_iter().map(row).collect()
}

/// One row of the table of refused messages, for the docs.
#[derive(Debug)]
pub struct MessageErrorRow {
    /// The member `reason` of the error's data.
    pub reason: &'static str,
    /// The status.
    pub status: u16,
    /// The JSON-RPC code.
    pub code: i64,
    /// The meaning, and the advice.
    pub meaning: &'static str,
}

/// The table of refused messages.
#[must_use]
pub fn message_error_table() -> Vec<MessageErrorRow> {
    let malformed = |code| MessageRefusal::Malformed {
        code,
        text: String::new(),
    };
    let rows: [(MessageRefusal, &'static str); 15] = [
        (
            malformed(error_code::PARSE_ERROR),
            "The body is no JSON, too deep, or has a key twice.",
        ),
        (
            malformed(error_code::INVALID_REQUEST),
            "The body is JSON, but no JSON-RPC message; the message says why.",
        ),
        (
            MessageRefusal::WrongParams(String::new()),
            "`params` or `_meta` have a wrong form.",
        ),
        (
            MessageRefusal::InvalidParams(String::new()),
            "A parameter of `initialize`, `subscriptions/listen` or of the envelope is wrong.",
        ),
        (
            MessageRefusal::HeaderMismatch(String::new()),
            "A header of 2026-07-28 is missing, given twice, or differs from the body.",
        ),
        (
            MessageRefusal::UnsupportedRevision {
                requested: String::new(),
            },
            "The revision is not supported; `data.supported` lists those that are.",
        ),
        (
            MessageRefusal::VersionUnknown,
            "`MCP-Protocol-Version` is given twice, or names a revision that weir does not have.",
        ),
        (
            MessageRefusal::MethodNotServed,
            "The method does not exist in 2026-07-28.",
        ),
        (
            MessageRefusal::SessionMissing,
            "A legacy request names no session: send `initialize` first.",
        ),
        (
            MessageRefusal::SessionRepeated,
            "A legacy request has `Mcp-Session-Id` twice.",
        ),
        (
            MessageRefusal::ResponseWithoutSession,
            "A response came outside of a legacy session.",
        ),
        (
            MessageRefusal::SessionUnknown,
            "The session is over, unknown, or belongs to another caller: send `initialize` again.",
        ),
        (
            MessageRefusal::BatchNotAllowed,
            "A batch came outside of a session of 2025-03-26.",
        ),
        (
            MessageRefusal::InitializeInBatch,
            "`initialize` came within a batch: send it alone.",
        ),
        (
            MessageRefusal::NoRoomInBatch(String::new()),
            "The answers of a batch exceed its memory: send fewer requests at once.",
        ),
    ];
    let row = |(refusal, meaning)| {
        let row = MessageRow::of(&refusal);
        MessageErrorRow {
            reason: row.reason,
            status: row.status.as_u16(),
            code: row.code,
            meaning,
        }
    };
    rows.into_iter().map(row).collect()
}

/// One row of the table of failures, for the docs.
#[derive(Debug)]
pub struct ErrorRow {
    /// [`Failure::reason`].
    pub reason: &'static str,
    /// The meaning, and the advice.
    pub meaning: &'static str,
    /// The form for a modern client on `tools/call`.
    pub modern_call: String,
    /// The form for a modern client on other methods.
    pub modern_other: String,
    /// The form for a client of 2025-11-25 on `tools/call`.
    pub legacy_call: String,
    /// The form for a client of 2025-06-18 and before on `tools/call`.
    pub older_call: String,
}

/// The table of failures of requests, derived from `render_failure`.
#[must_use]
pub fn error_table() -> Vec<ErrorRow> {
    let upstream = |number| {
        FailureKind::Upstream(UpstreamError {
            code: number,
            message: String::new(),
            data: None,
        })
    };
    let rows: [(FailureKind, &'static str); 17] = [
        (
            FailureKind::TimedOut,
            "A time limit passed, and weir sent the upstream a cancellation. Try again, or request less.",
        ),
        (
            FailureKind::Unavailable,
            "The upstream is unreachable or out of service; the call did not run. Try again later.",
        ),
        (
            FailureKind::BadAnswer,
            "The upstream's answer is not valid. Report it to the operator of the upstream.",
        ),
        (
            FailureKind::ResultUnknown,
            "The result was lost, or there was no room for it; the tool may have run. Check before trying again.",
        ),
        (
            FailureKind::Limit,
            "A rate limit or quota is exhausted; `limit` names it. Wait for `retryAfterMs` before trying again.",
        ),
        (
            FailureKind::Busy,
            "Too many calls to this upstream or of this caller are running. Try again in a moment.",
        ),
        (
            FailureKind::MethodNotFound,
            "weir does not serve this method.",
        ),
        (
            FailureKind::InvalidParams,
            "The request has an invalid name or value, such as an unknown tool or a cursor that is no longer valid.",
        ),
        (
            FailureKind::UnknownResource(String::new()),
            "The resource is unknown; `data.uri` is its URI.",
        ),
        (
            FailureKind::BadArguments,
            "The arguments do not match the tool's input schema, or contain a secret; the message has the position. The tool did not run.",
        ),
        (
            FailureKind::MissingCapability(Bytes::from_static(b"{}")),
            "The call needs a client capability that was not declared; `data.requiredCapabilities` names it.",
        ),
        (
            upstream(-32050),
            "An error of the upstream itself: code, message and data pass through. Codes that belong to one hop become -32603.",
        ),
        (
            FailureKind::Internal,
            "An internal error: a bug of weir. Report it with the `requestId`.",
        ),
        (
            FailureKind::Denied,
            "A rule denies the call to this caller. Do not try again; contact the operator.",
        ),
        (
            FailureKind::Unauthenticated(AuthenticationDenial::Missing),
            "The request has no valid credentials.",
        ),
        (
            FailureKind::InsufficientScope(std::sync::Arc::new([])),
            "The token lacks scopes; `WWW-Authenticate` lists the scopes to request.",
        ),
        (
            FailureKind::Overloaded,
            "weir is overloaded or shutting down. Try again in a second.",
        ),
    ];
    rows.into_iter()
        .map(|(kind, meaning)| table_row(kind, meaning))
        .collect()
}

fn table_row(kind: FailureKind, meaning: &'static str) -> ErrorRow {
    let request = RequestName::from_bits(0);
    let failure = Failure::new(kind, "");
    let look = |revision, tool_call| {
        let rendered = log_and_render(
            &failure,
            FailureContext {
                revision,
                tool_call,
                request: &request,
            },
        );
        let status = rendered.status.as_u16();
        match rendered.body {
            FailureBody::Result(_) => format!("{status}, `isError` result"),
            FailureBody::Error(_) if matches!(failure.kind(), FailureKind::Upstream(_)) => {
                format!("{status}, the upstream's code")
            }
            FailureBody::Error(error) => format!("{status}, {}", error.code),
        }
    };
    ErrorRow {
        reason: failure.reason(),
        meaning,
        modern_call: look(Revision::MODERN, true),
        modern_other: look(Revision::MODERN, false),
        legacy_call: look(Revision::NEWEST_LEGACY, true),
        older_call: look(Revision::V2025_06_18, true),
    }
}
