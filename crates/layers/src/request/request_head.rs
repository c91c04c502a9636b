//! The head of a request, as its handlers take it.

use http::HeaderMap;
use weir_core::Authenticated;

use crate::request::request_context::HttpRequestContext;

/// The head of a request whose sender is authenticated.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// The context of the request.
    pub context: &'a HttpRequestContext,
    /// Proof of the sender's credentials.
    pub sender: &'a Authenticated<()>,
    /// The headers, of HTTP+SSE as Streamable HTTP has them.
    pub headers: &'a HeaderMap,
}

/// Without the headers, which may have credentials.
impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestHead")
            .field("context", self.context)
            .finish_non_exhaustive()
    }
}
