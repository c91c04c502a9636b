//! The check of a principal's rate: after authentication, before the body is paid for.
//!
//! It is a layer of its own, not a [`super::check::CheckLayer`]: the decision on a rate that replicas
//! share may need a trip to their store.

use tower::Layer;
use weir_core::Failure;
use weir_core::port::RateDecision;

use crate::failure::{RequestFailure, RequestResult};
use crate::layer::answer_request::AnswerRequest;
use crate::layer::authenticate::{audit_refusal, rate_refusal};
use crate::request::endpoint_request::AuthenticatedRequest;

/// The layer.
#[derive(Debug, Clone, Copy)]
pub struct PrincipalRateLayer;

impl<S> Layer<S> for PrincipalRateLayer {
    type Service = PrincipalRate<S>;

    fn layer(&self, inner: S) -> PrincipalRate<S> {
        PrincipalRate(inner)
    }
}

/// A service that refuses requests beyond their principal's rate.
#[derive(Debug, Clone, Copy)]
pub struct PrincipalRate<S>(S);

impl<S: AnswerRequest<AuthenticatedRequest>> AnswerRequest<AuthenticatedRequest>
    for PrincipalRate<S>
{
    async fn answer(self, request: AuthenticatedRequest) -> RequestResult {
        charge_principal(&request).await?;
        self.0.answer(request).await
    }
}

/// Takes the request from its principal's rate. A request that another replica forwards was charged
/// there.
async fn charge_principal(
    AuthenticatedRequest { request, sender }: &AuthenticatedRequest,
) -> Result<(), RequestFailure> {
    let (context, principal) = (&request.context, sender.principal());
    principal.meter().request();
    if context.is_forwarded() {
        return Ok(());
    }
    let limiter = &context.ports().limiter;
    let refused = |failure: Failure| {
        principal.meter().limited();
        audit_refusal(context, "principal_limit", Some(principal));
        rate_refusal(&failure)
    };
    match limiter.admit_request(principal, context.endpoint()) {
        RateDecision::Now(decision) => decision.map_err(refused),
        RateDecision::Later(decision) => decision.await.map_err(refused),
    }
}
