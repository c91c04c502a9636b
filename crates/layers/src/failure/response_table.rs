//! The table of responses: the only place that chooses a status, a JSON-RPC code, retry advice and
//! text, for each failure and era.
//!
//! Before a message is read a failure is plain text, so a probing client cannot take it for a
//! legacy server's; after that it is JSON-RPC. An upstream's failure is HTTP 200: 5xx is weir's own
//! state only.
//!
//! Sources: JSON-RPC 2.0; 2026-07-28 basic/index (error codes), basic/transports/streamable-http
//! (statuses); RFC 9110 (statuses, `Allow`, `Retry-After`).

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use opentelemetry::KeyValue;
use weir_core::call::RequestName;
use weir_core::failure::{BLOCKED, UpstreamError};
use weir_core::telemetry::instruments;
use weir_core::{Failure, FailureKind};
use weir_listen::not_owner_header;
use weir_wire::{ErrorObject, RequestId, Revision, error_code};

use crate::failure::failure_data::{self, FailureContext, SpecifiedMember};
use crate::failure::message_refusal::MessageRefusal;
use crate::failure::request_refusal::RequestRefusal;
use crate::failure::{FailureCause, LabelledCause, RequestFailure};
use crate::http::answer::{self, RenderedMessage};
use crate::http::body::{HttpAnswer, ResponseBody};
use crate::request::outcome::RequestOutcome;

/// 200 with this JSON.
pub fn ok(body: impl Into<ResponseBody>) -> HttpAnswer {
    answer::json(StatusCode::OK, body.into())
}

/// A message with 200.
pub fn ok_message(message: Bytes, outcome: RequestOutcome) -> RenderedMessage {
    RenderedMessage::new(StatusCode::OK, message, outcome)
}

/// 202: a notification or a response was taken.
pub fn accepted() -> HttpAnswer {
    answer::empty(StatusCode::ACCEPTED)
}

/// 204: a session has ended, a preflight is answered, or a resumed stream has no further events.
pub fn no_content() -> HttpAnswer {
    answer::empty(StatusCode::NO_CONTENT)
}

/// 307 to another URL.
pub fn redirect(location: HeaderValue) -> HttpAnswer {
    let mut answer = answer::empty(StatusCode::TEMPORARY_REDIRECT);
    answer.headers_mut().insert(header::LOCATION, location);
    answer
}

/// The response to a failed request of this name. It takes the span of a traced request along.
pub fn into_answer(failure: RequestFailure, request: &RequestName) -> HttpAnswer {
    answer_in_span(failure, |cause| answer_of_cause(cause, request))
}

/// As [`into_answer`], for a client that sees neither status nor headers: a refusal, too, is a
/// message. `id`: that of the request, if it is one request.
pub fn into_message_answer(
    failure: RequestFailure,
    id: Option<&RequestId>,
    request: &RequestName,
) -> HttpAnswer {
    answer_in_span(failure, |cause| match cause {
        FailureCause::Refused { refusal, .. } => refusal_message(refusal, id, request),
        FailureCause::Elsewhere(_) => refusal_message(RequestRefusal::NotOwner, id, request),
        FailureCause::InProcess(_) => refusal_message(RequestRefusal::OwnerLost, id, request),
        FailureCause::Panicked => panic_answer(id, request),
        FailureCause::Message { .. } | FailureCause::Call { .. } => answer_of_cause(cause, request),
    })
}

/// Makes the answer inside the span of a traced request, so that its log messages are there, too.
fn answer_in_span(
    failure: RequestFailure,
    answer_of: impl FnOnce(FailureCause) -> HttpAnswer,
) -> HttpAnswer {
    let LabelledCause {
        cause,
        labels,
        span,
    } = *failure.0;
    let answer = match &span {
        Some(span) => span.log_span().in_scope(|| answer_of(cause)),
        None => answer_of(cause),
    };
    let mut answer = answer::with_labels(answer, labels);
    answer.body_mut().labels.span = span;
    answer
}

fn answer_of_cause(cause: FailureCause, request: &RequestName) -> HttpAnswer {
    match cause {
        FailureCause::Refused { refusal, headers } => {
            let mut answer = refusal_answer(refusal);
            answer.headers_mut().extend(headers);
            answer
        }
        FailureCause::Message { id, refusal } => {
            let MessageRow { status, reason, .. } = MessageRow::of(&refusal);
            let error = message_error(refusal, request);
            let message = weir_wire::write::error_response(id.as_ref(), false, &error);
            let answer = with_reason(answer::json(status, message.into()), reason);
            answer::with_outcome(answer, RequestOutcome::ProtocolError)
        }
        FailureCause::Call {
            id,
            failure,
            revision,
            tool_call,
        } => {
            let context = FailureContext {
                revision,
                tool_call,
                request,
            };
            let rendered = log_and_render(&failure, context).rendered_message(&id);
            with_reason(rendered.into_answer(), failure.reason())
        }
        FailureCause::Elsewhere(owner) => {
            let mut answer = refusal_answer(RequestRefusal::NotOwner);
            answer.headers_mut().extend(not_owner_header(&owner));
            answer
        }
        // The handler answers it.
        FailureCause::InProcess(_) => refusal_answer(RequestRefusal::OwnerLost),
        FailureCause::Panicked => panic_answer(None, request),
    }
}

/// The advice of a refusal beside its text.
#[derive(Clone, Copy, Debug)]
pub(super) enum RefusalAdvice {
    None,
    /// `Retry-After` in seconds.
    RetryAfter(&'static str),
    /// `Allow`.
    Allow(&'static str),
    /// `Connection: close`: the rest of the body must not be read as a request.
    Close,
    /// `Connection: close`, and `Retry-After` in seconds.
    CloseAndRetryAfter(&'static str),
}

/// A row of the table of refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusalResponse {
    pub(super) status: StatusCode,
    /// The label `reason` of the metric; absent for paths that nobody serves.
    pub(super) reason: Option<&'static str>,
    /// A sentence for a person.
    pub(super) text: &'static str,
    pub(super) advice: RefusalAdvice,
}

impl RefusalResponse {
    const fn new(status: StatusCode, reason: &'static str, text: &'static str) -> Self {
        Self {
            status,
            reason: Some(reason),
            text,
            advice: RefusalAdvice::None,
        }
    }

    const fn with(self, advice: RefusalAdvice) -> Self {
        Self { advice, ..self }
    }

    const fn uncounted(self) -> Self {
        Self {
            reason: None,
            ..self
        }
    }
}

/// The table of refusals before a message is read.
#[rustfmt::skip]
pub(super) const fn refusal_response(refusal: RequestRefusal) -> RefusalResponse {
    use RefusalAdvice::{Allow, Close, CloseAndRetryAfter, RetryAfter};
    use RequestRefusal as R;
    use StatusCode as S;
    let row = RefusalResponse::new;
    match refusal {
        R::Overloaded => row(S::SERVICE_UNAVAILABLE, "overloaded", "too many requests in flight: try again in a second").with(RetryAfter("1")),
        R::TooManyHeaders => row(S::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers", "too many header lines"),
        R::MalformedHost => row(S::BAD_REQUEST, "host", "the `Host` header is malformed"),
        R::UnknownHost => row(S::FORBIDDEN, "host", "this host is not served here"),
        R::UnknownOrigin => row(S::FORBIDDEN, "origin", "requests from this origin are not allowed"),
        R::UnknownPath => row(S::NOT_FOUND, "", "no such endpoint").uncounted(),
        R::UnservedPath => row(S::SERVICE_UNAVAILABLE, "", "this endpoint is not served: the config file that may define it has errors, which an operator can see").uncounted(),
        R::ReadOnlyDocument => row(S::METHOD_NOT_ALLOWED, "", "this is only to be read").uncounted().with(Allow("GET, HEAD, OPTIONS")),
        R::UnderscoreInHeaderName => row(S::BAD_REQUEST, "underscore", "header names with `_` are refused: proxies read them as `-`"),
        R::TokenInQuery => row(S::BAD_REQUEST, "query_token", "tokens are not taken from the query: send them in `Authorization`"),
        R::MethodNotAllowed => row(S::METHOD_NOT_ALLOWED, "method", "this endpoint takes POST; GET and DELETE only with the `Mcp-Session-Id` of a session").with(Allow("POST, GET, DELETE")),
        R::SseMethodNotAllowed => row(S::METHOD_NOT_ALLOWED, "method", "messages are posted, and the stream is got").with(Allow("GET, POST")),
        R::NotAcceptable => row(S::NOT_ACCEPTABLE, "accept", "send `Accept: application/json, text/event-stream`: an answer may be either"),
        R::EventStreamNotAccepted => row(S::NOT_ACCEPTABLE, "accept", "send `Accept: text/event-stream`"),
        R::NoJsonBody => row(S::UNSUPPORTED_MEDIA_TYPE, "media_type", "send `Content-Type: application/json`"),
        R::CompressedBody => row(S::UNSUPPORTED_MEDIA_TYPE, "media_type", "compressed requests are not taken: send the body as it is"),
        R::BodyOfGet => row(S::BAD_REQUEST, "body", "a stream is got without a body"),
        R::MalformedCredentials => row(S::BAD_REQUEST, "credentials", "credentials must be one header of visible ASCII characters"),
        R::CredentialsMissing => row(S::UNAUTHORIZED, "unauthenticated", "credentials are needed: send `Authorization: Bearer` with a token for this endpoint"),
        R::CredentialsInvalid => row(S::UNAUTHORIZED, "unauthenticated", "these credentials are not valid here: get new ones"),
        R::VerifierUnavailable => row(S::SERVICE_UNAVAILABLE, "verifier", "credentials cannot be checked now: try again in a few seconds").with(RetryAfter("5")),
        R::Blocked => row(S::FORBIDDEN, "denied", BLOCKED),
        R::ScopesMissing => row(S::FORBIDDEN, "insufficient_scope", "this endpoint is not for these credentials"),
        // `Retry-After` is computed.
        R::RateLimited => row(S::TOO_MANY_REQUESTS, "limit", "too many requests: wait as long as `Retry-After` says"),
        R::BodyTooLarge => row(S::PAYLOAD_TOO_LARGE, "body_size", "the body is larger than this service takes").with(Close),
        R::BodyTooSlow => row(S::REQUEST_TIMEOUT, "body_timeout", "the body came too slowly").with(Close),
        R::BodyBrokenOff => row(S::BAD_REQUEST, "body", "the body ended early").with(Close),
        R::NoMemoryForBody => row(S::SERVICE_UNAVAILABLE, "memory", "other requests have all the memory for bodies: try again in a second").with(CloseAndRetryAfter("1")),
        R::TooManySessions => row(S::TOO_MANY_REQUESTS, "sessions", "you have too many sessions open: end those that are done with (DELETE), or try again in a minute").with(RetryAfter("60")),
        R::NoRoomForSession => row(S::SERVICE_UNAVAILABLE, "overloaded", "no session can be opened now: end those that are done with (DELETE), or try again in a minute").with(RetryAfter("60")),
        R::UnreadableSessions => row(S::SERVICE_UNAVAILABLE, "overloaded", "sessions cannot be read now: try again in a second").with(RetryAfter("1")),
        R::OwnerUnreachable => row(S::SERVICE_UNAVAILABLE, "replica", "the replica that has this session cannot be reached now: try again in a second").with(RetryAfter("1")),
        R::OwnerLost => row(S::BAD_GATEWAY, "replica", "the replica that has this session ended before it answered: the request may have been carried out"),
        R::NotOwner => row(S::MISDIRECTED_REQUEST, "", "another replica has this session").uncounted(),
        R::UnknownSession => row(S::NOT_FOUND, "session", "no such session"),
        R::UnknownStream => row(S::NOT_FOUND, "session", "no such stream: get one first"),
        R::TooManyStreams => row(S::TOO_MANY_REQUESTS, "streams", "too many streams of this client are open: close one first").with(RetryAfter("1")),
        R::NoRoomForStream => row(S::SERVICE_UNAVAILABLE, "streams", "as many streams are open as this service holds: try again in a minute").with(RetryAfter("60")),
        R::TooManyMessages => row(S::TOO_MANY_REQUESTS, "in_flight", "too many messages of this client are being answered: wait for an answer first").with(RetryAfter("1")),
    }
}

/// The response to a refused request. Counts the refusal.
pub fn refusal_answer(refusal: RequestRefusal) -> HttpAnswer {
    let RefusalResponse {
        status,
        reason,
        text,
        advice,
    } = refusal_response(refusal);
    count_refusal(reason);
    let mut answer = with_reason(answer::plain(status, text), reason.unwrap_or(text));
    let headers = answer.headers_mut();
    let mut add = |name, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    match advice {
        RefusalAdvice::None => None,
        RefusalAdvice::RetryAfter(seconds) => add(header::RETRY_AFTER, seconds),
        RefusalAdvice::Allow(methods) => add(header::ALLOW, methods),
        RefusalAdvice::Close => add(header::CONNECTION, "close"),
        RefusalAdvice::CloseAndRetryAfter(seconds) => {
            add(header::CONNECTION, "close");
            add(header::RETRY_AFTER, seconds)
        }
    };
    answer
}

/// A refusal as a message. Counts the refusal.
fn refusal_message(
    refusal: RequestRefusal,
    id: Option<&RequestId>,
    request: &RequestName,
) -> HttpAnswer {
    let RefusalResponse {
        status,
        reason,
        text,
        advice,
    } = refusal_response(refusal);
    count_refusal(reason);
    let code = match status {
        StatusCode::TOO_MANY_REQUESTS => error_code::LIMIT,
        StatusCode::SERVICE_UNAVAILABLE => error_code::BUSY,
        StatusCode::BAD_GATEWAY => error_code::RESULT_UNKNOWN,
        _ => error_code::INVALID_REQUEST,
    };
    let seconds = match advice {
        RefusalAdvice::RetryAfter(seconds) | RefusalAdvice::CloseAndRetryAfter(seconds) => {
            seconds.parse().ok()
        }
        RefusalAdvice::None | RefusalAdvice::Allow(_) | RefusalAdvice::Close => None,
    };
    let data = failure_data::of_refusal(reason, seconds, request);
    let error = ErrorObject::new(code, text).with_data(data);
    let message = weir_wire::write::error_response(id, false, &error);
    with_reason(answer::json(status, message.into()), reason.unwrap_or(text))
}

/// Leaves the reason of a refusal or a failure to the log.
fn with_reason(mut answer: HttpAnswer, reason: &'static str) -> HttpAnswer {
    answer.body_mut().labels.reason = Some(reason);
    answer
}

fn count_refusal(reason: Option<&'static str>) {
    if let Some(reason) = reason {
        instruments()
            .refusals
            .add(1, &[KeyValue::new("reason", reason)]);
    }
}

/// A row of the table of refused messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageRow {
    pub(super) status: StatusCode,
    pub(super) code: i64,
    /// The member `reason` of the error's data.
    pub(super) reason: &'static str,
    /// The text, if the refusal does not bring its own.
    text: Option<&'static str>,
}

impl MessageRow {
    /// The table of refused messages.
    #[rustfmt::skip]
    pub(super) fn of(refusal: &MessageRefusal) -> Self {
        use MessageRefusal as M;
        use StatusCode as S;
        use error_code::{HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION};
        let row = |status, code, reason, text| Self { status, code, reason, text };
        match refusal {
            M::Malformed { code: PARSE_ERROR, .. } => row(S::BAD_REQUEST, PARSE_ERROR, "parse_error", None),
            M::Malformed { code: INVALID_PARAMS, .. } | M::WrongParams(_) => row(S::BAD_REQUEST, INVALID_PARAMS, "invalid_params", None),
            M::Malformed { code, .. } => row(S::BAD_REQUEST, *code, "invalid_request", None),
            M::InvalidParams(_) => row(S::OK, INVALID_PARAMS, "invalid_params", None),
            M::HeaderMismatch(_) => row(S::BAD_REQUEST, HEADER_MISMATCH, "header_mismatch", None),
            // The status satisfies both eras.
            M::UnsupportedRevision { .. } => row(S::BAD_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, "unsupported_version", Some("Unsupported protocol version")),
            M::MethodNotServed => row(S::NOT_FOUND, METHOD_NOT_FOUND, "method_not_found", Some("This method is not served in 2026-07-28")),
            M::SessionMissing => row(S::BAD_REQUEST, INVALID_REQUEST, "session_missing", Some("no session is open: send `initialize` first")),
            M::SessionRepeated => row(S::BAD_REQUEST, INVALID_REQUEST, "session_repeated", Some("`Mcp-Session-Id` is given twice")),
            M::SessionUnknown => row(S::NOT_FOUND, INVALID_REQUEST, "session_unknown", Some("This session is over or was never there: send `initialize` again")),
            M::VersionUnknown => row(S::BAD_REQUEST, INVALID_REQUEST, "unsupported_version", Some("`MCP-Protocol-Version` is given twice, or names a version that is not supported")),
            M::ResponseWithoutSession => row(S::BAD_REQUEST, INVALID_REQUEST, "session_missing", Some("responses are taken within a legacy session only")),
            M::BatchNotAllowed => row(S::BAD_REQUEST, INVALID_REQUEST, "batch_not_allowed", Some("batches exist in 2025-03-26 sessions only: send one message")),
            M::NoRoomInBatch(_) => row(S::OK, error_code::INTERNAL_ERROR, "overloaded", None),
            M::InitializeInBatch => row(S::BAD_REQUEST, INVALID_REQUEST, "batch_not_allowed", Some("`initialize` must not be in a batch: send it alone")),
        }
    }
}

/// The error of a refused message of this request.
pub fn message_error(refusal: MessageRefusal, request: &RequestName) -> ErrorObject {
    let row = MessageRow::of(&refusal);
    let data = failure_data::of_message(&refusal, row.reason, request);
    let text = match refusal {
        MessageRefusal::Malformed { text, .. }
        | MessageRefusal::WrongParams(text)
        | MessageRefusal::InvalidParams(text)
        | MessageRefusal::HeaderMismatch(text)
        | MessageRefusal::NoRoomInBatch(text) => text,
        MessageRefusal::UnsupportedRevision { .. }
        | MessageRefusal::MethodNotServed
        | MessageRefusal::SessionMissing
        | MessageRefusal::SessionRepeated
        | MessageRefusal::SessionUnknown
        | MessageRefusal::VersionUnknown
        | MessageRefusal::ResponseWithoutSession
        | MessageRefusal::BatchNotAllowed
        | MessageRefusal::InitializeInBatch => row.text.unwrap_or_default().to_owned(),
    };
    ErrorObject::new(row.code, text).with_data(data)
}

/// A rendered failure.
#[derive(Debug)]
pub struct RenderedFailure {
    /// The status of an answer with this failure alone.
    pub(super) status: StatusCode,
    pub(crate) body: FailureBody,
    /// The outcome for the metrics.
    pub(crate) outcome: RequestOutcome,
}

/// An error result or a JSON-RPC error.
#[derive(Debug)]
pub(crate) enum FailureBody {
    /// An `isError` result object.
    Result(Bytes),
    /// An error object.
    Error(ErrorObject),
}

impl RenderedFailure {
    fn error(status: StatusCode, error: ErrorObject, failure: &Failure) -> Self {
        Self {
            status,
            body: FailureBody::Error(error),
            outcome: RequestOutcome::of_failure(failure),
        }
    }

    /// The failure as a message with its status and outcome.
    pub fn rendered_message(&self, id: &RequestId) -> RenderedMessage {
        RenderedMessage::new(self.status, self.message(id), self.outcome)
    }

    /// The failure as a message.
    pub(crate) fn message(&self, id: &RequestId) -> Bytes {
        match &self.body {
            FailureBody::Result(result) => weir_wire::write::response(id, result),
            FailureBody::Error(error) => weir_wire::write::error_response(Some(id), false, error),
        }
    }
}

/// Logs a failure and renders the response to its request.
pub fn log_and_render(failure: &Failure, context: FailureContext<'_>) -> RenderedFailure {
    log_failure(failure, context.request);
    render_failure(failure, context)
}

/// The table of failures of a request.
#[rustfmt::skip]
pub fn render_failure(failure: &Failure, context: FailureContext<'_>) -> RenderedFailure {
    use FailureKind as K;
    use StatusCode as S;
    let is_modern = context.revision.is_modern();
    let kind = failure.kind();
    let by_era = |modern: (S, i64), legacy: (S, i64)| if is_modern { modern } else { legacy };
    let error = |(status, code)| RenderedFailure::error(status, failure_data::error(failure, code, context), failure);
    // A failure of weir that a model can act on: an `isError` result of `tools/call`.
    let own = |status, code| render_own(status, code, failure, context);
    let about = |(status, code), member| RenderedFailure::error(status, failure_data::error_about(failure, code, member, context), failure);
    match kind {
        K::TimedOut => own(S::OK, error_code::TIMED_OUT),
        K::Unavailable => own(S::OK, error_code::UNAVAILABLE),
        K::BadAnswer => own(S::OK, error_code::BAD_ANSWER),
        K::ResultUnknown => own(S::OK, error_code::RESULT_UNKNOWN),
        K::Limit => own(S::OK, error_code::LIMIT),
        K::Busy => own(S::OK, error_code::BUSY),
        K::Overloaded => own(S::SERVICE_UNAVAILABLE, error_code::BUSY),
        K::Denied => own(S::OK, error_code::DENIED),
        K::BadArguments if context.revision.has_tool_error_for_bad_arguments() => own(S::OK, error_code::INVALID_PARAMS),
        K::BadArguments | K::InvalidParams | K::UnknownTask => error((S::OK, error_code::INVALID_PARAMS)),
        K::MethodNotFound => error(by_era((S::NOT_FOUND, error_code::METHOD_NOT_FOUND), (S::OK, error_code::METHOD_NOT_FOUND))),
        K::UnknownResource(uri) => about(
            by_era((S::OK, error_code::INVALID_PARAMS), (S::OK, error_code::RESOURCE_NOT_FOUND)),
            SpecifiedMember::Uri(uri),
        ),
        // Legacy revisions have no such code.
        K::MissingCapability(needed) => about(
            by_era((S::BAD_REQUEST, error_code::MISSING_REQUIRED_CLIENT_CAPABILITY), (S::OK, error_code::INTERNAL_ERROR)),
            SpecifiedMember::RequiredCapabilities(needed),
        ),
        K::Upstream(upstream) => {
            let (status, code) = upstream_error_code(upstream, is_modern);
            RenderedFailure::error(status, failure_data::of_upstream(upstream, code), failure)
        }
        K::Unauthenticated(_) => error((S::UNAUTHORIZED, error_code::INVALID_REQUEST)),
        K::InsufficientScope(_) => error((S::FORBIDDEN, error_code::INVALID_REQUEST)),
        K::Internal => {
            let text = "weir failed while it handled this request: this is a bug of weir's";
            let object = failure_data::error_with_text(failure, error_code::INTERNAL_ERROR, text, context);
            RenderedFailure::error(S::OK, object, failure)
        }
    }
}

/// A failure of weir: on `tools/call` a result that reaches the model, on other methods an error.
fn render_own(
    status: StatusCode,
    code: i64,
    failure: &Failure,
    context: FailureContext<'_>,
) -> RenderedFailure {
    if context.tool_call {
        RenderedFailure {
            status,
            body: FailureBody::Result(failure_data::tool_result(failure, code, context)),
            outcome: RequestOutcome::of_failure(failure),
        }
    } else {
        let error = failure_data::error_with_text(failure, code, failure.to_string(), context);
        RenderedFailure::error(status, error, failure)
    }
}

/// The status and code of an upstream's own error: its own code, except for those that belong to
/// one hop (`-32020` to `-32022`, `-32000` and `-32001`) or do not exist in the client's revision.
pub(super) fn upstream_error_code(error: &UpstreamError, is_modern: bool) -> (StatusCode, i64) {
    match error.code {
        error_code::MISSING_REQUIRED_CLIENT_CAPABILITY
            if is_modern && failure_data::names_capabilities(error) =>
        {
            (StatusCode::BAD_REQUEST, error.code)
        }
        error_code::METHOD_NOT_FOUND if is_modern => (StatusCode::NOT_FOUND, error.code),
        error_code::RESOURCE_NOT_FOUND if is_modern => (StatusCode::OK, error_code::INVALID_PARAMS),
        error_code::HEADER_MISMATCH
        | error_code::MISSING_REQUIRED_CLIENT_CAPABILITY
        | error_code::UNSUPPORTED_PROTOCOL_VERSION
        | -32000
        | -32001 => (StatusCode::OK, error_code::INTERNAL_ERROR),
        code if is_modern && !error_code::is_allowed_to_modern(code) => {
            (StatusCode::OK, error_code::INTERNAL_ERROR)
        }
        code => (StatusCode::OK, code),
    }
}

/// True for the answer of another process that refuses the credentials of a request.
pub(crate) fn refuses_credentials(status: StatusCode) -> bool {
    status == StatusCode::UNAUTHORIZED
}

/// 500 for a request that ended by a panic in weir.
fn panic_answer(id: Option<&RequestId>, request: &RequestName) -> HttpAnswer {
    let failure = Failure::internal("a request ended by a panic");
    let context = FailureContext {
        revision: Revision::MODERN,
        tool_call: false,
        request,
    };
    let message = match log_and_render(&failure, context).body {
        FailureBody::Result(result) => result,
        FailureBody::Error(error) => weir_wire::write::error_response(id, false, &error),
    };
    answer::json(StatusCode::INTERNAL_SERVER_ERROR, message.into())
}

fn log_failure(failure: &Failure, request: &RequestName) {
    let upstream = failure.upstream().map(ToString::to_string);
    if matches!(failure.kind(), FailureKind::Internal) {
        tracing::error!(
            request = request.as_str(),
            ?upstream,
            error = failure.cause(),
            "internal error"
        );
    } else {
        tracing::debug!(
            request = request.as_str(),
            ?upstream,
            reason = failure.reason(),
            cause = failure.cause(),
            "request failed"
        );
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
