//! The state that connections share.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_core::Budgets;

use crate::connection_slots::ConnectionSlots;
use crate::handshake_limit::HandshakeLimit;
use crate::request_service::RequestService;
use crate::tls::{ListenerCertificates, ListenerTlsError};

/// The end of a connection; the cause is for the debug log only.
pub(super) type ConnectionResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The state that connections share.
pub struct ListenerState<R> {
    /// Loaded once by every request.
    service: ArcSwap<R>,
    /// The memory and descriptors of connections.
    pub(super) budgets: Budgets,
    /// Present if TLS is on.
    pub(super) certificates: ArcSwapOption<ListenerCertificates>,
    pub(super) acceptor: ArcSwapOption<rustls::ServerConfig>,
    pub(super) slots: Arc<ConnectionSlots>,
    pub(super) handshakes: Arc<HandshakeLimit>,
    /// Cancelled when draining begins: no new connections, idle ones close.
    pub(super) drain: CancellationToken,
    /// Cancelled when draining is over: all connections close.
    pub(super) force: CancellationToken,
    /// The accept loop and every connection.
    pub(super) tasks: TaskTracker,
}

impl<R: RequestService> ListenerState<R> {
    /// The state of a listener that serves no connection yet.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(
        service: R,
        budgets: Budgets,
        drain: CancellationToken,
        certificates: Option<Arc<ListenerCertificates>>,
    ) -> Result<Arc<Self>, ListenerTlsError> {
        let handshakes = HandshakeLimit::new(service.limits().handshakes);
        let force = CancellationToken::new();
        let listening = Self {
            service: ArcSwap::from_pointee(service),
            budgets,
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
    ///
    /// # Errors
    /// The certificates cannot be used; the old ones stay.
    pub fn use_certificates(
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

    /// Switches TLS to a fixed config, without files that are watched, for connections accepted from
    /// now on.
    pub fn use_server_config(&self, config: Arc<rustls::ServerConfig>) {
        self.certificates.store(None);
        self.acceptor.store(Some(config));
    }

    /// The service in force. A request ends on the service that it began on.
    pub fn service(&self) -> Arc<R> {
        self.service.load_full()
    }

    /// The service in force, for the begin of a request: all connections would write to the
    /// reference count of a clone.
    pub(super) fn peek_service(&self) -> Guard<Arc<R>> {
        self.service.load()
    }

    /// Replaces the service from the next request on.
    pub fn replace_service(&self, service: R) {
        self.service.store(Arc::new(service));
    }

    /// Cancelled when draining begins: no new connections, idle ones close.
    pub fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when draining is over: all connections close.
    pub fn force(&self) -> &CancellationToken {
        &self.force
    }

    /// The accept loop and every connection.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.acceptor.load_full().map(TlsAcceptor::from)
    }
}

impl<R> fmt::Debug for ListenerState<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerState").finish_non_exhaustive()
    }
}
