//! The credentials of a request, for checks of a stream while it is open.

use http::HeaderMap;
use weir_core::Principal;
use weir_session::StreamCredentials;

use crate::layer::authenticate::{api_key_in, bearer_in};
use crate::request::request_context::HttpRequestContext;

/// The credentials of an authenticated request of this principal with these headers.
#[must_use]
pub fn stream_credentials(
    context: &HttpRequestContext,
    principal: &Principal,
    headers: &HeaderMap,
) -> StreamCredentials {
    StreamCredentials {
        principal: principal.clone(),
        bearer: bearer_in(headers).ok().flatten().map(Box::from),
        api_key: api_key_in(headers).ok().flatten().map(Box::from),
        certificate: context.peer().certificate.clone(),
        peer: context.client_address,
        endpoint: context.endpoint().clone(),
    }
}
