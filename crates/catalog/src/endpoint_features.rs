//! The features of an endpoint, from the descriptions of its upstreams.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::time::timeout;
use weir_core::capability::CapabilityClass;
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::principal::Principal;
use weir_core::upstream::{ListKind, ListKinds, ServerDescription};

use crate::Catalog;
use crate::catalog_source::CatalogSource;
use crate::list_changes::ListChange;

impl Catalog {
    /// The server information of those of an endpoint's upstreams that are open and, under rules,
    /// have an item that the principal sees, in config order. Upstreams never reached are absent.
    #[must_use]
    pub fn about(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        principal: &Principal,
    ) -> Vec<(UpstreamId, Arc<ServerDescription>)> {
        let visible = self.visible_upstreams(endpoint, class, principal);
        let layout = self.layout.load();
        let about = |source: &Arc<CatalogSource>| {
            let id = source.id();
            let is_shown = self.closed(id).is_none()
                && visible.as_ref().is_none_or(|visible| visible.contains(id));
            let about = source.description(class).filter(|_| is_shown);
            about.map(|about| (id.clone(), about))
        };
        let sources = layout.sources_of(endpoint).iter();
        sources.filter_map(about).collect()
    }

    /// The upstreams with an item that the principal sees; no value if it sees all items.
    pub(super) fn visible_upstreams(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        principal: &Principal,
    ) -> Option<HashSet<UpstreamId>> {
        self.audience(endpoint, principal)?;
        let views = list_classes(class)
            .filter_map(|(kind, class)| self.visible_view(endpoint, kind, class, principal));
        let mut upstreams = HashSet::new();
        for view in views {
            for item in view.items.iter() {
                if !upstreams.contains(&item.tool.upstream) {
                    upstreams.insert(item.tool.upstream.clone());
                }
            }
        }
        Some(upstreams)
    }

    /// True if an endpoint has this list for clients of a class: some upstream offers it, once
    /// offered it, or is still unknown.
    #[must_use]
    pub fn offers(&self, endpoint: &EndpointId, kind: ListKind, class: CapabilityClass) -> bool {
        let layout = self.layout.load();
        let mut sources = layout.sources_of(endpoint).iter();
        sources.any(|source| offers(source, kind, class))
    }

    /// True if the server of a transparent endpoint has a list that it does not declare. The server
    /// is asked for the list, and from then on with every walk; clients of the class then see it.
    /// False if the server does not answer within [`super::CatalogSettings::first_list_wait`] or
    /// cannot be asked, and always for an aggregating endpoint. Cancel safe.
    pub async fn offers_undeclared(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
    ) -> bool {
        let (source, list_view) = (
            self.only_source(endpoint),
            self.list_view(endpoint, kind, class),
        );
        let (Some(source), Some(list_view)) = (source, list_view) else {
            return false;
        };
        let mut built = list_view.view_changes.watch();
        let listing = async {
            source.ask_undeclared(kind).await;
            let offers = source.base().snapshot().list(kind).offers;
            // The view of this class is built a moment later, and after a walk of its own.
            while offers
                && !list_view.view().is_asked_for
                && built.changed().await == ListChange::Changed
            {}
            offers
        };
        timeout(self.context.settings.first_list_wait, listing)
            .await
            .unwrap_or(false)
    }

    /// The lists without change notifications: those for which the server of a transparent endpoint
    /// declares none. An aggregating endpoint announces all, since weir looks for changes itself.
    #[must_use]
    pub fn lists_without_notifications(&self, endpoint: &EndpointId) -> ListKinds {
        let about = self
            .only_source(endpoint)
            .and_then(|source| source.base().snapshot().about.clone());
        about.map_or_else(ListKinds::default, |about| about.notifies_of.others())
    }

    /// True if an endpoint shows one server as it is.
    #[must_use]
    pub fn is_transparent(&self, endpoint: &EndpointId) -> bool {
        let layout = self.layout.load();
        layout
            .endpoint_lists
            .get(endpoint)
            .is_some_and(|lists| lists.endpoint.mode.is_transparent())
    }

    /// True if an upstream of the endpoint completes arguments for clients of a class, or is still
    /// unknown.
    #[must_use]
    pub fn completes(&self, endpoint: &EndpointId, class: CapabilityClass) -> bool {
        self.any_upstream(endpoint, class, completes)
    }

    /// True if an upstream of the endpoint announces updates of single resources, or is still
    /// unknown.
    #[must_use]
    pub fn subscribes(&self, endpoint: &EndpointId) -> bool {
        self.any_upstream(endpoint, CapabilityClass::BASE, subscribes)
    }

    /// True if calls of clients of a class to an upstream of the endpoint can become tasks. An
    /// upstream that is still unknown counts as one without tasks.
    #[must_use]
    pub fn has_tasks(&self, endpoint: &EndpointId, class: CapabilityClass) -> bool {
        self.any_upstream(endpoint, class, has_tasks)
    }

    /// True if an upstream of the endpoint can have a task of a client of a class, or is still
    /// unknown: a client may ask for a task that it began before this process did.
    #[must_use]
    pub fn may_have_tasks(&self, endpoint: &EndpointId, class: CapabilityClass) -> bool {
        self.any_upstream(endpoint, class, |about| {
            about.is_none_or(|about| about.tasks)
        })
    }

    /// See [`is_described`], for any upstream of the endpoint.
    fn any_upstream(
        &self,
        endpoint: &EndpointId,
        class: CapabilityClass,
        fits: impl Fn(Option<&ServerDescription>) -> bool,
    ) -> bool {
        let layout = self.layout.load();
        let mut sources = layout.sources_of(endpoint).iter();
        sources.any(|source| is_described(source, class, &fits))
    }

    /// The one upstream of a transparent endpoint.
    fn only_source(&self, endpoint: &EndpointId) -> Option<Arc<CatalogSource>> {
        let layout = self.layout.load();
        let lists = layout
            .endpoint_lists
            .get(endpoint)
            .filter(|lists| lists.endpoint.mode.is_transparent())?;
        lists.sources.first().cloned()
    }
}

/// The lists, each with the class whose view stands for all classes. Few servers list other prompts
/// and resources to clients of a class.
pub(super) fn list_classes(
    class: CapabilityClass,
) -> impl Iterator<Item = (ListKind, CapabilityClass)> {
    ListKind::ALL.into_iter().map(move |kind| match kind {
        ListKind::Tools => (kind, class),
        ListKind::Prompts | ListKind::Resources | ListKind::Templates => {
            (kind, CapabilityClass::BASE)
        }
    })
}

/// True if an upstream has this list for clients of a class, once had it, or is still unknown. A
/// client with sessions has the list also if the server gives it in sessions or without them alone.
pub(super) fn offers(source: &CatalogSource, kind: ListKind, class: CapabilityClass) -> bool {
    let is_offered = {
        let snapshot = source.base().peek();
        snapshot.list(kind).offers || snapshot.about.is_none()
    };
    is_offered
        || source
            .session_feed(class)
            .is_some_and(|feed| feed.peek().list(kind).offers)
}

/// True if a description of an upstream fits: that for clients of the class, or that for clients
/// without sessions. The latter is absent for an upstream that is still unknown.
pub(super) fn is_described(
    source: &CatalogSource,
    class: CapabilityClass,
    fits: impl Fn(Option<&ServerDescription>) -> bool,
) -> bool {
    fits(source.base().peek().about.as_deref())
        || source.session_feed(class).is_some_and(|feed| {
            let snapshot = feed.peek();
            snapshot.about.is_some() && fits(snapshot.about.as_deref())
        })
}

pub(super) fn completes(about: Option<&ServerDescription>) -> bool {
    about.is_none_or(|about| about.completes)
}

pub(super) fn subscribes(about: Option<&ServerDescription>) -> bool {
    about.is_none_or(|about| about.subscribes)
}

pub(super) fn has_tasks(about: Option<&ServerDescription>) -> bool {
    about.is_some_and(|about| about.tasks)
}
