//! The name of an updated resource for a subscriber.

use std::sync::Arc;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::EndpointMode;
use weir_core::names::exposed_uri;
use weir_core::port::Visibility;
use weir_core::upstream::ListKind;

use crate::catalog::Catalog;
use crate::resource_updates::subscription_table::ResourceSubscriber;

impl Catalog {
    /// The subscriber's name for an updated resource, if it may be notified.
    pub(crate) fn name_for_subscriber(
        &self,
        subscriber: &ResourceSubscriber,
        native: &Arc<str>,
    ) -> Option<Arc<str>> {
        let ResourceSubscriber {
            principal,
            endpoint,
            item,
            uri,
            ..
        } = subscriber;
        let authorizer = &*self.context.ports.authorizer;
        let sees = |item: &CatalogItem| {
            authorizer.may_see(principal, endpoint, item) == Visibility::Visible
        };
        // Rules may have changed since it subscribed, and the endpoint may be gone.
        let served = self
            .endpoint(endpoint)
            .filter(|served| served.mode.upstreams().contains(&item.tool.upstream))?;
        if !sees(item) {
            return None;
        }
        if *native == item.tool.native {
            return Some(uri.clone());
        }
        let exposed = match &served.mode {
            EndpointMode::Aggregate { .. } if item.exposed != item.tool.native => {
                exposed_uri::expose(&item.tool.upstream, native)
            }
            EndpointMode::Aggregate { .. } | EndpointMode::Transparent(_) => native.to_string(),
        };
        let listed = self.view(endpoint, ListKind::Resources, CapabilityClass::BASE);
        let listed = listed.and_then(|view| view.find(&exposed).item().cloned());
        let part = listed.or_else(|| self.unlisted_resource(&item.tool.upstream, &exposed, native));
        // A part that the subscriber may not see is announced as the whole.
        Some(match part.filter(sees) {
            Some(_) if **uri == *item.tool.native => native.clone(),
            Some(_) => exposed.into(),
            None => uri.clone(),
        })
    }
}
