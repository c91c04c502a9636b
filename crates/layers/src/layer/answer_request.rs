//! The services below the authentication of a request.

use crate::failure::RequestResult;

/// A service that answers requests of known senders. It is no tower service, so that its future
/// stands in the one of the layer above, without an allocation of its own.
pub trait AnswerRequest<R>: Clone + Send + Sync + 'static {
    /// Answers a request.
    fn answer(self, request: R) -> impl Future<Output = RequestResult> + Send;
}
