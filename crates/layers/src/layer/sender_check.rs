//! Refuses a request by its sender, on every path: too many header lines, a host that is not served,
//! an origin that is not allowed.

use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Body;
use http::Request;

use super::check::Check;
use crate::failure::RequestFailure;
use crate::failure::request_refusal::RequestRefusal;
use crate::http::head_guard::HeadGuard;

/// The rules for senders.
pub struct SenderRules {
    /// The checks of host and origin.
    pub guard: Arc<HeadGuard>,
    /// The most header lines. HTTP/1.1 is held to this limit by the parser of heads, HTTP/2 is not.
    pub headers: usize,
    /// Paths of documents that pages of every origin may read.
    pub public_paths: Arc<HashSet<String>>,
}

impl std::fmt::Debug for SenderRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SenderRules").finish_non_exhaustive()
    }
}

/// The check of senders.
#[derive(Clone)]
pub struct SenderCheck(pub Arc<SenderRules>);

impl std::fmt::Debug for SenderCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SenderCheck").finish_non_exhaustive()
    }
}

impl Check<Request<Body>> for SenderCheck {
    fn check(&self, request: &Request<Body>) -> Result<(), RequestFailure> {
        let rules = &*self.0;
        if request.headers().len() > rules.headers {
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
