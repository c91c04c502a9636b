//! The versions of upstreams' lists that replicas share: digests in the shared store, and a copy of
//! them in the memory of each replica. A message has the others look at once; they look again every
//! few seconds, because messages can be lost.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::cmd;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weir_core::port::{
    AnnouncedLists, AnnouncementMap, BoxFuture, BusMessage, ListAnnouncements, ListDigests,
    ListGroup, MadeAnnouncement, ReplicaId, StoreError, full_jitter,
};

use crate::bus_frame::encode_frame;
use crate::list_value::{decode_value, encode_value, field_name, group_of};
use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink, RunningCommand};
use crate::scripts::ANNOUNCE_LISTS;

/// The topic of the messages that have other replicas look at once.
pub(crate) const TOPIC: &str = "list-announcements";
/// The time between two looks: at least this long, and at most [`LOOK_JITTER`] longer.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// The bound of the random part of the time between two looks.
const LOOK_JITTER: Duration = Duration::from_millis(1500);
/// The pause after a failed look, before jitter.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a look: several messages in a row are one more look.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The time after which an announcement is removed. A replica that starts later announces its own.
const TTL: Duration = Duration::from_secs(24 * 3600);
/// The most groups that this replica remembers, of its own and of others. Beyond it, those go with
/// lists that are the same for [`TTL`].
const MAX_GROUPS: usize = 16_384;
/// The most groups that one run of the script writes, and that one look fetches.
const MAX_BATCH: usize = 500;

/// The announcements of all replicas.
pub struct RedisLists {
    link: Arc<RedisLink>,
    own: ReplicaId,
    channel: String,
    versions_key: String,
    values_key: String,
    known: watch::Sender<Arc<AnnouncementMap>>,
    /// True from a message until the end of the look for it.
    is_looking: watch::Sender<bool>,
    written: Mutex<WrittenLists>,
    /// The newest version that a look found.
    seen: watch::Sender<u64>,
    /// Lists of this replica wait to be written.
    is_due: Notify,
    /// Another replica has this one look.
    is_asked: Notify,
}

/// The lists that this replica announced.
#[derive(Default)]
struct WrittenLists {
    /// The newest lists of each group, and the time of their announcement.
    own: HashMap<ListGroup, (ListDigests, Instant)>,
    pending: HashSet<ListGroup>,
}

/// Lists of this replica beside the announcements that it knows.
enum NotedLists {
    /// They are to be written.
    New,
    /// They are the newest announcement, with this version.
    Announced(u64),
    /// There are too many groups.
    TooMany,
}

impl RedisLists {
    pub(crate) fn new(link: Arc<RedisLink>, namespace: &str, own: ReplicaId) -> Self {
        Self {
            link,
            own,
            channel: format!("{namespace}:bus"),
            versions_key: format!("{{{namespace}:lists}}:versions"),
            values_key: format!("{{{namespace}:lists}}:digests"),
            known: watch::Sender::new(Arc::default()),
            is_looking: watch::Sender::new(false),
            written: Mutex::default(),
            seen: watch::Sender::new(0),
            is_due: Notify::new(),
            is_asked: Notify::new(),
        }
    }

    /// Looks at messages, after each gap between them, and every few seconds; writes the lists that
    /// could not be written before. `gaps` counts the gaps between messages.
    /// It ends with the sender of the messages.
    pub(crate) async fn keep_looking(
        &self,
        mut messages: broadcast::Receiver<BusMessage>,
        mut gaps: watch::Receiver<u64>,
    ) {
        let mut connection = 0;
        loop {
            let looked = self.look().await;
            self.is_looking.send_replace(false);
            let ended = Instant::now();
            let wait = match looked {
                Ok(()) => LOOK_INTERVAL + full_jitter(LOOK_JITTER, self.link.random()),
                Err(_) => full_jitter(RETRY_PAUSE, self.link.random()),
            };
            tokio::select! {
                message = messages.recv() => {
                    // One that was lost in a lag is a reason to look, too.
                    if matches!(message, Err(RecvError::Closed)) {
                        return;
                    }
                    self.is_looking.send_replace(true);
                }
                Ok(()) = gaps.changed() => {}
                number = self.link.wait_opened(connection) => connection = number,
                () = self.is_due.notified() => {}
                () = self.is_asked.notified() => {
                    self.is_looking.send_replace(true);
                }
                () = sleep(wait) => {}
            }
            sleep_until(ended + LOOK_PAUSE).await;
            // The look that follows is for all of them.
            messages = messages.resubscribe();
        }
    }

    /// Fetches the announcements since the last look, and writes those of this replica that wait.
    async fn look(&self) -> Result<(), StoreError> {
        loop {
            let seen = *self.seen.borrow();
            let found = self.fetch_versions(seen).await?;
            let is_whole = found.len() < MAX_BATCH;
            let newest = found.iter().map(|(_, version)| *version).max();
            match newest {
                // The newest known one is gone: the store lost its data, or all became too old.
                // Without a known one the store has none at all, though this replica may have
                // written some since its last look.
                None => self.announce_again(),
                Some(_) => self.fetch_values(&found, seen).await?,
            }
            self.seen.send_replace(newest.unwrap_or_default());
            if is_whole {
                break;
            }
        }
        self.write_pending().await
    }

    /// Returns the groups with a version from `seen` on, that one included, and their versions.
    async fn fetch_versions(&self, seen: u64) -> Result<Vec<(String, u64)>, StoreError> {
        let mut range = cmd("ZRANGEBYSCORE");
        range.arg(&self.versions_key).arg(seen).arg("+inf");
        range.arg("WITHSCORES");
        range.arg("LIMIT").arg(0).arg(MAX_BATCH);
        let limit = BACKGROUND_TIMEOUT;
        self.link.query("poll_lists", limit, &range).await
    }

    async fn fetch_values(&self, found: &[(String, u64)], seen: u64) -> Result<(), StoreError> {
        let newer: Vec<_> = found
            .iter()
            .filter(|(_, version)| *version > seen)
            .collect();
        if newer.is_empty() {
            return Ok(());
        }
        let mut get = cmd("HMGET");
        get.arg(&self.values_key);
        for (field, _) in &newer {
            get.arg(field);
        }
        let limit = BACKGROUND_TIMEOUT;
        let values: Vec<Option<String>> = self.link.query("fetch_lists", limit, &get).await?;
        let announced = newer
            .iter()
            .zip(values)
            .filter_map(|((field, version), value)| {
                let lists = decode_value(&value?)?;
                let version = *version;
                Some((group_of(field)?, AnnouncedLists { version, lists }))
            });
        self.merge(announced);
        Ok(())
    }

    fn merge(&self, announced: impl IntoIterator<Item = (ListGroup, AnnouncedLists)>) {
        let announced: Vec<_> = announced.into_iter().collect();
        self.known.send_if_modified(|known| {
            let mut merged = AnnouncementMap::clone(known);
            merge_into(&mut merged, announced);
            let differs = merged != **known;
            if differs {
                *known = Arc::new(merged);
            }
            differs
        });
    }

    /// Forgets what the store lost, and has all lists of this replica written again. The versions
    /// that follow may be smaller: another server may have another time.
    fn announce_again(&self) {
        self.known.send_if_modified(|known| {
            let had_some = !known.is_empty();
            *known = Arc::default();
            had_some
        });
        let mut written = self.written.lock();
        written.pending = written.own.keys().cloned().collect();
    }

    async fn write_pending(&self) -> Result<(), StoreError> {
        loop {
            let batch: Vec<_> = {
                let written = self.written.lock();
                let pending = written.pending.iter().take(MAX_BATCH);
                pending
                    .filter_map(|group| Some((group.clone(), written.own.get(group)?.0)))
                    .collect()
            };
            if batch.is_empty() {
                return Ok(());
            }
            self.write(&batch).await?;
        }
    }

    /// Writes lists of this replica. Returns the newest of their versions.
    async fn write(&self, batch: &[(ListGroup, ListDigests)]) -> Result<u64, StoreError> {
        let message = BusMessage {
            topic: TOPIC,
            body: bytes::Bytes::new(),
        };
        // Its frame needs no number: replicas look at lists every few seconds.
        let mut call = ANNOUNCE_LISTS.prepare_invoke();
        call.key(&self.versions_key)
            .key(&self.values_key)
            .arg(TTL.as_secs() * 1000)
            .arg(&self.channel)
            .arg(encode_frame(&self.own, None, &[message]).as_ref());
        for (group, lists) in batch {
            call.arg(field_name(group)).arg(encode_value(lists));
        }
        let command = RunningCommand::may_write("announce_lists");
        let limit = BACKGROUND_TIMEOUT;
        let versions: Vec<u64> = self.link.run_script(command, limit, &call).await?;
        {
            let mut written = self.written.lock();
            for (group, lists) in batch {
                // Newer lists of the group may have come in between.
                if written.own.get(group).is_some_and(|(own, _)| own == lists) {
                    written.pending.remove(group);
                }
            }
        }
        let newest = versions.iter().copied().max().unwrap_or_default();
        let announced = batch.iter().zip(versions).map(|((group, lists), version)| {
            let lists = *lists;
            (group.clone(), AnnouncedLists { version, lists })
        });
        self.merge(announced);
        Ok(newest)
    }

    /// Notes lists of this replica.
    fn note(&self, group: &ListGroup, lists: ListDigests) -> NotedLists {
        let known = self.known.borrow().get(group).copied();
        let mut written = self.written.lock();
        written.note(group, lists, known, Instant::now())
    }
}

impl WrittenLists {
    fn note(
        &mut self,
        group: &ListGroup,
        lists: ListDigests,
        known: Option<AnnouncedLists>,
        now: Instant,
    ) -> NotedLists {
        if self.own.len() >= MAX_GROUPS && !self.own.contains_key(group) {
            // They are of removed upstreams, or the other replicas had a day to learn of them.
            self.own.retain(|_, (_, announced)| now - *announced < TTL);
            self.pending.retain(|group| self.own.contains_key(group));
            if self.own.len() >= MAX_GROUPS {
                return NotedLists::TooMany;
            }
        }
        self.own.insert(group.clone(), (lists, now));
        match known.filter(|known| known.lists.digests == lists.digests) {
            Some(known) => {
                self.pending.remove(group);
                NotedLists::Announced(known.version)
            }
            None => {
                self.pending.insert(group.clone());
                NotedLists::New
            }
        }
    }
}

/// Adds announcements to those that are known. If there is no room, those go that the store has
/// removed: a version is the milliseconds of its time.
fn merge_into(known: &mut AnnouncementMap, announced: Vec<(ListGroup, AnnouncedLists)>) {
    if known.len() + announced.len() > MAX_GROUPS {
        let newest = announced.iter().map(|(_, lists)| lists.version).max();
        let oldest = newest
            .unwrap_or_default()
            .saturating_sub(TTL.as_secs() * 1000);
        known.retain(|_, known| known.version >= oldest);
    }
    for (group, lists) in announced {
        let is_new = known
            .get(&group)
            .is_none_or(|known| known.version < lists.version);
        if is_new && (known.len() < MAX_GROUPS || known.contains_key(&group)) {
            known.insert(group, lists);
        }
    }
}

impl ListAnnouncements for RedisLists {
    fn announce<'a>(
        &'a self,
        group: &'a ListGroup,
        lists: ListDigests,
    ) -> BoxFuture<'a, Result<Option<MadeAnnouncement>, StoreError>> {
        Box::pin(async move {
            let version = match self.note(group, lists) {
                NotedLists::TooMany => return Ok(None),
                NotedLists::Announced(version) => version,
                NotedLists::New => {
                    let written = self.write(&[(group.clone(), lists)]).await;
                    if written.is_err() {
                        self.is_due.notify_one();
                    }
                    written?
                }
            };
            let late = None;
            Ok(Some(MadeAnnouncement { version, late }))
        })
    }

    fn wait_until_known(&self, version: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut seen = self.seen.subscribe();
            if *seen.borrow_and_update() < version {
                self.is_asked.notify_one();
            }
            // The sender lives as long as `self`.
            let _ = seen.wait_for(|seen| *seen >= version).await;
        })
    }

    fn watch(&self) -> watch::Receiver<Arc<AnnouncementMap>> {
        self.known.subscribe()
    }

    fn is_looking(&self) -> bool {
        *self.is_looking.borrow()
    }

    fn wait_for_look(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut looking = self.is_looking.subscribe();
            let ended = looking.wait_for(|is_looking| !is_looking);
            // A request waits as long as for two commands of its own, and their way to this task. A
            // look may take longer.
            let _ = timeout(self.link.command_timeout() * 3, ended).await;
        })
    }
}

impl fmt::Debug for RedisLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLists")
            .field("key", &self.values_key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use weir_core::capability::CapabilityClass;
    use weir_core::content_version::ContentVersion;
    use weir_core::names::UpstreamId;

    use super::*;

    fn group(number: usize) -> ListGroup {
        ListGroup {
            upstream: UpstreamId::new(&format!("u{number}")).unwrap(),
            class: CapabilityClass::BASE,
        }
    }

    const LISTS: ListDigests = ListDigests {
        digests: [ContentVersion([1; 16]); 4],
        hops: 0,
    };

    #[test]
    fn groups_of_removed_upstreams_make_room_for_new_ones() {
        let mut written = WrittenLists::default();
        let begun = Instant::now();
        for number in 0..MAX_GROUPS {
            written.note(&group(number), LISTS, None, begun);
        }
        let soon = begun + TTL / 2;
        let is_noted = |noted| matches!(noted, NotedLists::New);
        assert!(is_noted(written.note(&group(0), LISTS, None, soon)));
        assert!(!is_noted(written.note(
            &group(MAX_GROUPS),
            LISTS,
            None,
            soon
        )));
        let later = begun + TTL;
        assert!(is_noted(written.note(
            &group(MAX_GROUPS),
            LISTS,
            None,
            later
        )));
        let left = HashSet::from([group(0), group(MAX_GROUPS)]);
        assert_eq!(written.own.keys().cloned().collect::<HashSet<_>>(), left);
        assert_eq!(written.pending, left);
    }

    #[test]
    fn announcements_that_the_store_removed_make_room_for_new_ones() {
        let ttl = TTL.as_secs() * 1000;
        let announced = |number, version| {
            let lists = LISTS;
            (group(number), AnnouncedLists { version, lists })
        };
        let mut known = AnnouncementMap::new();
        let all = (0..MAX_GROUPS).map(|number| announced(number, 1 + u64::from(number == 0)));
        merge_into(&mut known, all.collect());
        merge_into(&mut known, vec![announced(MAX_GROUPS, ttl)]);
        assert!(known.len() == MAX_GROUPS && !known.contains_key(&group(MAX_GROUPS)));
        merge_into(&mut known, vec![announced(MAX_GROUPS, ttl + 2)]);
        let left = HashSet::from([group(0), group(MAX_GROUPS)]);
        assert_eq!(known.into_keys().collect::<HashSet<_>>(), left);
    }
}
