//! The state that connections share.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection_slots::ConnectionSlots;
use super::handshake_limit::HandshakeLimit;
use super::tls::{ListenerCertificates, ListenerTlsError};
use crate::router::FrontRouter;

/// The end of a connection; the cause is for the debug log only.
pub(super) type ConnectionResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The state that connections share.
pub(crate) struct ListenerState {
    /// Loaded once by every request.
    pub(crate) router: ArcSwap<FrontRouter>,
    /// Present if TLS is on.
    pub(crate) certificates: ArcSwapOption<ListenerCertificates>,
    pub(super) acceptor: ArcSwapOption<rustls::ServerConfig>,
    pub(super) slots: Arc<ConnectionSlots>,
    pub(super) handshakes: Arc<HandshakeLimit>,
    /// Cancelled when draining begins: no new connections, idle ones close.
    pub(crate) drain: CancellationToken,
    /// Cancelled when draining is over: all connections close.
    pub(crate) force: CancellationToken,
    /// The accept loop and every connection.
    pub(crate) tasks: TaskTracker,
}

impl ListenerState {
    pub(crate) fn new(
        router: FrontRouter,
        certificates: Option<Arc<ListenerCertificates>>,
    ) -> Result<Arc<Self>, ListenerTlsError> {
        let handshakes = HandshakeLimit::new(router.limits().handshakes);
        let (drain, force) = (router.state().drain.clone(), CancellationToken::new());
        let listening = Self {
            router: ArcSwap::from_pointee(router),
            certificates: ArcSwapOption::empty(),
            acceptor: ArcSwapOption::empty(),
            slots: Arc::default(),
            handshakes,
            drain,
            force,
            tasks: TaskTracker::new(),
        };
        listening.use_certificates(certificates)?;
        Ok(Arc::new(listening))
    }

    /// Switches TLS on, off, or to other certificates, for connections accepted from now on.
    pub(crate) fn use_certificates(
        &self,
        certificates: Option<Arc<ListenerCertificates>>,
    ) -> Result<(), ListenerTlsError> {
        self.acceptor.store(
            certificates
                .as_ref()
                .map(ListenerCertificates::server_config)
                .transpose()?,
        );
        self.certificates.store(certificates);
        Ok(())
    }

    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.acceptor.load_full().map(TlsAcceptor::from)
    }
}
