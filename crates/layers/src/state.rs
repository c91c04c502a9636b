//! The state of the client side that survives a reload.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_catalog::Catalog;
use weir_core::call::RequestName;
use weir_core::hold::HoldShare;
use weir_core::seal::Sealer;
use weir_router::Router;
use weir_session::{
    KnownClients, LegacySessions, SessionUpkeep, SseConnections, StreamPermits, StreamRegistry,
    run_upkeep,
};

use crate::in_flight::InFlightLimit;
use crate::memory_pressure::{CurrentPressure, PressureHandle};
use crate::page_cache::PageCache;
use crate::ports::FrontPorts;

/// The state that survives a reload.
pub struct FrontState {
    /// The ports.
    pub ports: FrontPorts,
    /// The router of calls to upstreams.
    pub router: Arc<Router>,
    /// The catalog of the router.
    pub catalog: Arc<Catalog>,
    /// Seals and opens the texts that clients carry.
    pub sealer: Sealer,
    /// Sessions of legacy clients.
    pub sessions: Arc<LegacySessions>,
    /// Rendered pages of lists.
    pub pages: Arc<PageCache>,
    /// The budget for parts of large results that must be held.
    pub hold_budget: HoldShare,
    /// The name of the next request.
    next_request_name: AtomicU64,
    /// Requests without the beginning of an answer.
    pub(crate) in_flight: InFlightLimit,
    /// The current memory pressure.
    pub(crate) memory_pressure: Arc<CurrentPressure>,
    /// Permits for open listen and GET streams.
    pub stream_permits: Arc<StreamPermits>,
    /// Permits for resources that clients subscribed to.
    pub subscription_permits: Arc<StreamPermits>,
    /// Open streams, by their owners.
    pub open_streams: Arc<StreamRegistry>,
    /// Client programs that have used weir.
    pub known_clients: Arc<KnownClients>,
    /// Connections of HTTP+SSE clients.
    pub sse_connections: Arc<SseConnections>,
    /// Tasks of calls that outlived the connection of their legacy client.
    pub detached_tasks: TaskTracker,
    /// Tasks that receive cancellations and clear sessions away. They run on while calls are
    /// drained.
    pub background_tasks: TaskTracker,
    /// Cancelled when draining begins.
    pub drain: CancellationToken,
    /// Cancelled when draining is over.
    pub force: CancellationToken,
}

impl std::fmt::Debug for FrontState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontState").finish_non_exhaustive()
    }
}

impl FrontState {
    /// The state of a client side that serves no request yet.
    pub fn new(ports: FrontPorts, router: Arc<Router>, sealer: Sealer) -> Arc<Self> {
        let mut first = [0; 8];
        ports.random.fill(&mut first);
        Arc::new(Self {
            sessions: Arc::new(LegacySessions::new(ports.of_sessions(&sealer))),
            hold_budget: HoldShare::new(ports.budgets.hold.clone()),
            next_request_name: AtomicU64::new(u64::from_ne_bytes(first)),
            ports,
            catalog: router.catalog().clone(),
            router,
            sealer,
            pages: Arc::default(),
            in_flight: InFlightLimit::default(),
            memory_pressure: Arc::default(),
            stream_permits: Arc::default(),
            subscription_permits: Arc::default(),
            open_streams: Arc::default(),
            known_clients: Arc::default(),
            sse_connections: Arc::default(),
            detached_tasks: TaskTracker::new(),
            background_tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            force: CancellationToken::new(),
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
        self.background_tasks
            .spawn(self.force.clone().run_until_cancelled_owned(work));
    }

    /// The handle that reports memory pressure.
    #[must_use]
    pub fn pressure_handle(&self) -> PressureHandle {
        PressureHandle {
            pressure: self.memory_pressure.clone(),
            pages: self.pages.clone(),
        }
    }

    /// The name of a new request.
    pub fn request_name(&self) -> RequestName {
        // A name tells requests apart and grants no access. So an unguessable start and fixed steps
        // are enough, without a system call. The odd step visits every number once.
        RequestName::from_bits(
            self.next_request_name
                .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed),
        )
    }
}
