//! The components of a gateway behind its listeners, in the order of their dependencies.

use std::sync::Arc;

use weir_admin::{OperatorOverrides, OverrideSinks, Readiness};
use weir_audit::{AuditService, ChainHeads};
use weir_catalog::Catalog;
use weir_catalog::SessionListTable;
use weir_catalog::{CatalogPorts, CatalogSettings};
use weir_cluster::ProcessForwarder;
use weir_config::Config;
use weir_core::port::{
    Clock, Random, RecordStore, ReplayLog, ReplicaId, SharedChanges, SharedCounters,
};
use weir_core::session_notifier::SessionNotifier;
use weir_core::{Budgets, HandoverArrival};
use weir_explain::{Explainer, ExplainerSources};
use weir_handover::{
    GeneratedSealKey, HandoverState, MovableRecords, MovableReplays, MovableTasks, MovedOverride,
};
use weir_policy::BlocklistAuthorizer;
use weir_policy::limit::PolicyLimiter;
use weir_policy::rules::PolicyAuthorizer;
use weir_process::keeper::ChildKeeper;
use weir_redis_store::{SharedReplays, StorePorts};
use weir_router::Gates;
use weir_router::Router;
use weir_seal::Sealer;
use weir_store::{
    MemoryBus, MemoryCounters, MemoryParking, MemoryRecords, MemoryReplays, MemoryTasks, TaskCaps,
};
use weir_system::{SystemClock, SystemRandom};
use weir_telemetry::Metrics;
use weir_upstream::{ClientImplementation, UpstreamFactory};

use crate::clients::Clients;
use crate::weir::applied_config::{BuiltUpstream, topology};
use crate::weir::errors::StartError;
use crate::weir::replica_links::{ReplicaBase, ReplicaLinks};
use crate::weir::shared_keys::sealer_keys;

/// The shared base of all components: clock, randomness, keys, and the upstream factory.
pub(super) struct ComponentBase {
    pub metrics: Metrics,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) sealing: GeneratedSealKey,
    pub(super) sealer: Sealer,
    /// The notifiers of clients' sessions.
    pub(super) notifier: Arc<SessionNotifier>,
    /// The budgets of the process.
    pub(super) budgets: Budgets,
    /// The table of session lists at upstreams.
    session_lists: Arc<SessionListTable>,
    pub(super) factory: Arc<UpstreamFactory>,
    /// The parent of the child processes of upstreams.
    pub keeper: Arc<ChildKeeper>,
    /// The arrival of the previous process's sessions and child processes.
    arrival: HandoverArrival,
    /// The name of this replica, which a successor process keeps.
    pub(super) replica: ReplicaId,
    /// The number of graceful restarts before this process.
    pub(super) generation: u32,
}

impl ComponentBase {
    /// `sealing` is the key that the previous process left, and `state` its last state. Its
    /// sessions arrive later.
    pub(crate) fn new(
        config: &Config,
        sealing: Option<GeneratedSealKey>,
        keeper: Arc<ChildKeeper>,
        state: Option<&HandoverState>,
    ) -> Self {
        // First, because an instrument used before the installation would never record.
        let metrics = Metrics::install(config.telemetry.measured, &SystemRandom);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let sealing = sealing.unwrap_or_else(|| GeneratedSealKey::fresh(&*random));
        let arrival = if state.is_some() {
            HandoverArrival::awaited()
        } else {
            HandoverArrival::default()
        };
        let replica = state
            .and_then(HandoverState::replica_id)
            .unwrap_or_else(|| {
                let mut name = [0; 8];
                random.fill(&mut name);
                ReplicaId(name)
            });
        let sealer = sealer(config, &sealing);
        let notifier = Arc::<SessionNotifier>::default();
        keeper.set_arrival(arrival.clone());
        let session_lists = SessionListTable::new(notifier.clone(), &*random);
        let budgets = Budgets::default();
        let ports = weir_upstream::UpstreamPorts {
            clock: clock.clone(),
            random: random.clone(),
            notifier: notifier.clone(),
            session_lists: session_lists.clone(),
            keeper: keeper.clone(),
            budgets: budgets.clone(),
        };
        let identity = ClientImplementation::new("weir", env!("CARGO_PKG_VERSION"));
        let factory =
            UpstreamFactory::new(ports, identity).with_forward_proxy(config.forward_proxy.clone());
        let factory = Arc::new(factory);
        Self {
            metrics,
            clock,
            random,
            sealing,
            sealer,
            notifier,
            session_lists,
            budgets,
            factory,
            keeper,
            arrival,
            replica,
            generation: state.map_or(0, |state| state.generation),
        }
    }

    /// The parts that links to other replicas need.
    pub(super) fn replica_base(&self) -> ReplicaBase {
        ReplicaBase {
            id: self.replica.clone(),
            ports: StorePorts {
                clock: self.clock.clone(),
                random: self.random.clone(),
                sealer: self.sealer.clone(),
            },
            budgets: self.budgets.clone(),
            notifier: self.notifier.clone(),
        }
    }
}

fn sealer(config: &Config, sealing: &GeneratedSealKey) -> Sealer {
    if config.keys.is_empty() {
        sealing.sealer()
    } else {
        Sealer::new(sealer_keys(&config.keys))
    }
}

/// The policy stack: authentication, authorization, limits, and the audit.
pub(super) struct PolicyStack {
    pub clients: Clients,
    pub limits: Arc<PolicyLimiter>,
    pub(super) rules: Arc<PolicyAuthorizer>,
    pub(super) blocked: Arc<BlocklistAuthorizer>,
    pub auditing: Arc<AuditService>,
    pub(super) gates: Gates,
}

impl PolicyStack {
    /// The audit continues after `left`, the last records of the previous process. Returns when the
    /// start is recorded. Must be called inside a tokio runtime.
    pub(crate) async fn start(
        config: &Config,
        base: &ComponentBase,
        left: ChainHeads,
        replicas: Option<&ReplicaLinks>,
    ) -> Result<Self, StartError> {
        let ComponentBase {
            clock,
            random,
            factory,
            ..
        } = base;
        let clients = Clients::start(
            config.auth.clone(),
            factory.clone(),
            clock.clone(),
            random.clone(),
        );
        let counters: Arc<dyn SharedCounters> = match replicas {
            Some(replicas) => replicas.counters(),
            None => Arc::new(MemoryCounters::new(clock.clone())),
        };
        let limits = PolicyLimiter::new(config.limit_settings(), clock.clone(), counters);
        let limits = Arc::new(match replicas {
            Some(replicas) => limits.with_shared_rates(replicas.rates()),
            None => limits,
        });
        limits.start_at_zero();
        let rules = Arc::new(PolicyAuthorizer::new(config.rules.clone()));
        let blocked = Arc::new(BlocklistAuthorizer::new(rules.clone()));
        let auditing = Arc::new(AuditService::start(
            config.audit.as_ref(),
            left,
            clock.clone(),
            factory,
        )?);
        auditing.wait_for_first_record().await;
        let gates = Gates {
            authorizer: blocked.clone(),
            limiter: limits.clone(),
            audit: auditing.port(),
        };
        Ok(Self {
            clients,
            limits,
            rules,
            blocked,
            auditing,
            gates,
        })
    }
}

/// The stores of client state between requests.
pub(super) struct Stores {
    pub(super) records: Arc<MovableRecords>,
    /// The records as sessions use them: those above, or those that replicas share over them.
    pub(super) session_records: Arc<dyn RecordStore>,
    pub(super) replays: Arc<MovableReplays>,
    pub(super) tasks: Arc<MovableTasks>,
    /// The copies of the logs, if replicas share them.
    shared_replays: Option<Arc<SharedReplays>>,
    pub(super) parking: Arc<MemoryParking>,
    pub(super) bus: Arc<MemoryBus>,
}

impl Stores {
    fn new(
        config: &Config,
        ComponentBase {
            clock,
            random,
            arrival,
            generation,
            ..
        }: &ComponentBase,
        replicas: Option<&ReplicaLinks>,
    ) -> Self {
        let records = MemoryRecords::new(clock.clone(), config.sessions);
        let records = Arc::new(MovableRecords::new(records, arrival.clone()));
        let replays = MemoryReplays::new(clock.clone(), weir_memory::replays(config));
        let bus = Arc::<MemoryBus>::default();
        let session_records: Arc<dyn RecordStore> = match replicas {
            Some(replicas) => {
                replicas.link_bus(&bus);
                replicas.records(records.clone(), &bus)
            }
            None => records.clone(),
        };
        let replays = Arc::new(MovableReplays::new(replays));
        let tasks = MemoryTasks::new(clock.clone(), TaskCaps::default());
        let age = config.replays.age;
        Self {
            records,
            session_records,
            shared_replays: replicas.map(|replicas| replicas.replays(replays.clone(), age)),
            replays,
            tasks: Arc::new(MovableTasks::new(tasks, arrival.clone())),
            parking: Arc::new(
                MemoryParking::new(clock.clone(), random.clone(), config.parked)
                    .of_generation(*generation),
            ),
            bus,
        }
    }

    /// The replay logs as streams use them.
    pub(super) fn stream_replays(&self) -> Arc<dyn ReplayLog> {
        match &self.shared_replays {
            Some(shared) => shared.clone(),
            None => self.replays.clone(),
        }
    }

    /// Applies another config's bounds.
    pub(super) fn limit(&self, config: &Config) {
        self.records.own().set_caps(config.sessions);
        self.replays.own().set_caps(weir_memory::replays(config));
        if let Some(shared) = &self.shared_replays {
            shared.set_age(config.replays.age);
        }
        self.parking.set_caps(config.parked);
    }
}

/// The state that was there before the components.
pub(super) struct PreviousState {
    /// The operators' changes in force in the previous process.
    pub(super) changes: Vec<MovedOverride>,
    /// The links to other replicas, if the store is shared.
    pub(super) replicas: Option<ReplicaLinks>,
}

/// The forwarders of requests to the other processes of a graceful restart.
#[derive(Clone, Debug)]
pub(super) struct ProcessForwarders {
    /// To the process before this one.
    pub(super) predecessor: Arc<ProcessForwarder>,
    /// To the process after this one.
    pub(super) successor: Arc<ProcessForwarder>,
}

/// All components of a gateway behind its listeners.
pub(super) struct Components {
    pub(super) base: ComponentBase,
    pub(super) policy: PolicyStack,
    pub(super) stores: Stores,
    pub catalog: Arc<Catalog>,
    pub(super) ready: Readiness,
    pub(super) explainer: Arc<Explainer>,
    /// The operators' changes in force.
    pub(super) overrides: Arc<OperatorOverrides>,
    /// The links to other replicas, if the store is shared.
    pub(super) replicas: Option<ReplicaLinks>,
    /// Send requests to the other processes of graceful restarts.
    pub(super) processes: ProcessForwarders,
    /// The operators' changes of all replicas, if the store is shared.
    pub(super) changes: Option<Arc<dyn SharedChanges>>,
}

impl Components {
    /// Assembles the components over these upstreams and starts to watch them.
    pub(crate) fn new(
        config: &Arc<Config>,
        base: ComponentBase,
        policy: PolicyStack,
        upstreams: &[BuiltUpstream],
        previous: PreviousState,
    ) -> Self {
        let PreviousState { changes, replicas } = previous;
        let catalog = catalog(config, &base, &policy.gates, replicas.as_ref());
        catalog.apply(topology(config, upstreams));
        // Before the first request is served.
        let overrides = weir_admin::apply_inherited(
            changes,
            &catalog,
            &policy.blocked,
            &*policy.gates.audit,
            base.clock.wall(),
        );
        base.metrics.observe_catalog(&catalog);
        let stores = Stores::new(config, &base, replicas.as_ref());
        let overview = replicas.as_ref().map(ReplicaLinks::overview);
        let ready = Readiness::new(policy.clients.verifier(), overview);
        let readiness = ready.clone();
        base.metrics.set_ready_check(move || readiness.is_ready());
        let sources = ExplainerSources {
            rules: policy.rules.clone(),
            limits: policy.limits.clone(),
            clock: base.clock.clone(),
            catalog: catalog.clone(),
            overrides: overrides.clone(),
            credentials: policy.clients.verifier(),
            audit: policy.gates.audit.clone(),
        };
        let explainer = Arc::new(Explainer::live(config.clone(), sources));
        let bus = stores.bus.clone();
        let forwarder = |awaited| Arc::new(ProcessForwarder::new(awaited, base.budgets.clone()));
        let processes = ProcessForwarders {
            predecessor: forwarder(!base.arrival.is_complete()),
            successor: forwarder(false),
        };
        Self {
            base,
            policy,
            stores,
            catalog,
            ready,
            explainer,
            overrides,
            processes,
            changes: replicas.as_ref().map(|replicas| replicas.changes(&bus)),
            replicas,
        }
    }

    /// Makes the operators' changes of other replicas and learns of their keys, before the first
    /// request is served. A store that does not answer delays this for a limited time.
    pub(super) async fn learn_from_replicas(&self) {
        let (Some(changes), Some(replicas)) = (&self.changes, &self.replicas) else {
            return;
        };
        let sinks = OverrideSinks {
            overrides: &self.overrides,
            catalog: &self.catalog,
            blocked: &self.policy.blocked,
            audit: &*self.policy.gates.audit,
        };
        tokio::join!(
            weir_admin::apply_shared(&**changes, sinks, self.base.clock.wall()),
            replicas.wait_for_keys()
        );
    }

    pub(super) fn router(&self) -> Router {
        Router::new(self.catalog.clone(), self.policy.gates.clone())
    }

    /// Applies the settings that cannot fail.
    pub(crate) fn replace(&self, config: &Arc<Config>) {
        let PolicyStack {
            clients, limits, ..
        } = &self.policy;
        clients.replace(config.auth.clone());
        self.stores.limit(config);
        limits.replace(config.limit_settings());
        if let Some(replicas) = &self.replicas {
            replicas.announce_config(config);
        }
        self.explainer.set_config(config.clone());
    }

    /// Applies the config's rules, and notifies the clients whose lists change.
    pub(super) fn apply_rules(&self, config: &Config) {
        let rules = &self.policy.rules;
        if *rules.policies() != *config.rules {
            rules.replace(config.rules.clone());
            self.catalog.announce_rule_change();
        }
    }
}

fn catalog(
    config: &Config,
    base: &ComponentBase,
    gates: &Gates,
    replicas: Option<&ReplicaLinks>,
) -> Arc<Catalog> {
    let settings = CatalogSettings {
        first_list_wait: config.catalog.first_list_wait,
        change_window: config.catalog.change_window,
        ..CatalogSettings::default()
    };
    let (clock, random) = (base.clock.clone(), base.random.clone());
    let ports = CatalogPorts {
        clock,
        random,
        authorizer: gates.authorizer.clone(),
        session_lists: base.session_lists.clone(),
        announcements: replicas.map(ReplicaLinks::lists),
    };
    Catalog::new(settings, ports, base.sealer.clone())
}
