//! The client side of weir: the listener, the stack of layers that each request passes, modern and
//! legacy requests, legacy sessions, and `rescue`, the one module that turns failures into
//! responses.
//!
//! It has no upstream and no HTTP client; it reaches other crates through ports of core.

mod admission;
mod answer;
mod asker;
mod body;
mod challenge;
mod clientele;
mod doorway;
mod encode;
mod extensions;
mod followed;
mod guard;
mod head;
mod help;
mod in_flight;
mod in_memory;
mod intake;
mod keep_alive;
mod legacy;
mod limit;
mod line;
mod listen;
mod lists;
mod metadata;
mod meters;
mod mirrors;
mod modern;
mod moved;
mod observe;
mod overview;
mod places;
mod pressure;
mod questions;
mod replay;
mod rescue;
mod roll;
mod running;
mod sender;
mod session_news;
mod sessions;
pub mod settings;
mod stack;
mod streams;
mod subscriptions;
mod tally;
mod tasks;
mod told;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_core::port::{
    AuditLog, Authorizer, Clock, Limiter, MessageBus, Random, RecordStore, ReplayLog,
    ReplicaMailbox, Verifier,
};
use weir_core::seal::Sealer;
use weir_core::session_notifier::SessionNotifier;
use weir_core::{Budgets, Catalog, Router};

pub use clientele::ClientSeen;
pub use in_memory::{InMemoryBody, InMemoryChannel, Stopped, UpcomingRequest};
pub use line::LINE_PATHS;
pub use listen::TlsError;
pub use metadata::WELL_KNOWN_PATHS;
pub use moved::{MovedSession, MovingSessions};
pub use overview::{Overview, SessionSeen};
pub use pressure::{Pressure, Shortage};
pub use rescue::{ErrorRow, error_table};
pub use roll::StreamSeen;
pub use settings::Settings;

use listen::{Certificates, Listening};
use stack::{Shared, Stack};

/// The ports that the client side needs.
#[derive(Clone)]
pub struct Ports {
    /// Verifies credentials.
    pub verifier: Arc<dyn Verifier>,
    /// Decides if a principal may make a call.
    pub authorizer: Arc<dyn Authorizer>,
    /// Limits rates of requests.
    pub limiter: Arc<dyn Limiter>,
    /// Records decisions.
    pub audit: Arc<dyn AuditLog>,
    /// Stores legacy sessions.
    pub records: Arc<dyn RecordStore>,
    /// Carries cancellations and ended sessions to every replica.
    pub bus: Arc<dyn MessageBus>,
    /// Keeps the events that a client may still need after it lost its connection.
    pub replays: Arc<dyn ReplayLog>,
    /// Carries messages of upstreams to clients of sessions outside of their calls.
    pub bells: Arc<SessionNotifier>,
    /// Carries answers to questions of another replica.
    pub mailbox: Arc<dyn ReplicaMailbox>,
    /// The memory and descriptors that the whole process may use.
    pub budgets: Budgets,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Unguessable bytes.
    pub random: Arc<dyn Random>,
}

/// The running client side.
pub struct Front {
    listening: Arc<Listening>,
    shared: Arc<Shared>,
    address: SocketAddr,
    /// A duplicate of the listening socket for another process. Absent once the drain begins:
    /// clients must not queue up at it then.
    socket: Mutex<Option<OwnedFd>>,
}

/// The reason that the client side did not start, or did not take a reload.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The listener cannot be bound to the address.
    #[error(transparent)]
    Address(#[from] io::Error),
    /// The certificate files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Front {
    /// Binds the listener at `settings.listen`, or takes the `inherited` one. It serves no
    /// connection yet, so the caller can check the bound address before the first accept. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// The address is taken or not allowed.
    pub fn listener(
        settings: &Settings,
        inherited: Option<TcpListener>,
    ) -> Result<TcpListener, BindError> {
        Ok(listen::bind(inherited, settings.listen, settings.limits.backlog)?.into_std()?)
    }

    /// Listens and serves, at the `inherited` listening socket if there is one.
    ///
    /// # Errors
    /// The address is taken or not allowed, or the certificates cannot be used.
    pub async fn bind(
        settings: Settings,
        inherited: Option<TcpListener>,
        ports: Ports,
        (router, catalog): (Arc<Router>, Arc<Catalog>),
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        let listener = listen::bind(inherited, settings.listen, settings.limits.backlog)?;
        let address = listener.local_addr()?;
        let socket = Mutex::new(Some(listener.as_fd().try_clone_to_owned()?));
        let shared = Shared::new(ports, router, catalog, sealer);
        let listening =
            Listening::new(Stack::new(settings, address, shared.clone()), certificates)?;
        listening.start(listener);
        shared.start();
        Ok(Self {
            listening,
            shared,
            address,
            socket,
        })
    }

    /// Serves at [`InMemoryChannel`]s alone: no socket is open. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn in_memory(
        settings: Settings,
        ports: Ports,
        (router, catalog): (Arc<Router>, Arc<Catalog>),
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        // An address of this machine, so that its host is a known one.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let shared = Shared::new(ports, router, catalog, sealer);
        let listening =
            Listening::new(Stack::new(settings, address, shared.clone()), certificates)?;
        shared.start();
        Ok(Self {
            listening,
            shared,
            address,
            socket: Mutex::default(),
        })
    }

    /// A new channel inside the process.
    #[must_use]
    pub fn channel(&self) -> InMemoryChannel {
        InMemoryChannel::new(self.listening.clone())
    }

    /// The bound address; port 0 without a listening socket.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A duplicate of the listening socket, for a successor process that will also serve at it.
    ///
    /// # Errors
    /// The system has no descriptor left, or the drain has begun.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket
            .as_ref()
            .ok_or_else(|| io::Error::other("it is closed"))?
            .try_clone()
    }

    /// Applies new settings, and the catalog's endpoints as they are now, from the next request on.
    /// The address stays.
    ///
    /// # Errors
    /// New certificate files cannot be used; the old settings then stay in force.
    pub fn reload(&self, settings: Settings) -> Result<(), BindError> {
        let certificates = certificates(&settings)?;
        self.listening.use_certificates(certificates)?;
        self.listening.stack.store(Arc::new(Stack::new(
            settings,
            self.address,
            self.shared.clone(),
        )));
        Ok(())
    }

    /// The state of the client side for operators.
    #[must_use]
    pub fn overview(&self) -> Overview {
        Overview(self.shared.clone())
    }

    /// The sessions, for a graceful restart.
    #[must_use]
    pub fn moving_sessions(&self) -> MovingSessions {
        MovingSessions(self.shared.clone())
    }

    /// The handle that reports memory pressure.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        Pressure(self.shared.clone())
    }

    /// Stops accepting, ends listening streams gracefully, lets calls finish for at most
    /// `deadline`, then closes everything.
    pub async fn drain(&self, deadline: Duration) {
        self.listening.drain.cancel();
        self.socket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.listening.tasks.close();
        self.shared.detached.close();
        let done = async {
            self.listening.tasks.wait().await;
            self.shared.detached.wait().await;
        };
        if tokio::time::timeout(deadline, done).await.is_err() {
            tracing::warn!("calls were still running at the end of the drain: they are cut off");
        }
        self.listening.force.cancel();
        self.shared.force.cancel();
        self.listening.tasks.wait().await;
        self.shared.upkeep.close();
        self.shared.upkeep.wait().await;
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.listening.drain.cancel();
        self.listening.force.cancel();
        self.shared.force.cancel();
    }
}

fn certificates(settings: &Settings) -> Result<Option<Arc<Certificates>>, TlsError> {
    settings.tls.as_ref().map(Certificates::read).transpose()
}
