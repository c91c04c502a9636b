//! The tool that a decision is about.

use std::sync::Arc;

use weir_core::catalog_item::CatalogItem;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::server_item::ServerItem;
use weir_core::toolset::ToolHints;
use weir_core::upstream::ListKind;

/// The facts of a tool on an endpoint that rules can use.
#[derive(Clone, Copy, Debug)]
pub struct PolicyTarget<'a> {
    /// Tool, prompt, resource or template.
    pub kind: ListKind,
    /// The endpoint.
    pub endpoint: &'a EndpointId,
    /// The tool's upstream.
    pub upstream: &'a UpstreamId,
    /// The upstream's own name for it.
    pub native: &'a Arc<str>,
    /// Its name on the endpoint.
    pub name: &'a Arc<str>,
    /// The trusted hints about its behaviour.
    pub hints: ToolHints,
    /// The scopes it takes, beside the endpoint's.
    pub scopes: &'a [Arc<str>],
    /// The tool in the catalog with its schema, if it is there.
    pub tool: Option<&'a ServerItem>,
}

impl<'a> PolicyTarget<'a> {
    /// A tool that an endpoint shows.
    #[must_use]
    pub fn of(endpoint: &'a EndpointId, item: &'a CatalogItem) -> Self {
        Self {
            endpoint,
            kind: item.tool.kind,
            upstream: &item.tool.upstream,
            native: &item.tool.native,
            name: &item.exposed,
            hints: item.terms.hints,
            scopes: &item.terms.scopes,
            tool: Some(&item.tool),
        }
    }

    /// True if the tool's schema names the argument at this JSON pointer.
    pub(super) fn names_argument(&self, pointer: &str) -> bool {
        self.tool.is_some_and(|tool| tool.names_argument(pointer))
    }
}

/// Logs that the rules about a tool could not be evaluated.
pub(super) fn report(why: &str, target: &PolicyTarget<'_>) {
    let PolicyTarget {
        endpoint,
        upstream,
        name,
        ..
    } = target;
    tracing::warn!(%endpoint, %upstream, tool = &***name, why, "policy evaluation failed, access denied");
}
