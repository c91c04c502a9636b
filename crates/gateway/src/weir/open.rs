//! The two listeners: clients' and operators'.

use std::net::TcpListener;
use std::sync::Arc;

use weir_core::live::LiveCalls;
use weir_core::{Router, TaskDesk};
use weir_front::Front;
use weir_store::{MemoryBus, MemoryMailbox, MemoryTasks, TaskCaps};

use super::errors::{StartError, front_reason, reason};
use super::inside::Inside;
use crate::admin::{Admin, Chronicle, Desk, Gate, Parts};
use crate::config::{AdminPlan, Config};
use crate::outbound;

/// What is open, and who answers operators.
pub(super) struct Open {
    pub(super) front: Front,
    pub(super) desk: Arc<Desk>,
    /// `None` where the config has none, and when a successor has it.
    pub(super) admin: Option<Admin>,
}

impl Open {
    /// Binds both, or takes the sockets that the process was given, of clients and operators. Must be called inside a tokio runtime.
    pub(super) async fn new(
        config: &Arc<Config>,
        inside: &Inside,
        (clients, operators): (Option<TcpListener>, Option<TcpListener>),
    ) -> Result<Self, StartError> {
        let router = inside.router();
        let live = router.live().clone();
        // Clients' port first: if that cannot be had, nothing else matters.
        let front = front(config, inside, router, clients).await?;
        let desk = Arc::new(desk(config, inside, &front, live));
        let admin = start_admin(config.admin.as_ref(), operators, &desk).await?;
        Ok(Self { front, desk, admin })
    }

    /// Gives up the operators' listener, once what was asked there is answered.
    pub(super) async fn close_admin(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.shutdown().await;
        }
    }
}

/// The client side, with everything it asks of others behind core's ports.
async fn front(
    config: &Config,
    Inside { base, deciders, kept, catalog, .. }: &Inside,
    router: Router,
    socket: Option<TcpListener>,
) -> Result<Front, StartError> {
    let (clock, random, gates) = (&base.clock, &base.random, &deciders.gates);
    let book = Arc::new(MemoryTasks::new(clock.clone(), TaskCaps::default()));
    let tasks = TaskDesk::new(base.sealer.clone(), (random.clone(), clock.clone()), book);
    let router = Arc::new(router.with_parking(kept.parking.clone()).with_tasks(tasks));
    let ports = weir_front::Ports {
        verifier: deciders.clients.verifier(),
        authorizer: gates.authorizer.clone(),
        limiter: gates.limiter.clone(),
        audit: gates.audit.clone(),
        records: kept.records.clone(),
        replays: kept.replays.clone(),
        bells: base.bells.clone(),
        budgets: base.budgets.clone(),
        bus: Arc::new(MemoryBus::default()),
        mailbox: Arc::new(MemoryMailbox::new(&**random)),
        clock: clock.clone(),
        random: random.clone(),
    };
    let listen = config.front.listen;
    let failed = |error| StartError::Listen { address: listen, operators: false, why: front_reason(&error) };
    let served = (router, catalog.clone());
    Front::bind(outbound::front(config), socket, ports, served, base.sealer.clone()).await.map_err(failed)
}

/// What operators see and change.
fn desk(
    config: &Arc<Config>,
    Inside { base, deciders, kept, catalog, ready, explainer, book }: &Inside,
    front: &Front,
    live: Arc<LiveCalls>,
) -> Desk {
    let (clock, audit, clients) = (&base.clock, &deciders.gates.audit, &deciders.clients);
    let parts = Parts {
        metrics: base.metrics.clone(),
        ready: ready.clone(),
        explainer: explainer.clone(),
        catalog: catalog.clone(),
        live,
        parking: kept.parking.clone(),
        front: front.overview(),
        limits: deciders.limits.clone(),
        blocked: deciders.blocked.clone(),
        credentials: clients.verifier(),
        chronicle: Chronicle::new(config.clone(), clock.wall()),
        gate: Gate::new(config.admin.clone(), clients.verifier(), (clock, audit)),
        audit: audit.clone(),
        clock: clock.clone(),
    };
    Desk::new(parts, book.clone())
}

async fn start_admin(
    plan: Option<&AdminPlan>,
    socket: Option<TcpListener>,
    desk: &Arc<Desk>,
) -> Result<Option<Admin>, StartError> {
    let Some(address) = plan.map(|plan| plan.listen) else { return Ok(None) };
    let failed = |error: std::io::Error| StartError::Listen { address, operators: true, why: reason(&error) };
    Admin::start(address, socket, desk.clone()).await.map(Some).map_err(failed)
}
