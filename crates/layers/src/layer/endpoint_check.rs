//! Refuses a request to an endpoint by its head alone: its method, its declared size, its media
//! types.

use axum::body::Body;
use http::{Method, Request};

use crate::failure::RequestFailure;
use crate::layer::check::Check;
use crate::request::endpoint_request::facts_of;

/// The check of requests to the path of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct EndpointCheck;

impl Check<Request<Body>> for EndpointCheck {
    fn check(&self, request: &Request<Body>) -> Result<(), RequestFailure> {
        let guard = &facts_of(request.extensions()).rules.guard;
        guard.check_endpoint_request(request).map_err(Into::into)
    }
}

/// The check of requests to a path of HTTP+SSE, which has one method.
#[derive(Debug, Clone)]
pub struct SseCheck(pub Method);

impl Check<Request<Body>> for SseCheck {
    fn check(&self, request: &Request<Body>) -> Result<(), RequestFailure> {
        let guard = &facts_of(request.extensions()).rules.guard;
        let checked = guard.check_sse_request(request, &self.0);
        checked.map_err(Into::into)
    }
}
