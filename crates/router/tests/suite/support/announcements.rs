//! The lists that other replicas announce, by the hand of a test.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use weir_core::capability::CapabilityClass;
use weir_core::content_version::ContentVersion;
use weir_core::names::UpstreamId;
use weir_core::port::{
    AnnouncedLists, AnnouncementMap, BoxFuture, LateReplicas, ListAnnouncements, ListDigests,
    ListGroup, MadeAnnouncement, StoreError,
};

/// Announcements of a test in the name of others, and those that the catalog made.
#[derive(Debug, Default)]
pub(crate) struct ScriptedAnnouncements {
    known: watch::Sender<Arc<AnnouncementMap>>,
    looking: watch::Sender<bool>,
    made: Mutex<Vec<ListDigests>>,
    late: Mutex<Option<oneshot::Receiver<bool>>>,
}

impl ScriptedAnnouncements {
    /// Announces lists of an upstream that no list of the catalog is equal to.
    pub(crate) fn announce_others(&self, upstream: &str, version: u64, hops: u8) {
        let mut digests = [ContentVersion::default(); 4];
        digests[0].0[..8].copy_from_slice(&version.to_be_bytes());
        self.announce_as(upstream, version, ListDigests { digests, hops });
    }

    pub(crate) fn announce_as(&self, upstream: &str, version: u64, lists: ListDigests) {
        let group = ListGroup {
            upstream: UpstreamId::new(upstream).unwrap(),
            class: CapabilityClass::BASE,
        };
        self.known.send_modify(|known| {
            let mut all = AnnouncementMap::clone(known);
            all.insert(group, AnnouncedLists { version, lists });
            *known = Arc::new(all);
        });
    }

    /// A message came, and the look for it is under way, or over.
    pub(crate) fn set_looking(&self, is_looking: bool) {
        self.looking.send_replace(is_looking);
    }

    /// The other replicas confirm the next announcement once the sender reports if they were late.
    pub(crate) fn confirm_next_later(&self) -> oneshot::Sender<bool> {
        let (confirm, late) = oneshot::channel();
        *self.late.lock() = Some(late);
        confirm
    }

    /// The announcements of the catalog, oldest first.
    pub(crate) fn made(&self) -> Vec<ListDigests> {
        self.made.lock().clone()
    }
}

impl ListAnnouncements for ScriptedAnnouncements {
    fn announce<'a>(
        &'a self,
        _group: &'a ListGroup,
        lists: ListDigests,
    ) -> BoxFuture<'a, Result<Option<MadeAnnouncement>, StoreError>> {
        self.made.lock().push(lists);
        let late: Option<LateReplicas> = match self.late.lock().take() {
            Some(late) => Some(Box::pin(async { late.await.unwrap_or_default() })),
            None => None,
        };
        Box::pin(async { Ok(Some(MadeAnnouncement { version: 0, late })) })
    }

    fn wait_until_known(&self, _version: u64) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn watch(&self) -> watch::Receiver<Arc<AnnouncementMap>> {
        self.known.subscribe()
    }

    fn is_looking(&self) -> bool {
        *self.looking.borrow()
    }

    fn wait_for_look(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut looking = self.looking.subscribe();
            let _ = looking.wait_for(|is_looking| !is_looking).await;
        })
    }
}
