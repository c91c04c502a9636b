//! The two listeners: clients' and operators'.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use weir_admin::{
    AdminListener, AdminParts, AdminState, ConfigHistory, ForwardedOperators, OperatorAuth,
    expire_overrides, follow_shared_changes,
};
use weir_config::{AdminPlan, Config};
use weir_core::port::{CallParking, TaskBook};
use weir_front::{BindError, Front};
use weir_router::live_calls::LiveCalls;
use weir_router::{Router, TaskNames};

use crate::front_settings;
use crate::weir::components::Components;
use crate::weir::errors::{StartError, front_reason, reason};
use crate::weir::exposure;
use crate::weir::replica_links::ReplicaLinks;

/// The time between two looks at the calls that still run.
const CALLS_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The bound listeners. The clients' one is absent if clients are inside the process.
#[derive(Default)]
pub(super) struct BoundListeners {
    pub clients: Option<TcpListener>,
    /// The listener for other replicas. Absent if the store is not shared.
    pub cluster: Option<TcpListener>,
    /// The listener, and the plan's address for messages.
    pub operators: Option<(tokio::net::TcpListener, SocketAddr)>,
}

/// The open listeners, and the state for operators.
pub(super) struct OpenListeners {
    pub front: Front,
    pub admin_state: Arc<AdminState>,
    live: Arc<LiveCalls>,
    parking: Arc<dyn CallParking>,
    /// `None` if the config has no such listener, or a successor has it.
    pub admin: Option<AdminListener>,
    /// Make and undo the changes that operators made at other replicas.
    _change_tasks: Vec<AbortOnDropHandle<()>>,
}

impl OpenListeners {
    /// Serves at the sockets for clients and for operators, both bound and checked. Must be called
    /// inside a tokio runtime.
    pub(crate) async fn new(
        config: &Arc<Config>,
        components: &Components,
        BoundListeners {
            clients,
            cluster,
            operators,
        }: BoundListeners,
    ) -> Result<Self, StartError> {
        let router = components.router();
        let live = router.live().clone();
        let front = front(config, components, router, clients).await?;
        if let (Some(replicas), Some(cluster)) = (&components.replicas, cluster) {
            replicas.serve(&front, &components.catalog, cluster)?;
        }
        let admin_state = Arc::new(admin_state(config, components, &front, live.clone()));
        front.answer_operators(Arc::new(ForwardedOperators::new(admin_state.clone())));
        let admin = operators.map(|(listener, address)| {
            AdminListener::start(listener, admin_state.clone())
                .map_err(|error| cannot_listen(address, true, reason(&error)))
        });
        let admin = admin.transpose()?;
        let mut change_tasks = Vec::new();
        if components.changes.is_some() {
            change_tasks.push(tokio::spawn(follow_shared_changes(admin_state.clone())));
            if admin.is_none() {
                // The listener has this task otherwise.
                change_tasks.push(tokio::spawn(expire_overrides(admin_state.clone())));
            }
        }
        let change_tasks = change_tasks.into_iter().map(AbortOnDropHandle::new);
        Ok(Self {
            front,
            admin_state,
            live,
            parking: components.stores.parking.clone(),
            admin,
            _change_tasks: change_tasks.collect(),
        })
    }

    /// Waits until no call runs, nor waits for its client's input, and none can begin any more:
    /// once a drain has begun.
    pub(super) async fn wait_for_last_calls(&self) {
        self.wait_for_calls().await;
        // A request that was being read can become a call, and wait for input.
        self.front.wait_for_connections().await;
        self.wait_for_calls().await;
    }

    /// Waits until no call runs, nor waits for its client's input.
    async fn wait_for_calls(&self) {
        while self.live.count() > 0 || !self.parking.waiting().is_empty() {
            sleep(CALLS_LOOK_INTERVAL).await;
        }
    }

    /// Cancels the calls that still wait for their clients' input. Their upstreams would wait for
    /// them.
    pub(super) fn cancel_parked_calls(&self) {
        let cancelled = self.parking.stop(&|_, _| true);
        if cancelled > 0 {
            tracing::warn!(
                cancelled,
                "shutdown: calls that wait for input are cancelled"
            );
        }
    }

    /// Closes the operators' listener, after its running responses.
    pub(super) async fn close_admin(&mut self) {
        if let Some(admin) = self.admin.take() {
            admin.shutdown().await;
        }
    }
}

/// Builds the client side, with its dependencies behind core's ports.
async fn front(
    config: &Config,
    Components {
        base,
        policy,
        stores,
        replicas,
        processes,
        ..
    }: &Components,
    router: Router,
    listener: Option<TcpListener>,
) -> Result<Front, StartError> {
    let (clock, random, gates) = (&base.clock, &base.random, &policy.gates);
    let task_book: Arc<dyn TaskBook> = stores.tasks.clone();
    let task_book = match replicas {
        Some(replicas) => replicas.tasks(task_book),
        None => task_book,
    };
    let tasks = TaskNames::new(
        base.sealer.clone(),
        random.clone(),
        clock.clone(),
        task_book,
    )
    .of_replica(replicas.as_ref().map(|_| base.replica.clone()));
    let router = Arc::new(
        router
            .with_parking(stores.parking.clone())
            .with_tasks(tasks),
    );
    let ports = weir_front::FrontPorts {
        verifier: policy.clients.verifier(),
        authorizer: gates.authorizer.clone(),
        limiter: gates.limiter.clone(),
        audit: gates.audit.clone(),
        records: stores.session_records.clone(),
        replays: stores.stream_replays(),
        notifier: base.notifier.clone(),
        budgets: base.budgets.clone(),
        bus: stores.bus.clone(),
        replica: base.replica.clone(),
        replicas: replicas.as_ref().map(ReplicaLinks::ports),
        generation: base.generation,
        predecessor: Some(processes.predecessor.clone()),
        successor: Some(processes.successor.clone()),
        clock: clock.clone(),
        random: random.clone(),
    };
    let failed = |error| not_bound(config.front.listen, &error);
    let bound = match &listener {
        Some(listener) => listener
            .local_addr()
            .map_err(|error| cannot_listen(config.front.listen, false, reason(&error)))?,
        None => config.front.listen,
    };
    let (settings, sealer) = (
        front_settings::of_config(config, bound),
        base.sealer.clone(),
    );
    match listener {
        Some(listener) => Front::bind(settings, Some(listener), ports, router, sealer)
            .await
            .map_err(failed),
        None => Front::in_memory(settings, ports, router, sealer).map_err(failed),
    }
}

fn not_bound(address: SocketAddr, error: &BindError) -> StartError {
    let why = front_reason(error);
    match error {
        BindError::Address(_) => cannot_listen(address, false, why),
        BindError::Tls(_) => StartError::Tls(why),
    }
}

fn cannot_listen(address: SocketAddr, operators: bool, why: String) -> StartError {
    StartError::Listen {
        address,
        operators,
        why,
    }
}

/// Binds the clients' listener, and checks the bound address against the config.
pub(super) fn clients_listener(
    config: &Config,
    inherited: Option<TcpListener>,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = config.front.listen;
    let listener =
        Front::listener(&config.front, inherited).map_err(|error| not_bound(listen, &error))?;
    let bound = listener
        .local_addr()
        .map_err(|error| cannot_listen(listen, false, reason(&error)))?;
    exposure::check_clients(bound, config)?;
    Ok((listener, bound))
}

/// Binds the listener for other replicas, or takes the inherited one; `None` if the store is not
/// shared.
pub(super) fn cluster_listener(
    config: &Config,
    inherited: Option<TcpListener>,
) -> Result<Option<TcpListener>, StartError> {
    let Some(settings) = &config.cluster else {
        return Ok(None);
    };
    let failed = |error: std::io::Error| {
        StartError::Cluster(format!("{}: {}", settings.listen, reason(&error)))
    };
    let listener = match inherited {
        Some(listener) => listener,
        None => TcpListener::bind(settings.listen).map_err(failed)?,
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(Some(listener))
}

/// Binds the operators' listener, and checks the bound address against the plan. Returns the plan's
/// address too, for messages; `None` if the config has no such listener.
pub(super) async fn operators_listener(
    plan: Option<&AdminPlan>,
    inherited: Option<TcpListener>,
) -> Result<Option<(tokio::net::TcpListener, SocketAddr)>, StartError> {
    let Some(plan) = plan else { return Ok(None) };
    let failed = |error: std::io::Error| cannot_listen(plan.listen, true, reason(&error));
    let listener = AdminListener::listener(plan.listen, inherited)
        .await
        .map_err(failed)?;
    exposure::check_operators(listener.local_addr().map_err(failed)?, plan)?;
    Ok(Some((listener, plan.listen)))
}

/// Builds the state of the admin listener.
fn admin_state(
    config: &Arc<Config>,
    Components {
        base,
        policy,
        stores,
        catalog,
        ready,
        explainer,
        overrides,
        replicas,
        changes,
        ..
    }: &Components,
    front: &Front,
    live: Arc<LiveCalls>,
) -> AdminState {
    let (clock, audit, clients) = (&base.clock, &policy.gates.audit, &policy.clients);
    let parts = AdminParts {
        metrics: base.metrics.clone(),
        ready: ready.clone(),
        explainer: explainer.clone(),
        catalog: catalog.clone(),
        live,
        parking: stores.parking.clone(),
        front: front.overview(),
        limits: policy.limits.clone(),
        blocked: policy.blocked.clone(),
        credentials: clients.verifier(),
        config_history: ConfigHistory::new(config.clone(), clock.wall()),
        operator_auth: OperatorAuth::new(
            config.admin.clone(),
            clients.verifier(),
            clock.clone(),
            audit.clone(),
        ),
        shared: changes.clone(),
        audit: audit.clone(),
        clock: clock.clone(),
        clients: front.local_addr(),
        replicas: replicas.as_ref().map(ReplicaLinks::overview),
        peers: replicas.as_ref().map(ReplicaLinks::ports),
    };
    AdminState::new(parts, overrides.clone())
}
