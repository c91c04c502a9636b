//! The connections to other replicas: one to each, opened on demand.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::Budgets;
use weir_core::port::{ReplicaDirectory, ReplicaId};

use crate::cluster_tls::ClusterTls;
use crate::peer_connection::{self, OpenFailure, OpenedPeer, PeerConnection};
use crate::peer_dialer::{self, PeerDialer, PeerHandshake};

/// A connection that is being opened or is open. All requests to its replica share it.
type SharedConnection = Shared<BoxFuture<'static, Result<PeerConnection, OpenFailure>>>;

/// The connections to other replicas.
pub(crate) struct PeerConnections {
    context: Arc<OpenContext>,
    /// The replicas that run now bound the map: others are removed when a connection is opened.
    peers: Mutex<HashMap<ReplicaId, PeerSlot>>,
}

struct PeerSlot {
    address: Arc<str>,
    connection: SharedConnection,
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

    /// The connection to a replica, opened if there is none. A failure to open is reported to the
    /// directory once, and to all requests that waited.
    pub(crate) async fn get(&self, to: &ReplicaId) -> Result<PeerConnection, OpenFailure> {
        let directory = &self.context.directory;
        let found = match directory.address(to) {
            // The search makes a future, which a known replica does not need.
            None => directory.find_address(to).await,
            known => known,
        };
        let Some(address) = found else {
            self.peers().remove(to);
            return Err(OpenFailure("the replica has ended".into()));
        };
        let connection = self.shared(to, &address);
        connection.await
    }

    fn shared(&self, to: &ReplicaId, address: &Arc<str>) -> SharedConnection {
        let mut peers = self.peers();
        if let Some(slot) = peers.get(to)
            && slot.address == *address
            && slot.is_usable()
        {
            return slot.connection.clone();
        }
        peers.retain(|_, slot| slot.is_usable());
        let connection = self.context.clone().begin_open(to.clone(), address.clone());
        let slot = PeerSlot {
            address: address.clone(),
            connection: connection.clone(),
        };
        peers.insert(to.clone(), slot);
        connection
    }

    /// Takes note that a replica has ended, though there is a connection to its address.
    pub(crate) fn report_ended(&self, to: &ReplicaId) {
        self.peers().remove(to);
        self.context.directory.report_unreachable(to);
    }

    /// Uses other keys for the connections that are opened from now on. Open ones take no further
    /// requests, and close after the last of theirs.
    pub(crate) fn use_tls(&self, tls: ClusterTls) {
        let mut current = self
            .context
            .tls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = tls;
        drop(current);
        self.peers().clear();
    }

    /// Closes all connections, and waits for the end of their tasks.
    pub(crate) async fn shutdown(&self) {
        self.context.force.cancel();
        self.peers().clear();
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<ReplicaId, PeerSlot>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerSlot {
    /// True while the connection is being opened or is open.
    fn is_usable(&self) -> bool {
        match self.connection.peek() {
            None => true,
            Some(Ok(connection)) => connection.is_open(),
            Some(Err(_)) => false,
        }
    }
}

impl OpenContext {
    /// Opens a connection by a task of its own: the request that needs it first may be dropped.
    fn begin_open(self: Arc<Self>, to: ReplicaId, address: Arc<str>) -> SharedConnection {
        let (tasks, force) = (self.tasks.clone(), self.force.clone());
        let opening = tasks.spawn(force.run_until_cancelled_owned(self.open(to, address)));
        let opened = async move {
            match opening.await {
                Ok(Some(opened)) => opened,
                Ok(None) | Err(_) => Err(OpenFailure("shutdown".into())),
            }
        };
        opened.boxed().shared()
    }

    fn current_tls(&self) -> ClusterTls {
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        tls.clone()
    }

    async fn open(
        self: Arc<Self>,
        to: ReplicaId,
        address: Arc<str>,
    ) -> Result<PeerConnection, OpenFailure> {
        let descriptor = peer_connection::take_descriptor(&self.budgets)?;
        let (window, memory) = peer_connection::reserve_window(&self.budgets);
        let tls = self.current_tls();
        let handshake = PeerHandshake { tls, window };
        match peer_dialer::open(&*self.dialer, &address, handshake).await {
            Ok(OpenedPeer { connection, driver }) => {
                let driving = async move {
                    let _held = (descriptor, memory);
                    driver.await;
                };
                self.tasks
                    .spawn(self.force.clone().run_until_cancelled_owned(driving));
                Ok(connection)
            }
            Err(failure) => {
                tracing::warn!(address = %address, error = %failure.0, "connection to replica failed");
                self.directory.report_unreachable(&to);
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
