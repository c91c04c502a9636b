//! The credentials that a stream was opened with, for checks while it is open.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use weir_core::EndpointId;
use weir_core::port::{BorrowedSecret, Evidence};

use crate::layer::authenticate::{api_key_in, bearer_in};
use crate::request::request_context::HttpRequestContext;

/// The credentials of a request that opened a stream. They end with the stream, go to the verifier
/// alone, and cannot be printed.
pub(crate) struct StreamCredentials {
    bearer: Option<Box<str>>,
    api_key: Option<Box<str>>,
    certificate: Option<Arc<[u8]>>,
    peer: IpAddr,
    endpoint: EndpointId,
}

impl StreamCredentials {
    /// The credentials of an authenticated request with these headers.
    #[must_use]
    pub(crate) fn of(context: &HttpRequestContext, headers: &HeaderMap) -> Self {
        Self {
            bearer: bearer_in(headers).ok().flatten().map(Box::from),
            api_key: api_key_in(headers).ok().flatten().map(Box::from),
            certificate: context.peer().certificate.clone(),
            peer: context.client_address,
            endpoint: context.endpoint().clone(),
        }
    }

    /// The evidence for the verifier.
    #[must_use]
    pub(crate) fn evidence(&self) -> Evidence<'_> {
        Evidence {
            bearer: self.bearer.as_deref().map(BorrowedSecret::new),
            api_key: self.api_key.as_deref().map(BorrowedSecret::new),
            certificate: self.certificate.as_deref(),
            peer: self.peer,
            endpoint: &self.endpoint,
        }
    }
}

impl fmt::Debug for StreamCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}
