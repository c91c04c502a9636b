//! The status page: the state of weir at a glance, rendered on the server and shown without a
//! script.
//!
//! It changes no state. Every text of an upstream, a client or the config is escaped, never markup:
//! `maud` escapes all that is not markup by its type.

mod connect_section;
mod overview_page;
mod page_parts;
mod page_query;
mod page_text;
mod replicas_section;
mod upstream_page;

use std::sync::{Arc, LazyLock};

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, PreEscaped, html};

use crate::admin_error::AdminError;
use crate::state::AdminState;
use page_query::PageQuery;
use page_text::text;
use weir_client_configs::mcp_clients::client_sections::style_policy;

const STYLE: &str = include_str!("page/style.css");
/// The content security policy of a page: a browser may apply this one style, and no other
/// resource.
static POLICY: LazyLock<String> = LazyLock::new(|| style_policy(STYLE));

/// The overview page.
pub(crate) async fn overview(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Response {
    let view = PageQuery::of(query.as_deref());
    page("weir", view.refresh, &overview_page::body(&state, &view))
}

/// The page about one upstream.
pub(crate) async fn upstream(
    State(state): State<Arc<AdminState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let found = state
        .upstreams()
        .into_iter()
        .find(|upstream| upstream.id == id);
    match found {
        Some(upstream) => page(
            &format!("{id} - weir"),
            PageQuery::of(query.as_deref()).refresh,
            &upstream_page::body(&state, &upstream),
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
    let body = html! {
        main {
            header { h1 { "Not found" } p { (why) } }
            section { p { a href="/" { "Status of weir" } } }
        }
    };
    (StatusCode::NOT_FOUND, page("Not found - weir", None, &body)).into_response()
}

fn page(title: &str, refresh: Option<u32>, body: &Markup) -> Response {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if let Some(seconds) = refresh {
                    meta http-equiv="refresh" content=(seconds);
                }
                title { (text(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
        "\n"
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &POLICY),
    ];
    (headers, page.into_string()).into_response()
}
