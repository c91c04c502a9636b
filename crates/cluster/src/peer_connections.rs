//! The connections to other replicas, opened on demand: one to each, and further ones while clients
//! that read slowly hold the windows of the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::Budgets;
use weir_core::port::{ReplicaDirectory, ReplicaId};

use crate::cluster_tls::ClusterTls;
use crate::peer_connection::{self, OpenFailure, OpenedPeer, PeerConnection};
use crate::peer_dialer::{self, PeerDialer, PeerHandshake};

/// The most connections to one replica. Beyond their windows, calls wait for clients that read slowly.
const MAX_CONNECTIONS: usize = 4;

/// A connection that is being opened or is open. The requests to its replica share it.
type SharedConnection = Shared<BoxFuture<'static, Result<PeerConnection, OpenFailure>>>;

/// The connections to other replicas.
pub(crate) struct PeerConnections {
    context: Arc<OpenContext>,
    /// The replicas that run now bound the map: others are removed when a connection is opened.
    peers: Mutex<HashMap<ReplicaId, PeerSlot>>,
}

#[derive(Default)]
struct PeerSlot {
    address: Arc<str>,
    /// In the order of their opening.
    connections: Vec<SharedConnection>,
}

/// The parts that the task of a connection needs.
struct OpenContext {
    directory: Arc<dyn ReplicaDirectory>,
    dialer: Arc<dyn PeerDialer>,
    /// Replaced with the keys.
    tls: Mutex<ClusterTls>,
    budgets: Budgets,
    tasks: TaskTracker,
    force: CancellationToken,
}

impl PeerConnections {
    pub(crate) fn new(
        dialer: Arc<dyn PeerDialer>,
        directory: Arc<dyn ReplicaDirectory>,
        tls: ClusterTls,
        budgets: Budgets,
    ) -> Self {
        Self {
            context: Arc::new(OpenContext {
                directory,
                dialer,
                tls: Mutex::new(tls),
                budgets,
                tasks: TaskTracker::new(),
                force: CancellationToken::new(),
            }),
            peers: Mutex::default(),
        }
    }

    /// A connection to a replica, opened if there is none that is to get a request. A failure to open
    /// the only one is reported to the directory once, and to all requests that waited.
    pub(crate) async fn get(&self, to: &ReplicaId) -> Result<PeerConnection, OpenFailure> {
        let directory = &self.context.directory;
        let found = match directory.address(to) {
            // The search makes a future, which a known replica does not need.
            None => directory.find_address(to).await,
            known => known,
        };
        let Some(address) = found else {
            self.peers.lock().remove(to);
            return Err(OpenFailure("the replica has ended".into()));
        };
        let connection = self.choose(to, &address).await;
        connection.or_else(|failure| self.open_to(to).ok_or(failure))
    }

    /// The connection for the next request.
    fn choose(&self, to: &ReplicaId, address: &Arc<str>) -> SharedConnection {
        let mut peers = self.peers.lock();
        if let Some(slot) = peers.get_mut(to)
            && slot.address == *address
            && let Some(connection) = slot.choose()
        {
            return connection;
        }
        peers.retain(|_, slot| slot.is_usable());
        let slot = peers.entry(to.clone()).or_default();
        if slot.address != *address {
            *slot = PeerSlot {
                address: address.clone(),
                connections: Vec::new(),
            };
        }
        let is_only = slot.connections.is_empty();
        let opening = self.context.clone();
        let connection = opening.begin_open(to.clone(), address.clone(), is_only);
        slot.connections.push(connection.clone());
        connection
    }

    /// The open connection with the most room, for a request that gets no further one.
    fn open_to(&self, to: &ReplicaId) -> Option<PeerConnection> {
        let peers = self.peers.lock();
        let connections = &peers.get(to)?.connections;
        open(&connections[with_most_room(connections)?]).cloned()
    }

    /// Takes note that a replica has ended, though there is a connection to its address.
    pub(crate) fn report_ended(&self, to: &ReplicaId) {
        self.peers.lock().remove(to);
        self.context.directory.report_unreachable(to);
    }

    /// Uses other keys for the connections that are opened from now on. Open ones take no further
    /// requests, and close after the last of theirs.
    pub(crate) fn use_tls(&self, tls: ClusterTls) {
        let mut current = self.context.tls.lock();
        *current = tls;
        drop(current);
        self.peers.lock().clear();
    }

    /// Closes all connections, and waits for the end of their tasks.
    pub(crate) async fn shutdown(&self) {
        self.context.force.cancel();
        self.peers.lock().clear();
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }
}

impl PeerSlot {
    /// True while a connection is being opened or is open.
    fn is_usable(&self) -> bool {
        self.connections.iter().any(is_usable)
    }

    /// The connection for the next request: the first that slow readers leave room. So the later
    /// ones close once they are not needed. Absent if a further one is to be opened.
    fn choose(&mut self) -> Option<SharedConnection> {
        self.connections.retain(is_usable);
        let all = &self.connections;
        let has_room = |one| open(one).is_some_and(|one| !one.is_crowded());
        let has_room = all.iter().position(has_room);
        let is_coming = || all.iter().position(|one| one.peek().is_none());
        let is_full = all.len() >= MAX_CONNECTIONS;
        let is_last = || with_most_room(all).filter(|_| is_full);
        let chosen = has_room.or_else(is_coming).or_else(is_last)?;
        let later = self.connections.split_off(chosen + 1);
        let is_needed = |one: &SharedConnection| !open(one).is_some_and(PeerConnection::is_idle);
        self.connections.extend(later.into_iter().filter(is_needed));
        self.connections.get(chosen).cloned()
    }
}

/// True while a connection is being opened or is open.
fn is_usable(connection: &SharedConnection) -> bool {
    connection.peek().is_none() || open(connection).is_some()
}

/// The connection, if it is open.
fn open(connection: &SharedConnection) -> Option<&PeerConnection> {
    let opened = connection.peek()?.as_ref().ok()?;
    opened.is_open().then_some(opened)
}

/// The place of the connection with the most room.
fn with_most_room(connections: &[SharedConnection]) -> Option<usize> {
    let room = connections
        .iter()
        .map(|one| open(one).map(PeerConnection::window_left));
    let (place, _) = room.enumerate().max_by_key(|(_, room)| *room)?;
    Some(place)
}

impl OpenContext {
    /// Opens a connection by a task of its own: the request that needs it first may be dropped.
    fn begin_open(
        self: Arc<Self>,
        to: ReplicaId,
        address: Arc<str>,
        is_only: bool,
    ) -> SharedConnection {
        let (tasks, force) = (self.tasks.clone(), self.force.clone());
        let opening = force.run_until_cancelled_owned(self.open(to, address, is_only));
        let opening = tasks.spawn(opening);
        let opened = async move {
            match opening.await {
                Ok(Some(opened)) => opened,
                Ok(None) | Err(_) => Err(OpenFailure("shutdown".into())),
            }
        };
        opened.boxed().shared()
    }

    fn current_tls(&self) -> ClusterTls {
        let tls = self.tls.lock();
        tls.clone()
    }

    async fn open(
        self: Arc<Self>,
        to: ReplicaId,
        address: Arc<str>,
        is_only: bool,
    ) -> Result<PeerConnection, OpenFailure> {
        let descriptor = peer_connection::take_descriptor(&self.budgets)?;
        let window = peer_connection::reserve_window(&self.budgets);
        let tls = self.current_tls();
        let handshake = PeerHandshake { tls, window };
        match peer_dialer::open(&*self.dialer, &address, handshake).await {
            Ok(OpenedPeer { connection, driver }) => {
                let driving = async move {
                    let _held = descriptor;
                    driver.await;
                };
                self.tasks
                    .spawn(self.force.clone().run_until_cancelled_owned(driving));
                Ok(connection)
            }
            Err(failure) => {
                tracing::warn!(address = %address, error = %failure.0, "connection to replica failed");
                if is_only {
                    self.directory.report_unreachable(&to);
                }
                Err(failure)
            }
        }
    }
}

impl fmt::Debug for PeerConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConnections").finish_non_exhaustive()
    }
}
