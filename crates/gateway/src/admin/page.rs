//! The status page: what an operator wants to see in one look, made on the server and shown without a script.
//!
//! It changes nothing. Whatever an upstream, a client or the config said is text in it, never markup.

mod front;
mod html;
mod one;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;

use super::desk::Desk;
use crate::mcp_clients::style_policy;
use html::{text, when};

const STYLE: &str = include_str!("page/style.css");
/// Seconds between two looks that a page may be asked for.
const REFRESH: std::ops::RangeInclusive<u32> = 2..=3600;

/// What a browser may do with a page: apply this one style, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| style_policy(STYLE));

/// The page about everything.
pub(super) async fn front(State(desk): State<Arc<Desk>>, RawQuery(query): RawQuery) -> Response {
    let refresh = refresh(query.as_deref());
    page("weir", refresh, &front::body(&desk, refresh))
}

/// The page about one upstream.
pub(super) async fn upstream(
    State(desk): State<Arc<Desk>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let found = desk.upstreams().into_iter().find(|upstream| upstream.id == id);
    match found {
        Some(upstream) => page(&format!("{id} - weir"), refresh(query.as_deref()), &one::body(&desk, &upstream)),
        None => {
            let body = "<main><h1>No such upstream</h1><p><a href=\"/\">All upstreams</a></p></main>";
            (StatusCode::NOT_FOUND, page("weir", None, body)).into_response()
        }
    }
}

/// After how many seconds the page is to load itself again.
fn refresh(query: Option<&str>) -> Option<u32> {
    let query: HashMap<_, _> = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
    query.get("refresh")?.parse().ok().filter(|seconds| REFRESH.contains(seconds))
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
    let _ = writeln!(out, "<title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>", text(title));
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, &POLICY)];
    (headers, out).into_response()
}
