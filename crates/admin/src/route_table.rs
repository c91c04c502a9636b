//! The table of the operators' routes.

use weir_config::{LIVENESS_PATH, READINESS_PATH};
use weir_explain::EXPLAIN_PATH;

/// The routes and their methods. Tests compare them with `openapi/weir.yaml`.
pub const ROUTES: [(&str, &str); 26] = [
    (LIVENESS_PATH, "get"),
    (READINESS_PATH, "get"),
    ("/metrics", "get"),
    ("/openapi.yaml", "get"),
    ("/", "get"),
    ("/upstreams/{id}", "get"),
    (EXPLAIN_PATH, "get"),
    ("/admin/upstreams", "get"),
    ("/admin/upstreams/{id}", "get"),
    ("/admin/upstreams/{id}/disable", "post"),
    ("/admin/upstreams/{id}/enable", "post"),
    ("/admin/upstreams/{id}/drain", "post"),
    ("/admin/upstreams/{id}/refresh", "post"),
    ("/admin/catalog", "get"),
    ("/admin/calls", "get"),
    ("/admin/calls/{id}/cancel", "post"),
    ("/admin/config", "get"),
    ("/admin/sessions", "get"),
    ("/admin/sessions/{id}/end", "post"),
    ("/admin/clients", "get"),
    ("/admin/principals/block", "post"),
    ("/admin/principals/unblock", "post"),
    ("/admin/limits", "get"),
    ("/admin/replicas", "get"),
    ("/admin/log", "post"),
    ("/admin/reload", "post"),
];
