//! The only module that renders a failure for a client: failure x era -> status, code, message,
//! data.
//!
//! Sources: JSON-RPC 2.0; 2026-07-28 basic/index (error codes), basic/transports/streamable-http
//! (statuses). An upstream's failure is HTTP 200: 5xx is weir's own state only.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use weir_core::call::RequestName;
use weir_core::failure::{AuthenticationDenial, LimitReached, UpstreamError};
use weir_core::{Failure, FailureKind};
use weir_era::render;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, RequestId, Revision, error_code, meta, scan};

use crate::answer::{self, RenderedMessage};
use crate::observe::HttpAnswer;
use crate::outcome::RequestOutcome;

/// The request and client that a failure is rendered for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureContext<'a> {
    pub(crate) revision: Revision,
    /// True for `tools/call`: a failure that a model can act on is a result.
    pub(crate) tool_call: bool,
    pub(crate) request: &'a RequestName,
}

/// A rendered failure.
#[derive(Debug)]
pub(crate) struct FailureResponse {
    pub(crate) status: StatusCode,
    pub(crate) outcome: FailureBody,
    /// The outcome for the metrics.
    pub(crate) tally: RequestOutcome,
}

/// An error result or a JSON-RPC error.
#[derive(Debug)]
pub(crate) enum FailureBody {
    /// An `isError` result object.
    Result(Bytes),
    /// An error object.
    Error(ErrorObject),
}

impl FailureResponse {
    /// The failure as a whole answer.
    pub(crate) fn answer(&self, id: &RequestId) -> HttpAnswer {
        self.rendered_message(id).into_answer()
    }

    /// The failure as a message, with its status and outcome.
    pub(crate) fn rendered_message(&self, id: &RequestId) -> RenderedMessage {
        RenderedMessage::new(self.status, self.message(id), self.tally)
    }

    /// The failure as a message.
    pub(crate) fn message(&self, id: &RequestId) -> Bytes {
        match &self.outcome {
            FailureBody::Result(result) => weir_wire::write::response(id, result),
            FailureBody::Error(error) => weir_wire::write::error_response(Some(id), false, error),
        }
    }
}

/// weir's own code for a failure, if it has one.
fn own_code(kind: &FailureKind) -> Option<i64> {
    Some(match kind {
        FailureKind::TimedOut => error_code::TIMED_OUT,
        FailureKind::Unavailable => error_code::UNAVAILABLE,
        FailureKind::BadAnswer => error_code::BAD_ANSWER,
        FailureKind::ResultUnknown => error_code::RESULT_UNKNOWN,
        FailureKind::Limit => error_code::LIMIT,
        FailureKind::Busy | FailureKind::Overloaded => error_code::BUSY,
        FailureKind::Denied => error_code::DENIED,
        FailureKind::MethodNotFound
        | FailureKind::InvalidParams
        | FailureKind::UnknownResource(_)
        | FailureKind::BadArguments
        | FailureKind::MissingCapability(_)
        | FailureKind::Upstream(_)
        | FailureKind::Internal
        | FailureKind::InsufficientScope(_)
        | FailureKind::Unauthenticated(_) => return None,
    })
}

/// Logs a failure and renders the response to its request.
pub(crate) fn log_and_render(failure: &Failure, told: FailureContext<'_>) -> FailureResponse {
    log_failure(failure, told.request);
    render_failure(failure, told)
}

/// Renders a failure by the table.
pub(crate) fn render_failure(failure: &Failure, told: FailureContext<'_>) -> FailureResponse {
    let modern = told.revision.is_modern();
    if let Some(number) = own_code(failure.kind()) {
        let status = if matches!(failure.kind(), FailureKind::Overloaded) {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::OK
        };
        return render_own(failure, number, told, status);
    }
    let (status, error) = match failure.kind() {
        FailureKind::MethodNotFound => {
            let status = if modern {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::OK
            };
            (
                status,
                with_data(error_code::METHOD_NOT_FOUND, failure, told),
            )
        }
        FailureKind::UnknownResource(uri) => unknown_resource(failure, uri, modern),
        FailureKind::InvalidParams => (
            StatusCode::OK,
            with_data(error_code::INVALID_PARAMS, failure, told),
        ),
        FailureKind::BadArguments if told.revision.has_tool_error_for_bad_arguments() => {
            return render_own(failure, error_code::INVALID_PARAMS, told, StatusCode::OK);
        }
        FailureKind::BadArguments => (
            StatusCode::OK,
            with_data(error_code::INVALID_PARAMS, failure, told),
        ),
        FailureKind::MissingCapability(needed) => missing_capability(failure, needed, modern),
        FailureKind::Upstream(error) => upstream_error(error, told.revision),
        FailureKind::Unauthenticated(_) => (
            StatusCode::UNAUTHORIZED,
            with_data(error_code::INVALID_REQUEST, failure, told),
        ),
        FailureKind::InsufficientScope(_) => (
            StatusCode::FORBIDDEN,
            with_data(error_code::INVALID_REQUEST, failure, told),
        ),
        FailureKind::Internal
        | FailureKind::TimedOut
        | FailureKind::Unavailable
        | FailureKind::BadAnswer
        | FailureKind::ResultUnknown
        | FailureKind::Limit
        | FailureKind::Busy
        | FailureKind::Denied
        | FailureKind::Overloaded => {
            let text = "weir failed while it handled this request: this is a bug of weir's";
            let error =
                ErrorObject::new(error_code::INTERNAL_ERROR, text).with_data(data(failure, told));
            (StatusCode::OK, error)
        }
    };
    FailureResponse {
        status,
        outcome: FailureBody::Error(error),
        tally: RequestOutcome::of_failure(failure.kind()),
    }
}

/// The answer to a request that ended by a panic in weir. The request's id is lost with it.
pub(crate) fn internal_error_answer(request: &RequestName) -> HttpAnswer {
    let failure = Failure::internal("a request ended by a panic");
    let rescued = log_and_render(
        &failure,
        FailureContext {
            revision: Revision::MODERN,
            tool_call: false,
            request,
        },
    );
    let message = match &rescued.outcome {
        FailureBody::Result(result) => result.clone(),
        FailureBody::Error(error) => weir_wire::write::error_response(None, false, error),
    };
    answer::json(StatusCode::INTERNAL_SERVER_ERROR, message)
}

fn log_failure(failure: &Failure, request: &RequestName) {
    let upstream = failure.upstream().map(ToString::to_string);
    if matches!(failure.kind(), FailureKind::Internal) {
        tracing::error!(request = request.as_str(), ?upstream, error = %failure, "internal error");
    } else {
        let cause = std::error::Error::source(failure).map(ToString::to_string);
        tracing::debug!(
            request = request.as_str(),
            ?upstream,
            reason = failure.reason(),
            cause,
            "request failed"
        );
    }
}

/// weir's own failures: on `tools/call` a result that reaches the model, on other methods an error.
fn render_own(
    failure: &Failure,
    number: i64,
    told: FailureContext<'_>,
    status: StatusCode,
) -> FailureResponse {
    let tally = RequestOutcome::of_failure(failure.kind());
    if !told.tool_call {
        let error = ErrorObject::new(number, failure.to_string()).with_data(data(failure, told));
        return FailureResponse {
            status,
            outcome: FailureBody::Error(error),
            tally,
        };
    }
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    if told.revision.has_result_type() {
        result.string("resultType", "complete");
    }
    render::tool_error(&mut result, &failure.to_string());
    result.with("_meta", |out| {
        ObjectWriter::new(out)
            .with(meta::WEIR_ERROR, |out| {
                write_data(out, Some(number), failure, told)
            })
            .end();
    });
    result.end();
    FailureResponse {
        status,
        outcome: FailureBody::Result(out.freeze()),
        tally,
    }
}

fn with_data(number: i64, failure: &Failure, told: FailureContext<'_>) -> ErrorObject {
    ErrorObject::new(number, failure.message().to_owned()).with_data(data(failure, told))
}

/// `data` of weir's errors: `reason`, `upstream`, `requestId`, `retryAfterMs`, `limit`.
fn data(failure: &Failure, told: FailureContext<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    write_data(&mut out, None, failure, told);
    out.freeze()
}

/// Writes the same object; inside a result, which has no error code beside it, with `code`.
fn write_data(out: &mut BytesMut, code: Option<i64>, failure: &Failure, told: FailureContext<'_>) {
    let mut object = ObjectWriter::new(out);
    if let Some(code) = code {
        object.integer("code", code);
    }
    object.string("reason", failure.reason());
    if let Some(upstream) = failure.upstream() {
        object.string("upstream", upstream.as_str());
    }
    object.string("requestId", told.request.as_str());
    if let Some(wait) = failure.retry_delay() {
        object.integer(
            "retryAfterMs",
            i64::try_from(wait.as_millis()).unwrap_or(i64::MAX),
        );
    }
    if let Some(LimitReached {
        policy,
        limit,
        window,
        quota,
    }) = failure.limit_reached()
    {
        object.with("limit", |out| {
            let mut object = ObjectWriter::new(out);
            object.string("policy", policy).boolean("quota", *quota);
            object.integer("limit", i64::try_from(*limit).unwrap_or(i64::MAX));
            // A limit of concurrency has no window.
            if !window.is_zero() {
                object.integer(
                    "windowSeconds",
                    i64::try_from(window.as_secs()).unwrap_or(i64::MAX),
                );
            }
            object.end();
        });
    }
    object.end();
}

/// Names the unknown resource (server/resources, "Error Handling", in the form of each revision).
fn unknown_resource(failure: &Failure, uri: &str, modern: bool) -> (StatusCode, ErrorObject) {
    let mut out = BytesMut::new();
    ObjectWriter::new(&mut out).string("uri", uri).end();
    let number = if modern {
        error_code::INVALID_PARAMS
    } else {
        error_code::RESOURCE_NOT_FOUND
    };
    (
        StatusCode::OK,
        ErrorObject::new(number, failure.message().to_owned()).with_data(out.freeze()),
    )
}

fn missing_capability(
    failure: &Failure,
    needed: &Bytes,
    modern: bool,
) -> (StatusCode, ErrorObject) {
    let mut out = BytesMut::new();
    ObjectWriter::new(&mut out)
        .raw("requiredCapabilities", needed)
        .end();
    // Legacy revisions have no such code.
    let (status, number) = if modern {
        (
            StatusCode::BAD_REQUEST,
            error_code::MISSING_REQUIRED_CLIENT_CAPABILITY,
        )
    } else {
        (StatusCode::OK, error_code::INTERNAL_ERROR)
    };
    (
        status,
        ErrorObject::new(number, failure.message().to_owned()).with_data(out.freeze()),
    )
}

/// An upstream's own error, except for the codes that belong to one hop (`-32020` to `-32022`,
/// `-32000` and `-32001`) or do not exist in the client's revision.
fn upstream_error(error: &UpstreamError, revision: Revision) -> (StatusCode, ErrorObject) {
    let modern = revision.is_modern();
    let (status, number) = match error.code {
        error_code::MISSING_REQUIRED_CLIENT_CAPABILITY if modern && names_capabilities(error) => {
            (StatusCode::BAD_REQUEST, error.code)
        }
        error_code::METHOD_NOT_FOUND if modern => (StatusCode::NOT_FOUND, error.code),
        error_code::RESOURCE_NOT_FOUND if modern => (StatusCode::OK, error_code::INVALID_PARAMS),
        error_code::HEADER_MISMATCH
        | error_code::MISSING_REQUIRED_CLIENT_CAPABILITY
        | error_code::UNSUPPORTED_PROTOCOL_VERSION
        | -32000
        | -32001 => (StatusCode::OK, error_code::INTERNAL_ERROR),
        number if modern && !error_code::is_allowed_to_modern(number) => {
            (StatusCode::OK, error_code::INTERNAL_ERROR)
        }
        number => (StatusCode::OK, number),
    };
    let mut object = ErrorObject::new(number, error.message.clone());
    if let Some(data) = &error.data {
        object = object.with_data(data.clone());
    }
    (status, object)
}

/// Returns true if the error names the missing capabilities: without them a client cannot use the
/// code.
fn names_capabilities(error: &UpstreamError) -> bool {
    error.data.as_ref().is_some_and(|data| {
        scan::find(data, "requiredCapabilities").is_some_and(|range| scan::is_object(&data[range]))
    })
}

/// One row of the table, for the docs.
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

/// The whole table, derived from [`render_failure`].
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
            "The connection was lost; the tool may have run. Check before trying again.",
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
        let rescued = log_and_render(
            &failure,
            FailureContext {
                revision,
                tool_call,
                request: &request,
            },
        );
        let status = rescued.status.as_u16();
        match rescued.outcome {
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

#[cfg(test)]
mod tests;
