//! A server that weir starts itself: one child process for all clients, or one for each principal
//! and capability class.
//!
//! A child is started with the first call or watch, restarted on demand with backoff, and ended
//! when unused or retired.

mod asking_turn;
mod child_channel;
mod child_choice;
mod child_end;
mod child_environment;
mod child_eras;
mod child_fence;
mod child_handover;
mod child_key;
mod child_relay;
mod child_source;
mod child_start;
mod child_streams;
mod child_subscriptions;
mod error_tail;
mod handshake;
mod message_memory;
mod non_message_lines;
mod running_child;
mod session_lists;
mod silent_children;
mod stdio_call;
mod stdio_settings;
mod stdio_updates;
mod stdio_watch;
mod upstream_child;
mod value_claim;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_core::reply::Reply;
use weir_core::upstream::{
    ClientSessionChange, ListWatch, OutboundCall, ProcessStart, ResourceUpdates, TaskNotifications,
};
use weir_core::{CapabilityClass, SessionKey};
use weir_era::lower;
use weir_era::upstream_messages::RevisionDialect;
use weir_upstream_core::failed_attempt::FailedAttempt;
use weir_upstream_core::keyed_slots::KeyedSlots;
use weir_upstream_core::settings::{SessionSharing, UpstreamProtocol};
use weir_upstream_core::upstream_context::UpstreamContext;
use weir_wire::Revision;

use asking_turn::AskingQueues;
pub use child_channel::{ChildChannel, OutgoingPurpose, PendingChildRequest};
use child_key::ChildKey;
pub use child_source::{ChildSource, SseConnector};
use child_start::ChildStarter;
use handshake::ChildClients;
pub use message_memory::{MessageMemory, SkippedMessage};
use running_child::RunningChild;
pub use stdio_settings::{ChildInstances, StdioUpstreamSettings};
use stdio_updates::StdioUpdates;
use stdio_watch::StdioWatch;
pub use upstream_child::UpstreamChild;

/// One server over standard streams.
#[derive(Debug)]
pub struct StdioUpstream {
    context: Arc<UpstreamContext>,
    starter: Arc<ChildStarter>,
    sharing: SessionSharing,
    slots: Arc<KeyedSlots<ChildKey, RunningChild>>,
    /// Children for watches alone, for capability classes other than the base: a server may list by
    /// the declared capabilities.
    watched: Arc<KeyedSlots<ChildKey, RunningChild>>,
    /// The calls that wait for the turn to be asked.
    queues: AskingQueues,
    swept: AtomicBool,
}

/// The most capability classes that are watched apart; the catalog follows no more.
const MAX_WATCH_CLASSES: usize = 16;
/// The longest wait of a watch for the first child in the other era.
const SECOND_ERA_WAIT: Duration = Duration::from_secs(5);
impl StdioUpstream {
    /// Makes the server of `origin`. Starts nothing before the first call or watch.
    #[must_use]
    pub fn new(
        context: Arc<UpstreamContext>,
        origin: ChildSource,
        protocol: UpstreamProtocol,
        sharing: SessionSharing,
    ) -> Self {
        let most = match sharing {
            // One for each era.
            SessionSharing::Shared if context.permissions.asks() == CapabilityClass::BASE => {
                origin.max_children(&context).min(2)
            }
            // One more, for the watch, which belongs to no principal.
            SessionSharing::Shared | SessionSharing::Principal => {
                origin.max_children(&context).saturating_add(1)
            }
        };
        let idle = origin.idle_millis(&context);
        let slots = |most| {
            KeyedSlots::new(most, idle).with_end(|running: &RunningChild| running.child.is_over())
        };
        Self {
            starter: Arc::new(ChildStarter::new(context.clone(), origin, protocol)),
            context,
            sharing,
            slots: Arc::new(slots(most)),
            watched: Arc::new(slots(MAX_WATCH_CLASSES)),
            queues: AskingQueues::default(),
            swept: AtomicBool::new(false),
        }
    }

    /// Makes one attempt at a call.
    pub async fn call(self: &Arc<Self>, outbound: &OutboundCall) -> Result<Reply, FailedAttempt> {
        let (running, turn) = match Box::pin(self.take_legacy(outbound)).await? {
            Some(taken) => taken,
            None => self.take(self.key(outbound, false), outbound).await?,
        };
        self.check_before_call(&running);
        stdio_call::call(&self.context, running, turn, outbound).await
    }

    /// True while it is unknown if a modern server has a legacy era as well.
    pub fn may_find_sessions(&self) -> bool {
        let eras = &self.starter.eras;
        eras.may_be_legacy(CapabilityClass::SESSIONS) && !eras.has_second()
    }

    /// Finds out if a modern server has a legacy era as well: starts the child of this call.
    pub async fn find_sessions(self: &Arc<Self>, outbound: &OutboundCall) {
        // The call itself reports a failure.
        drop(self.take_legacy(outbound).await);
    }

    /// Opens a watch: on the child that all clients share, or on one without a principal. For
    /// clients with sessions it uses the legacy era, if the server has that beside its modern one.
    pub async fn watch(
        self: &Arc<Self>,
        class: CapabilityClass,
    ) -> Result<Box<dyn ListWatch>, FailedAttempt> {
        let is_legacy = self.starter.eras.second_for(class).is_some();
        let running = self.watched_child(class, is_legacy).await?;
        if running.handshake.about.tasks
            && self.starter.eras.may_be_legacy(CapabilityClass::SESSIONS)
            && !self.starter.eras.is_second_era_unproven()
            && let Some(_looking) = self.starter.eras.look_for_second().await
        {
            // The tools of the two eras differ in their task support. A late start goes on by
            // itself, and without such an era it fails.
            let starting = self.watched_child(CapabilityClass::SESSIONS, true);
            if let Ok(Err(_)) = tokio::time::timeout(SECOND_ERA_WAIT, Box::pin(starting)).await {
                let key = self.watch_key(CapabilityClass::SESSIONS, true);
                self.watch_slots(&key).remove_slot(&key);
            }
        }
        let class = class.cut(self.context.permissions.carries(running.handshake.dialect));
        let starter = self.starter.clone();
        Ok(Box::new(
            StdioWatch::open(self.context.clone(), running, class, starter).await?,
        ))
    }

    /// Returns the child of this era whose lists are watched for clients of this class.
    async fn watched_child(
        self: &Arc<Self>,
        class: CapabilityClass,
        is_legacy: bool,
    ) -> Result<Arc<RunningChild>, FailedAttempt> {
        let key = self.watch_key(class, is_legacy);
        let clients = ChildClients {
            class: key.class,
            session: None,
            is_owned: false,
        };
        self.running(self.watch_slots(&key), &key, clients).await
    }

    /// Returns the slots that have the one of a watched child.
    fn watch_slots(&self, key: &ChildKey) -> &KeyedSlots<ChildKey, RunningChild> {
        let is_for_calls = key.class == CapabilityClass::BASE
            && (!key.is_legacy || self.sharing == SessionSharing::Shared);
        if is_for_calls {
            &self.slots
        } else {
            &self.watched
        }
    }

    fn watch_key(&self, class: CapabilityClass, is_legacy: bool) -> ChildKey {
        ChildKey {
            class: class.cut(self.declared_at_start(is_legacy)),
            is_legacy,
            ..ChildKey::SHARED
        }
    }

    /// Opens a subscription to updates of single resources, on the same child as a watch.
    pub async fn updates(self: &Arc<Self>) -> Result<Box<dyn ResourceUpdates>, FailedAttempt> {
        let running = self
            .running(&self.slots, &ChildKey::SHARED, ChildKey::NO_CLIENTS)
            .await?;
        Ok(Box::new(StdioUpdates::open(self.context.clone(), running)?))
    }

    /// Subscribes to a task's status in the child that handles requests about it. Absent if the
    /// child has no such subscription.
    pub async fn follow(self: &Arc<Self>, outbound: &OutboundCall) -> Option<TaskNotifications> {
        let key = self.key(
            outbound,
            self.starter
                .eras
                .second_for(outbound.call.capabilities.class)
                .is_some(),
        );
        let running = self
            .running(&self.slots, &key, key.clients(outbound))
            .await
            .ok()?;
        stdio_updates::follow_task(&self.context, running, outbound).await
    }

    /// Forgets the era, because the server may have been replaced: the next child is probed again.
    pub fn doubt_era(&self) {
        self.starter.eras.doubt();
    }

    /// Returns the capabilities that are carried to the server, by its known eras.
    pub fn carries(&self) -> CapabilityClass {
        let first = self
            .starter
            .eras
            .first_dialect()
            .map_or(CapabilityClass::BASE, |dialect| {
                self.context.permissions.carries(dialect)
            });
        match self.starter.eras.second_for(CapabilityClass::SESSIONS) {
            Some(dialect) => first
                .with(self.context.permissions.carries(dialect))
                .with(CapabilityClass::SESSIONS),
            None => first,
        }
    }

    /// Returns the server's revision, once it is known.
    pub fn revision(&self) -> Option<Revision> {
        self.starter
            .eras
            .first_dialect()
            .map(RevisionDialect::revision)
    }

    /// Returns the older revision that the server speaks as well, if it is known to have one.
    pub fn second_revision(&self) -> Option<Revision> {
        self.starter.eras.second_revision()
    }

    /// Returns the server's revision for a client of this class, once it is known.
    pub fn revision_for(&self, class: CapabilityClass) -> Option<Revision> {
        self.starter.eras.revision_for(class)
    }

    /// Returns the time limit of a start, up to the answer to the first message.
    pub fn start_time(&self) -> Duration {
        self.starter.start_time()
    }

    /// Returns the process that has not answered yet, for operators.
    pub fn starting(&self) -> Option<ProcessStart> {
        self.starter.starting()
    }

    /// Returns the number of running children.
    pub fn processes(&self) -> usize {
        self.slots.open_count()
    }

    /// Forwards a change of client sessions to the children that belong to them.
    pub fn forward_session_change(
        &self,
        sessions: &HashSet<SessionKey>,
        change: ClientSessionChange,
    ) {
        let is_its_own = |key: &ChildKey| {
            key.session
                .is_some_and(|session| sessions.contains(&session))
        };
        let speaks_to = |running: &RunningChild| {
            running
                .child
                .channel
                .client
                .get()
                .is_some_and(|own| sessions.contains(&own))
        };
        match change {
            // Dropping a child ends its process.
            ClientSessionChange::Ended | ClientSessionChange::EndedHere => {
                if change == ClientSessionChange::Ended {
                    self.context.task_holds.end_sessions(sessions);
                }
                // Tasks go on for a client that another replica serves now.
                let is_held = self.context.values_in_use();
                drop(self.slots.take_unless(is_its_own, is_held));
                for running in self.slots.values_where(|_| true) {
                    running.child.channel.client.remove(sessions);
                }
            }
            ClientSessionChange::RootsChanged => {
                let children = self
                    .slots
                    .values_where(|key| key.class.has(CapabilityClass::ROOTS))
                    .into_iter();
                let children = children.filter(|running| {
                    let legacy = running.legacy.as_ref();
                    speaks_to(running) && legacy.is_some_and(|legacy| legacy.declares_roots_changes)
                });
                children.for_each(|running| running.child.channel.send(lower::roots_changed()));
            }
            // A child of several sessions has no log messages for one of them outside of its calls.
            ClientSessionChange::LogLevel(level) => {
                for running in self.slots.values_where(is_its_own) {
                    let context = self.context.clone();
                    self.context.tasks.spawn_endless(async move {
                        stdio_call::raise_log_level_of_session(&context, &running, level).await;
                    });
                }
            }
        }
    }

    /// Ends all children.
    pub async fn close(&self) {
        let mut all = self.slots.take_all();
        all.extend(self.watched.take_all());
        futures_util::future::join_all(all.iter().map(|running| running.child.stopped())).await;
    }
}
