//! The status page: the state of weir at a glance, rendered on the server and shown without a
//! script.
//!
//! It changes no state. Every text of an upstream, a client or the config is escaped, never markup.

mod connect_section;
mod html;
mod overview_page;
mod page_parts;
mod page_query;
mod upstream_page;

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::admin_error::AdminError;
use super::state::AdminState;
use html::text;
use page_query::PageQuery;
use weir_client_configs::mcp_clients::client_sections::style_policy;

const STYLE: &str = include_str!("page/style.css");
/// The content security policy of a page: a browser may apply this one style, and no other
/// resource.
static POLICY: LazyLock<String> = LazyLock::new(|| style_policy(STYLE));

/// The overview page.
pub(crate) async fn overview(
    State(desk): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Response {
    let view = PageQuery::of(query.as_deref());
    page("weir", view.refresh, &overview_page::body(&desk, &view))
}

/// The page about one upstream.
pub(crate) async fn upstream(
    State(desk): State<Arc<AdminState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let found = desk
        .upstreams()
        .into_iter()
        .find(|upstream| upstream.id == id);
    match found {
        Some(upstream) => page(
            &format!("{id} - weir"),
            PageQuery::of(query.as_deref()).refresh,
            &upstream_page::body(&desk, &upstream),
        ),
        None => not_found("No upstream has this name. It may have been removed from the config."),
    }
}

/// The response for an unknown path: a page with a link back for a browser, JSON for programs.
pub(super) async fn unknown_path(headers: HeaderMap) -> Response {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    if accept.contains("text/html") {
        return not_found("There is no such page.");
    }
    AdminError::new(
        StatusCode::NOT_FOUND,
        "there is no such path; /openapi.yaml lists all paths",
    )
    .into_response()
}

fn not_found(why: &str) -> Response {
    let why = text(why);
    let body = format!(
        "<main><header><h1>Not found</h1><p>{why}</p></header><section><p><a href=\"/\">Status of weir</a></p></section></main>"
    );
    (StatusCode::NOT_FOUND, page("Not found - weir", None, &body)).into_response()
}

fn page(title: &str, refresh: Option<u32>, body: &str) -> Response {
    let mut out = String::with_capacity(body.len() + STYLE.len() + 512);
    out.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\">");
    if let Some(seconds) = refresh {
        // Writing to a string cannot fail, here and below.
        let _ = write!(out, "<meta http-equiv=\"refresh\" content=\"{seconds}\">");
    }
    let _ = writeln!(
        out,
        "<title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>",
        text(title)
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &POLICY),
    ];
    (headers, out).into_response()
}
