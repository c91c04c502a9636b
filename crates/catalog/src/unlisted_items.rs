//! Items of upstreams that no list shows.

use std::sync::Arc;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::tool::Tool;
use weir_core::upstream::ListKind;

use super::Catalog;

impl Catalog {
    /// A tool that no list shows any more, of an upstream of the endpoint: tasks of it may still
    /// run.
    #[must_use]
    pub fn removed_tool(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        exposed: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout.source_of(endpoint, upstream)?;
        let tool = Arc::new(Tool::unlisted(upstream, exposed));
        let (terms, listed_without) = (source.rules().of(exposed), CapabilityClass::BASE);
        Some(CatalogItem {
            exposed: exposed.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// A method that no revision knows, at an upstream of the endpoint. It takes the scopes of all
    /// tools of that upstream, since it may do the same as any of them.
    #[must_use]
    pub fn of_method(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        name: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout.source_of(endpoint, upstream)?;
        let tool = Arc::new(Tool::of_method(upstream, name));
        let (terms, listed_without) = (source.rules().of_methods(), CapabilityClass::BASE);
        Some(CatalogItem {
            exposed: name.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// A resource that no list shows, of an upstream that has resources or may have.
    #[must_use]
    pub fn unlisted_resource(
        &self,
        upstream: &UpstreamId,
        exposed: &str,
        native: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout.by_id.get(upstream)?;
        let snapshot = source.base().snapshot();
        let may_have = [ListKind::Resources, ListKind::Templates]
            .iter()
            .any(|kind| snapshot.list(*kind).offers);
        (may_have || snapshot.about.is_none()).then(|| CatalogItem {
            exposed: exposed.into(),
            tool: Arc::new(Tool::unlisted(upstream, native)),
            terms: source.rules().of(native),
            listed_without: CapabilityClass::BASE,
        })
    }
}
