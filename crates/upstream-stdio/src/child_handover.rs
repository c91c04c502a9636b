//! The hand-over of child processes to the next process. Their calls in this process go on, over a
//! relay.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use weir_core::CapabilityClass;
use weir_core::upstream::HandoverSession;
use weir_era::upstream_messages::{self, RevisionDialect};
use weir_upstream_core::exported::{ExportedClient, ExportedOwner};
use weir_upstream_core::session_log_level::SessionLogLevel;
use weir_upstream_core::settings::UpstreamProtocol;
use weir_upstream_core::task_holds::ExportedTaskHold;
use weir_wire::{LogLevel, Revision};

use crate::StdioUpstream;
use crate::child_channel::ChildChannel;
use crate::child_key::ChildKey;
use crate::child_source::ChildSource;
use crate::handshake::{ChildClients, HandshakeOutcome, run_handshake};
use crate::running_child::RunningChild;
use crate::upstream_child::UpstreamChild;

/// The time limit of the handshake with a modern child after a hand-over.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A child as one process describes it to the next. Its descriptors are those of the relay and of
/// the child, in this order; a later description, with a task that began in it, has none.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ExportedChild {
    owner: ExportedOwner,
    /// The bits of the capability class.
    class: u16,
    nth: u8,
    is_legacy: bool,
    /// True for one that only watches.
    is_watching: bool,
    revision: String,
    /// The relevant parts of a legacy child's answer to `initialize`, as JSON.
    initialized: String,
    /// The capabilities that were declared to it, as bits.
    declared_class: u16,
    declares_roots_changes: bool,
    /// The session of the client for messages outside of calls.
    client: Option<ExportedClient>,
    /// The sessions of the clients that have the child's own lists.
    list_clients: Vec<ExportedClient>,
    /// The principal of the first call, and true if others called, too.
    first: Option<ExportedOwner>,
    several: bool,
    level: Option<String>,
    /// The last request id of the previous process.
    last_id: u64,
    /// The unread part of its output, in base64.
    unread: String,
    /// The tasks that it is held open for.
    tasks: Vec<ExportedTaskHold>,
}

impl StdioUpstream {
    /// Implements [`weir_core::upstream::Upstream::export_sessions`]. An HTTP+SSE stream is a
    /// connection, and stays.
    pub async fn export_children(&self) -> Vec<HandoverSession> {
        if !matches!(self.starter.origin, ChildSource::Process(..)) {
            return Vec::new();
        }
        let used = self
            .slots
            .filled()
            .into_iter()
            .map(|(key, running)| (key, running, false));
        let watching = self
            .watched
            .filled()
            .into_iter()
            .map(|(key, running)| (key, running, true));
        let exporting = used
            .chain(watching)
            .map(|(key, running, is_watching)| self.export(key, running, is_watching));
        exporting
            .collect::<FuturesUnordered<_>>()
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    async fn export(
        &self,
        key: ChildKey,
        running: Arc<RunningChild>,
        is_watching: bool,
    ) -> Option<HandoverSession> {
        let channel = &running.child.channel;
        let legacy = running.legacy.as_ref();
        let level = legacy.and_then(|legacy| legacy.level.get());
        let given = running.child.hand_over().await?;
        channel.set_handed_over();
        let (first, several) = channel.principals();
        let dialect = running.handshake.dialect;
        let initialized =
            upstream_messages::initialize_result(dialect.revision(), &running.handshake.about);
        let mut described = ExportedChild {
            owner: ExportedOwner::of(key.principal.as_ref()),
            class: key.class.bits(),
            nth: key.nth,
            is_legacy: key.is_legacy,
            is_watching,
            revision: dialect.revision().as_str().to_owned(),
            initialized: String::from_utf8(initialized.into()).ok()?,
            declared_class: legacy
                .map_or(CapabilityClass::BASE, |legacy| legacy.class)
                .bits(),
            declares_roots_changes: legacy.is_some_and(|legacy| legacy.declares_roots_changes),
            client: channel.client.get().map(ExportedClient::of),
            list_clients: Vec::new(),
            first: first.as_ref().map(|first| ExportedOwner::of(Some(first))),
            several,
            level: level.map(|level| level.as_str().to_owned()),
            last_id: self.context.request_ids.last_id(),
            unread: String::new(),
            tasks: Vec::new(),
        };
        let later = described.clone();
        let clients = channel.lists.get().map(|lists| lists.clients());
        let clients = clients.into_iter().flatten().map(ExportedClient::of);
        described.list_clients = clients.collect();
        described.unread = BASE64.encode(&given.unread);
        described.tasks = self.context.task_holds.export(&running, move |task| {
            let tasks = vec![task];
            let later = ExportedChild {
                tasks,
                ..later.clone()
            };
            serde_json::to_vec(&later).ok().map(Bytes::from)
        });
        let mut descriptors = vec![given.relay];
        descriptors.extend(given.kept.descriptors().ok()?);
        Some(HandoverSession {
            description: serde_json::to_vec(&described).ok()?.into(),
            descriptors,
        })
    }

    /// Implements [`weir_core::upstream::Upstream::import_session`]. A child that cannot be used
    /// ends, since its descriptors are closed.
    pub async fn import_child(&self, exported: HandoverSession) {
        if self.adopt(exported).await.is_none() {
            tracing::warn!(upstream = %self.context.label.id, "child process takeover failed: starting a new process");
        }
    }

    async fn adopt(&self, exported: HandoverSession) -> Option<()> {
        let ChildSource::Process(_, keeper) = &self.starter.origin else {
            return None;
        };
        let child: ExportedChild = serde_json::from_slice(&exported.description).ok()?;
        let slots = if child.is_watching {
            &self.watched
        } else {
            &self.slots
        };
        let key = child.key();
        if exported.descriptors.is_empty() {
            // A task that began later. The child may have ended meanwhile.
            let running = slots.values_where(|other| *other == key).pop();
            if let Some(running) = running {
                self.hold_for_tasks(&running, child.tasks);
            }
            return Some(());
        }
        let mut descriptors = exported.descriptors.into_iter();
        let relay = std::os::unix::net::UnixStream::from(descriptors.next()?);
        relay.set_nonblocking(true).ok()?;
        let relay = UnixStream::from_std(relay).ok()?;
        let kept = keeper.adopt(descriptors.collect()).ok()?;

        let slot = slots.free_slot(&key, self.context.clock.millis())?;
        let _opening = slot.opening.try_lock().ok()?;
        if slot.current.load().is_some() {
            return None;
        }
        self.context.request_ids.continue_after(child.last_id);
        let channel = ChildChannel::new(self.context.clone());
        channel.relay_to(relay, child.last_id);
        channel.import_principals(
            child.first.and_then(|first| first.principal()),
            child.several,
        );
        let unread = BASE64.decode(child.unread.as_bytes()).ok()?;
        let begun = Instant::now();
        let running = UpstreamChild::adopt(kept, channel, &unread).ok()?;
        let session = child.client.as_ref().and_then(ExportedClient::session);
        let clients = ChildClients {
            class: CapabilityClass::from_bits(child.declared_class),
            session,
            // Connections of HTTP+SSE do not move.
            is_owned: false,
        };
        let revision = Revision::parse(&child.revision)?;
        // A modern server is asked for its description; that of `initialize` came with the child.
        let handshake = if revision.is_modern() {
            timeout(
                HANDSHAKE_TIMEOUT,
                run_handshake(&running.channel, UpstreamProtocol::Modern, &clients),
            )
            .await
            .ok()?
            .ok()?
        } else {
            let (_, about) =
                upstream_messages::read_initialize_result(&Bytes::from(child.initialized));
            HandshakeOutcome {
                dialect: RevisionDialect::new(revision),
                about,
            }
        };
        self.starter.record_dialect(&key, handshake.dialect, begun);
        let mut running = RunningChild {
            used: slot.use_clock(),
            ..RunningChild::new(running, handshake, clients)
        };
        if let Some(legacy) = &mut running.legacy {
            legacy.declares_roots_changes = child.declares_roots_changes;
            let level = child.level.and_then(|level| LogLevel::parse(&level));
            legacy.level = SessionLogLevel::new(level);
        }
        running
            .used
            .store(self.context.clock.millis(), Ordering::Relaxed);
        let running = Arc::new(running);
        if key.principal.is_some() {
            let clients = child.list_clients.iter();
            running.continue_own_lists(clients.filter_map(ExportedClient::session).collect());
        }
        self.hold_for_tasks(&running, child.tasks);
        self.context.predecessor_calls.hold(&running);
        slot.current.store(Some(running));
        Some(())
    }

    /// Holds a child open for tasks of the previous process.
    fn hold_for_tasks(&self, running: &Arc<RunningChild>, tasks: Vec<ExportedTaskHold>) {
        let progress = &self.context.task_progress;
        self.context.task_holds.import(tasks, running, progress);
    }
}

impl ExportedChild {
    fn key(&self) -> ChildKey {
        ChildKey {
            principal: self.owner.principal(),
            class: CapabilityClass::from_bits(self.class),
            session: None,
            nth: self.nth,
            is_legacy: self.is_legacy,
        }
    }
}
