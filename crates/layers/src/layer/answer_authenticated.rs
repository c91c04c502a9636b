//! The services between the authentication of a request and its handler.

use crate::failure::RequestResult;
use crate::request::endpoint_request::AuthenticatedRequest;

/// A service that answers requests of known senders. It is no tower service, so that its future
/// stands in the one of the authentication, without an allocation of its own.
pub trait AnswerAuthenticated: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(self, request: AuthenticatedRequest) -> impl Future<Output = RequestResult> + Send;
}
