//! Refuses a request by its sender, on every path: too many header lines, a host that is not served,
//! an origin that is not allowed.

use axum::body::Body;
use http::Request;

use crate::failure::RequestFailure;
use crate::failure::request_refusal::RequestRefusal;
use crate::layer::check::Check;
use crate::request::endpoint_request::facts_of;

/// The check of senders.
#[derive(Debug, Clone, Copy)]
pub struct SenderCheck;

impl Check<Request<Body>> for SenderCheck {
    fn check(&self, request: &Request<Body>) -> Result<(), RequestFailure> {
        let rules = &facts_of(request.extensions()).rules;
        // HTTP/1.1 is held to this limit by the parser of heads, HTTP/2 is not.
        if request.headers().len() > rules.settings.limits.listener.headers {
            return Err(RequestRefusal::TooManyHeaders.into());
        }
        // A foreign page reaches no path and no preflight. Documents that every page may read stand
        // before the check of the origin.
        let checked = if rules.public_paths.contains(request.uri().path()) {
            rules.guard.check_host(request.uri(), request.headers())
        } else {
            rules.guard.check_sender(request)
        };
        checked.map_err(Into::into)
    }
}
