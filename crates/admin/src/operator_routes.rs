//! The routes that operators use, behind their authentication.

use std::sync::Arc;

use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};
use weir_explain::EXPLAIN_PATH;

use crate::state::AdminState;
use crate::{actions, page, replica_requests, request_guard, views};

/// The routes of operators behind their authentication. Requests for other replicas leave here with
/// the credentials that were checked.
pub(super) fn guarded_routes(state: Arc<AdminState>) -> Router<Arc<AdminState>> {
    let distribute = middleware::from_fn_with_state(state.clone(), replica_requests::distribute);
    let authenticate = middleware::from_fn_with_state(state, request_guard::authenticate);
    // The layer that is added last sees a request first.
    operator_routes()
        .route_layer(distribute)
        .route_layer(authenticate)
}

/// The routes that require an operator.
fn operator_routes() -> Router<Arc<AdminState>> {
    let upstream = |act: actions::UpstreamAction| -> MethodRouter<Arc<AdminState>> {
        post(move |state, operator, id, body| actions::on_upstream(act, state, operator, id, body))
    };
    Router::new()
        .route("/", get(page::overview))
        .route("/upstreams/{id}", get(page::upstream))
        .route(EXPLAIN_PATH, get(views::explain))
        .route("/admin/upstreams", get(views::upstream_views::all))
        .route("/admin/upstreams/{id}", get(views::upstream_views::one))
        .route(
            "/admin/upstreams/{id}/disable",
            upstream(actions::UpstreamAction::Disable),
        )
        .route(
            "/admin/upstreams/{id}/enable",
            upstream(actions::UpstreamAction::Enable),
        )
        .route(
            "/admin/upstreams/{id}/drain",
            upstream(actions::UpstreamAction::Drain),
        )
        .route(
            "/admin/upstreams/{id}/refresh",
            upstream(actions::UpstreamAction::Refresh),
        )
        .route("/admin/catalog", get(views::catalog_views::all))
        .route("/admin/calls", get(views::call_views::all))
        .route("/admin/calls/{id}/cancel", post(actions::cancel))
        .route("/admin/config", get(views::config_view::all))
        .route("/admin/sessions", get(views::client_views::sessions))
        .route(
            "/admin/sessions/{id}/end",
            post(actions::client_actions::end),
        )
        .route("/admin/clients", get(views::client_views::all))
        .route(
            "/admin/principals/block",
            post(actions::client_actions::block),
        )
        .route(
            "/admin/principals/unblock",
            post(actions::client_actions::unblock),
        )
        .route("/admin/limits", get(views::limit_views::all))
        .route("/admin/replicas", get(views::replica_views::all))
        .route("/admin/log", post(actions::process_actions::log))
        .route("/admin/reload", post(actions::process_actions::reload))
}
