//! Lists as a principal sees them: the visible part of a view, and the announcements of its
//! changes.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::EndpointId;
use weir_core::port::Audience;
use weir_core::principal::Principal;
use weir_core::upstream::ListKind;

use crate::Catalog;
use crate::filtered_views::PrincipalVisibility;
use crate::list_changes::{ChangeReceiver, ListChange};
use crate::view::{ChangeCount, EMPTY_VIEW, View};

impl Catalog {
    /// The part of an endpoint's list that a principal sees now, without waiting.
    #[must_use]
    pub fn visible_view(
        &self,
        endpoint: &EndpointId,
        kind: ListKind,
        class: CapabilityClass,
        principal: &Principal,
    ) -> Option<Arc<View>> {
        self.view(endpoint, kind, class)
            .map(|whole| self.visible_part(endpoint, whole, principal))
    }

    /// Announcements of changes of the list that a principal sees, from now on. Changes of hidden
    /// items are not announced.
    #[must_use]
    pub fn watch_list(
        self: &Arc<Self>,
        endpoint: &EndpointId,
        class: CapabilityClass,
        kind: ListKind,
        principal: &Principal,
    ) -> ViewWatch {
        let changes = self.changes(endpoint, class, kind);
        let mut watching = ViewWatch {
            changes,
            catalog: self.clone(),
            endpoint: endpoint.clone(),
            kind,
            class,
            principal: principal.clone(),
            last: ContentVersion::default(),
            change_count: None,
            repeats: 0,
            is_resumed: false,
        };
        (watching.last, watching.change_count, watching.repeats) = watching.now();
        watching
    }

    /// Announces that the visibility rules changed: clients that see another list than before are
    /// notified.
    pub fn announce_rule_change(&self) {
        self.layout
            .load()
            .endpoint_lists
            .values()
            .for_each(|lists| lists.list_views.announce_all());
    }

    /// The audience for [`crate::cursor::CursorScope`]: a cursor is good only as long as its owner
    /// sees the same list.
    pub(super) fn audience(
        &self,
        endpoint: &EndpointId,
        principal: &Principal,
    ) -> Option<Audience> {
        self.context.ports.authorizer.audience(principal, endpoint)
    }

    /// The part of `whole` that the principal sees.
    #[must_use]
    pub fn visible_part(
        &self,
        endpoint: &EndpointId,
        whole: Arc<View>,
        principal: &Principal,
    ) -> Arc<View> {
        let Some(audience) = self.audience(endpoint, principal) else {
            return whole;
        };
        let visibility = PrincipalVisibility {
            authorizer: &*self.context.ports.authorizer,
            endpoint,
            principal,
        };
        self.filtered_views.part_of(whole, audience, &visibility)
    }
}

/// The receiver of [`Catalog::watch_list`]. Cheap enough for tens of thousands: no task or channel.
pub struct ViewWatch {
    changes: ChangeReceiver,
    catalog: Arc<Catalog>,
    endpoint: EndpointId,
    kind: ListKind,
    class: CapabilityClass,
    principal: Principal,
    /// The version that the client saw when it was last notified.
    last: ContentVersion,
    /// The server's notifications up to then.
    change_count: Option<ChangeCount>,
    /// The repeated notifications up to then.
    repeats: u64,
    /// True until the list is compared with the one of which an earlier watch notified.
    is_resumed: bool,
}

impl ViewWatch {
    /// The next change of the list that the principal sees, for a caller that is polled itself.
    pub fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<ListChange> {
        if std::mem::take(&mut self.is_resumed) && self.take_change() {
            return Poll::Ready(ListChange::Changed);
        }
        loop {
            match self.changes.poll_changed(cx) {
                Poll::Ready(ListChange::Changed) if self.take_change() => {
                    return Poll::Ready(ListChange::Changed);
                }
                Poll::Ready(ListChange::Changed) => {}
                end @ (Poll::Ready(ListChange::EndpointGone) | Poll::Pending) => return end,
            }
        }
    }

    /// Notes the list as it is now. True if its client is to be notified.
    fn take_change(&mut self) -> bool {
        let (version, change_count, repeats) = self.now();
        let is_repeated = repeats > std::mem::replace(&mut self.repeats, repeats);
        let before = std::mem::replace(&mut self.change_count, change_count);
        let has_changed = is_repeated | ChangeCount::has_grown_since(change_count, before);
        std::mem::replace(&mut self.last, version) != version || has_changed
    }

    /// The version that the client knows, once it was notified of the last change.
    #[must_use]
    pub fn last(&self) -> ContentVersion {
        self.last
    }

    /// Continues from the version of an earlier watch: another one at the next poll is a change.
    pub fn resume_from(&mut self, notified: ContentVersion) {
        (self.last, self.is_resumed) = (notified, true);
    }

    fn now(&self) -> (ContentVersion, Option<ChangeCount>, u64) {
        let seen =
            self.catalog
                .visible_view(&self.endpoint, self.kind, self.class, &self.principal);
        let seen = seen.unwrap_or_else(|| EMPTY_VIEW.clone());
        (seen.content(), seen.change_count, seen.repeat_count())
    }
}

impl fmt::Debug for ViewWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewWatch({} of {})", self.endpoint, self.principal)
    }
}
