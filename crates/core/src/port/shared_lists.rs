//! The port of the versions of upstreams' lists that replicas share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use crate::capability::CapabilityClass;
use crate::content_version::ContentVersion;
use crate::names::UpstreamId;
use crate::port::{BoxFuture, StoreError};

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

/// True once it ends if a client of another replica may have got older lists, after clients of this one
/// were notified.
pub type LateReplicas = BoxFuture<'static, bool>;

/// An announcement that was made.
pub struct MadeAnnouncement {
    /// Its version.
    pub version: u64,
    /// The replicas that are not known to have the lists yet. Absent without other replicas.
    pub late: Option<LateReplicas>,
}

impl fmt::Debug for MadeAnnouncement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeAnnouncement")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The versions of upstreams' lists that replicas share. Lists themselves stay with each replica.
pub trait ListAnnouncements: fmt::Debug + Send + Sync {
    /// Announces the lists of this replica, unless the newest announcement is the same. Once it
    /// returns, the other replicas know, or their time to confirm it is over. One that fails is made
    /// later. Absent if there are too many groups to announce.
    ///
    /// # Errors
    /// The store did not answer in time.
    fn announce<'a>(
        &'a self,
        group: &'a ListGroup,
        lists: ListDigests,
    ) -> BoxFuture<'a, Result<Option<MadeAnnouncement>, StoreError>>;

    /// Looks now, and ends once this replica knows all announcements up to a version. Cancel safe.
    fn wait_until_known(&self, version: u64) -> BoxFuture<'_, ()>;

    /// The announcements of all replicas, this one included, and each later state.
    fn watch(&self) -> watch::Receiver<Arc<AnnouncementMap>>;

    /// True while this replica was told of an announcement and has not fetched it yet.
    fn is_looking(&self) -> bool;

    /// Waits for the end of [`Self::is_looking`], for a limited time. Cancel safe.
    fn wait_for_look(&self) -> BoxFuture<'_, ()>;
}
