//! Turns the bytes of a walk into tools, off the threads that serve requests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry::KeyValue;
use weir_clean::DocumentKind;
use weir_core::clean;
use weir_core::failure::Failure;
use weir_core::log_text::sanitize_text;
use weir_core::names::UpstreamId;
use weir_core::server_item::ServerItem;
use weir_core::telemetry::instruments;
use weir_core::telemetry::meters::upstream_label;
use weir_core::upstream::ListKind;
use weir_items::ItemDraft;
use weir_schema::ToolSchema;

use crate::context::CatalogContext;

/// The items of a walk, with the counts of its irregularities.
pub(super) struct IngestedItems {
    pub(super) items: Arc<[Arc<ServerItem>]>,
    /// Tools whose definition changed.
    pub(super) redefined: u64,
    /// Items that could not be read, or that have the name of an earlier one.
    pub(super) rejected: u64,
}

/// The owner of the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefinitionOwner {
    /// Those that all clients of a class see.
    Shared,
    /// Those of one session; they may differ from the shared ones at any time.
    OfSession,
}

/// The origin of the items of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListOrigin<'a> {
    /// The upstream that listed the items.
    pub(super) upstream: &'a UpstreamId,
    /// The kind of the list.
    pub(super) kind: ListKind,
    /// The owner of the definitions in the list.
    pub(super) definitions: DefinitionOwner,
}

/// Makes tools of `items`, in order. An item that did not change keeps its `Arc`; if no item
/// changed, the whole list does.
///
/// # Errors
///
/// Only if this crate has a bug: an upstream's bytes cannot make it fail.
pub(super) async fn ingest(
    context: &Arc<CatalogContext>,
    origin: ListOrigin<'_>,
    items: Vec<Bytes>,
    before: Arc<[Arc<ServerItem>]>,
) -> Result<IngestedItems, Failure> {
    let (context, upstream) = (context.clone(), origin.upstream.clone());
    let (kind, definitions) = (origin.kind, origin.definitions);
    // Reading and compiling thousands of schemas takes milliseconds that no call should wait for.
    tokio::task::spawn_blocking(move || {
        let origin = ListOrigin {
            upstream: &upstream,
            kind,
            definitions,
        };
        make(&context, origin, items, &before)
    })
    .await
    .map_err(|error| Failure::internal("reading an upstream's tools failed").because(error))
}

fn make(
    context: &CatalogContext,
    origin: ListOrigin<'_>,
    items: Vec<Bytes>,
    before: &Arc<[Arc<ServerItem>]>,
) -> IngestedItems {
    let ListOrigin {
        upstream,
        kind,
        definitions,
    } = origin;
    let known: HashMap<&str, &Arc<ServerItem>> =
        before.iter().map(|tool| (&*tool.native, tool)).collect();
    let mut seen = HashSet::with_capacity(items.len());
    let mut tools = Vec::with_capacity(items.len());
    let (mut redefined, mut rejected) = (0, 0);
    for item in items {
        let (item, _removed) = clean::text(upstream, DocumentKind::Definition, item);
        let draft = match ItemDraft::read_listed(kind, item) {
            Ok(draft) => draft,
            Err(error) => {
                reject(upstream, kind, "bad_item", error.key(), &error.to_string());
                rejected += 1;
                continue;
            }
        };
        if !seen.insert(draft.native.clone()) {
            reject(
                upstream,
                kind,
                "duplicate_item",
                &draft.native,
                "the list has this twice; the first one counts",
            );
            rejected += 1;
            continue;
        }
        let old = known.get(draft.native.as_str());
        if let Some(same) = old.filter(|old| old.digest == draft.digest) {
            tools.push(Arc::clone(same));
            continue;
        }
        if old.is_some() && kind == ListKind::Tools && definitions == DefinitionOwner::Shared {
            redefined += 1;
            instruments()
                .tool_definition_changed
                .add(1, &[upstream_label(upstream)]);
            tracing::warn!(%upstream, tool = sanitize_text(&draft.native, 64), "tool definition changed");
        }
        let mut tool = draft.finish(upstream, &context.contracts);
        if let Some(old) = old {
            // The redefined tool goes on with the same counters.
            tool.meter = old.meter.clone();
        }
        unchecked(&tool);
        tools.push(Arc::new(tool));
    }
    let same = tools.len() == before.len()
        && tools
            .iter()
            .zip(before.iter())
            .all(|(new, old)| Arc::ptr_eq(new, old));
    IngestedItems {
        items: if same { before.clone() } else { tools.into() },
        redefined,
        rejected,
    }
}

fn reject(upstream: &UpstreamId, kind: ListKind, reason: &'static str, item: &str, why: &str) {
    instruments().upstream_protocol_errors.add(
        1,
        &[upstream_label(upstream), KeyValue::new("reason", reason)],
    );
    tracing::warn!(%upstream, list = kind.word(), item = sanitize_text(item, 64), reason, why, "invalid list item skipped");
}

/// Logs and counts the schemas that are not used for validation.
fn unchecked(tool: &ServerItem) {
    for (side, contract) in [("input", &tool.input), ("output", &tool.output)] {
        if let ToolSchema::Unchecked(why) = contract {
            let labels = [
                upstream_label(&tool.upstream),
                KeyValue::new("side", side),
                KeyValue::new("reason", why.word()),
            ];
            instruments().schemas_unchecked.add(1, &labels);
            tracing::warn!(upstream = %tool.upstream, tool = sanitize_text(&tool.native, 64), side, reason = why.word(), "schema not used for validation: {why}");
        }
    }
}
