//! The port of the versions of upstreams' lists that replicas share.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Fut, StoreError};
use crate::capability::CapabilityClass;
use crate::content_version::ContentVersion;
use crate::names::UpstreamId;

/// The name of the lists of one upstream for clients of one capability class. One walk reads them
/// all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListGroup {
    /// The upstream.
    pub upstream: UpstreamId,
    /// The class.
    pub class: CapabilityClass,
}

/// The lists of a group at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListDigests {
    /// The digest of each list, by [`crate::upstream::ListKind`].
    pub digests: [ContentVersion; 4],
    /// 0 if a replica walked for a reason of its own, else one more than those of the announcement
    /// that it walked for.
    pub hops: u8,
}

/// The newest announcement of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedLists {
    /// The version: greater than that of every earlier announcement of any group.
    pub version: u64,
    /// The lists.
    pub lists: ListDigests,
}

/// The newest announcement of each group.
pub type AnnouncementMap = HashMap<ListGroup, AnnouncedLists>;

/// The versions of upstreams' lists that replicas share. Lists themselves stay with each replica.
pub trait ListAnnouncements: Send + Sync {
    /// Announces the lists of this replica, unless the newest announcement is the same. Once it
    /// returns, the other replicas know or are about to look. One that fails is made later.
    ///
    /// # Errors
    /// The store did not answer in time.
    fn announce<'a>(
        &'a self,
        group: &'a ListGroup,
        lists: ListDigests,
    ) -> Fut<'a, Result<(), StoreError>>;

    /// The announcements of all replicas, this one included, and each later state.
    fn watch(&self) -> watch::Receiver<Arc<AnnouncementMap>>;

    /// True while this replica was told of an announcement and has not fetched it yet.
    fn is_looking(&self) -> bool;

    /// Waits for the end of [`Self::is_looking`], for a limited time. Cancel safe.
    fn wait_for_look(&self) -> Fut<'_, ()>;
}
