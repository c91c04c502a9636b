//! The members of errors: what a failure says to a client, beside its status and code.

use bytes::{Bytes, BytesMut};
use weir_core::Failure;
use weir_core::call::RequestName;
use weir_core::failure::{LimitReached, UpstreamError};
use weir_era::render;
use weir_wire::write::ObjectWriter;
use weir_wire::{ErrorObject, Revision, meta, scan};

use crate::failure::message_refusal::MessageRefusal;

/// The request and client that a failure is rendered for.
#[derive(Clone, Copy, Debug)]
pub struct FailureContext<'a> {
    /// The revision that the client speaks.
    pub revision: Revision,
    /// True for `tools/call`: a failure that a model can act on is a result.
    pub tool_call: bool,
    /// The name of the request, for `requestId`.
    pub request: &'a RequestName,
}

/// An `isError` result with a failure of weir: it reaches the model.
pub(super) fn tool_result(failure: &Failure, code: i64, context: FailureContext<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut result = ObjectWriter::new(&mut out);
    // Asked here: no result of an upstream is edited, so that `era` renders none.
    if context.revision.has_result_type() {
        result.string("resultType", "complete");
    }
    render::tool_error(&mut result, &failure.to_string());
    result.with("_meta", |out| {
        ObjectWriter::new(out)
            .with(meta::WEIR_ERROR, |out| {
                write_data(out, Some(code), failure, context)
            })
            .end();
    });
    result.end();
    out.freeze()
}

/// An error with the failure's message and data.
pub(super) fn error(failure: &Failure, code: i64, context: FailureContext<'_>) -> ErrorObject {
    error_with_text(failure, code, failure.message().to_owned(), context)
}

/// An error with another text and the failure's data.
pub(super) fn error_with_text(
    failure: &Failure,
    code: i64,
    text: impl Into<String>,
    context: FailureContext<'_>,
) -> ErrorObject {
    let mut out = BytesMut::with_capacity(128);
    write_data(&mut out, None, failure, context);
    ErrorObject::new(code, text.into()).with_data(out.freeze())
}

/// An error whose data has one member that the specification defines, beside weir's own.
pub(super) fn error_about(
    failure: &Failure,
    code: i64,
    member: SpecifiedMember<'_>,
    context: FailureContext<'_>,
) -> ErrorObject {
    let mut out = BytesMut::with_capacity(128);
    let mut object = ObjectWriter::new(&mut out);
    match member {
        SpecifiedMember::Uri(uri) => object.string("uri", uri),
        SpecifiedMember::RequiredCapabilities(raw) => object.raw("requiredCapabilities", raw),
    };
    object
        .string("reason", failure.reason())
        .string("requestId", context.request.as_str())
        .end();
    ErrorObject::new(code, failure.message().to_owned()).with_data(out.freeze())
}

/// The data of a refused message: the name of the request, by which its log lines are found, and
/// the reason.
pub(super) fn of_message(
    refusal: &MessageRefusal,
    reason: &'static str,
    request: &RequestName,
) -> Bytes {
    let mut out = BytesMut::with_capacity(80);
    let mut object = ObjectWriter::new(&mut out);
    if let MessageRefusal::UnsupportedRevision { requested } = refusal {
        let supported = format!("[\"{}\"]", Revision::MODERN.as_str());
        object
            .raw("supported", supported.as_bytes())
            .string("requested", requested);
    }
    object
        .string("reason", reason)
        .string("requestId", request.as_str())
        .end();
    out.freeze()
}

/// The data of a refusal that a message states: after as many seconds the client may try again.
pub(super) fn of_refusal(
    reason: Option<&'static str>,
    retry_seconds: Option<i64>,
    request: &RequestName,
) -> Bytes {
    let mut out = BytesMut::with_capacity(96);
    let mut object = ObjectWriter::new(&mut out);
    if let Some(reason) = reason {
        object.string("reason", reason);
    }
    object.string("requestId", request.as_str());
    if let Some(seconds) = retry_seconds {
        object.integer("retryAfterMs", seconds * 1000);
    }
    object.end();
    out.freeze()
}

/// A member of an error's data that the specification defines.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpecifiedMember<'a> {
    /// The unknown resource (server/resources, "Error Handling").
    Uri(&'a str),
    /// The capabilities that the client did not declare, as a JSON object.
    RequiredCapabilities(&'a [u8]),
}

/// An upstream's own error under this code.
pub(super) fn of_upstream(error: &UpstreamError, code: i64) -> ErrorObject {
    let object = ErrorObject::new(code, error.message.clone());
    match &error.data {
        Some(data) => object.with_data(data.clone()),
        None => object,
    }
}

/// Writes the data of weir's errors: `reason`, `upstream`, `requestId`, `retryAfterMs`, `limit`.
/// Inside a result, which has no error code beside it, with `code`.
fn write_data(
    out: &mut BytesMut,
    code: Option<i64>,
    failure: &Failure,
    context: FailureContext<'_>,
) {
    let mut object = ObjectWriter::new(out);
    if let Some(code) = code {
        object.integer("code", code);
    }
    object.string("reason", failure.reason());
    if let Some(upstream) = failure.upstream() {
        object.string("upstream", upstream.as_str());
    }
    object.string("requestId", context.request.as_str());
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

/// Returns true if the error names the missing capabilities: without them a client cannot use the
/// code.
pub(super) fn names_capabilities(error: &UpstreamError) -> bool {
    error.data.as_ref().is_some_and(|data| {
        scan::find(data, "requiredCapabilities").is_some_and(|range| scan::is_object(&data[range]))
    })
}
