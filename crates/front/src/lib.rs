//! The client side of weir: the listener, the stack of layers that each request passes, modern and
//! legacy requests, legacy sessions, and `rescue`, the one module that turns failures into
//! responses.
//!
//! It has no upstream and no HTTP client; it reaches other crates through ports of core.

mod answer;
mod authenticate;
mod body;
mod challenge;
mod client_address;
mod client_asker;
mod client_questions;
mod encode;
mod endpoint_meters;
mod extensions;
mod followed_tasks;
mod head_guard;
mod header_names;
mod help_page;
mod in_flight;
mod in_memory;
mod keep_alive;
mod known_clients;
mod legacy;
mod listen;
mod listening_stream;
mod lists;
mod memory_pressure;
mod mirrored_headers;
mod modern;
mod moved_sessions;
mod observe;
mod outcome;
mod overview;
mod permits;
mod rate_limit;
mod replay;
mod request_body;
mod request_checks;
mod request_span;
mod rescue;
mod running_call;
mod session_news;
mod sessions;
pub mod settings;
mod sse_transport;
mod stack;
mod stream_registry;
mod subscriptions;
mod tasks;
mod well_known_documents;

use std::fmt;
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
use weir_core::{Budgets, Router};

pub use in_memory::{FrontStopped, InMemoryBody, InMemoryChannel, UpcomingRequest};
pub use known_clients::ClientSeen;
pub use listen::ListenerTlsError;
pub use memory_pressure::{MemoryPressure, PressureHandle};
pub use moved_sessions::{MovedSession, MovingSessions};
pub use overview::{FrontOverview, SessionSeen};
pub use rescue::{ErrorRow, error_table};
pub use settings::FrontSettings;
pub use sse_transport::SSE_PATHS;
pub use stream_registry::StreamSeen;
pub use well_known_documents::WELL_KNOWN_PATHS;

use listen::{ListenerCertificates, ListenerState};
use stack::{FrontStack, FrontState};

/// The ports that the client side needs.
#[derive(Clone)]
pub struct FrontPorts {
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

impl fmt::Debug for FrontPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontPorts").finish_non_exhaustive()
    }
}

/// The running client side.
pub struct Front {
    listening: Arc<ListenerState>,
    shared: Arc<FrontState>,
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
    Tls(#[from] ListenerTlsError),
}

impl Front {
    /// Binds the listener at `settings.listen`, or takes the `inherited` one. It serves no
    /// connection yet, so the caller can check the bound address before the first accept. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// The address is taken or not allowed.
    pub fn listener(
        settings: &FrontSettings,
        inherited: Option<TcpListener>,
    ) -> Result<TcpListener, BindError> {
        Ok(listen::bind(inherited, settings.listen, settings.limits.backlog)?.into_std()?)
    }

    /// Listens and serves, at the `inherited` listening socket if there is one.
    ///
    /// # Errors
    /// The address is taken or not allowed, or the certificates cannot be used.
    pub async fn bind(
        settings: FrontSettings,
        inherited: Option<TcpListener>,
        ports: FrontPorts,
        router: Arc<Router>,
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        let listener = listen::bind(inherited, settings.listen, settings.limits.backlog)?;
        let address = listener.local_addr()?;
        let socket = Mutex::new(Some(listener.as_fd().try_clone_to_owned()?));
        let shared = FrontState::new(ports, router, sealer);
        let listening = ListenerState::new(
            FrontStack::new(settings, address, shared.clone()),
            certificates,
        )?;
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
        settings: FrontSettings,
        ports: FrontPorts,
        router: Arc<Router>,
        sealer: Sealer,
    ) -> Result<Self, BindError> {
        let certificates = certificates(&settings)?;
        // An address of this machine, so that its host is a known one.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let shared = FrontState::new(ports, router, sealer);
        let listening = ListenerState::new(
            FrontStack::new(settings, address, shared.clone()),
            certificates,
        )?;
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
    pub fn reload(&self, settings: FrontSettings) -> Result<(), BindError> {
        let certificates = certificates(&settings)?;
        self.listening.use_certificates(certificates)?;
        self.listening.stack.store(Arc::new(FrontStack::new(
            settings,
            self.address,
            self.shared.clone(),
        )));
        Ok(())
    }

    /// The state of the client side for operators.
    #[must_use]
    pub fn overview(&self) -> FrontOverview {
        FrontOverview(self.shared.clone())
    }

    /// The sessions, for a graceful restart.
    #[must_use]
    pub fn moving_sessions(&self) -> MovingSessions {
        MovingSessions(self.shared.clone())
    }

    /// The handle that reports memory pressure.
    #[must_use]
    pub fn pressure(&self) -> PressureHandle {
        PressureHandle(self.shared.clone())
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
        self.shared.detached_tasks.close();
        let done = async {
            self.listening.tasks.wait().await;
            self.shared.detached_tasks.wait().await;
        };
        if tokio::time::timeout(deadline, done).await.is_err() {
            tracing::warn!("drain deadline exceeded: running calls are cancelled");
        }
        self.listening.force.cancel();
        self.shared.force.cancel();
        self.listening.tasks.wait().await;
        self.shared.background_tasks.close();
        self.shared.background_tasks.wait().await;
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.listening.drain.cancel();
        self.listening.force.cancel();
        self.shared.force.cancel();
    }
}

fn certificates(
    settings: &FrontSettings,
) -> Result<Option<Arc<ListenerCertificates>>, ListenerTlsError> {
    settings
        .tls
        .as_ref()
        .map(ListenerCertificates::read)
        .transpose()
}
