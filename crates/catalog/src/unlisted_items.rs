//! Items of upstreams that no list shows.

use std::sync::Arc;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Visibility;
use weir_core::principal::Principal;
use weir_core::server_item::ServerItem;
use weir_core::upstream::ListKind;

use crate::Catalog;
use crate::catalog_source::CatalogSource;
use crate::view::View;
use weir_items::{ListEntry, names};

impl Catalog {
    /// A tool that no list shows any more, of an upstream of the endpoint, or of one that a reload
    /// has removed and that still ends: tasks of it may still run.
    #[must_use]
    pub fn removed_tool(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        exposed: &str,
    ) -> Option<CatalogItem> {
        let source = self.present_or_ending(endpoint, upstream)?;
        let tool = Arc::new(ServerItem::unlisted(upstream, exposed));
        let (terms, listed_without) = (source.rules().of(exposed), CapabilityClass::BASE);
        Some(CatalogItem {
            exposed: exposed.into(),
            tool,
            terms,
            listed_without,
        })
    }

    /// The sender of a message outside of calls: an upstream of the endpoint, or one that a reload
    /// has removed and that still ends.
    #[must_use]
    pub fn of_message(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        method: &str,
    ) -> Option<CatalogItem> {
        let source = self.present_or_ending(endpoint, upstream)?;
        Some(method_item(&source, method))
    }

    fn present_or_ending(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
    ) -> Option<Arc<CatalogSource>> {
        let layout = self.layout.load();
        let ending = || {
            let is_removed = !layout.by_id.contains_key(upstream);
            let ending = is_removed.then(|| self.retiring.source_of(endpoint, upstream));
            ending.flatten()
        };
        let present = layout.source_of(endpoint, upstream).cloned();
        present.or_else(ending)
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
        Some(method_item(source, name))
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
            tool: Arc::new(ServerItem::unlisted(upstream, native)),
            terms: source.rules().of(native),
            listed_without: CapabilityClass::BASE,
        })
    }

    /// The item that a name would mean on an endpoint, were the lists of an upstream shown there: the
    /// last known one, or else one of which only the name is known. Absent if the name is
    /// not of the upstream, or the endpoint does not select the item. For the rules alone: no call
    /// goes to it.
    #[must_use]
    pub fn absent_item(
        &self,
        endpoint: &EndpointId,
        upstream: &UpstreamId,
        kind: ListKind,
        name: &str,
    ) -> Option<CatalogItem> {
        let layout = self.layout.load();
        let source = layout.source_of(endpoint, upstream)?;
        let endpoint = &layout.endpoint_lists.get(endpoint)?.endpoint;
        let (snapshot, rules) = (source.base().snapshot(), source.rules());
        let view = self.view(&endpoint.id, kind, CapabilityClass::BASE)?;
        let reserved = &view.name_index.reserved;
        let is_alias = reserved.is_alias(kind, name);
        let entry = |tool: &Arc<ServerItem>| ListEntry::new(endpoint, tool, &rules);
        let means = |tool: &Arc<ServerItem>| {
            let is_native = *tool.native == *name && reserved.permits_native(tool);
            let (own, otherwise) = names(endpoint, tool);
            let is_own = *own == *name || otherwise.as_deref() == Some(name);
            // Entries take long to make for all tools of a large server.
            (is_native || is_own || is_alias)
                && entry(tool).is_some_and(|entry| is_native || entry.may_be_named(name))
        };
        let mut known = snapshot.list(kind).last_items().iter();
        let tool = match known.find(|tool| means(tool)) {
            Some(known) => known.clone(),
            None => Arc::new(ServerItem {
                kind,
                ..ServerItem::unlisted(upstream, &reserved.native_name(upstream, kind, name)?)
            }),
        };
        Some(entry(&tool)?.named(name.into()))
    }
}

impl Catalog {
    /// True if an upstream whose items `whole` does not show has an item with the native name of
    /// `item` that the principal may see, as far as its last list is known. Then the name means none
    /// of both, as if both lists were shown: a call must not reach another server because its own is
    /// down or disabled.
    #[must_use]
    pub fn has_absent_namesake(
        &self,
        endpoint: &EndpointId,
        principal: &Principal,
        whole: &View,
        item: &CatalogItem,
    ) -> bool {
        let ServerItem { kind, native, .. } = &*item.tool;
        let authorizer = &self.context.ports.authorizer;
        let absent = whole.missing.iter();
        absent
            .filter(|missing| missing.reason.hides_items())
            .filter_map(|missing| self.absent_item(endpoint, &missing.upstream, *kind, native))
            .any(|item| authorizer.may_see(principal, endpoint, &item) == Visibility::Visible)
    }
}

/// The item of a method at an upstream.
fn method_item(source: &CatalogSource, name: &str) -> CatalogItem {
    CatalogItem {
        exposed: name.into(),
        tool: Arc::new(ServerItem::of_method(source.id(), name)),
        terms: source.rules().of_methods(),
        listed_without: CapabilityClass::BASE,
    }
}
