//! The names on an endpoint of the URIs in an upstream's results.

use std::sync::Arc;

use weir_catalog::{Catalog, is_uri_of_other};
use weir_core::call::Call;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::{Endpoint, EndpointMode, NamePrefix};
use weir_core::names::{EndpointId, UpstreamId, exposed_uri};
use weir_core::upstream::ListKind;

/// The names of one upstream's URIs.
#[derive(Clone)]
pub(super) struct UriNames {
    pub(super) upstream: UpstreamId,
    /// Absent if every URI gets the prefix.
    bare: Option<BareUris>,
}

/// The lists that decide the upstream of a URI without a prefix.
#[derive(Clone)]
struct BareUris {
    catalog: Arc<Catalog>,
    endpoint: EndpointId,
    class: CapabilityClass,
}

impl UriNames {
    /// The names that all have the prefix of an upstream.
    pub(super) fn prefixed(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            bare: None,
        }
    }

    /// The names for results of an item; absent if the endpoint renames no URIs.
    pub(super) fn of(
        catalog: &Arc<Catalog>,
        endpoint: &Endpoint,
        item: &CatalogItem,
        call: &Call,
    ) -> Option<Self> {
        let upstream = item.tool.upstream.clone();
        match &endpoint.mode {
            EndpointMode::Transparent(_) => None,
            EndpointMode::Aggregate {
                prefix: NamePrefix::Always,
                ..
            } => Some(Self::prefixed(upstream)),
            EndpointMode::Aggregate { upstreams, .. } => (upstreams.len() > 1).then(|| Self {
                upstream,
                bare: Some(BareUris {
                    catalog: catalog.clone(),
                    endpoint: endpoint.id.clone(),
                    class: call.capabilities.class,
                }),
            }),
        }
    }

    /// The name of a URI, if it is another than the URI itself.
    pub(super) fn name(&self, native: &str) -> Option<String> {
        let leads_elsewhere = |bare: &BareUris| bare.leads_elsewhere(&self.upstream, native);
        self.bare
            .as_ref()
            .is_none_or(leads_elsewhere)
            .then(|| exposed_uri::expose(&self.upstream, native))
    }
}

impl BareUris {
    /// True if a read of the URI could reach another upstream: by the beginning of the URI, the
    /// list of resources, or a template.
    fn leads_elsewhere(&self, upstream: &UpstreamId, uri: &str) -> bool {
        let Some(endpoint) = self.catalog.endpoint(&self.endpoint) else {
            return false;
        };
        if is_uri_of_other(&endpoint.mode, upstream, uri) {
            return true;
        }
        let view = |kind| self.catalog.view(&self.endpoint, kind, self.class);
        let listed = view(ListKind::Resources).and_then(|view| {
            let item = view.find(uri).item().map(|item| &item.tool.upstream);
            item.or_else(|| view.kept_names().get(uri)).cloned()
        });
        if let Some(listed) = listed {
            return listed != *upstream;
        }
        view(ListKind::Templates).is_some_and(|templates| {
            let shown = templates.items.iter();
            let shown = shown.map(|item| (&item.exposed, &item.tool.upstream));
            let mut all = shown.chain(templates.kept_names());
            all.any(|(template, id)| id != upstream && exposed_uri::matches_template(template, uri))
        })
    }
}
