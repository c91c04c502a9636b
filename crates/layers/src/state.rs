//! The state of the client side that survives a reload.

use std::sync::Arc;

use weir_catalog::Catalog;
use weir_core::hold::HoldShare;
use weir_router::Router;
use weir_seal::Sealer;
use weir_session::{
    KnownClients, LegacySessions, OpenStreams, SessionUpkeep, SseConnections, run_upkeep,
};

use crate::memory_pressure::PressureHandle;
use crate::outer_state::OuterState;
use crate::page_cache::PageCache;
use crate::ports::FrontPorts;
use crate::shutdown::Shutdown;

/// The state that survives a reload.
#[derive(Debug)]
pub struct FrontState {
    /// The ports.
    pub ports: FrontPorts,
    /// The router of calls to upstreams.
    pub router: Arc<Router>,
    /// Seals and opens the texts that clients carry.
    pub sealer: Sealer,
    /// Sessions of legacy clients.
    pub sessions: Arc<LegacySessions>,
    /// Rendered pages of lists.
    pub pages: Arc<PageCache>,
    /// The budget for parts of large results that must be held.
    pub hold_budget: HoldShare,
    /// The state of the layers around the router.
    pub outer: Arc<OuterState>,
    /// Open streams and their permits.
    pub streams: OpenStreams,
    /// Client programs that have used weir.
    pub known_clients: Arc<KnownClients>,
    /// Connections of HTTP+SSE clients.
    pub sse_connections: Arc<SseConnections>,
    /// The tasks that belong to no connection, and the signals of the shutdown.
    pub shutdown: Shutdown,
}

impl FrontState {
    /// The state of a client side that serves no request yet.
    pub fn new(ports: FrontPorts, router: Arc<Router>, sealer: Sealer) -> Arc<Self> {
        let mut first = [0; 8];
        ports.random.fill(&mut first);
        let shutdown = Shutdown::default();
        let outer = OuterState::new(u64::from_ne_bytes(first), shutdown.drain().clone());
        Arc::new(Self {
            sessions: Arc::new(LegacySessions::new(ports.of_sessions(&sealer))),
            hold_budget: HoldShare::new(ports.budgets.hold.clone()),
            ports,
            router,
            sealer,
            pages: Arc::default(),
            outer: Arc::new(outer),
            streams: OpenStreams::default(),
            known_clients: Arc::default(),
            sse_connections: Arc::default(),
            shutdown,
        })
    }

    /// Starts the tasks that listen to other replicas and clear expired sessions away. They end
    /// after the drain, because clients may still cancel calls during it.
    pub fn start(self: &Arc<Self>) {
        let work = run_upkeep(SessionUpkeep {
            sessions: self.sessions.clone(),
            router: self.router.clone(),
            known_clients: self.known_clients.clone(),
        });
        self.shutdown.spawn_background(work);
    }

    /// The catalog of the router.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        self.router.catalog()
    }

    /// The handle that reports memory pressure.
    #[must_use]
    pub fn pressure_handle(&self) -> PressureHandle {
        PressureHandle {
            pressure: self.outer.memory_pressure.clone(),
            pages: self.pages.clone(),
        }
    }
}
