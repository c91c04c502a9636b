//! The parts of a gateway behind its listeners, in the order in which they need one another.

use std::sync::Arc;

use weir_core::admit::Gates;
use weir_core::bell::Bells;
use weir_core::catalog::{CatalogPorts, CatalogSettings, SessionListTable};
use weir_core::port::{Clock, Random};
use weir_core::seal::{Key, Sealer};
use weir_core::{Budgets, Catalog, HandoverArrival, Router};
use weir_policy::Blocked;
use weir_policy::limit::Limits;
use weir_policy::rules::Rules;
use weir_store::{MemoryBus, MemoryCounters, MemoryParking, MemoryRecords, MemoryReplays};
use weir_upstream::keeper::Keeper;
use weir_upstream::{Factory, Identity};

use super::applied::{Built, topology};
use super::errors::StartError;
use crate::admin::{self, Book, Ready};
use crate::audit::{Auditing, Heads};
use crate::clients::Clients;
use crate::config::Config;
use crate::explain::Explainer;
use crate::handover::{MovableRecords, MovableReplays, Sealing, Will};
use crate::system::{SystemClock, SystemRandom};
use crate::telemetry::Metrics;

/// What every part may ask for: time, chance, keys, and the way out.
pub(super) struct Base {
    pub(super) metrics: Metrics,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) sealing: Sealing,
    pub(super) sealer: Sealer,
    /// Where clients are called.
    pub(super) bells: Arc<Bells>,
    /// What the process may use as a whole.
    pub(super) budgets: Budgets,
    /// What is known of the lists of single sessions at upstreams.
    session_lists: Arc<SessionListTable>,
    pub(super) factory: Arc<Factory>,
    /// The parent of the child processes of upstreams.
    pub(super) keeper: Arc<Keeper>,
    /// The sessions and child processes of the process before.
    arrival: HandoverArrival,
}

impl Base {
    /// `sealing` is the key that a process before left, and `arrival` what else it leaves.
    pub(super) fn new(
        config: &Config,
        sealing: Option<Sealing>,
        keeper: Arc<Keeper>,
        arrival: HandoverArrival,
    ) -> Self {
        // First: an instrument that is used before it is installed measures nothing for ever.
        let metrics = Metrics::install(config.telemetry.measured);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let sealing = sealing.unwrap_or_else(|| Sealing::fresh(&*random));
        let sealer = sealer(config, &sealing);
        let bells = Arc::<Bells>::default();
        keeper.await_children(arrival.clone());
        let session_lists = SessionListTable::new(bells.clone(), &*random);
        let budgets = Budgets::default();
        let ports = weir_upstream::Ports {
            clock: clock.clone(),
            random: random.clone(),
            bells: bells.clone(),
            session_lists: session_lists.clone(),
            keeper: keeper.clone(),
            budgets: budgets.clone(),
        };
        let factory = Arc::new(Factory::new(
            ports,
            Identity::new("weir", env!("CARGO_PKG_VERSION")),
        ));
        Self {
            metrics,
            clock,
            random,
            sealing,
            sealer,
            bells,
            session_lists,
            budgets,
            factory,
            keeper,
            arrival,
        }
    }
}

fn sealer(config: &Config, sealing: &Sealing) -> Sealer {
    if config.keys.is_empty() {
        sealing.sealer()
    } else {
        Sealer::new(
            config
                .keys
                .iter()
                .map(|key| Key::new(key.id, &key.secret))
                .collect(),
        )
    }
}

/// Who decides: who is who, who may do what and how often; and who writes that down.
pub(super) struct Deciders {
    pub(super) clients: Clients,
    pub(super) limits: Arc<Limits>,
    pub(super) rules: Arc<Rules>,
    pub(super) blocked: Arc<Blocked>,
    pub(super) auditing: Arc<Auditing>,
    pub(super) gates: Gates,
}

impl Deciders {
    /// The audit goes on after `left`, the last records of a process before. Returns when the
    /// beginning is on record. Must be called inside a tokio runtime.
    pub(super) async fn start(
        config: &Config,
        base: &Base,
        left: Heads,
    ) -> Result<Self, StartError> {
        let Base {
            clock,
            random,
            factory,
            ..
        } = base;
        let clients = Clients::start(config.auth.clone(), factory.clone(), (clock, random));
        let counters = Arc::new(MemoryCounters::new(clock.clone()));
        let limits = Arc::new(Limits::new(
            crate::limits::rates(config),
            clock.clone(),
            counters,
        ));
        limits.start_at_zero();
        let rules = Arc::new(Rules::new(config.rules.clone()));
        let blocked = Arc::new(Blocked::new(rules.clone()));
        let auditing = Arc::new(Auditing::start(
            config.audit.as_ref(),
            left,
            clock.clone(),
            factory,
        )?);
        auditing.begun().await;
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

/// What is kept for clients between their requests.
pub(super) struct Kept {
    pub(super) records: Arc<MovableRecords>,
    pub(super) replays: Arc<MovableReplays>,
    pub(super) parking: Arc<MemoryParking>,
    pub(super) bus: Arc<MemoryBus>,
}

impl Kept {
    fn new(
        config: &Config,
        Base {
            clock,
            random,
            arrival,
            ..
        }: &Base,
    ) -> Self {
        let records = MemoryRecords::new(clock.clone(), config.sessions);
        let replays = MemoryReplays::new(clock.clone(), crate::memory::replays(config));
        Self {
            records: Arc::new(MovableRecords::new(records, arrival.clone())),
            replays: Arc::new(MovableReplays::new(replays)),
            parking: Arc::new(MemoryParking::new(
                clock.clone(),
                random.clone(),
                config.parked,
            )),
            bus: Arc::default(),
        }
    }

    /// Goes by another config's bounds from now on.
    pub(super) fn limit(&self, config: &Config) {
        self.records.own().limit(config.sessions);
        self.replays.own().limit(crate::memory::replays(config));
        self.parking.limit(config.parked);
    }
}

/// All of a gateway behind its listeners.
pub(super) struct Inside {
    pub(super) base: Base,
    pub(super) deciders: Deciders,
    pub(super) kept: Kept,
    pub(super) catalog: Arc<Catalog>,
    pub(super) ready: Ready,
    pub(super) explainer: Arc<Explainer>,
    /// What operators changed.
    pub(super) book: Arc<Book>,
}

impl Inside {
    /// Puts them together over these upstreams, which it begins to follow, with what the process
    /// before left.
    pub(super) fn new(
        config: &Arc<Config>,
        base: Base,
        deciders: Deciders,
        (upstreams, will): (&[Built], Will),
    ) -> Self {
        let catalog = catalog(config, &base, &deciders.gates);
        catalog.apply(topology(config, upstreams));
        let told = (&*deciders.gates.audit, base.clock.wall());
        // Before anybody is served.
        let book = admin::take_up(will.changes, (&catalog, &deciders.blocked), told);
        base.metrics.watch(&catalog);
        let kept = Kept::new(config, &base);
        let ready = Ready::new(deciders.clients.verifier());
        let asked = ready.clone();
        base.metrics.ask_ready(move || asked.is());
        let limited = (&deciders.rules, &deciders.limits);
        let explainer = Arc::new(Explainer::live(
            config.clone(),
            limited,
            (&catalog, &book),
            &base.clock,
        ));
        Self {
            base,
            deciders,
            kept,
            catalog,
            ready,
            explainer,
            book,
        }
    }

    pub(super) fn router(&self) -> Router {
        Router::new(self.catalog.clone(), self.deciders.gates.clone())
    }

    /// Takes what of a config needs nobody's consent.
    pub(super) fn replace(&self, config: &Arc<Config>) {
        let Deciders {
            clients, limits, ..
        } = &self.deciders;
        clients.replace(config.auth.clone());
        self.kept.limit(config);
        limits.replace(crate::limits::rates(config));
        self.explainer.replace(config.clone());
    }

    /// Puts the config's rules in force, and tells those whose lists are others now.
    pub(super) fn rule(&self, config: &Config) {
        let rules = &self.deciders.rules;
        if *rules.book() != *config.rules {
            rules.replace(config.rules.clone());
            self.catalog.reconsider();
        }
    }
}

fn catalog(config: &Config, base: &Base, gates: &Gates) -> Arc<Catalog> {
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
    };
    Catalog::new(settings, ports, base.sealer.clone())
}
