//! The whole gateway, put together: the only place where all the crates meet.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use weir_core::admit::Gates;
use weir_core::bell::Bells;
use weir_core::catalog::{CatalogPorts, CatalogSettings, Topology};
use weir_core::live::LiveCalls;
use weir_core::port::{Action, Clock, Random};
use weir_core::seal::{Key, Sealer};
use weir_core::telemetry::{instruments, unix_seconds};
use weir_core::upstream::Upstream;
use weir_core::{Catalog, Router, TaskDesk};
use weir_front::Front;
use weir_policy::Blocked;
use weir_policy::limit::Limits;
use weir_policy::rules::Rules;
use weir_store::{
    MemoryBus, MemoryCounters, MemoryMailbox, MemoryParking, MemoryRecords, MemoryReplays, MemoryTasks, TaskCaps,
};
use weir_upstream::Factory;

use crate::admin::{Admin, Chronicle, Desk, Gate, Levers, Parts, Ready};
use crate::audit::{AuditError, Auditing};
use crate::clients::Clients;
use crate::config::{AdminPlan, Config, Loader, Report, Source, UpstreamPlan};
use crate::explain::Explainer;
use crate::handover::{Estate, Sealing};
use crate::memory::Watch;
use crate::outbound;
use crate::system::{SystemClock, SystemRandom};
use crate::telemetry::{Metrics, Telemetry};

/// A running gateway. Dropping it stops it without draining; [`Weir::shutdown`] drains.
pub struct Weir {
    front: Front,
    sealing: Sealing,
    admin: Option<Admin>,
    ready: Ready,
    catalog: Arc<Catalog>,
    records: Arc<MemoryRecords>,
    replays: Arc<MemoryReplays>,
    parking: Arc<MemoryParking>,
    limits: Arc<Limits>,
    factory: Arc<Factory>,
    clients: Clients,
    rules: Arc<Rules>,
    explainer: Arc<Explainer>,
    desk: Arc<Desk>,
    memory: Watch,
    auditing: Auditing,
    telemetry: Telemetry,
    applied: Mutex<Box<Applied>>,
    has_successor: bool,
}

/// What the last config was, and what was built of it.
struct Applied {
    /// The config weir started with, for what only a start takes up.
    started: Config,
    config: Config,
    upstreams: Vec<Built>,
}

/// An upstream, and what it was built of.
type Built = (UpstreamPlan, Arc<dyn Upstream>);

/// Why weir did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The config has errors.
    #[error("the config cannot be used:\n{0}")]
    Config(Report),
    /// An address cannot be bound.
    #[error("cannot listen on {address}{}: {why}", if *.operators { " for operators" } else { "" })]
    Listen {
        /// Which.
        address: SocketAddr,
        /// True for the operators' listener.
        operators: bool,
        /// The system's reason, and what to do about it.
        why: String,
    },
    /// An upstream cannot be made of its settings.
    #[error(transparent)]
    Upstream(#[from] weir_upstream::BuildError),
    /// Records of who did what cannot be kept.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The collector cannot be spoken to as the config says.
    #[error("telemetry cannot be sent: {0}")]
    Telemetry(#[from] weir_upstream::TlsError),
}

impl Weir {
    /// Starts with a checked config. Returns once both listeners accept and the config is applied; upstreams may still
    /// be on their way. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`]: nothing runs then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, Estate::default()).await
    }

    /// The same with what the process before left.
    pub(crate) async fn start_with(config: Config, estate: Estate) -> Result<Self, StartError> {
        // Boxed: it happens once, and whoever waits for it must not make room for all of it.
        Box::pin(Self::assemble(config, estate)).await
    }

    async fn assemble(config: Config, estate: Estate) -> Result<Self, StartError> {
        let metrics = Metrics::install(config.telemetry.measured);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let Estate { clients: socket, operators, sealing } = estate;
        let sealing = sealing.unwrap_or_else(|| Sealing::fresh(&*random));
        let sealer = sealer(&config, &sealing);
        let identity = weir_upstream::Identity::new("weir", env!("CARGO_PKG_VERSION"));
        let bells = Arc::<Bells>::default();
        let ports = weir_upstream::Ports { clock: clock.clone(), random: random.clone(), bells: bells.clone() };
        let factory = Arc::new(Factory::new(ports, identity));
        let clients = Clients::start(config.auth.clone(), factory.clone(), (&clock, &random));
        let telemetry = Telemetry::start(&config.telemetry, metrics.clone(), factory.clone())?;
        let upstreams = build(&config, &[], &factory)?;
        let counters = Arc::new(MemoryCounters::new(clock.clone()));
        let limits = Arc::new(Limits::new(crate::limits::rates(&config), clock.clone(), counters));
        let rules = Arc::new(Rules::new(config.rules.clone()));
        let auditing = Auditing::start(config.audit.as_ref(), clock.clone(), &factory)?;
        auditing.begun().await;
        let blocked = Arc::new(Blocked::new(rules.clone()));
        let gates = Gates { authorizer: blocked.clone(), limiter: limits.clone(), audit: auditing.port() };
        let catalog = catalog(&config, (&clock, &random), &gates, &sealer);
        catalog.apply(topology(&config, &upstreams));
        metrics.watch(&catalog);
        let records = Arc::new(MemoryRecords::new(clock.clone(), config.sessions));
        let replays = Arc::new(MemoryReplays::new(clock.clone(), config.replays));
        let parking = Arc::new(MemoryParking::new(clock.clone(), random.clone(), config.parked));
        let ready = Ready::new(clients.verifier());
        let asked = ready.clone();
        metrics.ask_ready(move || asked.is());
        let explainer = Arc::new(Explainer::live(config.clone(), (&rules, &limits), &catalog, &clock));
        let router = Router::new(catalog.clone(), gates.clone());
        let live = router.live().clone();
        let listeners = async {
            // Clients' port first: if that cannot be had, nothing else matters.
            let kept = (&records, &replays, &parking, &bells);
            let parts = (router, sealer, socket);
            let front = front(&config, (&clock, &random), (&gates, &clients), kept, parts).await?;
            let shown = (metrics, ready.clone(), explainer.clone());
            let held = (catalog.clone(), live, limits.clone(), blocked);
            let desk = Arc::new(desk(&config, shown, held, (&front, &clients), (&gates, &clock)));
            let admin = start_admin(config.admin.as_ref(), operators, &desk).await?;
            Ok((front, admin, desk))
        };
        match listeners.await {
            Ok((front, admin, desk)) => {
                ready.set(true);
                loaded("ok");
                let memory = Watch::start(&config, front.pressure());
                let applied = Mutex::new(Box::new(Applied { started: config.clone(), config, upstreams }));
                Ok(Self {
                    front,
                    sealing,
                    admin,
                    ready,
                    catalog,
                    records,
                    replays,
                    parking,
                    limits,
                    factory,
                    clients,
                    rules,
                    explainer,
                    desk,
                    memory,
                    auditing,
                    telemetry,
                    applied,
                    has_successor: false,
                })
            }
            Err(error) => {
                catalog.shutdown().await;
                auditing.shutdown().await;
                Err(error)
            }
        }
    }

    /// Starts with a config as it stands in a file.
    ///
    /// # Errors
    /// As [`Weir::start`], and what is wrong with the config.
    pub async fn start_from(source: Source) -> Result<Self, StartError> {
        Self::start(load(source).map_err(StartError::Config)?).await
    }

    /// Takes a config as it stands in a file; see [`Weir::reload`].
    ///
    /// # Errors
    /// As [`Weir::reload`], and what is wrong with the config.
    pub fn reload_from(&self, source: Source) -> Result<Vec<&'static str>, ReloadError> {
        let config = load(source).map_err(ReloadError::Config).inspect_err(|error| self.refused_reload(error))?;
        self.reload(config)
    }

    /// Where clients connect: the real port where the config says 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.front.local_addr()
    }

    /// Where operators connect.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Lets operators change the log, and have the config read again.
    pub(crate) fn give(&self, levers: Levers) {
        self.desk.give(levers);
    }

    /// How the upstreams stand, for operators.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Takes a new config: no call and no session is dropped, and upstreams whose settings did not change keep their
    /// connections, sessions and lists. Gives the settings that only a restart changes. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    /// An upstream cannot be made of its settings; nothing has changed then.
    pub fn reload(&self, config: Config) -> Result<Vec<&'static str>, ReloadError> {
        let detail = format!("{} upstreams, {} endpoints", config.upstreams.len(), config.endpoints.len());
        let now = config.clone();
        let unmoved = self.apply(config).inspect_err(|error| self.refused_reload(error))?;
        count_reload("ok");
        self.operated("reload", &detail, true);
        self.desk.applied_now(now, unmoved.clone());
        Ok(unmoved)
    }

    /// Counts and records that a config was not taken.
    pub(crate) fn refused_reload(&self, why: &dyn fmt::Display) {
        count_reload("error");
        self.operated("reload", &why.to_string(), false);
        self.desk.refused(why.to_string());
    }

    fn operated(&self, what: &str, detail: &str, done: bool) {
        self.auditing.port().operated(&Action { who: "config", what, detail, done });
    }

    fn apply(&self, config: Config) -> Result<Vec<&'static str>, ReloadError> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let upstreams = build(&config, &applied.upstreams, &self.factory)?;
        let audit = self.auditing.prepare(config.audit.as_ref(), &self.factory)?;
        let told = self.telemetry.prepare(&config.telemetry)?;
        // Front first: it refuses bad certificates, and until then nothing has changed. It serves the endpoints that the
        // catalog has, so it is asked once more when these are the new ones.
        let take = || self.front.reload(outbound::front(&config));
        take().map_err(|error| ReloadError::Front(front_reason(&error)))?;
        self.auditing.take(audit)?;
        self.telemetry.take(told, &config.telemetry);
        self.rule(&config);
        self.catalog.apply(topology(&config, &upstreams));
        if let Err(error) = take() {
            // The certificates were good a moment ago; the old ones still serve.
            tracing::error!(
                error = front_reason(&error),
                "certificates changed in the middle of a reload: new paths come with the next one"
            );
        }
        self.clients.replace(config.auth.clone());
        self.records.limit(config.sessions);
        self.replays.limit(config.replays);
        self.parking.limit(config.parked);
        self.limits.replace(crate::limits::rates(&config));
        self.explainer.replace(config.clone());
        self.desk.gate.replace(config.admin.clone());
        self.memory.replace(&config);
        let unmoved = unmoved(&applied.started, &config);
        applied.config = config;
        applied.upstreams = upstreams;
        Ok(unmoved)
    }

    /// Puts the config's rules in force, and tells those whose lists are others now.
    fn rule(&self, config: &Config) {
        if *self.rules.book() != *config.rules {
            self.rules.replace(config.rules.clone());
            self.catalog.reconsider();
        }
    }

    /// Ends in phases: not ready any more, no new connections, open streams told to go, calls drained until the
    /// config's deadline, upstreams retired, the operators' listener last.
    pub async fn shutdown(self) {
        // Boxed as the start is.
        Box::pin(self.end()).await;
    }

    async fn end(mut self) {
        self.ready.set(false);
        if self.has_successor {
            // Operators and their probes are the successor's at once.
            close(self.admin.take()).await;
        }
        let drain = self.applied.lock().unwrap_or_else(PoisonError::into_inner).config.drain;
        self.front.drain(drain).await;
        self.catalog.shutdown().await;
        self.clients.shutdown().await;
        self.memory.shutdown().await;
        close(self.admin.take()).await;
        // Last, so that all that happened before is on record.
        self.auditing.shutdown().await;
        self.telemetry.shutdown().await;
    }
}

impl Weir {
    /// What another process needs to go on in this one's place, and nothing that it could read in the config.
    ///
    /// # Errors
    /// The system has no file left, or weir is stopping.
    pub(crate) fn estate(&self) -> std::io::Result<Estate> {
        let operators = self.admin.as_ref().map(Admin::socket).transpose()?;
        Ok(Estate {
            clients: Some(self.front.socket()?.into()),
            operators: operators.map(Into::into),
            sealing: Some(self.sealing.clone()),
        })
    }

    /// Leaves the audit file's path to the successor, which may then begin.
    pub(crate) async fn make_room(&self) {
        self.auditing.step_aside().await;
    }

    /// Records how a hand-over went. After a good one [`Self::shutdown`] gives up the operators' listener first.
    pub(crate) fn handed_over(&mut self, outcome: &Result<u32, String>) {
        let detail = match outcome {
            Ok(successor) => format!("process {successor} serves"),
            Err(why) => why.clone(),
        };
        self.has_successor = outcome.is_ok();
        self.auditing.port().operated(&Action {
            who: "signal",
            what: "hand over",
            detail: &detail,
            done: outcome.is_ok(),
        });
    }

    /// Whether another process serves in this one's place.
    pub(crate) fn has_successor(&self) -> bool {
        self.has_successor
    }
}

async fn close(admin: Option<Admin>) {
    if let Some(admin) = admin {
        admin.shutdown().await;
    }
}

impl fmt::Debug for Weir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weir({})", self.address())
    }
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The config has errors.
    #[error("the config cannot be used:\n{0}")]
    Config(Report),
    /// An upstream cannot be made of its settings.
    #[error(transparent)]
    Upstream(#[from] weir_upstream::BuildError),
    /// Records of who did what cannot be kept.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The collector cannot be spoken to as the config says.
    #[error("telemetry cannot be sent: {0}")]
    Telemetry(#[from] weir_upstream::TlsError),
    /// The client side cannot take its settings.
    #[error("{0}")]
    Front(String),
}

/// Counts a reload in the metrics: `ok` or `error`.
fn count_reload(result: &'static str) {
    instruments().config_reloads.add(1, &[opentelemetry::KeyValue::new("result", result)]);
    loaded(result);
}

/// Notes when the config was last loaded.
fn loaded(result: &'static str) {
    let now = unix_seconds(std::time::SystemTime::now());
    instruments().config_last_reload.record(now, &[opentelemetry::KeyValue::new("result", result)]);
}

fn load(source: Source) -> Result<Config, Report> {
    let environment = |name: &str| std::env::var(name).ok();
    let outcome = Loader::new(source, &environment).load();
    outcome.config.ok_or(outcome.report)
}

fn catalog(
    config: &Config,
    (clock, random): (&Arc<dyn Clock>, &Arc<dyn Random>),
    gates: &Gates,
    sealer: &Sealer,
) -> Arc<Catalog> {
    let settings = CatalogSettings {
        first_list_wait: config.catalog.first_list_wait,
        change_window: config.catalog.change_window,
        ..CatalogSettings::default()
    };
    let ports = CatalogPorts { clock: clock.clone(), random: random.clone(), authorizer: gates.authorizer.clone() };
    Catalog::new(settings, ports, sealer.clone())
}

/// What is kept for clients, and where they are called.
type Kept<'a> = (&'a Arc<MemoryRecords>, &'a Arc<MemoryReplays>, &'a Arc<MemoryParking>, &'a Arc<Bells>);

/// The client side, with everything it asks of others behind core's ports.
async fn front(
    config: &Config,
    (clock, random): (&Arc<dyn Clock>, &Arc<dyn Random>),
    (gates, clients): (&Gates, &Clients),
    (records, replays, parking, bells): Kept<'_>,
    (router, sealer, socket): (Router, Sealer, Option<TcpListener>),
) -> Result<Front, StartError> {
    let book = Arc::new(MemoryTasks::new(clock.clone(), TaskCaps::default()));
    let desk = TaskDesk::new(sealer.clone(), (random.clone(), clock.clone()), book);
    let catalog = router.catalog().clone();
    let router = Arc::new(router.with_parking(parking.clone()).with_tasks(desk));
    let ports = weir_front::Ports {
        verifier: clients.verifier(),
        authorizer: gates.authorizer.clone(),
        limiter: gates.limiter.clone(),
        audit: gates.audit.clone(),
        records: records.clone(),
        replays: replays.clone(),
        bells: bells.clone(),
        bus: Arc::new(MemoryBus::default()),
        mailbox: Arc::new(MemoryMailbox::new(&**random)),
        clock: clock.clone(),
        random: random.clone(),
    };
    let listen = config.front.listen;
    let failed = |error| StartError::Listen { address: listen, operators: false, why: front_reason(&error) };
    let served = (router, catalog);
    Front::bind(outbound::front(config), socket, ports, served, sealer).await.map_err(failed)
}

/// What operators see and change.
fn desk(
    config: &Config,
    (metrics, ready, explainer): (Metrics, Ready, Arc<Explainer>),
    (catalog, live, limits, blocked): (Arc<Catalog>, Arc<LiveCalls>, Arc<Limits>, Arc<Blocked>),
    (front, clients): (&Front, &Clients),
    (gates, clock): (&Gates, &Arc<dyn Clock>),
) -> Desk {
    Desk::new(Parts {
        metrics,
        ready,
        explainer,
        catalog,
        live,
        front: front.overview(),
        limits,
        blocked,
        credentials: clients.verifier(),
        chronicle: Chronicle::new(config.clone(), clock.wall()),
        gate: Gate::new(config.admin.clone(), clients.verifier(), (clock, &gates.audit)),
        audit: gates.audit.clone(),
        clock: clock.clone(),
    })
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

/// The upstreams of a config; one whose settings did not change comes as the same object again.
fn build(config: &Config, before: &[Built], factory: &Factory) -> Result<Vec<Built>, weir_upstream::BuildError> {
    let one = |plan: &UpstreamPlan| {
        let same = before.iter().find(|(old, _)| old.settings == plan.settings);
        let upstream = match same {
            Some((_, upstream)) => upstream.clone(),
            None => factory.build(plan.settings.clone())?,
        };
        Ok((plan.clone(), upstream))
    };
    config.upstreams.iter().map(one).collect()
}

fn topology(config: &Config, upstreams: &[Built]) -> Topology {
    Topology {
        endpoints: config.endpoints.iter().cloned().map(Arc::new).collect(),
        upstreams: upstreams.iter().map(|(plan, upstream)| (upstream.clone(), plan.rules.clone())).collect(),
    }
}

fn sealer(config: &Config, sealing: &Sealing) -> Sealer {
    if config.keys.is_empty() {
        sealing.sealer()
    } else {
        Sealer::new(config.keys.iter().map(|key| Key::new(key.id, &key.secret)).collect())
    }
}

/// What changed in the file and cannot change in the running process.
fn unmoved(old: &Config, new: &Config) -> Vec<&'static str> {
    let queue = |config: &Config| config.audit.as_ref().map(|plan| plan.queue);
    let place = |config: &Config| config.admin.as_ref().map(|plan| plan.listen);
    [
        ("listen", old.front.listen != new.front.listen),
        ("limits.backlog", old.front.limits.backlog != new.front.limits.backlog),
        ("tls (on or off)", old.front.tls.is_some() != new.front.tls.is_some()),
        ("admin.listen", place(old) != place(new)),
        ("keys", old.keys != new.keys),
        ("log", old.log != new.log),
        ("telemetry.metrics.enabled", old.telemetry.measured != new.telemetry.measured),
        ("audit.queue", queue(old).zip(queue(new)).is_some_and(|(old, new)| old != new)),
        ("first_list_wait or change_window", old.catalog != new.catalog),
    ]
    .into_iter()
    .filter_map(|(name, changed)| changed.then_some(name))
    .collect()
}

/// A wrapper without words of its own hides its cause's type.
fn front_reason(error: &weir_front::BindError) -> String {
    match error {
        weir_front::BindError::Address(error) => reason(error),
        weir_front::BindError::Tls(error) => reason(error),
    }
}

/// An error and its causes, with a hint for the usual ones.
fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            match io.kind() {
                std::io::ErrorKind::AddrInUse => {
                    text.push_str(" (another program has this port; is weir running already?)")
                }
                std::io::ErrorKind::PermissionDenied => {
                    text.push_str(" (ports below 1024 need a privilege; take a higher one)")
                }
                std::io::ErrorKind::AddrNotAvailable => text.push_str(" (this machine does not have that address)"),
                _ => {}
            }
        }
        next = cause.source();
    }
    text
}
