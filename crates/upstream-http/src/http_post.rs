//! One POST and the head of its response: a body to read, or a refusal.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use weir_core::call::TraceContext;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::ResendProof;
use weir_http_client::{HttpResponseBody, RequestProgress, with_advice};
use weir_oauth_client::{AuthorizedHttpClient, SendError};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::header::{EVENTS, JSON, JSON_OR_EVENTS};

use crate::content_headers::{content_coding, media_type};
use crate::lost_connection::connection_lost_failure;
use crate::refused_response::RefusedResponse;
use crate::response_part::ResponseReadError;
use crate::response_reader::ResponseReader;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The classified head of a response.
#[expect(
    clippy::large_enum_variant,
    reason = "the usual variant is the large one, and it is moved once"
)]
#[derive(Debug)]
pub(crate) enum ClassifiedResponse {
    /// 2xx with messages in the body.
    Answer(ResponseReader),
    /// 202 or 204, without a message.
    Accepted,
    /// Any other status.
    Refused(RefusedResponse),
}

/// Returns the headers of a call's trace context. They are weir's own, made from checked values: no
/// client's header is passed on.
pub(crate) fn trace_headers(
    trace: &TraceContext,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let all = [("traceparent", &trace.parent), ("tracestate", &trace.state)];
    all.into_iter().filter_map(|(name, text)| {
        let value = HeaderValue::from_str(text.as_deref()?).ok()?;
        Some((HeaderName::from_static(name), value))
    })
}

/// The capacity for the headers of a message: enough for those of nearly all.
pub(crate) const USUAL_HEADERS: usize = 8;

/// Adds the headers of every posted message.
fn message_headers(mut own: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    own.extend([
        (header::ACCEPT, HeaderValue::from_static(JSON_OR_EVENTS)),
        (header::CONTENT_TYPE, HeaderValue::from_static(JSON)),
    ]);
    own
}

/// Posts the request `id` and classifies the response's head.
///
/// # Errors
/// The request got no response, or one that is no response to a message.
pub(crate) async fn post(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    id: u64,
) -> Result<ClassifiedResponse, FailedAttempt> {
    let response = send(context, http, own, body).await?;
    classify(context, response, id).await
}

/// Posts a message, and returns its response.
///
/// # Errors
/// The message got no response.
pub(crate) async fn send(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<Response<HttpResponseBody>, FailedAttempt> {
    context.responses.meter.sent(body.len());
    let sent = http.send(Method::POST, message_headers(own), body).await;
    sent.map_err(|error| unsent_attempt(&context.label, error))
}

/// Classifies the head of the response to the request `id`.
///
/// # Errors
/// The response is none to a message.
pub(crate) async fn classify(
    context: &UpstreamContext,
    response: Response<HttpResponseBody>,
    id: u64,
) -> Result<ClassifiedResponse, FailedAttempt> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Ok(ClassifiedResponse::Refused(
            Box::pin(RefusedResponse::read(context, &head, body, Some(id))).await,
        ));
    }
    if matches!(head.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(ClassifiedResponse::Accepted);
    }
    if let Some(coding) = content_coding(&head.headers) {
        let text = format!("The upstream's answer is compressed ({coding})");
        let failure = context.label.fail(FailureKind::BadAnswer, text);
        let advice = "weir accepts `identity` alone: the server, or the proxy before it, must not compress its answers";
        return Err(failure.because(advice).into());
    }
    match media_type(&head.headers).as_deref() {
        Some(JSON) => Ok(ClassifiedResponse::Answer(ResponseReader::json(
            body,
            &context.responses,
        ))),
        Some(EVENTS) => Ok(ClassifiedResponse::Answer(ResponseReader::events(
            body,
            &context.responses,
        ))),
        other => {
            let text = format!(
                "The upstream answered with {}, not with a message",
                describe(other)
            );
            let failure = context.label.fail(FailureKind::BadAnswer, text);
            let is_page = other.is_some_and(|media| media == "text/html");
            let advice = "that is a web page: write the server's MCP endpoint as `url`, which often ends in /mcp";
            Err(FailedAttempt::new(if is_page {
                failure.because(advice)
            } else {
                failure
            })
            .mark_era_in_doubt())
        }
    }
}

/// Checks that the response to a request of weir's own is no stream of HTTP+SSE: some servers of that
/// transport open it for every method.
///
/// # Errors
/// It is one, or cannot be read.
pub(crate) async fn check_is_answer(
    context: &UpstreamContext,
    answer: &mut ResponseReader,
) -> Result<(), FailedAttempt> {
    let is_of_http_sse = answer.is_of_http_sse().await;
    if !is_of_http_sse.map_err(|error| unreadable_failure(&context.label, error))? {
        return Ok(());
    }
    let text = "The upstream is a server of HTTP+SSE (2024-11-05): its URL takes no messages";
    let failure = context.label.fail(FailureKind::Unavailable, text);
    let advice = "leave `protocol` out, or write `protocol: sse`";
    Err(FailedAttempt::new(failure.because(advice))
        .mark_era_in_doubt()
        .mark_no_endpoint())
}

/// Posts a message without a response. Every 2xx counts as success.
///
/// # Errors
/// The message did not arrive, or was refused.
pub(crate) async fn post_notification(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<(), FailedAttempt> {
    match post_one_way(context, http, own, body, None).await? {
        Some(refused) => Err(refused.into_refusal(context)),
        None => Ok(()),
    }
}

/// Posts a message whose answer, if it has one, comes another way: the request `id`, or a message
/// without an answer. Every 2xx counts as success. Returns the refusal, if the response is one.
///
/// # Errors
/// The message got no response.
pub(crate) async fn post_one_way(
    context: &UpstreamContext,
    http: &AuthorizedHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    id: Option<u64>,
) -> Result<Option<RefusedResponse>, FailedAttempt> {
    let (head, mut body) = send(context, http, own, body).await?.into_parts();
    if !head.status.is_success() {
        return Ok(Some(RefusedResponse::read(context, &head, body, id).await));
    }
    // Reads a body that is at hand to its end, so that the connection can be used again.
    let _rest = body.frame().now_or_never();
    Ok(None)
}

/// Makes the refusal of a request without a response.
pub(crate) fn unsent_attempt(label: &UpstreamLabel, error: SendError) -> FailedAttempt {
    let source = match error {
        SendError::Lost(source) => source,
        SendError::NoToken(failure) => return FailedAttempt::new(failure).mark_not_attempted(),
    };
    let unavailable = |text: &'static str| label.fail(FailureKind::Unavailable, text);
    match source.progress() {
        // This is a shortage of weir, not a failure of the upstream.
        RequestProgress::NotTried => {
            let text = "weir has no file descriptor left for another connection: try again shortly";
            FailedAttempt::new(Failure::new(FailureKind::Overloaded, text).with_upstream(&label.id))
                .mark_not_attempted()
        }
        // The call did not run, but the connector has tried every address: another attempt now at
        // the same URL would fail, too.
        RequestProgress::NoConnection => FailedAttempt::new(
            unavailable("The upstream cannot be reached").because(with_advice(source)),
        )
        .mark_did_not_run()
        .mark_not_reached(),
        RequestProgress::ConnectTimeout => FailedAttempt::new(
            unavailable("The upstream cannot be reached in time").because(with_advice(source)),
        )
        .mark_did_not_run()
        .mark_not_reached(),
        RequestProgress::NotSent => FailedAttempt::new(
            unavailable("The connection to the upstream was lost").because(source),
        )
        .with_proof(Some(ResendProof::NotSent)),
        RequestProgress::Unread => {
            FailedAttempt::new(unavailable("The upstream takes no requests now").because(source))
                .with_proof(Some(ResendProof::Unread))
        }
        RequestProgress::MaybeExecuted => {
            FailedAttempt::new(connection_lost_failure(label).because(source)).mark_era_in_doubt()
        }
    }
}

/// Makes the failure of a response that cannot be read on.
pub(crate) fn unreadable_failure(label: &UpstreamLabel, error: ResponseReadError) -> Failure {
    match error {
        ResponseReadError::Lost(source) => connection_lost_failure(label).because(source),
        ResponseReadError::TooLarge(most) => label.fail(
            FailureKind::BadAnswer,
            format!("The upstream's answer is larger than {most} bytes"),
        ),
        ResponseReadError::Foreign => {
            label.count_dropped("late_id");
            label.fail(
                FailureKind::BadAnswer,
                "The upstream's answer is to another request",
            )
        }
        ResponseReadError::Malformed(why) => label
            .fail(
                FailureKind::BadAnswer,
                "The upstream's answer is not a valid message",
            )
            .because(why),
    }
}

fn describe(media: Option<&str>) -> String {
    media.map_or_else(
        || "no content type".to_owned(),
        |media| media.chars().take(80).collect(),
    )
}
