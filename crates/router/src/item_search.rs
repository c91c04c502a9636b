//! The search for the item that a call names, among the lists that its sender sees.

use std::borrow::Cow;
use std::sync::Arc;

use weir_catalog::{
    Catalog, IncompleteReason, IncompleteUpstream, NameLookup, SessionClient, View,
};
use weir_core::call::Call;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::{EndpointMode, NamePrefix};
use weir_core::failure::{Failure, FailureKind};
use weir_core::names::{UpstreamId, exposed_uri};
use weir_core::port::{Authorizer, Visibility};
use weir_core::principal::Principal;
use weir_core::upstream::ListKind;

use crate::target::{self, CallTarget};

/// The search among the lists of a catalog.
pub(super) struct ItemSearch<'a> {
    pub(super) catalog: &'a Arc<Catalog>,
    pub(super) authorizer: &'a dyn Authorizer,
}

impl ItemSearch<'_> {
    /// The item that a call names, as its sender sees it.
    pub(super) async fn find_item(
        &self,
        principal: &Principal,
        call: &Call,
    ) -> Result<CatalogItem, Failure> {
        if let Some(name) = &call.extension {
            let item = self.extension_item(principal, call, name)?;
            return self.unless_closed(item);
        }
        let target = target::of(call)?;
        let CallTarget { kind, ref name } = target;
        let gone = || {
            Failure::new(
                FailureKind::Unavailable,
                "This endpoint is not served any more",
            )
        };
        let mut views =
            ViewForPrincipal::of(self.catalog, principal, call, kind).ok_or_else(gone)?;
        // A refusal for want of scopes is certain now, and waits for nothing: its status and its
        // challenge go with the head of a response, which becomes a stream after a wait.
        let may_change = match views.seen.find(name) {
            // Another server may have an item of this name, too.
            NameLookup::Native(_) if !views.whole.settled => true,
            NameLookup::Exposed(_) if !views.whole.settled && self.has_bare_names(call) => true,
            NameLookup::Exposed(item) | NameLookup::Native(item) => {
                is_of_other_era(call, &views.whole, item)
            }
            NameLookup::Ambiguous | NameLookup::Unknown => {
                (!views.whole.settled || self.catalog.may_be_behind())
                    && self.missing_scopes(principal, call, &views, name).is_none()
            }
        };
        if may_change {
            // Right after a start, and while another replica has newer lists, the item may be there
            // in a moment.
            self.catalog
                .settled_view(&call.endpoint, kind, call.capabilities.class)
                .await;
            views = ViewForPrincipal::of(self.catalog, principal, call, kind).ok_or_else(gone)?;
        }
        let shared = views.seen.find(name).item().cloned();
        let may_differ = match &shared {
            Some(_) => self.catalog.has_differing_sessions(),
            // An item that is hidden from the sender is not unknown: no session is asked for it.
            None => views.whole.find(name).item().is_none(),
        };
        let client = call
            .session
            .filter(|_| may_differ)
            .map(|session| SessionClient {
                endpoint: &call.endpoint,
                class: call.capabilities.class,
                principal,
                session,
            });
        let found = match (client, shared) {
            (Some(client), Some(shared)) => {
                self.catalog.shared_item_in_session(&client, kind, shared)
            }
            (Some(client), None) => {
                let searching = self
                    .catalog
                    .own_item_of_session(&client, &views.whole, kind, name);
                Box::pin(searching).await
            }
            (None, shared) => shared,
        };
        let found = found.or_else(|| match kind {
            // No list has every resource of a server.
            ListKind::Resources => self.unlisted(principal, call, name, &views.whole),
            // A completion names a template, or a single resource by its URI.
            ListKind::Templates => self.listed_resource(principal, call, name),
            ListKind::Tools | ListKind::Prompts => None,
        });
        let is_sole = |item: &CatalogItem| {
            *item.exposed == **name
                || !self
                    .catalog
                    .has_absent_namesake(&call.endpoint, principal, &views.whole, item)
        };
        match found.filter(is_sole) {
            Some(item) => self.unless_closed(item),
            None => Err(self.hidden_item_failure(principal, call, &views, &target)),
        }
    }

    /// True if the endpoint names items without a prefix, so that the list of one server can rename
    /// those of another.
    fn has_bare_names(&self, call: &Call) -> bool {
        let endpoint = self.catalog.endpoint(&call.endpoint);
        endpoint.is_some_and(|endpoint| match &endpoint.mode {
            EndpointMode::Aggregate { prefix, .. } => *prefix == NamePrefix::None,
            EndpointMode::Transparent(_) => false,
        })
    }

    /// Returns an item, unless an operator took its upstream out: the view may be older than that.
    fn unless_closed(&self, item: CatalogItem) -> Result<CatalogItem, Failure> {
        self.catalog
            .closed_failure(&item.tool.upstream)
            .map_or(Ok(item), Err)
    }

    /// The item of a method that no revision knows: the one upstream of a transparent endpoint. The
    /// effect of the method is unknown to weir, so it passes only if no item of that upstream is
    /// hidden from its sender.
    fn extension_item(
        &self,
        principal: &Principal,
        call: &Call,
        name: &str,
    ) -> Result<CatalogItem, Failure> {
        let none = || Failure::new(FailureKind::MethodNotFound, "This method is not served");
        let endpoint = self.catalog.endpoint(&call.endpoint).ok_or_else(none)?;
        let EndpointMode::Transparent(upstream) = &endpoint.mode else {
            return Err(none());
        };
        let authorizer = self.authorizer;
        if endpoint.tools.is_some() || !authorizer.permits_all(principal, &call.endpoint, upstream)
        {
            return Err(none());
        }
        // Scopes of single tools are scopes of the item.
        let is_seen = |item: &CatalogItem| {
            authorizer.may_see(principal, &call.endpoint, item) == Visibility::Visible
        };
        self.catalog
            .of_method(&call.endpoint, upstream, name)
            .filter(is_seen)
            .ok_or_else(none)
    }

    /// A resource of the list that the sender sees.
    fn listed_resource(
        &self,
        principal: &Principal,
        call: &Call,
        uri: &str,
    ) -> Option<CatalogItem> {
        let resources = ViewForPrincipal::of(self.catalog, principal, call, ListKind::Resources)?;
        resources.seen.find(uri).item().cloned()
    }

    /// A resource that no list shows: servers may have more than they list, and a template stands
    /// for many. Its URI names the upstream, or else a template that fits.
    fn unlisted(
        &self,
        principal: &Principal,
        call: &Call,
        uri: &str,
        resources: &View,
    ) -> Option<CatalogItem> {
        let endpoint = self.catalog.endpoint(&call.endpoint)?;
        if resources.kept_names().contains_key(uri) {
            return None;
        }
        let (upstream, native) = match &endpoint.mode {
            EndpointMode::Transparent(upstream) => (upstream.clone(), uri.to_owned()),
            EndpointMode::Aggregate { upstreams, .. } => {
                match exposed_uri::split_exposed(uri).filter(|(id, _)| upstreams.contains(id)) {
                    Some(own) => own,
                    None => {
                        let templates = ViewForPrincipal::of(
                            self.catalog,
                            principal,
                            call,
                            ListKind::Templates,
                        )?
                        .seen;
                        let fitting = templates
                            .items
                            .iter()
                            .find(|item| exposed_uri::matches_template(&item.exposed, uri))?;
                        let upstream = &fitting.tool.upstream;
                        let mut earlier = upstreams.iter().take_while(|id| *id != upstream);
                        if earlier.any(|id| self.fits_kept_template(principal, call, id, uri)) {
                            return None;
                        }
                        (upstream.clone(), uri.to_owned())
                    }
                }
            }
        };
        // A listed resource has the same rules under all of its names.
        let is_listed =
            |item: &&CatalogItem| *item.tool.native == *native && item.tool.upstream == upstream;
        let item = match resources.items.iter().find(is_listed) {
            Some(listed) => listed.clone(),
            None => self.catalog.unlisted_resource(&upstream, uri, &native)?,
        };
        let visibility = self.authorizer.may_see(principal, &call.endpoint, &item);
        (visibility == Visibility::Visible).then_some(item)
    }

    /// The failure for a name without a visible item: further scopes may show it.
    fn hidden_item_failure(
        &self,
        principal: &Principal,
        call: &Call,
        views: &ViewForPrincipal,
        target: &CallTarget<'_>,
    ) -> Failure {
        if let Some(scopes) = self.missing_scopes(principal, call, views, &target.name) {
            return Failure::new(
                FailureKind::InsufficientScope(scopes),
                "This takes scopes that your token lacks",
            );
        }
        let Some(hidden) = views.whole.find(&target.name).item() else {
            return self.missing_item_failure(principal, call, &views.whole, target);
        };
        // A hidden item looks like one that does not exist.
        let decided = self.authorizer.may_call(principal, call, hidden);
        let rule = decided.err().and_then(|failure| failure.rule().cloned());
        target::unknown(target).forbidden_by(rule)
    }

    /// The scopes that would show a hidden item to its caller.
    fn missing_scopes(
        &self,
        principal: &Principal,
        call: &Call,
        views: &ViewForPrincipal,
        name: &str,
    ) -> Option<Arc<[Arc<str>]>> {
        let item = views.whole.find(name).item()?;
        match self.authorizer.may_see(principal, &call.endpoint, item) {
            Visibility::NeedsScopes(scopes) => Some(scopes),
            Visibility::Hidden | Visibility::Visible => None,
        }
    }

    /// The failure for a name that no item has now. If it is of an upstream whose lists are not shown,
    /// the failure is that one: at "unknown tool" a model would give it up for good. It takes a rule
    /// that lets the caller see an item of this name.
    fn missing_item_failure(
        &self,
        principal: &Principal,
        call: &Call,
        whole: &View,
        target: &CallTarget<'_>,
    ) -> Failure {
        let is_absent = |missing: &&IncompleteUpstream| missing.reason.hides_items();
        let mut absent = whole.missing.iter().filter(is_absent);
        let is_seen = |missing: &&IncompleteUpstream| {
            self.may_have(principal, call, &missing.upstream, target)
                || target.kind == ListKind::Resources
                    && self.fits_kept_template(principal, call, &missing.upstream, &target.name)
        };
        match absent.find(is_seen) {
            Some(IncompleteUpstream { upstream, .. }) => {
                self.catalog.closed_failure(upstream).unwrap_or_else(|| {
                    let text = "The server that has this cannot be reached now; try again later";
                    Failure::new(FailureKind::Unavailable, text).with_upstream(upstream)
                })
            }
            None => target::unknown(target),
        }
    }

    /// True if a URI fits a template of an upstream that is away, and the sender may see that one.
    fn fits_kept_template(
        &self,
        principal: &Principal,
        call: &Call,
        upstream: &UpstreamId,
        uri: &str,
    ) -> bool {
        let (kind, class) = (ListKind::Templates, call.capabilities.class);
        let Some(templates) = self.catalog.view(&call.endpoint, kind, class) else {
            return false;
        };
        let is_seen = |template: &str| {
            let name = Cow::Borrowed(template);
            self.may_have(principal, call, upstream, &CallTarget { kind, name })
        };
        let mut kept = templates.kept_names().iter();
        kept.any(|(template, id)| {
            id == upstream && exposed_uri::matches_template(template, uri) && is_seen(template)
        })
    }

    /// The upstreams in service that may have the item of a call that failed for want of it, though
    /// their lists do not show it. Only those of which the sender may see an item of this name.
    pub(super) fn upstreams_with_unlisted(
        &self,
        principal: &Principal,
        call: &Call,
        failure: &Failure,
    ) -> Vec<UpstreamId> {
        let is_unknown_item = matches!(
            failure.kind(),
            FailureKind::InvalidParams | FailureKind::UnknownResource(_)
        );
        let endpoint = self.catalog.endpoint(&call.endpoint);
        let (true, Some(endpoint), Ok(target)) = (is_unknown_item, endpoint, target::of(call))
        else {
            return Vec::new();
        };
        let may_have = |upstream: &&UpstreamId| {
            self.catalog.closed_failure(upstream).is_none()
                && self.may_have(principal, call, upstream, &target)
        };
        let upstreams = endpoint.mode.upstreams().iter();
        upstreams.filter(may_have).cloned().collect()
    }

    /// True if an upstream may have an item that its lists do not show, and the sender may see it.
    fn may_have(
        &self,
        principal: &Principal,
        call: &Call,
        upstream: &UpstreamId,
        target: &CallTarget<'_>,
    ) -> bool {
        let endpoint = &call.endpoint;
        let item = self
            .catalog
            .absent_item(endpoint, upstream, target.kind, &target.name);
        item.is_some_and(|item| {
            let visibility = self.authorizer.may_see(principal, endpoint, &item);
            visibility == Visibility::Visible
        })
    }
}

/// True for an item of a list that stands in for the list that the server gives in a session: that
/// list tells if the call is to be made in one.
fn is_of_other_era(call: &Call, whole: &View, item: &CatalogItem) -> bool {
    let is_pending = |missing: &IncompleteUpstream| {
        missing.reason == IncompleteReason::Pending && missing.upstream == item.tool.upstream
    };
    !whole.settled
        && call.capabilities.class.has(CapabilityClass::SESSIONS)
        && whole.missing.iter().any(is_pending)
}

/// The list of an endpoint, and the part of it that the sender sees.
pub(super) struct ViewForPrincipal {
    pub(super) whole: Arc<View>,
    pub(super) seen: Arc<View>,
}

impl ViewForPrincipal {
    /// The present lists of a kind; absent if the endpoint is gone.
    pub(super) fn of(
        catalog: &Catalog,
        principal: &Principal,
        call: &Call,
        kind: ListKind,
    ) -> Option<Self> {
        let whole = catalog.view(&call.endpoint, kind, call.capabilities.class)?;
        let seen = catalog.visible_part(&call.endpoint, whole.clone(), principal);
        Some(Self { whole, seen })
    }
}
