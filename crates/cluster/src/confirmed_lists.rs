//! Announcements of lists that the other replicas confirm, each over the connection to it: a message
//! over the shared store may be lost.
//!
//! A replica that announces opens a stream to each other one. That one looks at the announcements now,
//! and answers with a byte once it knows them, and with another byte once it has the lists.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::poll_fn;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use weir_core::port::{
    AnnouncementMap, BoxFuture, LateReplicas, ListAnnouncements, ListDigests, ListGroup,
    MadeAnnouncement, ReplicaDirectory, ReplicaId, StoreError,
};

use crate::list_streams::{FOLLOWED, KNOWN, LIST_VERSION_HEADER};
use crate::peer_forwarder::PeerForwarder;
use crate::peer_stream::PeerStream;

/// The longest time that an announcement waits until the other replicas know it. Clients are notified
/// after that.
const KNOWN_WAIT: Duration = Duration::from_millis(500);
/// The longest time for which a replica is asked. One that cannot be reached looks by itself within
/// that.
const LATE_WAIT: Duration = Duration::from_secs(10);
/// The pause before a replica that could not be reached is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The announcements of a store, confirmed by the other replicas.
#[derive(Debug)]
pub struct ConfirmedLists {
    store: Arc<dyn ListAnnouncements>,
    peers: Arc<ConfirmingPeers>,
}

/// The way to the other replicas.
#[derive(Debug)]
struct ConfirmingPeers {
    directory: Arc<dyn ReplicaDirectory>,
    forwarder: Arc<PeerForwarder>,
}

/// The first answer of a replica.
enum FirstAnswer {
    /// It knows the announcement. Its next answer comes on the stream.
    Known(PeerStream),
    /// It has ended, or is of a version without confirmations.
    None,
    /// It could not be asked, though it is there.
    Missing,
}

impl ConfirmedLists {
    /// Announcements of `store`, which the replicas of `directory` confirm.
    #[must_use]
    pub fn new(
        store: Arc<dyn ListAnnouncements>,
        directory: Arc<dyn ReplicaDirectory>,
        forwarder: Arc<PeerForwarder>,
    ) -> Self {
        let peers = Arc::new(ConfirmingPeers {
            directory,
            forwarder,
        });
        Self { store, peers }
    }
}

impl ConfirmingPeers {
    /// Waits until the other replicas know a version, for a limited time. Returns the rest of the
    /// confirmations, if there are other replicas.
    async fn confirm(self: &Arc<Self>, version: u64) -> Option<LateReplicas> {
        let begun = Instant::now();
        let last = begun + LATE_WAIT;
        let own = self.directory.own().clone();
        let all = self.directory.replicas().into_iter().map(|one| one.id);
        let mut answers: FuturesUnordered<_> = all
            .filter(|id| *id != own && self.directory.address(id).is_some())
            .map(|id| self.clone().ask(id, version, last))
            .collect();
        if answers.is_empty() {
            return None;
        }
        let mut followed = FuturesUnordered::new();
        let mut is_late = false;
        let in_time = begun + KNOWN_WAIT;
        while let Ok(Some(answer)) = timeout_at(in_time, answers.next()).await {
            match answer {
                FirstAnswer::Known(stream) => followed.push(may_have_older(stream, last)),
                FirstAnswer::None => {}
                FirstAnswer::Missing => is_late = true,
            }
        }
        Some(Box::pin(async move {
            while let Some(answer) = answers.next().await {
                match answer {
                    FirstAnswer::Known(stream) => {
                        is_late = true;
                        followed.push(may_have_older(stream, last));
                    }
                    FirstAnswer::None => {}
                    FirstAnswer::Missing => is_late = true,
                }
            }
            while let Some(has_older) = followed.next().await {
                is_late |= has_older;
            }
            is_late
        }))
    }

    /// Asks one replica, again while it cannot be reached.
    async fn ask(self: Arc<Self>, replica: ReplicaId, version: u64, last: Instant) -> FirstAnswer {
        let asking = async {
            loop {
                let mut headers = HeaderMap::new();
                headers.insert(LIST_VERSION_HEADER, HeaderValue::from(version));
                let opening = self.forwarder.open_stream(&replica, headers, Bytes::new());
                if let Ok((_, mut stream)) = opening.await {
                    match next_byte(&mut stream).await {
                        Some(KNOWN) => return FirstAnswer::Known(stream),
                        Some(_) => return FirstAnswer::None,
                        None => {}
                    }
                }
                sleep(RETRY_PAUSE).await;
            }
        };
        match timeout_at(last, asking).await {
            Ok(answer) => answer,
            Err(_) if self.directory.address(&replica).is_none() => FirstAnswer::None,
            Err(_) => FirstAnswer::Missing,
        }
    }
}

/// Waits until a replica has the lists. Returns true if a client may have got older ones there.
async fn may_have_older(mut stream: PeerStream, last: Instant) -> bool {
    // A replica that is lost now has no clients any more.
    let answer = timeout_at(last, next_byte(&mut stream)).await;
    answer.map_or(true, |byte| !matches!(byte, Some(FOLLOWED) | None))
}

async fn next_byte(stream: &mut PeerStream) -> Option<u8> {
    let received = poll_fn(|cx| stream.poll_receive(cx)).await;
    received?.ok()?.first().copied()
}

impl ListAnnouncements for ConfirmedLists {
    fn announce<'a>(
        &'a self,
        group: &'a ListGroup,
        lists: ListDigests,
    ) -> BoxFuture<'a, Result<Option<MadeAnnouncement>, StoreError>> {
        Box::pin(async move {
            let Some(made) = self.store.announce(group, lists).await? else {
                return Ok(None);
            };
            let late = self.peers.confirm(made.version).await;
            Ok(Some(MadeAnnouncement { late, ..made }))
        })
    }

    fn wait_until_known(&self, version: u64) -> BoxFuture<'_, ()> {
        self.store.wait_until_known(version)
    }

    fn watch(&self) -> watch::Receiver<Arc<AnnouncementMap>> {
        self.store.watch()
    }

    fn is_looking(&self) -> bool {
        self.store.is_looking()
    }

    fn wait_for_look(&self) -> BoxFuture<'_, ()> {
        self.store.wait_for_look()
    }
}
