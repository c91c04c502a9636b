//! The client side: the listener, the column of layers each request passes, the doors of both eras,
//! legacy sessions, and the one place where failures become responses.
//!
//! It knows no upstream and no HTTP client; what it needs of others are ports of core.

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

use weir_core::bell::Bells;
use weir_core::port::{
    Audit, Authorizer, Bus, Clock, Limiter, Mailbox, Random, Records, Replays, Verifier,
};
use weir_core::seal::Sealer;
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

/// What front asks of the world.
#[derive(Clone)]
pub struct Ports {
    /// Who are you.
    pub verifier: Arc<dyn Verifier>,
    /// May you.
    pub authorizer: Arc<dyn Authorizer>,
    /// How often.
    pub limiter: Arc<dyn Limiter>,
    /// What was decided.
    pub audit: Arc<dyn Audit>,
    /// Legacy sessions.
    pub records: Arc<dyn Records>,
    /// Cancels and ended sessions, told to every replica.
    pub bus: Arc<dyn Bus>,
    /// What clients that lost their connection may still have.
    pub replays: Arc<dyn Replays>,
    /// What servers say to clients of sessions outside of their calls.
    pub bells: Arc<Bells>,
    /// Answers to another replica's questions.
    pub mailbox: Arc<dyn Mailbox>,
    /// What the process may use as a whole.
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
    /// The listening socket once more, for another process. Gone when the drain begins: then nobody
    /// is to queue up at it.
    socket: Mutex<Option<OwnedFd>>,
}

/// Why the client side did not start, or did not take a reload.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be listened at.
    #[error(transparent)]
    Address(#[from] io::Error),
    /// The certificate files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Front {
    /// Binds the listener at `settings.listen`, or takes the `inherited` one, and serves nothing at
    /// it yet: the address that it is really bound to can be checked before the first connection is
    /// accepted. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The address is taken or not allowed.
    pub fn listener(
        settings: &Settings,
        inherited: Option<TcpListener>,
    ) -> Result<TcpListener, BindError> {
        Ok(listen::bind(inherited, settings.listen, settings.limits.backlog)?.into_std()?)
    }

    /// Listens and serves, at a listening socket that was `inherited`, where there is one.
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
        // Of this machine, so that its host is a known one.
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

    /// A channel inside the process.
    #[must_use]
    pub fn channel(&self) -> InMemoryChannel {
        InMemoryChannel::new(self.listening.clone())
    }

    /// Where it listens; port 0 where it does not.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The listening socket, for a process that is to serve at it too.
    ///
    /// # Errors
    /// The system has no file left, or the drain has begun.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket
            .as_ref()
            .ok_or_else(|| io::Error::other("it is closed"))?
            .try_clone()
    }

    /// Serves by other settings, and by the catalog's endpoints as they are now, from the next
    /// request on. The address stays.
    ///
    /// # Errors
    /// New certificate files cannot be used; then nothing has changed.
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

    /// The client side as operators see it.
    #[must_use]
    pub fn overview(&self) -> Overview {
        Overview(self.shared.clone())
    }

    /// The sessions, for a hand-over.
    #[must_use]
    pub fn moving_sessions(&self) -> MovingSessions {
        MovingSessions(self.shared.clone())
    }

    /// The way to say how short memory is.
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
