//! The catalog view: the items of an endpoint's lists, with both names, their schemas, and their
//! cost in tokens.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use weir_catalog::View;
use weir_config::DEFAULT_ENDPOINT;
use weir_core::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::names::EndpointId;
use weir_core::upstream::ListKind;
use weir_schema::CheckMode;

use crate::admin_error::{AdminError, json};
use crate::state::AdminState;
use crate::views::{AdminQuery, Rfc3339Time};

/// The bytes of JSON that count as one token. Tokenizers differ: for tool definitions in English a
/// token has 3.5 to 4.5 bytes.
const BYTES_A_TOKEN: usize = 4;

/// A list of an endpoint as clients without capabilities see it, before rules hide items.
#[derive(Serialize)]
struct ListPageView {
    endpoint: String,
    kind: &'static str,
    /// The digest of the whole list.
    version: String,
    /// The number of items on all pages.
    total: usize,
    /// The tokens that a model reads for the whole list, at four bytes a token.
    tokens_estimated: usize,
    items: Vec<ListedItemView>,
    /// The `after` of the next page.
    next: Option<String>,
    missing: Vec<MissingUpstreamView>,
    collisions: Vec<CollisionView>,
    /// The upstreams with other lists in clients' own sessions.
    sessions: Vec<SessionListsView>,
}

/// An upstream that lists other items in sessions of single clients.
#[derive(Serialize)]
struct SessionListsView {
    upstream: String,
    /// The number of such sessions.
    differing: usize,
}

/// A listed item.
#[derive(Serialize)]
struct ListedItemView {
    /// The name that clients see.
    exposed: String,
    upstream: String,
    /// The upstream's own name.
    native: String,
    /// Further names that resolve to it.
    aliases: Vec<String>,
    tokens_estimated: usize,
    /// The validation of arguments: `off`, `warn`, `enforce`, `none` (there is no schema), or
    /// `unusable: ` and the reason.
    input_validation: String,
    output_validation: String,
    /// The definition as clients see it, but under the upstream's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct MissingUpstreamView {
    upstream: String,
    reason: &'static str,
    since: Rfc3339Time,
}

#[derive(Serialize)]
struct CollisionView {
    exposed: String,
    kept: String,
    dropped: String,
    native: String,
}

/// Lists one page of an endpoint's list.
pub(crate) async fn all(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let query = AdminQuery::read(
        query.as_deref(),
        &[
            "endpoint",
            "upstream",
            "kind",
            "limit",
            "after",
            "definitions",
        ],
    )?;
    let endpoint = query.text("endpoint").unwrap_or(DEFAULT_ENDPOINT);
    let kind = match query.text("kind") {
        None => ListKind::Tools,
        Some(word) => {
            let known = ListKind::ALL.into_iter().find(|kind| kind.word() == word);
            known.ok_or_else(|| {
                AdminError::bad_request(
                    "`kind` is one of tools, prompts, resources, resource_templates",
                )
            })?
        }
    };
    let definitions = match query.text("definitions") {
        None | Some("true") => true,
        Some("false") => false,
        Some(_) => return Err(AdminError::bad_request("`definitions` is true or false")),
    };
    let limit = query.limit()?;
    let view = state
        .catalog
        .view(&EndpointId::new(endpoint), kind, CapabilityClass::BASE);
    let view = view.ok_or_else(|| AdminError::not_found("endpoint", endpoint))?;
    let upstream = query.text("upstream");
    if let Some(id) = upstream.filter(|id| !state.has_upstream(id)) {
        return Err(AdminError::not_found("upstream", id));
    }
    let wanted: Vec<&CatalogItem> = view
        .items
        .iter()
        .filter(|item| upstream.is_none_or(|id| item.tool.upstream.as_str() == id))
        .collect();
    let begin = match query.text("after") {
        None => 0,
        Some(after) => {
            let at = wanted.iter().position(|item| *item.exposed == *after);
            at.ok_or_else(|| {
                AdminError::bad_request("`after` is not in this list: start again without it")
            })? + 1
        }
    };
    let page = &wanted[begin..wanted.len().min(begin + limit)];
    let more = begin + page.len() < wanted.len();
    Ok(json(
        StatusCode::OK,
        &ListPageView {
            endpoint: endpoint.to_owned(),
            kind: kind.word(),
            version: format!("{:?}", view.version),
            total: wanted.len(),
            tokens_estimated: wanted.iter().map(|item| tokens(item)).sum(),
            items: page
                .iter()
                .map(|item| ListedItemView::of(item, &view, definitions))
                .collect(),
            next: page
                .last()
                .filter(|_| more)
                .map(|item| item.exposed.to_string()),
            missing: missing(&view, upstream),
            collisions: collisions(&view, upstream),
            sessions: sessions(&state, &view, upstream),
        },
    ))
}

/// Returns the upstreams of a view that have other lists in some sessions.
fn sessions(state: &AdminState, view: &View, upstream: Option<&str>) -> Vec<SessionListsView> {
    let mut shown: Vec<_> = view.items.iter().map(|item| &item.tool.upstream).collect();
    shown.sort_unstable();
    shown.dedup();
    let wanted = shown
        .into_iter()
        .filter(|id| upstream.is_none_or(|wanted| id.as_str() == wanted));
    let counted = wanted.map(|id| SessionListsView {
        upstream: id.to_string(),
        differing: state.catalog.sessions_that_differ(id),
    });
    counted.filter(|own| own.differing > 0).collect()
}

/// Estimates the tokens that a model reads for all tools of an endpoint.
pub(crate) fn cost(view: &View) -> usize {
    view.items.iter().map(tokens).sum()
}

/// Estimates the tokens that a model reads for one item.
fn tokens(item: &CatalogItem) -> usize {
    let renamed = item.tool.raw.len() - item.tool.name.len() + item.exposed.len() + 2;
    renamed.div_ceil(BYTES_A_TOKEN)
}

impl ListedItemView {
    fn of(item: &CatalogItem, view: &View, definitions: bool) -> Self {
        let tool = &item.tool;
        let is_this = |found: &CatalogItem| Arc::ptr_eq(&found.tool, tool);
        let native = Some(&tool.native).filter(|native| **native != item.exposed);
        let native = native.filter(|native| view.find(native).item().is_some_and(is_this));
        let validation = item.terms.validation;
        let raw = std::str::from_utf8(&tool.raw).ok().filter(|_| definitions);
        Self {
            exposed: item.exposed.to_string(),
            upstream: tool.upstream.to_string(),
            native: tool.native.to_string(),
            aliases: native.into_iter().map(ToString::to_string).collect(),
            tokens_estimated: tokens(item),
            input_validation: validated(validation.input, tool.input_schema()),
            output_validation: validated(validation.output, tool.output_schema()),
            definition: raw.and_then(|raw| RawValue::from_string(raw.trim().to_owned()).ok()),
        }
    }
}

fn validated(check: CheckMode, schema: Option<Result<(), weir_schema::UnusableSchema>>) -> String {
    match (schema, check) {
        (None, _) => "none".to_owned(),
        (Some(Err(why)), _) => format!("unusable: {why}"),
        (Some(Ok(())), CheckMode::Off) => "off".to_owned(),
        (Some(Ok(())), CheckMode::Warn) => "warn".to_owned(),
        (Some(Ok(())), CheckMode::EnforceUsable | CheckMode::Enforce) => "enforce".to_owned(),
    }
}

fn missing(view: &View, upstream: Option<&str>) -> Vec<MissingUpstreamView> {
    let those = view
        .missing
        .iter()
        .filter(|missing| upstream.is_none_or(|id| missing.upstream.as_str() == id));
    those
        .map(|missing| MissingUpstreamView {
            upstream: missing.upstream.to_string(),
            reason: missing.reason.as_str(),
            since: Rfc3339Time(missing.since),
        })
        .collect()
}

fn collisions(view: &View, upstream: Option<&str>) -> Vec<CollisionView> {
    let of = |id: &weir_core::UpstreamId| upstream.is_none_or(|wanted| id.as_str() == wanted);
    let those = view
        .collisions
        .iter()
        .filter(|collision| of(&collision.kept) || of(&collision.dropped));
    those
        .map(|collision| CollisionView {
            exposed: collision.exposed.to_string(),
            kept: collision.kept.to_string(),
            dropped: collision.dropped.to_string(),
            native: collision.native.to_string(),
        })
        .collect()
}
