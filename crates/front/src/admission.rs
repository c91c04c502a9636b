//! Who sends a request and whether it may come in: by its head alone, before its body is paid for.
//!
//! The order: the address's rate, the credentials, the endpoint, the sender's rate. Every refusal is counted and on record;
//! no error on the way leads to a default identity.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName, StatusCode, header};
use weir_core::failure::Denial;
use weir_core::port::{Entrance, Evidence, Secret};
use weir_core::{Authenticated, Failure, FailureKind, authenticate};

use crate::answer::{self, Refusal};
use crate::challenge;
use crate::sender::sender;
use crate::stack::Context;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Lets a request in, or says why not.
pub(crate) async fn enter(context: &Context, head: &Parts) -> Result<Authenticated<()>, Refusal> {
    let ports = &context.shared.ports;
    let peer = sender(context.peer.address, &head.headers, &context.settings.trusted_proxies);
    let refused = |reason, refusal| Err(recorded(context, peer, reason, refusal));
    if let Err(failure) = ports.limiter.arrive(peer) {
        return refused("address_limit", too_many(&failure));
    }
    let (bearer, api_key) = match (bearer(head), single(&head.headers, &API_KEY)) {
        (Ok(bearer), Ok(api_key)) => (bearer, api_key),
        (Err(refusal), _) | (_, Err(refusal)) => return refused("malformed", refusal),
    };
    let evidence = Evidence {
        bearer: bearer.map(Secret::new),
        api_key: api_key.map(Secret::new),
        certificate: context.peer.certificate.as_deref(),
        peer,
        endpoint: &context.endpoint,
    };
    let known = match authenticate(&*ports.verifier, &evidence, ()).await {
        Ok(known) => known,
        Err(failure) => return refused(reason(&failure), unknown(context, &failure)),
    };
    let principal = known.principal();
    if let Err(failure) = ports.authorizer.may_enter(principal, &context.endpoint) {
        return refused(failure.reason(), forbidden(context, &failure));
    }
    if let Err(failure) = ports.limiter.request(principal, &context.endpoint) {
        return refused("principal_limit", too_many(&failure));
    }
    if !principal.is_anonymous() {
        let (endpoint, request) = (&context.endpoint, context.name.as_str());
        ports.audit.entered(&Entrance { peer, endpoint, request, outcome: Ok(principal) });
    }
    Ok(if context.settings.keep_tokens { known.keeping(&evidence) } else { known })
}

fn recorded(context: &Context, peer: IpAddr, reason: &'static str, refusal: Refusal) -> Refusal {
    let (endpoint, request) = (&context.endpoint, context.name.as_str());
    context.shared.ports.audit.entered(&Entrance { peer, endpoint, request, outcome: Err(reason) });
    refusal
}

/// The text behind `Bearer `. Another scheme is no credential here. A token in the query is not taken, and not with another
/// one either: it would end in logs (RFC 6750, 2.3 and 5.3).
fn bearer(head: &Parts) -> Result<Option<&str>, Refusal> {
    let in_query = |query: &str| query.split('&').any(|pair| pair.split('=').next() == Some("access_token"));
    if head.uri.query().is_some_and(in_query) {
        let text = "a token does not belong in a URL: send `Authorization: Bearer`";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "query_token", text));
    }
    let text = single(&head.headers, &header::AUTHORIZATION)?;
    Ok(text
        .and_then(|text| text.split_once(' '))
        .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim_start_matches(' '))))
}

/// A header that may be there once: of two, another reader might believe the other.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut given = headers.get_all(name).iter();
    let Some(value) = given.next() else { return Ok(None) };
    match (value.to_str(), given.next()) {
        (Ok(text), None) => Ok(Some(text)),
        _ => {
            let text = "credentials must be one header of visible ASCII characters";
            Err(Refusal::new(StatusCode::BAD_REQUEST, "credentials", text))
        }
    }
}

fn reason(failure: &Failure) -> &'static str {
    match failure.kind() {
        FailureKind::Unauthenticated(Denial::Missing) => "missing",
        FailureKind::Unauthenticated(Denial::Invalid(reason)) => reason,
        _ => "unavailable",
    }
}

/// No principal: 401 for the client's fault, 503 where the check could not be made.
fn unknown(context: &Context, failure: &Failure) -> Refusal {
    match failure.kind() {
        FailureKind::Unauthenticated(denial) => {
            let text = match denial {
                Denial::Missing => {
                    "credentials are needed: send `Authorization: Bearer` with a token for this endpoint"
                }
                Denial::Invalid(_) => "these credentials are not valid here: get new ones",
            };
            Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", text)
                .with_value(header::WWW_AUTHENTICATE, challenge::unauthenticated(context, *denial))
        }
        _ => {
            let text = "credentials cannot be checked now: try again in a few seconds";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "verifier", text).with(header::RETRY_AFTER, "5")
        }
    }
}

fn forbidden(context: &Context, failure: &Failure) -> Refusal {
    let text = "this endpoint is not for these credentials";
    let refusal = Refusal::new(StatusCode::FORBIDDEN, failure.reason(), text);
    match failure.kind() {
        FailureKind::InsufficientScope(scopes) => {
            refusal.with_value(header::WWW_AUTHENTICATE, challenge::insufficient(context, scopes))
        }
        _ => refusal,
    }
}

/// 429, and when to come again (draft-ietf-httpapi-ratelimit-headers).
fn too_many(failure: &Failure) -> Refusal {
    if !matches!(failure.kind(), FailureKind::Limit) {
        return answer::overload();
    }
    let wait = failure.wait().unwrap_or_default().as_millis().div_ceil(1000).max(1);
    let text = "too many requests: wait as long as `Retry-After` says";
    let refusal =
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "limit", text).with_value(header::RETRY_AFTER, wait.to_string());
    let Some(limited) = failure.limited() else { return refusal };
    let (policy, limit, window) = (&limited.policy, limited.limit, limited.window.as_secs().max(1));
    refusal
        .with_value(HeaderName::from_static("ratelimit"), format!("\"{policy}\";r=0;t={wait}"))
        .with_value(HeaderName::from_static("ratelimit-policy"), format!("\"{policy}\";q={limit};w={window}"))
}
