//! The answers to operators' requests that other replicas forward.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use tower::ServiceExt as _;
use weir_core::port::BoxFuture;
use weir_front::{OperatorRequest, OperatorRequests};

use crate::admin_error::AdminError;
use crate::operator_auth::{ForwardedOperator, OperatorAddress};
use crate::operator_routes::guarded_routes;
use crate::page;
use crate::replica_requests::MAX_ANSWER_BYTES;
use crate::state::AdminState;

/// The routes of operators, for requests that other replicas forward. Each authenticates its
/// operator anew: another replica passes credentials on, and vouches for nobody.
#[derive(Debug)]
pub struct ForwardedOperators {
    router: Router,
}

impl ForwardedOperators {
    /// Returns the answerer over this state.
    pub fn new(state: Arc<AdminState>) -> Self {
        Self {
            router: guarded_routes(state.clone())
                .fallback(page::unknown_path)
                .with_state(state),
        }
    }
}

impl OperatorRequests for ForwardedOperators {
    fn answer(
        &self,
        OperatorRequest { request, client }: OperatorRequest,
    ) -> BoxFuture<'static, Response<Bytes>> {
        let router = self.router.clone();
        let mut request = request.map(Body::new);
        let extensions = request.extensions_mut();
        extensions.insert(OperatorAddress(client.address));
        extensions.insert(ForwardedOperator);
        Box::pin(async move {
            let answer = match router.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let (head, body) = answer.into_parts();
            match to_bytes(body, MAX_ANSWER_BYTES).await {
                Ok(body) => Response::from_parts(head, body),
                Err(_) => too_large().await,
            }
        })
    }
}

async fn too_large() -> Response<Bytes> {
    let text = "the answer is too large for another replica: ask this one";
    let refused = AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    let (head, body) = refused.into_response().into_parts();
    let body = to_bytes(body, MAX_ANSWER_BYTES).await;
    Response::from_parts(head, body.unwrap_or_default())
}
