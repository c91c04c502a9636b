//! The features of an endpoint for one principal: those of the upstreams that rules do not hide from
//! it.

use std::collections::HashSet;
use std::sync::Arc;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::Endpoint;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::port::Visibility;
use weir_core::principal::Principal;
use weir_core::upstream::{DeclaredExtension, ListKind, ServerDescription};

use crate::Catalog;
use crate::catalog_source::CatalogSource;
use crate::endpoint_features::{
    completes, has_tasks, is_described, list_classes, offers, subscribes,
};
use weir_items::ListEntry;

/// The features that an endpoint declares to a principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedFeatures {
    /// A list of tools.
    pub tools: bool,
    /// A list of prompts.
    pub prompts: bool,
    /// A list of resources.
    pub resources: bool,
    /// Announcements of updates of single resources.
    pub subscribes: bool,
    /// Completion of arguments.
    pub completes: bool,
    /// Calls that become tasks.
    pub tasks: bool,
    /// Tools with interfaces (MCP Apps).
    pub apps: bool,
    /// The extensions of the one upstream of a transparent endpoint. An aggregating endpoint has
    /// none, since weir could not find the upstream that a message is for.
    pub extensions: Vec<DeclaredExtension>,
}

impl Catalog {
    /// The features of an endpoint for a principal. An upstream counts also while it is down or
    /// disabled: a client reads the features once, and an upstream comes back.
    #[must_use]
    pub fn offered_features(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        principal: &Principal,
    ) -> OfferedFeatures {
        let hidden = self.hidden_upstreams(endpoint, class, principal);
        let layout = self.layout.load();
        let sources = layout.sources_of(endpoint).iter();
        let counted: Vec<_> = sources
            .filter(|source| !hidden.contains(source.id()))
            .collect();
        let has_list = |kind| counted.iter().any(|source| offers(source, kind, class));
        let has = |class, fits: &dyn Fn(Option<&ServerDescription>) -> bool| {
            counted
                .iter()
                .any(|source| is_described(source, class, fits))
        };
        let extensions = match &counted[..] {
            [only] if self.is_transparent(endpoint) => {
                let snapshot = only.base().peek();
                let about = snapshot.about.as_ref();
                about
                    .map(|about| about.extensions.clone())
                    .unwrap_or_default()
            }
            _ => Vec::new(),
        };
        OfferedFeatures {
            tools: has_list(ListKind::Tools),
            prompts: has_list(ListKind::Prompts),
            resources: has_list(ListKind::Resources),
            // weir subscribes in the era without sessions.
            subscribes: has(CapabilityClass::BASE, &subscribes),
            completes: has(class, &completes),
            tasks: has(class, &has_tasks),
            apps: has(class, &|about| about.is_some_and(|about| about.apps)),
            extensions,
        }
    }

    /// The upstreams with items that rules all hide from the principal. An upstream without items is
    /// none of them, nor is one with an item that takes further scopes.
    fn hidden_upstreams(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        principal: &Principal,
    ) -> HashSet<UpstreamId> {
        let Some(visible) = self.visible_upstreams(endpoint, class, principal) else {
            return HashSet::new();
        };
        let is_hidden = |item: &CatalogItem| {
            let authorizer = &self.context.ports.authorizer;
            authorizer.may_see(principal, endpoint, item) == Visibility::Hidden
        };
        let (mut hidden, mut reachable) = (HashSet::new(), HashSet::new());
        let views =
            list_classes(class).filter_map(|(kind, class)| self.view(endpoint, kind, class));
        for view in views {
            for item in view.items.iter() {
                let upstream = &item.tool.upstream;
                if visible.contains(upstream) || reachable.contains(upstream) {
                    continue;
                }
                // Only an item that takes scopes can be out of sight for want of them.
                if !item.terms.scopes.is_empty() && !is_hidden(item) {
                    reachable.insert(upstream.clone());
                } else if !hidden.contains(upstream) {
                    hidden.insert(upstream.clone());
                }
            }
        }
        hidden.retain(|upstream| !reachable.contains(upstream));
        let layout = self.layout.load();
        let Some(lists) = layout.endpoint_lists.get(endpoint) else {
            return hidden;
        };
        // No view has the items of a disabled upstream.
        let disabled = lists
            .sources
            .iter()
            .filter(|source| self.closed(source.id()).is_some());
        for source in disabled {
            let mut items = last_items(source, &lists.endpoint).peekable();
            if items.peek().is_some() && items.all(|item| is_hidden(&item)) {
                hidden.insert(source.id().clone());
            }
        }
        hidden
    }
}

/// The last known items of an upstream on an endpoint, each under the first of its names.
fn last_items<'a>(
    source: &Arc<CatalogSource>,
    endpoint: &'a Endpoint,
) -> impl Iterator<Item = CatalogItem> + use<'a> {
    let (snapshot, rules) = (source.base().snapshot(), source.rules());
    let tools: Vec<_> = ListKind::ALL
        .into_iter()
        .flat_map(|kind| snapshot.list(kind).items.iter().cloned())
        .collect();
    tools.into_iter().filter_map(move |tool| {
        let entry = ListEntry::new(endpoint, &tool, &rules)?;
        let name = entry.name.clone();
        Some(entry.named(name))
    })
}
