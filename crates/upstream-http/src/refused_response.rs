//! A response with another status than 2xx: its error or explanation, and the failure that it
//! means.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use weir_core::log_text::sanitize_text;
use weir_core::{Failure, FailureKind};
use weir_era::upstream_messages;
use weir_http_client::HttpResponseBody;
use weir_oauth_client::read_challenge;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::message_limits::message_limits;
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_upstream_core::upstream_label::UpstreamLabel;
use weir_wire::{ErrorObject, IncomingMessage as Parsed, Message};

use crate::content_headers::{content_coding, media_type};
use crate::lost_connection::connection_lost_failure;
use crate::retry_after::retry_after;

/// The most characters of a server's explanation that are kept.
const MAX_EXPLANATION: usize = 200;
/// The longest error response that is read; a longer one counts as one without an error object.
const MAX_ERROR_BODY: usize = 64 << 10;

/// A response with another status than 2xx.
#[derive(Debug)]
pub(crate) struct RefusedResponse {
    pub(crate) status: StatusCode,
    /// The JSON-RPC error object of the body, if it has one.
    pub(crate) error: Option<Bytes>,
    /// True if the body is a JSON-RPC error with a text as id, which names no request of weir's.
    is_unnamed_error: bool,
    /// True if the refusal certainly belongs to this request: it has its id, or the connection
    /// carried no other request.
    is_own: bool,
    retry_after: Option<Duration>,
    /// The target of a redirect, without possible credentials.
    location: Option<String>,
    /// The first line of the server's explanation, for operators.
    explanation: Option<String>,
    /// The scopes that weir's token lacks, if this is the reason of a 403. The server need not name
    /// them.
    lacking_scopes: Option<Vec<String>>,
}

/// The request that an error names by its id.
enum ErrorTarget {
    /// The error has no id.
    Unstated,
    /// The request of this number.
    Request(u64),
    /// The id is a text that is no number: none of weir's.
    Text,
    /// The id is no number of a request of weir's.
    Other,
}

impl RefusedResponse {
    /// Reads a refusal of the request `id`.
    pub(crate) async fn read(
        context: &UpstreamContext,
        head: &Parts,
        mut body: HttpResponseBody,
        id: Option<u64>,
    ) -> Self {
        let (status, headers) = (head.status, &head.headers);
        let retry_after = retry_after(headers, context.clock.wall());
        let location = headers
            .get(header::LOCATION)
            .filter(|_| status.is_redirection())
            .and_then(location);
        let lacking_scopes = Some(headers)
            .filter(|_| status == StatusCode::FORBIDDEN)
            .and_then(lacking_scopes);
        let is_kept = body.is_kept();
        let text = read_error_body(&mut body).await.unwrap_or_default();
        let (error, is_named, unnamed) = match error_object(&text) {
            Some((ErrorTarget::Unstated, error)) => (Some(error), false, None),
            Some((ErrorTarget::Request(number), error)) if Some(number) == id => {
                (Some(error), true, None)
            }
            // The Python SDK 1.x writes one text as the id of all errors of its transport. The
            // error may still be of another client's request.
            Some((ErrorTarget::Text, error)) => {
                body.retire_connection();
                (None, false, Some(error))
            }
            Some((ErrorTarget::Request(_) | ErrorTarget::Other, _)) => {
                context.label.count_dropped("unknown_id");
                body.retire_connection();
                (None, false, None)
            }
            None => (None, false, None),
        };
        let explanation = match error.as_ref().or(unnamed.as_ref()) {
            Some(error) => ErrorObject::parse(error).ok().map(|error| error.message),
            None if content_coding(headers).is_some() => None,
            None => match media_type(headers).as_deref() {
                Some("text/plain") => Some(String::from_utf8_lossy(&text).into_owned()),
                Some("text/html") => title(&String::from_utf8_lossy(&text)),
                Some(_) | None => None,
            },
        };
        Self {
            status,
            error,
            is_unnamed_error: unnamed.is_some(),
            is_own: is_named || !is_kept,
            retry_after,
            location,
            explanation: explanation.and_then(|text| {
                let line = text.trim().lines().next()?;
                Some(sanitize_text(
                    &context.record.mask.apply(line),
                    MAX_EXPLANATION,
                ))
            }),
            lacking_scopes,
        }
    }

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
        self.error.is_none() && !self.is_unnamed_error && refused.contains(&self.status)
    }

    /// The server's explanation, quoted.
    pub(crate) fn quoted_explanation(&self) -> Option<String> {
        let text = self.explanation.as_ref()?;
        Some(format!("it says \"{text}\""))
    }

    /// Makes the refusal of a call.
    pub(crate) fn into_refusal(self, context: &UpstreamContext) -> FailedAttempt {
        let status = self.status.as_u16();
        match status {
            401 | 403 => {
                let failure = self.credentials_failure(context);
                // The status is no sign of the server's era, and no reason for a new probe.
                return FailedAttempt::new(failure).mark_credentials_refused();
            }
            429 => {
                return self.busy_attempt(
                    &context.label,
                    FailureKind::Limit,
                    "The upstream limits the rate of requests",
                );
            }
            503 => {
                return self.busy_attempt(
                    &context.label,
                    FailureKind::Busy,
                    "The upstream is too busy or restarting",
                );
            }
            // A server sends this status when it closes an idle connection. It is unknown if the
            // request was executed.
            408 if !self.is_own => {
                return FailedAttempt::new(connection_lost_failure(&context.label))
                    .mark_era_in_doubt();
            }
            _ => {}
        }
        if let Some(error) = &self.error {
            let proof = upstream_messages::resend_proof(status, error).filter(|_| self.is_own);
            return FailedAttempt::new(context.permissions.call_failure(error)).with_proof(proof);
        }
        let (kind, text) = self.kind_and_text();
        let failure = context.label.fail(kind, text);
        let explanation = self.quoted_explanation();
        let advice = self.advice();
        let failure = match (explanation, advice) {
            (Some(text), Some(advice)) => failure.because(format!("{text}; {advice}")),
            (Some(text), None) | (None, Some(text)) => failure.because(text),
            (None, None) => failure,
        };
        let refusal = FailedAttempt::new(failure);
        if status == 413 {
            // About this request alone, and not about the server.
            return refusal;
        }
        let refusal = refusal.mark_era_in_doubt();
        match status {
            400 | 404 | 405 if !self.is_unnamed_error => refusal.mark_no_endpoint(),
            502 | 504 => refusal.mark_not_reached(),
            _ => refusal,
        }
    }

    /// The failure of a call whose token the server does not accept (401, 403).
    fn credentials_failure(&self, context: &UpstreamContext) -> Failure {
        let status = self.status.as_u16();
        let fail = |text: String| context.label.fail(FailureKind::Unavailable, text);
        let scopes = self.lacking_scopes.as_ref().map(|scopes| quoted(scopes));
        if let Some(advice) = &context.credential_advice {
            let why = match scopes.as_deref() {
                None => "The server refuses access".to_owned(),
                Some("") => "The server requires scopes that the token does not have".to_owned(),
                Some(scopes) => format!("The server requires the scopes {scopes}"),
            };
            return fail(format!("{why} (HTTP {status}): {advice}"));
        }
        if let Some(scopes) = scopes {
            let cause = if scopes.is_empty() {
                "it requires scopes that it does not name: add those of its documentation to `scopes` of this upstream's `auth`".to_owned()
            } else {
                format!(
                    "it requires {scopes}: add it to `scopes` or `step_up` of this upstream's `auth`, and let its authorization server grant it to weir"
                )
            };
            let text = "The upstream requires scopes that weir's token does not have";
            return fail(text.to_owned()).because(cause);
        }
        let explanation = self
            .explanation
            .as_ref()
            .map(|text| format!(", saying \"{text}\""));
        let cause = format!(
            "HTTP {status}{}; write credentials for it under `headers` or `auth`, or renew them",
            explanation.unwrap_or_default()
        );
        let text = "The upstream refuses weir's credentials: its operator has to renew them";
        fail(text.to_owned()).because(cause)
    }

    /// The failure of a call that got this status and no error of the server's own.
    fn kind_and_text(&self) -> (FailureKind, String) {
        let status = self.status.as_u16();
        match status {
            300..=399 => (
                FailureKind::BadAnswer,
                format!("The upstream redirects (HTTP {status}): weir does not follow"),
            ),
            // A server of MCP, though its error names no request.
            400..=499 if self.is_unnamed_error => (
                FailureKind::BadAnswer,
                format!("The upstream refuses the request (HTTP {status})"),
            ),
            404 | 405 => (
                FailureKind::Unavailable,
                format!("No MCP server at the upstream's URL (HTTP {status})"),
            ),
            // Mostly of a proxy, which does not pass the request on.
            413 => (
                FailureKind::BadAnswer,
                "The arguments are larger than the upstream, or a proxy before it, accepts (HTTP 413): the call did not run".to_owned(),
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
        }
    }

    /// The advice for the operator, by the status.
    fn advice(&self) -> Option<String> {
        match (self.status.as_u16(), &self.location) {
            (300..=399, Some(location)) => Some(format!(
                "to {location}; write the server's own address as `url`"
            )),
            (404 | 405, _) if !self.is_unnamed_error => {
                Some("correct the path of `url`, which often ends in /mcp".to_owned())
            }
            (413, _) => Some(
                "raise the largest request body of the server, or of the proxy before it"
                    .to_owned(),
            ),
            (500..=599, _) => Some("see the log of the server itself".to_owned()),
            _ => None,
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

/// Returns the scopes that the token of a refused request lacks, if the server says so.
fn lacking_scopes(headers: &HeaderMap) -> Option<Vec<String>> {
    let challenge = read_challenge(headers);
    let scopes = challenge.lacking_scopes()?;
    Some(scopes.into_iter().map(str::to_owned).collect())
}

/// Returns these scopes as a text, each in backticks.
fn quoted(scopes: &[String]) -> String {
    let quoted: Vec<_> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    quoted.join(", ")
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

/// Returns the title of an HTML page, with the usual entities decoded.
fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let ends_name = |after: &usize| {
        lower[*after..].starts_with(|next: char| next == '>' || next.is_ascii_whitespace())
    };
    let mut tags = lower
        .match_indices("<title")
        .map(|(at, tag)| at + tag.len());
    let after = tags.find(ends_name)?;
    let begin = after + lower[after..].find('>')? + 1;
    let length = lower[begin..].find('<')?;
    Some(decode_entities(&page[begin..begin + length]))
}

/// Decodes the five predefined entities of XML, and the apostrophe as a number, which HTML 4 needs.
fn decode_entities(text: &str) -> String {
    // The ampersand comes last: what it makes is no entity.
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (entity, character)| {
        text.replace(entity, character)
    })
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

/// Returns the JSON-RPC error in a response's body, and the request that it names; absent unless
/// the body is such an error.
fn error_object(text: &Bytes) -> Option<(ErrorTarget, Bytes)> {
    let parsed = Parsed::parse(text.clone(), &message_limits()).ok()?;
    let Parsed::One(Message::Response(response)) = parsed else {
        return None;
    };
    let about = match &response.id {
        None => ErrorTarget::Unstated,
        Some(id) => match id.echoed_number() {
            Some(number) => ErrorTarget::Request(number),
            None if id.as_text().is_some() => ErrorTarget::Text,
            None => ErrorTarget::Other,
        },
    };
    Some((about, response.outcome.err()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_of_a_page_may_have_attributes_and_entities() {
        for (page, expected) in [
            ("<html><title>Busy</title>", Some("Busy")),
            (
                "<titlebar><TITLE lang=\"en\">Tom &amp; Ann&#39;s</TITLE>",
                Some("Tom & Ann's"),
            ),
            (
                "<title\nid=a>&lt;b&gt; &quot;&apos;&quot; &amp;lt;</title>",
                Some("<b> \"'\" &lt;"),
            ),
            ("<title>cut off", None),
            ("<title", None),
            ("<p>no title</p>", None),
        ] {
            assert_eq!(title(page).as_deref(), expected, "{page}");
        }
    }
}
