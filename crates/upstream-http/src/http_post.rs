//! One POST and the head of its response: a body to read, or a refusal.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use weir_core::call::TraceContext;
use weir_core::log_text::sanitize_text;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages::{self, ResendProof};
use weir_http_client::{HttpResponseBody, RequestProgress, with_advice};
use weir_oauth_client::{SendError, UpstreamHttpClient};
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::{ErrorObject, IncomingMessage as Parsed, Message};

use super::response_part::ResponseReadError;
use super::response_reader::ResponseReader;
use super::retry_after::retry_after;

/// The most characters of a server's explanation that are kept.
const MAX_EXPLANATION: usize = 200;
/// The longest error response that is read; a longer one counts as one without an error object.
const MAX_ERROR_BODY: usize = 64 << 10;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");

const JSON_AND_EVENTS: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The classified head of a response.
#[expect(
    clippy::large_enum_variant,
    reason = "the usual variant is the large one, and it is moved once"
)]
#[derive(Debug)]
pub(crate) enum ClassifiedResponse {
    /// 2xx with messages in the body, and the id of a session that the server opened.
    Answer(Option<HeaderValue>, ResponseReader),
    /// 202 or 204, without a message.
    Accepted,
    /// Any other status.
    Refused(RefusedResponse),
}

/// A response with another status than 2xx.
#[derive(Debug)]
pub(crate) struct RefusedResponse {
    pub(crate) status: StatusCode,
    /// The JSON-RPC error object of the body, if it has one.
    pub(crate) error: Option<Bytes>,
    /// True if the refusal certainly belongs to this request: it has its id, or the connection
    /// carried no other request.
    is_own: bool,
    retry_after: Option<Duration>,
    /// The target of a redirect, without possible credentials.
    location: Option<String>,
    /// The first line of the server's explanation, for operators.
    explanation: Option<String>,
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
        (header::ACCEPT, JSON_AND_EVENTS),
        (header::CONTENT_TYPE, JSON),
    ]);
    own
}

/// Posts the request `id` and classifies the response's head.
///
/// # Errors
/// The request got no response, or one that is no response to a message.
pub(crate) async fn post(
    site: &UpstreamContext,
    http: &UpstreamHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    id: u64,
) -> Result<ClassifiedResponse, FailedAttempt> {
    let headers = message_headers(own);
    site.responses.meter.sent(body.len());
    let sent = http.send(Method::POST, headers, body).await;
    let (head, body) = sent
        .map_err(|error| unsent_attempt(&site.label, error))?
        .into_parts();
    if !head.status.is_success() {
        return Ok(ClassifiedResponse::Refused(
            Box::pin(read_refusal(
                site,
                head.status,
                &head.headers,
                body,
                Some(id),
            ))
            .await,
        ));
    }
    if matches!(head.status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(ClassifiedResponse::Accepted);
    }
    let session = head.headers.get(SESSION_ID).cloned();
    match media_type(&head.headers).as_deref() {
        Some("application/json") => Ok(ClassifiedResponse::Answer(
            session,
            ResponseReader::json(body, &site.responses),
        )),
        Some("text/event-stream") => Ok(ClassifiedResponse::Answer(
            session,
            ResponseReader::events(body, &site.responses),
        )),
        other => {
            let text = format!(
                "The upstream answered with {}, not with a message",
                describe(other)
            );
            let failure = site.label.fail(FailureKind::BadAnswer, text);
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

/// Posts a message without a response. Every 2xx counts as success.
///
/// # Errors
/// The message did not arrive, or was refused.
pub(crate) async fn post_notification(
    site: &UpstreamContext,
    http: &UpstreamHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<(), FailedAttempt> {
    match post_one_way(site, http, own, body, None).await? {
        Some(refused) => Err(refused.into_refusal(site)),
        None => Ok(()),
    }
}

/// Posts a message whose answer, if it has one, comes another way: the request `id`, or a message
/// without an answer. Every 2xx counts as success. Returns the refusal, if the response is one.
///
/// # Errors
/// The message got no response.
pub(crate) async fn post_one_way(
    site: &UpstreamContext,
    http: &UpstreamHttpClient,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    id: Option<u64>,
) -> Result<Option<RefusedResponse>, FailedAttempt> {
    let headers = message_headers(own);
    site.responses.meter.sent(body.len());
    let sent = http.send(Method::POST, headers, body).await;
    let (head, mut body) = sent
        .map_err(|error| unsent_attempt(&site.label, error))?
        .into_parts();
    if !head.status.is_success() {
        let refused = read_refusal(site, head.status, &head.headers, body, id).await;
        return Ok(Some(refused));
    }
    // Reads a body that is at hand to its end, so that the connection can be used again.
    let _rest = body.frame().now_or_never();
    Ok(None)
}

impl RefusedResponse {
    /// True if the refusal certainly belongs to this request. A late or unsolicited response on an
    /// idle connection is otherwise read as one.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// True if the body is an error that only a modern server sends.
    pub(crate) fn is_modern_error(&self) -> bool {
        let code = self
            .error
            .as_ref()
            .and_then(|error| ErrorObject::parse(error).ok())
            .map(|error| error.code);
        code.is_some_and(upstream_messages::is_modern_error)
    }

    /// True if the URL takes no messages by POST. The revisions since 2025-03-26 then tell a client
    /// to look for a server of HTTP+SSE (Transports, "Backwards Compatibility").
    pub(crate) fn is_no_endpoint(&self) -> bool {
        let refused = [
            StatusCode::BAD_REQUEST,
            StatusCode::NOT_FOUND,
            StatusCode::METHOD_NOT_ALLOWED,
        ];
        self.error.is_none() && refused.contains(&self.status)
    }

    /// Makes the refusal of a call.
    pub(crate) fn into_refusal(self, site: &UpstreamContext) -> FailedAttempt {
        let status = self.status.as_u16();
        match status {
            401 | 403 if site.credential_advice.is_some() => {
                let advice = site.credential_advice.as_deref().unwrap_or_default();
                let failure = site.label.fail(
                    FailureKind::Unavailable,
                    format!("The server refuses access (HTTP {status}): {advice}"),
                );
                return FailedAttempt::new(failure);
            }
            401 | 403 => {
                let text =
                    "The upstream refuses weir's credentials: its operator has to renew them";
                let explanation = self.explanation.map(|text| format!(", saying \"{text}\""));
                let cause = format!(
                    "HTTP {status}{}; write credentials for it under `headers` or `auth`, or renew them",
                    explanation.unwrap_or_default()
                );
                // The status is no sign of the server's era, and no reason for a new probe.
                return FailedAttempt::new(
                    site.label
                        .fail(FailureKind::Unavailable, text)
                        .because(cause),
                );
            }
            429 => {
                return self.busy_attempt(
                    &site.label,
                    FailureKind::Limit,
                    "The upstream limits the rate of requests",
                );
            }
            503 => {
                return self.busy_attempt(
                    &site.label,
                    FailureKind::Busy,
                    "The upstream is too busy or restarting",
                );
            }
            // A server sends this status when it closes an idle connection. It is unknown if the
            // request was executed.
            408 if !self.is_own => {
                return FailedAttempt::new(connection_lost_failure(&site.label))
                    .mark_era_in_doubt();
            }
            _ => {}
        }
        if let Some(error) = &self.error {
            let proof = upstream_messages::resend_proof(status, error).filter(|_| self.is_own);
            return FailedAttempt::new(site.permissions.call_failure(error)).with_proof(proof);
        }
        let (kind, text) = match status {
            300..=399 => (
                FailureKind::BadAnswer,
                format!("The upstream redirects (HTTP {status}): weir does not follow"),
            ),
            404 | 405 => (
                FailureKind::Unavailable,
                format!("No MCP server at the upstream's URL (HTTP {status})"),
            ),
            // A proxy before the server lost the connection in the middle.
            502 | 504 => (
                FailureKind::ResultUnknown,
                format!("The upstream was lost during the call (HTTP {status})"),
            ),
            _ => (
                FailureKind::BadAnswer,
                format!("The upstream answered HTTP {status} without a message"),
            ),
        };
        let failure = site.label.fail(kind, text);
        let failure = match (status, self.location) {
            (300..=399, Some(location)) => failure.because(format!(
                "to {location}; write the server's own address as `url`"
            )),
            (404 | 405, _) => {
                failure.because("correct the path of `url`, which often ends in /mcp")
            }
            (500..=599, _) => failure.because("see the log of the server itself"),
            _ => match self.explanation {
                Some(text) => failure.because(format!("it says \"{text}\"")),
                None => failure,
            },
        };
        let refusal = FailedAttempt::new(failure).mark_era_in_doubt();
        match status {
            400 | 404 | 405 => refusal.mark_no_endpoint(),
            502 | 504 => refusal.mark_not_reached(),
            _ => refusal,
        }
    }

    fn busy_attempt(
        self,
        label: &UpstreamLabel,
        kind: FailureKind,
        text: &'static str,
    ) -> FailedAttempt {
        let failure = label.fail(kind, text);
        FailedAttempt::new(match self.retry_after {
            Some(wait) => failure.retry_after(wait),
            None => failure,
        })
    }
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

/// Makes the failure of a connection that was lost after the request was sent.
pub(crate) fn connection_lost_failure(label: &UpstreamLabel) -> Failure {
    let text = "The connection to the upstream was lost after the call was sent: it may have run. Check before calling again";
    label
        .fail(FailureKind::ResultUnknown, text)
        .connection_lost()
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

/// Reads a refusal of the request `id`.
async fn read_refusal(
    site: &UpstreamContext,
    status: StatusCode,
    headers: &HeaderMap,
    mut body: HttpResponseBody,
    id: Option<u64>,
) -> RefusedResponse {
    let retry_after = retry_after(headers, site.clock.wall());
    let location = headers
        .get(header::LOCATION)
        .filter(|_| status.is_redirection())
        .and_then(location);
    let is_kept = body.is_kept();
    let text = read_error_body(&mut body).await.unwrap_or_default();
    let (error, is_named) = match error_object(&text) {
        Some((about, error)) if about.is_none() => (Some(error), false),
        Some((about, error)) if about.is_some() && about == id => (Some(error), true),
        Some(_) => {
            site.label.count_dropped("unknown_id");
            body.retire_connection();
            (None, false)
        }
        None => (None, false),
    };
    let explanation = match &error {
        Some(error) => ErrorObject::parse(error).ok().map(|error| error.message),
        None if media_type(headers).as_deref() == Some("text/plain") => {
            Some(String::from_utf8_lossy(&text).into_owned())
        }
        None => None,
    };
    RefusedResponse {
        status,
        error,
        is_own: is_named || !is_kept,
        retry_after,
        location,
        explanation: explanation.and_then(|text| {
            let line = text.trim().lines().next()?;
            Some(sanitize_text(
                &site.record.mask.apply(line),
                MAX_EXPLANATION,
            ))
        }),
    }
}

/// Returns the target of a redirect for operators, without user, query and fragment.
fn location(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let text = text.split(['?', '#']).next().unwrap_or_default();
    let shown = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => text.to_owned(),
    };
    Some(shown.chars().take(200).collect())
}

/// Reads the body of a refusal; absent beyond the limit.
async fn read_error_body(body: &mut HttpResponseBody) -> Option<Bytes> {
    let mut held = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // The bytes before a broken connection may still be a whole message.
        let Ok(frame) = frame else { break };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if held.len() + data.len() > MAX_ERROR_BODY {
            return None;
        }
        held.extend_from_slice(&data);
    }
    Some(held.freeze())
}

/// Returns the JSON-RPC error in a response's body with the request id in it; absent unless the
/// body is such an error.
fn error_object(text: &Bytes) -> Option<(Option<u64>, Bytes)> {
    let parsed = Parsed::parse(text.clone(), &message_limits()).ok()?;
    let Parsed::One(Message::Response(response)) = parsed else {
        return None;
    };
    // An id of another form than weir's belongs to another client's request.
    let about = response
        .id
        .as_ref()
        .map(|id| id.echoed_number().unwrap_or(0));
    Some((about, response.outcome.err()?))
}

/// Returns the media type in lower case, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let media = value.split(';').next()?.trim();
    Some(if media.bytes().any(|byte| byte.is_ascii_uppercase()) {
        media.to_ascii_lowercase().into()
    } else {
        media.into()
    })
}

fn describe(media: Option<&str>) -> String {
    media.map_or_else(
        || "no content type".to_owned(),
        |media| media.chars().take(80).collect(),
    )
}
