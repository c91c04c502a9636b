//! The registry of replicas: heartbeats of this one, and the list of all as of the last heartbeat.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use redis::cmd;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use weir_core::port::{
    BoxFuture, Clock, ReplicaDirectory, ReplicaId, ReplicaSeen, StoreError, full_jitter, random_id,
};
use weir_core::telemetry::instruments;
use weir_seal::{SealerKey, SealingKeyName};
use weir_store::{FrameNumbers, SentFrames};

use crate::redis_link::{BACKGROUND_TIMEOUT, RedisLink};
use crate::registry_view::{
    HEARTBEAT_INTERVAL, HeartbeatReply, ListedReplica, MovedView, OwnerState, RegistryView,
};
use crate::replica_info::ReplicaInfo;
use crate::scripts::HEARTBEAT;
use crate::sealing_rotation::{KeyView, SealingKeyUse, SealingRotation};

/// The time after which the registry forgets a silent replica.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// The pause after a failed heartbeat, before jitter.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A reply to the script: `born`, own silence, and a row for each replica.
type RawReply = (Vec<u8>, i64, Vec<RawReplica>);
/// Id, stamp, age and info of a replica.
type RawReplica = (Vec<u8>, Vec<u8>, i64, Vec<u8>);

/// The replicas that share this store. Answers come from the last heartbeat and take no trip; while
/// the store is unreachable, the last view stays in force.
pub struct ReplicaRegistry {
    link: Arc<RedisLink>,
    clock: Arc<dyn Clock>,
    own: ReplicaId,
    info: Mutex<ReplicaInfo>,
    rotation: SealingRotation,
    view: Mutex<RegistryView>,
    /// One heartbeat at a time.
    turn: tokio::sync::Mutex<()>,
    /// The facts of this replica changed.
    changed: Notify,
    has_left: AtomicBool,
    /// Grows each time that all records have to be written again.
    rewrites: watch::Sender<u64>,
    sent_frames: Arc<SentFrames>,
    /// The frames that the other replicas announced.
    announced_frames: watch::Sender<FrameNumbers>,
    seen_key: String,
    info_key: String,
    born_key: String,
}

impl ReplicaRegistry {
    /// A registry that has seen no replica yet; [`Self::keep_beating`] sends heartbeats.
    pub(crate) fn new(
        link: Arc<RedisLink>,
        clock: Arc<dyn Clock>,
        namespace: &str,
        rotation: SealingRotation,
        mut info: ReplicaInfo,
    ) -> Self {
        rotation.describe(&mut info);
        Self {
            link,
            clock,
            own: rotation.own().clone(),
            info: Mutex::new(info),
            rotation,
            view: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            has_left: AtomicBool::new(false),
            rewrites: watch::Sender::new(0),
            sent_frames: Arc::default(),
            announced_frames: watch::Sender::default(),
            seen_key: format!("{{{namespace}:replicas}}:seen"),
            info_key: format!("{{{namespace}:replicas}}:info"),
            born_key: format!("{{{namespace}:replicas}}:born"),
        }
    }

    /// The view for the process that goes on under the name of this replica. `None` before the first
    /// one.
    pub(crate) fn export_view(&self) -> Option<MovedView> {
        self.view.lock().export(self.clock.monotonic())
    }

    /// Goes on with the view of the process before, unless the store has answered already.
    pub(crate) fn import_view(&self, moved: MovedView) {
        {
            let mut view = self.view.lock();
            if view.asked_at().is_some() {
                return;
            }
            *view = RegistryView::import(moved, self.clock.monotonic());
        }
        self.record_live();
        self.review_keys();
    }

    /// Sends heartbeats: at once, every interval, and when the facts of this replica or the
    /// connection change. It never ends.
    pub(crate) async fn keep_beating(&self) {
        let mut connection = 0;
        loop {
            let outcome = self.beat_in_turn().await;
            let wait = if outcome.is_ok() {
                HEARTBEAT_INTERVAL
            } else {
                full_jitter(RETRY_PAUSE, self.link.random())
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.changed.notified() => {}
                number = self.link.wait_opened(connection) => connection = number,
            }
        }
    }

    /// Fetches a view that is newer than this call.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let began = self.clock.monotonic();
        let _turn = self.turn.lock().await;
        // Another caller may have fetched it while this one waited.
        let at = self.view.lock().asked_at();
        if at.is_some_and(|at| at > began) {
            return Ok(());
        }
        self.beat().await
    }

    async fn beat_in_turn(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.beat().await
    }

    async fn beat(&self) -> Result<(), StoreError> {
        if self.has_left.load(Ordering::Relaxed) {
            return Err(StoreError("this process has left the registry".to_owned()));
        }
        let info = ReplicaInfo {
            frames: Some(self.sent_frames.announced()),
            ..self.info.lock().clone()
        };
        let info = serde_json::to_string(&info).map_err(|error| StoreError(error.to_string()))?;
        let asked_at = self.clock.monotonic();
        // Another value each time, so that data that this replica itself began anew differ.
        let minted = HEXLOWER.encode(&random_id(self.link.random()));
        let raw = self.run_script("heartbeat", &info, &minted).await?;
        let change = self.view.lock().apply(parse_reply(raw), asked_at, &minted);
        if change.was_emptied {
            tracing::warn!("shared store was emptied: sessions are written again");
        }
        if change.was_emptied || change.was_interrupted {
            self.rewrites.send_modify(|count| *count += 1);
        }
        let announced = self.view.lock().announced_frames(&self.own);
        self.announced_frames.send_replace(announced);
        self.record_live();
        self.review_keys();
        Ok(())
    }

    /// Chooses the key that seals by the last view, and announces a change of it.
    fn review_keys(&self) {
        let now = self.clock.monotonic();
        let view = {
            let view = self.view.lock();
            KeyView {
                others: view.keys_of_others(&self.own),
                is_incomplete: view.is_emptied_lately(now),
            }
        };
        self.rotation.review(&view, now);
        let mut info = self.info.lock();
        let before = info.clone();
        self.rotation.describe(&mut info);
        if *info != before {
            self.changed.notify_one();
        }
    }

    /// Replaces the sealing keys, newest first, and announces them. They open from now on; a new
    /// one seals once every replica has announced it.
    pub(crate) fn replace_keys(&self, keys: Vec<SealerKey>) {
        self.rotation.replace_keys(keys);
        if self.has_view() {
            self.review_keys();
        } else {
            self.rotation.describe(&mut self.info.lock());
        }
        self.changed.notify_one();
    }

    /// The key that another replica seals with and this one lacks.
    pub(crate) fn missing_key(&self) -> Option<SealingKeyUse> {
        self.rotation.missing()
    }

    /// A key that seals now, at any replica, and would be lost here with these keys alone.
    pub(crate) fn lost_key_use(&self, kept: &[SealingKeyName]) -> Option<SealingKeyUse> {
        let others = self.view.lock().keys_of_others(&self.own);
        self.rotation.lost_use(kept, &others)
    }

    async fn run_script(
        &self,
        operation: &'static str,
        info: &str,
        minted: &str,
    ) -> Result<RawReply, StoreError> {
        let mut call = HEARTBEAT.prepare_invoke();
        call.key(&self.seen_key)
            .key(&self.info_key)
            .key(&self.born_key)
            .arg(self.own.to_string())
            .arg(info)
            .arg(minted)
            .arg(FORGET_AFTER.as_millis().to_string());
        self.link.invoke(operation, BACKGROUND_TIMEOUT, &call).await
    }

    /// Sends no heartbeat any more; this replica stays listed.
    pub(crate) fn stop(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Removes this replica. It sends no heartbeat any more.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.has_left.store(true, Ordering::Relaxed);
        self.run_script("leave", "", "").await.map(drop)
    }

    /// Changes the digest of the config in force.
    pub(crate) fn set_config_digest(&self, digest: Arc<str>) {
        self.info.lock().config = digest;
        self.changed.notify_one();
    }

    /// Marks this replica as ending, from the next heartbeat on.
    pub(crate) fn set_draining(&self) {
        self.info.lock().draining = true;
        self.changed.notify_one();
    }

    /// The number of live replicas as of the last heartbeat, this one included.
    pub(crate) fn count_live(&self) -> usize {
        1 + self.view.lock().live_others(&self.own)
    }

    /// The numbers of this replica's frames, which heartbeats announce.
    pub(crate) fn sent_frames(&self) -> &Arc<SentFrames> {
        &self.sent_frames
    }

    /// A receiver of the frames that the other replicas announced, after each heartbeat.
    pub(crate) fn announced_frames(&self) -> watch::Receiver<FrameNumbers> {
        self.announced_frames.subscribe()
    }

    /// A receiver of the moments when all records have to be written again.
    pub(crate) fn rewrites(&self) -> watch::Receiver<u64> {
        self.rewrites.subscribe()
    }

    /// The state of another replica as of the last heartbeat.
    pub(crate) fn state(&self, id: &ReplicaId) -> OwnerState {
        self.view.lock().state(id)
    }

    /// Reports if the absence of a record is no proof of its end, because the store lost its data a
    /// moment ago.
    pub(crate) fn is_emptied_lately(&self) -> bool {
        self.view.lock().is_emptied_lately(self.clock.monotonic())
    }

    /// Reports if there was a view already.
    pub(crate) fn has_view(&self) -> bool {
        self.view.lock().asked_at().is_some()
    }

    /// Asks the store if it lost its data since the last heartbeat.
    pub(crate) async fn has_new_data(&self) -> Result<bool, StoreError> {
        let mut get = cmd("GET");
        get.arg(&self.born_key);
        let limit = self.link.command_timeout();
        let born: Option<String> = self.link.query("born", limit, &get).await?;
        let differs = born.as_deref() != self.view.lock().born();
        if differs {
            self.changed.notify_one();
        }
        Ok(differs)
    }

    fn record_live(&self) {
        let info = self.info.lock().clone();
        let view = self.view.lock();
        let (others, has_drift) = (
            view.live_others(&self.own),
            view.has_other_config(&self.own, &info.config),
        );
        drop(view);
        let own = usize::from(!info.draining);
        instruments().replicas.record((own + others) as u64, &[]);
        // A replica that drains may have an older config: a rolling restart replaces it.
        let has_drift = has_drift && !info.draining;
        instruments().config_drift.record(u64::from(has_drift), &[]);
    }
}

fn parse_reply((born, own_silence, rows): RawReply) -> HeartbeatReply {
    // A negative age is one of a clock that was set back.
    let age = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let listed = |(id, stamp, millis, info): RawReplica| {
        Some(ListedReplica {
            id: ReplicaId::from_text(&text(&id))?,
            stamp: text(&stamp),
            age: age(millis),
            info: serde_json::from_slice(&info).ok()?,
        })
    };
    HeartbeatReply {
        born: text(&born),
        own_silence: (own_silence >= 0).then(|| age(own_silence)),
        replicas: rows.into_iter().filter_map(listed).collect(),
    }
}

impl ReplicaDirectory for ReplicaRegistry {
    fn own(&self) -> &ReplicaId {
        &self.own
    }

    fn address(&self, replica: &ReplicaId) -> Option<Arc<str>> {
        if *replica == self.own {
            return None;
        }
        self.view.lock().address(replica)
    }

    fn may_answer(&self, replica: &ReplicaId) -> bool {
        *replica != self.own && self.view.lock().may_answer(replica)
    }

    fn find_address<'a>(&'a self, replica: &'a ReplicaId) -> BoxFuture<'a, Option<Arc<str>>> {
        Box::pin(async move {
            if self.state(replica) == OwnerState::Unknown && self.may_answer(replica) {
                let limit = self.link.command_timeout();
                if let Ok(Ok(())) = timeout(limit, self.refresh()).await {
                    self.view.lock().note_absent(replica);
                }
            }
            self.address(replica)
        })
    }

    fn report_unreachable(&self, replica: &ReplicaId) {
        self.view.lock().report_unreachable(replica);
        self.record_live();
    }

    fn replicas(&self) -> Vec<ReplicaSeen> {
        let mut all = self.view.lock().others(&self.own);
        let info = self.info.lock().clone();
        let sealing_key = info.sealing_id();
        all.push(ReplicaSeen {
            id: self.own.clone(),
            address: info.address,
            version: info.version,
            config: info.config,
            sealing_key,
            keys: info.keys,
            opens_all: info.opens_all,
            is_draining: info.draining,
            age: Duration::ZERO,
        });
        all
    }
}

impl fmt::Debug for ReplicaRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaRegistry")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
