//! Authentication and admission of a request: by its head alone, before its body is paid for.
//!
//! The order: the address's rate, the credentials, the endpoint, the principal's rate. Every
//! refusal is counted and audited; no error leads to a default identity.

use std::future::{Ready, ready};
use std::net::IpAddr;
use std::task::{self, Poll};

use futures_util::future::Either;
use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use tower::{Layer as _, Service, ServiceExt as _, layer::layer_fn};
use weir_core::failure::{AuthenticationDenial, BLOCKED};
use weir_core::port::{BorrowedSecret, Evidence, Fut, SenderEntrance, SenderRejection};
use weir_core::{Authenticated, Failure, FailureKind, Principal, authenticate};

use crate::answer::{self, RequestRefusal};
use crate::challenge;
use crate::rate_limit::RateLimitLayer;
use crate::stack::HttpRequestContext;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Admits a request, or returns the refusal.
pub(crate) async fn admit(
    context: &HttpRequestContext,
    head: &Parts,
) -> Result<Authenticated<()>, RequestRefusal> {
    let peer = context.client_address;
    // The layers of this step, innermost first: the principal's rate stands below the credentials,
    // the address's above them.
    let column = RateLimitLayer::new(check_principal_rate).layer(AdmitService);
    let column = layer_fn(AuthenticateService).layer(column);
    let column = RateLimitLayer::new(check_address_rate).layer(column);
    column
        .oneshot(UnauthenticatedHead {
            context,
            head,
            peer,
        })
        .await
}

/// A request before authentication: its head, and the address it comes from.
#[derive(Clone, Copy)]
struct UnauthenticatedHead<'a> {
    context: &'a HttpRequestContext,
    head: &'a Parts,
    peer: IpAddr,
}

impl UnauthenticatedHead<'_> {
    /// Audits a refusal, with the principal if it is known.
    fn audit_refusal(
        &self,
        reason: &'static str,
        principal: Option<&Principal>,
        refusal: RequestRefusal,
    ) -> RequestRefusal {
        let (endpoint, request) = (&self.context.endpoint, self.context.name.as_str());
        let entrance = SenderEntrance {
            peer: self.peer,
            endpoint,
            request,
            outcome: Err(SenderRejection { reason, principal }),
        };
        self.context.shared.ports.audit.record_entrance(&entrance);
        refusal
    }
}

/// An authenticated request that may use the endpoint.
struct AuthenticatedHead<'a> {
    knock: UnauthenticatedHead<'a>,
    sender: Authenticated<()>,
}

/// The rate of an address.
fn check_address_rate(knock: &UnauthenticatedHead<'_>) -> Result<(), RequestRefusal> {
    let taken = knock.context.shared.ports.limiter.admit_address(knock.peer);
    taken.map_err(|failure| knock.audit_refusal("address_limit", None, rate_refusal(&failure)))
}

/// The rate of a principal.
fn check_principal_rate(known: &AuthenticatedHead<'_>) -> Result<(), RequestRefusal> {
    let UnauthenticatedHead { context, .. } = known.knock;
    let principal = known.sender.principal();
    principal.meter().request();
    context
        .shared
        .ports
        .limiter
        .admit_request(principal, &context.endpoint)
        .map_err(|failure| {
            principal.meter().limited();
            known
                .knock
                .audit_refusal("principal_limit", Some(principal), rate_refusal(&failure))
        })
}

/// Checks the credentials, and if their principal may use the endpoint.
async fn check_credentials(
    knock: UnauthenticatedHead<'_>,
) -> Result<AuthenticatedHead<'_>, RequestRefusal> {
    let UnauthenticatedHead {
        context,
        head,
        peer,
    } = knock;
    let ports = &context.shared.ports;
    let (bearer, api_key) = match (bearer_token(head), single_header(&head.headers, &API_KEY)) {
        (Ok(bearer), Ok(api_key)) => (bearer, api_key),
        (Err(refusal), _) | (_, Err(refusal)) => {
            return Err(knock.audit_refusal("malformed", None, refusal));
        }
    };
    let evidence = Evidence {
        bearer: bearer.map(BorrowedSecret::new),
        api_key: api_key.map(BorrowedSecret::new),
        certificate: context.peer.certificate.as_deref(),
        peer,
        endpoint: &context.endpoint,
    };
    let sender = match authenticate(&*ports.verifier, &evidence, ()).await {
        // A token is a secret: it is kept only if some upstream is called in its owner's name.
        Ok(sender) if context.settings.keep_tokens => sender.with_verified_token(&evidence),
        Ok(sender) => sender,
        Err(failure) => {
            return Err(knock.audit_refusal(
                reason(&failure),
                None,
                unauthenticated_refusal(context, &failure),
            ));
        }
    };
    match ports
        .authorizer
        .may_enter(sender.principal(), &context.endpoint)
    {
        Ok(()) => Ok(AuthenticatedHead { knock, sender }),
        Err(failure) => Err(knock.audit_refusal(
            failure.reason(),
            Some(sender.principal()),
            forbidden_refusal(context, &failure),
        )),
    }
}

/// 6 authn: passes an authenticated request on to the inner service.
#[derive(Clone, Copy)]
struct AuthenticateService<S>(S);

/// The future of the inner service, which decides at once.
type AdmitFuture = Ready<Result<Authenticated<()>, RequestRefusal>>;

impl<'a, S> Service<UnauthenticatedHead<'a>> for AuthenticateService<S>
where
    S: for<'b> Service<
            AuthenticatedHead<'b>,
            Error = RequestRefusal,
            Future = Either<AdmitFuture, AdmitFuture>,
        > + Clone
        + Send
        + 'a,
{
    type Response = Authenticated<()>;
    type Error = RequestRefusal;
    type Future = Fut<'a, Result<Authenticated<()>, RequestRefusal>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, knock: UnauthenticatedHead<'a>) -> Self::Future {
        // The inner service is always ready: a caller over its rate is refused, and never waits
        // here.
        let mut inner = self.0.clone();
        Box::pin(async move { inner.call(check_credentials(knock).await?).await })
    }
}

/// 7 admit: audits the request and accepts it.
#[derive(Clone, Copy)]
struct AdmitService;

impl Service<AuthenticatedHead<'_>> for AdmitService {
    type Response = Authenticated<()>;
    type Error = RequestRefusal;
    type Future = AdmitFuture;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, known: AuthenticatedHead<'_>) -> Self::Future {
        let AuthenticatedHead {
            knock: UnauthenticatedHead { context, peer, .. },
            sender,
        } = known;
        if !sender.principal().is_anonymous() {
            let (endpoint, request) = (&context.endpoint, context.name.as_str());
            let outcome = Ok(sender.principal());
            context.shared.ports.audit.record_entrance(&SenderEntrance {
                peer,
                endpoint,
                request,
                outcome,
            });
        }
        ready(Ok(sender))
    }
}

/// The text after `Bearer `. Another scheme is no credential here. A token in the query is refused,
/// even beside another credential: it would end in logs (RFC 6750, 2.3 and 5.3).
fn bearer_token(head: &Parts) -> Result<Option<&str>, RequestRefusal> {
    let in_query = |query: &str| {
        query
            .split('&')
            .any(|pair| pair.split('=').next() == Some("access_token"))
    };
    if head.uri.query().is_some_and(in_query) {
        let text = "a token does not belong in a URL: send `Authorization: Bearer`";
        return Err(RequestRefusal::new(
            StatusCode::BAD_REQUEST,
            "query_token",
            text,
        ));
    }
    let text = single_header(&head.headers, &header::AUTHORIZATION)?;
    Ok(text
        .and_then(|text| text.split_once(' '))
        .and_then(|(scheme, token)| {
            scheme
                .eq_ignore_ascii_case("Bearer")
                .then(|| token.trim_start_matches(' '))
        }))
}

/// A header that may stand once: of two, another reader might believe the other.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, RequestRefusal> {
    let mut given = headers.get_all(name).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    match (value.to_str(), given.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => {
            let text = "credentials must be one header of visible ASCII characters";
            Err(RequestRefusal::new(
                StatusCode::BAD_REQUEST,
                "credentials",
                text,
            ))
        }
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

/// The refusal without a principal: 401 for the client's fault, 503 if the check could not be made.
fn unauthenticated_refusal(context: &HttpRequestContext, failure: &Failure) -> RequestRefusal {
    let FailureKind::Unauthenticated(denial) = failure.kind() else {
        let text = "credentials cannot be checked now: try again in a few seconds";
        return RequestRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "verifier", text)
            .with(header::RETRY_AFTER, "5");
    };
    let text = match denial {
        AuthenticationDenial::Missing => {
            "credentials are needed: send `Authorization: Bearer` with a token for this endpoint"
        }
        AuthenticationDenial::Invalid(_) => "these credentials are not valid here: get new ones",
    };
    RequestRefusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", text).with_value(
        header::WWW_AUTHENTICATE,
        challenge::unauthenticated(context, *denial),
    )
}

fn forbidden_refusal(context: &HttpRequestContext, failure: &Failure) -> RequestRefusal {
    let text = if matches!(failure.kind(), FailureKind::Denied) {
        // A denial at this point concerns the principal, independent of the request.
        BLOCKED
    } else {
        "this endpoint is not for these credentials"
    };
    let refusal = RequestRefusal::new(StatusCode::FORBIDDEN, failure.reason(), text);
    if let FailureKind::InsufficientScope(scopes) = failure.kind() {
        refusal.with_value(
            header::WWW_AUTHENTICATE,
            challenge::insufficient(context, scopes),
        )
    } else {
        refusal
    }
}

/// 429, and the time to retry after (draft-ietf-httpapi-ratelimit-headers).
fn rate_refusal(failure: &Failure) -> RequestRefusal {
    if !matches!(failure.kind(), FailureKind::Limit) {
        return answer::overload_refusal();
    }
    let wait = failure
        .retry_delay()
        .unwrap_or_default()
        .as_millis()
        .div_ceil(1000)
        .max(1);
    let text = "too many requests: wait as long as `Retry-After` says";
    let refusal = RequestRefusal::new(StatusCode::TOO_MANY_REQUESTS, "limit", text)
        .with_value(header::RETRY_AFTER, wait.to_string());
    let Some(limited) = failure.limit_reached() else {
        return refusal;
    };
    let (policy, limit, window) = (
        header_text(&limited.policy),
        limited.limit,
        limited.window.as_secs().max(1),
    );
    refusal
        .with_value(
            HeaderName::from_static("ratelimit"),
            format!("\"{policy}\";r=0;t={wait}"),
        )
        .with_value(
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

    use weir_core::failure::LimitReached;

    use super::*;

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
        assert_eq!(refusal.status, StatusCode::TOO_MANY_REQUESTS);
        let headers: Vec<_> = refusal
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let wanted = [
            ("retry-after", "2"),
            ("ratelimit", r#""group:a_b_c__";r=0;t=2"#),
            ("ratelimit-policy", r#""group:a_b_c__";q=20;w=60"#),
        ];
        assert_eq!(headers, wanted);
    }
}
