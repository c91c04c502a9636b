//! Authenticates a request, and checks its address's rate: by its head alone, before its body is paid
//! for.
//!
//! Every refusal is counted and audited; no error leads to a default identity.

use std::task::{Context, Poll};

use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use percent_encoding::percent_decode_str;
use tower::{Layer, Service};
use weir_core::failure::AuthenticationDenial;
use weir_core::port::{BorrowedSecret, BoxFuture, Evidence, SenderEntrance, SenderRejection};
use weir_core::{Authenticated, Failure, FailureKind, Principal, authenticate};
use weir_wire::header::ReceivedHeader;

use crate::failure::request_refusal::RequestRefusal;
use crate::failure::{RequestFailure, RequestResult};
use crate::http::body::HttpAnswer;
use crate::http::challenge;
use crate::layer::answer_request::AnswerRequest;
use crate::layer::check::Check;
use crate::request::endpoint_request::{AuthenticatedRequest, EndpointRequest};
use crate::request::request_context::HttpRequestContext;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct AuthenticateLayer;

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, inner: S) -> Authenticate<S> {
        Authenticate(inner)
    }
}

/// A service that authenticates the senders of its requests.
#[derive(Debug, Clone)]
pub struct Authenticate<S>(S);

impl<S: AnswerRequest<AuthenticatedRequest>> Service<Box<EndpointRequest>> for Authenticate<S> {
    type Response = HttpAnswer;
    type Error = RequestFailure;
    type Future = BoxFuture<'static, RequestResult>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Box<EndpointRequest>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move {
            let sender = check_credentials(&request).await?;
            inner.answer(AuthenticatedRequest { request, sender }).await
        })
    }
}

/// The check of an address's rate.
#[derive(Debug, Clone, Copy)]
pub struct AddressRate;

impl Check<Box<EndpointRequest>> for AddressRate {
    fn check(&self, request: &Box<EndpointRequest>) -> Result<(), RequestFailure> {
        let context = &request.context;
        // A request that another replica forwards was charged there.
        if context.is_forwarded() {
            return Ok(());
        }
        let taken = context
            .ports()
            .limiter
            .admit_address(context.client_address);
        taken.map_err(|failure| {
            audit_refusal(context, "address_limit", None);
            rate_refusal(&failure)
        })
    }
}

/// The audit of an admitted request. It lets every request pass.
#[derive(Debug, Clone, Copy)]
pub struct EntranceAudit;

impl Check<AuthenticatedRequest> for EntranceAudit {
    fn check(
        &self,
        AuthenticatedRequest { request, sender }: &AuthenticatedRequest,
    ) -> Result<(), RequestFailure> {
        // A request that another replica forwards was admitted there.
        if !request.context.is_forwarded() && !sender.principal().is_anonymous() {
            audit(&request.context, Ok(sender.principal()));
        }
        Ok(())
    }
}

/// Checks the credentials, and if their principal may use the endpoint.
async fn check_credentials(
    EndpointRequest { head, context }: &EndpointRequest,
) -> Result<Authenticated<()>, RequestFailure> {
    let ports = context.ports();
    let (bearer, api_key) = match (bearer_token(head), api_key_in(&head.headers)) {
        (Ok(bearer), Ok(api_key)) => (bearer, api_key),
        (Err(refusal), _) | (_, Err(refusal)) => {
            audit_refusal(context, "malformed", None);
            return Err(refusal.into());
        }
    };
    let evidence = Evidence {
        bearer: bearer.map(BorrowedSecret::new),
        api_key: api_key.map(BorrowedSecret::new),
        certificate: context.peer().certificate.as_deref(),
        peer: context.client_address,
        endpoint: context.endpoint(),
    };
    let sender = match authenticate(&*ports.verifier, &evidence).await {
        // A token is a secret: it is kept only if some upstream is called in its owner's name.
        Ok(sender) if context.route.settings.keep_tokens => sender.with_verified_token(&evidence),
        Ok(sender) => sender,
        Err(failure) => {
            audit_refusal(context, reason(&failure), None);
            return Err(unauthenticated_refusal(context, &failure));
        }
    };
    match ports
        .authorizer
        .may_enter(sender.principal(), context.endpoint())
    {
        Ok(()) => Ok(sender),
        Err(failure) => {
            audit_refusal(context, failure.reason(), Some(sender.principal()));
            Err(forbidden_refusal(context, &failure))
        }
    }
}

/// Audits a refusal, with the principal if it is known.
pub(super) fn audit_refusal(
    context: &HttpRequestContext,
    reason: &'static str,
    principal: Option<&Principal>,
) {
    audit(context, Err(SenderRejection { reason, principal }));
}

fn audit(context: &HttpRequestContext, outcome: Result<&Principal, SenderRejection<'_>>) {
    context.ports().audit.record_entrance(&SenderEntrance {
        peer: context.client_address,
        endpoint: context.endpoint(),
        request: context.name().as_str(),
        outcome,
    });
}

/// The bearer token of a head. A token in the query is refused, even beside another credential: it
/// would end in logs (RFC 6750, 2.3 and 5.3).
fn bearer_token(head: &Parts) -> Result<Option<&str>, RequestRefusal> {
    if head.uri.query().is_some_and(has_access_token) {
        return Err(RequestRefusal::TokenInQuery);
    }
    bearer_in(&head.headers)
}

/// True if a query has the parameter `access_token`, in any spelling.
fn has_access_token(query: &str) -> bool {
    let mut names = query
        .split('&')
        .map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    names.any(|name| percent_decode_str(name).eq(*b"access_token"))
}

/// The text after `Bearer `. Another scheme is no credential here.
pub(crate) fn bearer_in(headers: &HeaderMap) -> Result<Option<&str>, RequestRefusal> {
    let text = single_header(headers, &header::AUTHORIZATION)?;
    Ok(text
        .and_then(|text| text.split_once(' '))
        .and_then(|(scheme, token)| {
            scheme
                .eq_ignore_ascii_case("Bearer")
                .then(|| token.trim_start_matches(' '))
        }))
}

/// The API key in its header.
pub(crate) fn api_key_in(headers: &HeaderMap) -> Result<Option<&str>, RequestRefusal> {
    single_header(headers, &API_KEY)
}

/// The text of a header that may stand once.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, RequestRefusal> {
    let malformed = RequestRefusal::MalformedCredentials;
    match ReceivedHeader::of(headers.get_all(name)) {
        ReceivedHeader::Absent => Ok(None),
        ReceivedHeader::Once(value) => value.to_str().map(Some).map_err(|_| malformed),
        ReceivedHeader::Repeated => Err(malformed),
    }
}

fn reason(failure: &Failure) -> &'static str {
    let FailureKind::Unauthenticated(denial) = failure.kind() else {
        return "unavailable";
    };
    match denial {
        AuthenticationDenial::Missing => "missing",
        AuthenticationDenial::Invalid(reason) => reason,
    }
}

/// The refusal without a principal: for the client's fault, or because the check could not be made.
fn unauthenticated_refusal(context: &HttpRequestContext, failure: &Failure) -> RequestFailure {
    let FailureKind::Unauthenticated(denial) = failure.kind() else {
        return RequestRefusal::VerifierUnavailable.into();
    };
    let refusal = match denial {
        AuthenticationDenial::Missing => RequestRefusal::CredentialsMissing,
        AuthenticationDenial::Invalid(_) => RequestRefusal::CredentialsInvalid,
    };
    RequestFailure::from(refusal).with_header(
        header::WWW_AUTHENTICATE,
        challenge::unauthenticated(context, *denial),
    )
}

/// The refusal of a principal that may not use the endpoint. A denial at this point concerns the
/// principal, independent of the request.
fn forbidden_refusal(context: &HttpRequestContext, failure: &Failure) -> RequestFailure {
    if let FailureKind::InsufficientScope(scopes) = failure.kind() {
        RequestFailure::from(RequestRefusal::ScopesMissing).with_header(
            header::WWW_AUTHENTICATE,
            challenge::insufficient(context, scopes),
        )
    } else {
        RequestRefusal::Blocked.into()
    }
}

/// The refusal beyond a rate, and the time to retry after (draft-ietf-httpapi-ratelimit-headers).
pub(super) fn rate_refusal(failure: &Failure) -> RequestFailure {
    if !matches!(failure.kind(), FailureKind::Limit) {
        return RequestRefusal::Overloaded.into();
    }
    let wait = failure
        .retry_delay()
        .unwrap_or_default()
        .as_millis()
        .div_ceil(1000)
        .max(1);
    let refusal = RequestFailure::from(RequestRefusal::RateLimited)
        .with_header(header::RETRY_AFTER, wait.to_string());
    let Some(limited) = failure.limit_reached() else {
        return refusal;
    };
    let (policy, limit, window) = (
        header_text(&limited.policy),
        limited.limit,
        limited.window.as_secs().max(1),
    );
    refusal
        .with_header(
            HeaderName::from_static("ratelimit"),
            format!("\"{policy}\";r=0;t={wait}"),
        )
        .with_header(
            HeaderName::from_static("ratelimit-policy"),
            format!("\"{policy}\";q={limit};w={window}"),
        )
}

/// A name of the config as the text of a header's string (RFC 9651): printable ASCII, without
/// quotes and backslashes.
fn header_text(name: &str) -> String {
    let fits = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    name.chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use weir_core::call::RequestName;
    use weir_core::failure::LimitReached;

    use super::*;
    use crate::failure;

    // Proves R244.
    #[test]
    fn token_in_query_is_found_by_its_parameter_alone() {
        for query in [
            "access_token=x",
            "access_token",
            "a=1&access_token=x",
            "access_token=x&access_token=y",
            "access%5ftoken=x",
            "%61ccess_toke%6E=x",
        ] {
            assert!(has_access_token(query), "{query}");
        }
        for query in [
            "",
            "my_access_token=1",
            "access_token_type=x",
            "a=access_token=x",
            "a=access_token",
            "Access_Token=x",
        ] {
            assert!(!has_access_token(query), "{query}");
        }
    }

    // Proves F01.
    #[test]
    fn rate_refusal_names_limit_and_retry_after() {
        let window = Duration::from_secs(60);
        let limited = LimitReached {
            policy: "group:a\"b\\c\né".into(),
            limit: 20,
            window,
            quota: false,
        };
        let failure = Failure::new(FailureKind::Limit, "")
            .retry_after(Duration::from_millis(1001))
            .limited_by(limited);
        let refusal = rate_refusal(&failure);
        let answer = failure::into_answer(refusal, &RequestName::from_bits(0));
        assert_eq!(answer.status(), 429);
        let headers: Vec<_> = answer
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .filter(|(name, _)| *name != "content-type")
            .collect();
        let wanted = [
            ("retry-after", "2"),
            ("ratelimit", r#""group:a_b_c__";r=0;t=2"#),
            ("ratelimit-policy", r#""group:a_b_c__";q=20;w=60"#),
        ];
        assert_eq!(headers, wanted);
    }
}
