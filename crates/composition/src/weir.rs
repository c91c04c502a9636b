//! The composition of the gateway: the only place with all the crates together.

mod applied_config;
mod components;
pub(crate) mod errors;
pub(crate) mod exposure;
mod key_rotation;
mod listeners;
mod replica_links;
mod shared_keys;
mod takeover;

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use weir_catalog::Catalog;
use weir_core::port::OperatorAction;
use weir_core::telemetry::{instruments, unix_seconds};
use weir_front::InMemoryChannel;
use weir_process::keeper::ChildKeeper;
use weir_singleton::PreparedSingleton;

use crate::front_settings;
use weir_memory::MemoryWatch;

use applied_config::{AppliedConfig, BuiltUpstreams, build, settings_needing_restart, topology};
use components::{ComponentBase, Components, PolicyStack, PreviousState};
use errors::{INVALID, front_reason, refusal_reasons};
use errors::{ReloadError, StartError};
use exposure::Exposure;
use key_rotation::NewKeys;
use listeners::{
    BoundListeners, OpenListeners, clients_listener, cluster_listener, operators_listener,
};
use replica_links::ReplicaLinks;
use weir_admin::{AdminListener, ControlHandles, Strictness};
use weir_config::{Config, IncludeErrors, TeamFile, TeamFileVersion, Weakening, weakenings};
use weir_handover::{HandoverResources, Successor};
use weir_telemetry::Telemetry;
use weir_text::count;

/// A running gateway. Dropping it stops it without a drain; [`Weir::shutdown`] drains.
pub struct Weir {
    listeners: OpenListeners,
    components: Components,
    memory: MemoryWatch,
    telemetry: Telemetry,
    applied: Mutex<AppliedConfig>,
    successor: Option<Successor>,
    /// Cancelled once the previous process has ended. `None` if there is no such process.
    predecessor_ended: Option<CancellationToken>,
    /// True without listeners.
    is_in_memory: bool,
}

impl Weir {
    /// Starts with a checked config. Returns once both listeners accept and the config is applied;
    /// upstreams may still be starting. Must be called inside a tokio runtime. Upstreams with a
    /// `command` cannot be started by it: their keeper is the `weir` program.
    ///
    /// # Errors
    ///
    /// [`StartError`]: no part keeps running then.
    pub async fn start(config: Arc<Config>) -> Result<Self, StartError> {
        Self::start_with(
            config,
            HandoverResources::default(),
            ChildKeeper::unavailable(),
        )
        .await
    }

    /// Starts with the resources of the previous process, and the keeper of child processes.
    pub async fn start_with(
        config: Arc<Config>,
        resources: HandoverResources,
        keeper: Arc<ChildKeeper>,
    ) -> Result<Self, StartError> {
        check_team_files(&config)?;
        // Both ports first: if one of them cannot be bound, no child process is started and no
        // upstream is contacted.
        let (clients, address) = clients_listener(&config, resources.clients)?;
        let operators = operators_listener(config.admin.as_ref(), resources.operators).await?;
        let cluster = cluster_listener(&config, resources.cluster)?;
        let config = config.served_at(address);
        let resources = HandoverResources {
            clients: None,
            operators: None,
            cluster: None,
            ..resources
        };
        // Boxed, because it runs once, and its large future would enlarge those of its callers.
        Box::pin(Self::assemble(
            config,
            resources,
            keeper,
            BoundListeners {
                clients: Some(clients),
                cluster,
                operators,
            },
        ))
        .await
    }

    /// Starts without listeners: clients come through [`Self::channel`] alone.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_in_memory(
        config: &Config,
        keeper: Arc<ChildKeeper>,
    ) -> Result<Self, StartError> {
        check_team_files(config)?;
        let config = Arc::new(config.in_memory());
        Box::pin(Self::assemble(
            config,
            HandoverResources::default(),
            keeper,
            BoundListeners::default(),
        ))
        .await
    }

    async fn assemble(
        config: Arc<Config>,
        resources: HandoverResources,
        keeper: Arc<ChildKeeper>,
        listeners: BoundListeners,
    ) -> Result<Self, StartError> {
        let HandoverResources { sealing, state, .. } = resources;
        let is_in_memory = listeners.clients.is_none();
        let base = ComponentBase::new(&config, sealing, keeper, state.as_ref());
        let telemetry = Telemetry::start(
            &config.telemetry,
            base.metrics.clone(),
            base.factory.clone(),
        )?;
        let cluster = listeners.cluster.as_ref();
        let cluster = cluster.and_then(|cluster| cluster.local_addr().ok());
        let replicas = ReplicaLinks::start(&config, base.replica_base(), cluster)?;
        let state = state.unwrap_or_default();
        if let (Some(replicas), Some(others)) = (&replicas, &state.other_replicas) {
            replicas.import_view(others);
        }
        let singletons = replicas.as_ref().map(ReplicaLinks::singletons);
        let BuiltUpstreams {
            all: upstreams,
            to_share,
        } = build(&config, &[], &base.factory, singletons)?;
        let heads = state.chain_heads();
        let policy = PolicyStack::start(&config, &base, heads, replicas.as_ref()).await?;
        to_share.into_iter().for_each(PreparedSingleton::share);
        let previous = PreviousState {
            changes: state.changes,
            replicas,
        };
        let components = Components::new(&config, base, policy, &upstreams, previous);
        components.learn_from_replicas().await;
        let open = match OpenListeners::new(&config, &components, listeners).await {
            Ok(open) => open,
            Err(error) => {
                components.catalog.shutdown().await;
                components.policy.auditing.shutdown().await;
                return Err(error);
            }
        };
        components.ready.set(true);
        record_load_time("ok");
        note_team_files(&[], &config.team_files);
        let memory = MemoryWatch::start(
            &config,
            open.front.pressure(),
            components.base.budgets.clone(),
        );
        let applied = Mutex::new(AppliedConfig {
            started: config.clone(),
            config,
            upstreams,
        });
        let (successor, predecessor_ended) = (None, None);
        Ok(Self {
            listeners: open,
            components,
            memory,
            telemetry,
            applied,
            successor,
            predecessor_ended,
            is_in_memory,
        })
    }

    /// The address of the clients' listener: the real port if the config has 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listeners.front.local_addr()
    }

    /// Returns a channel for a client inside the process.
    pub fn channel(&self) -> InMemoryChannel {
        self.listeners.front.channel()
    }

    /// The address of the operators' listener.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.listeners.admin.as_ref().map(AdminListener::address)
    }

    /// Sets the control handles, so that operators can change the log level and reload.
    pub fn set_controls(&self, controls: ControlHandles) {
        self.listeners.admin_state.set_controls(controls);
    }

    /// The catalog with the state of the upstreams.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.components.catalog
    }

    /// Applies a new config. No call and no session is dropped, and upstreams with unchanged
    /// settings keep their connections, sessions and lists. Returns the changed settings that take
    /// effect only at a restart. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// An upstream cannot be built from its settings, a listener is bound to an address that the
    /// config may not be served at, or the config lost protections without giving them up by name.
    /// The config in force is unchanged then. The same after a panic, unless the first part was
    /// replaced before, as the error says.
    pub fn reload(
        &self,
        config: &Arc<Config>,
        strictness: Strictness,
    ) -> Result<Vec<&'static str>, ReloadError> {
        let config = &match self.is_in_memory {
            true => Arc::new(config.in_memory()),
            false => config.clone(),
        };
        let has_begun = Cell::new(false);
        let judge = || {
            let lost = weakenings(&self.applied.lock().config, config);
            match strictness {
                Strictness::NoWeaker if !lost.is_empty() => Err(ReloadError::Weaker(lost)),
                Strictness::NoWeaker | Strictness::AllowWeaker => {
                    Ok((self.apply(config, &has_begun)?, lost))
                }
            }
        };
        // The process serves on, whatever is wrong with the new config.
        let judged = catch_unwind(AssertUnwindSafe(judge));
        let has_begun = has_begun.get();
        let (unmoved, lost) = judged
            .unwrap_or(Err(ReloadError::Panicked { has_begun }))
            .inspect_err(|error| self.refused_reload(error))?;
        count_reload("ok");
        record_refusal_reasons(&[]);
        let mut detail = format!(
            "{}, {}",
            count(config.upstreams.len(), "upstream"),
            count(config.endpoints.len(), "endpoint")
        );
        for lost in &lost {
            tracing::warn!(path = %lost.path, lost = lost.message, "config weakened: protection given up, as an operator allowed");
            detail.push_str(&format!("; weaker: {}: {}", lost.path, lost.message));
        }
        self.record_action("config", "reload", &detail, true);
        self.listeners
            .admin_state
            .record_applied_config(config.clone(), unmoved.clone());
        Ok(unmoved)
    }

    /// Counts and audits the refusal of a config with errors.
    pub fn record_invalid_config(&self, why: &dyn fmt::Display) {
        self.note_refusal(why.to_string(), "error", &[INVALID]);
    }

    /// Counts and audits the refusal of a config whose reading ended by a panic. Returns the error.
    pub fn record_panicked_load(&self) -> ReloadError {
        let error = ReloadError::Panicked { has_begun: false };
        self.refused_reload(&error);
        error
    }

    fn refused_reload(&self, error: &ReloadError) {
        let result = if error.is_weaker() { "weaker" } else { "error" };
        self.note_refusal(error.to_string(), result, &error.reasons());
    }

    fn note_refusal(&self, why: String, result: &'static str, reasons: &[&'static str]) {
        count_reload(result);
        record_refusal_reasons(reasons);
        self.record_action("config", "reload", &why, false);
        self.listeners.admin_state.record_rejected_config(why);
    }

    /// Records the lost protections of teams' files in the metrics. They stay in force; the rest of
    /// the config is applied.
    pub fn record_held_protections(&self, lost: &[Weakening]) {
        record_refusal_reasons(
            &lost
                .iter()
                .map(|lost| lost.protection.label())
                .collect::<Vec<_>>(),
        );
    }

    /// Records that the files have the config in force, after a refused one or in other words.
    pub fn record_unchanged_config(&self, config: &Arc<Config>) {
        record_load_time("ok");
        record_refusal_reasons(&[]);
        if let Some(replicas) = &self.components.replicas {
            replicas.announce_config(config);
        }
        self.listeners
            .admin_state
            .record_unchanged_config(config.clone());
    }

    fn record_action(&self, who: &str, what: &str, detail: &str, done: bool) {
        self.components
            .policy
            .gates
            .audit
            .record_operator_action(&OperatorAction {
                actor: who,
                action: what,
                detail,
                took_effect: done,
            });
    }

    /// Refuses a config that a start at the bound addresses would refuse.
    fn check_exposure(&self, config: &Config) -> Result<(), Exposure> {
        exposure::check_clients(self.address(), config)?;
        match (self.admin_address(), &config.admin) {
            (Some(bound), Some(plan)) => exposure::check_operators(bound, plan),
            // A listener that the config switches off refuses every operator until it ends.
            _ => Ok(()),
        }
    }

    /// Applies a config; sets `has_begun` before the first part is replaced.
    fn apply(
        &self,
        config: &Arc<Config>,
        has_begun: &Cell<bool>,
    ) -> Result<Vec<&'static str>, ReloadError> {
        let Self {
            listeners: open,
            components,
            ..
        } = self;
        let config = &config.served_at(self.address());
        if !self.is_in_memory {
            self.check_exposure(config)?;
        }
        let mut applied = self.applied.lock();
        let singletons = components.replicas.as_ref().map(ReplicaLinks::singletons);
        let BuiltUpstreams {
            all: upstreams,
            to_share,
        } = build(
            config,
            &applied.upstreams,
            &components.base.factory,
            singletons,
        )?;
        let audit = components
            .policy
            .auditing
            .prepare(config.audit.as_ref(), &components.base.factory)?;
        let telemetry = self.telemetry.prepare(&config.telemetry)?;
        let keys = NewKeys::prepare(&applied.started, config, components)?;
        // The front first: it refuses bad certificates before any change. Its paths are those of
        // the catalog, so it is reloaded once more after the catalog.
        let take = || {
            open.front
                .reload(front_settings::of_config(config, self.address()))
        };
        has_begun.set(true);
        take().map_err(|error| ReloadError::Front(front_reason(&error)))?;
        components.policy.auditing.take(audit)?;
        self.telemetry.take(telemetry, &config.telemetry);
        components.apply_rules(config);
        to_share.into_iter().for_each(PreparedSingleton::share);
        components.catalog.apply(topology(config, &upstreams));
        if let Err(error) = take() {
            // The certificates were good a moment ago; the old ones still serve.
            tracing::error!(
                error = front_reason(&error),
                "certificates changed during a reload: new paths wait for the next"
            );
        }
        if let Some(keys) = keys {
            keys.take(components, &open.front);
        }
        components.replace(config);
        open.admin_state.operator_auth.replace(config.admin.clone());
        self.memory.replace(config);
        let unmoved = settings_needing_restart(&applied.started, config);
        note_team_files(&applied.config.team_files, &config.team_files);
        applied.config = config.clone();
        applied.upstreams = upstreams;
        Ok(unmoved)
    }

    /// Stops in phases: not ready, no new connections, open streams closed, calls drained until the
    /// config's deadline, upstreams retired, the operators' listener last.
    pub async fn shutdown(self) {
        // Boxed like the start.
        Box::pin(self.end()).await;
    }

    /// Waits until the successor has no more requests about calls that are parked here, or in the
    /// process before this one, which are forwarded through this one.
    async fn wait_for_forwarded_calls(&self) {
        let requests = self.listeners.front.process_requests();
        let calls_end = async {
            self.listeners.wait_for_last_calls().await;
            self.wait_for_predecessor().await;
        };
        tokio::select! {
            () = calls_end => {}
            () = requests.wait_for_end_of_successor() => {}
        }
    }

    /// Waits until the previous process has ended, if there is one. Its last requests reach their
    /// sessions and child processes through this one.
    async fn wait_for_predecessor(&self) {
        if let Some(ended) = &self.predecessor_ended {
            ended.cancelled().await;
        }
    }

    async fn end(mut self) {
        self.components.ready.set(false);
        self.components.catalog.begin_ending();
        if self.successor.is_some() {
            // First, so that open streams go on in the successor at once.
            self.listeners.front.begin_drain();
            // Operators and their probes are the successor's.
            self.listeners.close_admin().await;
        }
        let drain = self.applied.lock().config.drain;
        if let Some(replicas) = &self.components.replicas {
            replicas.begin_drain(self.successor.is_some()).await;
        }
        let has_successor = self.successor.is_some();
        if has_successor {
            // The successor accepts the requests of other replicas.
            self.listeners.front.leave_replicas();
        }
        let calls_end = async {
            if has_successor {
                self.wait_for_forwarded_calls().await;
                return;
            }
            if let Some(replicas) = &self.components.replicas {
                let leases_end = replicas.singletons().drain(drain);
                tokio::join!(self.listeners.wait_for_last_calls(), leases_end);
            }
            self.wait_for_predecessor().await;
        };
        self.listeners.front.drain(drain, calls_end).await;
        self.listeners.cancel_parked_calls();
        if has_successor {
            // No service manager waits for the end of this process. The drain of the previous one
            // may last longer, and bounds the wait.
            self.wait_for_predecessor().await;
        }
        // Calls of the previous process that still run had their time.
        for upstream in self.components.catalog.upstreams_with_sessions() {
            upstream.set_predecessor_running(false);
        }
        let _series = self.telemetry.hold_series();
        self.components.catalog.shutdown().await;
        self.components.policy.clients.shutdown().await;
        if let Some(replicas) = &self.components.replicas {
            replicas.shutdown(self.successor.is_some()).await;
        }
        self.memory.shutdown().await;
        self.listeners.close_admin().await;
        // Last, so that all earlier events are recorded.
        let last = self.components.policy.auditing.shutdown().await;
        if let Some(successor) = self.successor.take() {
            successor.send_end(&last).await;
        }
        self.telemetry.shutdown().await;
    }
}

impl fmt::Debug for Weir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weir({})", self.address())
    }
}

/// Records the reasons for a refusal of the config in the files; an empty list clears them.
fn record_refusal_reasons(reasons: &[&'static str]) {
    for reason in refusal_reasons() {
        let is_one = u64::from(reasons.contains(&reason));
        instruments()
            .config_refused
            .record(is_one, &[opentelemetry::KeyValue::new("reason", reason)]);
    }
}

/// Refuses a start with faulty teams' files, if the config demands that.
fn check_team_files(config: &Config) -> Result<(), StartError> {
    let faulty: Vec<String> = config
        .team_files
        .iter()
        .filter(|file| file.is_faulty())
        .map(|file| file.name.clone())
        .collect();
    match config.include_errors {
        IncludeErrors::RefuseStart if !faulty.is_empty() => Err(StartError::TeamFiles(faulty)),
        IncludeErrors::RefuseStart | IncludeErrors::LeaveOut => Ok(()),
    }
}

/// Records the files of `include` with errors, and clears those of the former config.
fn note_team_files(before: &[TeamFile], now: &[TeamFile]) {
    let gone = before
        .iter()
        .filter(|old| now.iter().all(|new| new.name != old.name))
        .map(|old| (old, None));
    for (file, serves) in gone.chain(now.iter().map(|file| (file, Some(file.version)))) {
        for version in TeamFileVersion::FAULTY {
            let labels = [
                ("file", file.name.clone()),
                ("serves", version.label().to_owned()),
            ];
            let labels = labels.map(|(name, value)| opentelemetry::KeyValue::new(name, value));
            instruments()
                .config_team_files
                .record(u64::from(serves == Some(version)), &labels);
        }
    }
}

/// Counts a reload in the metrics: `ok`, `error` or `weaker`.
fn count_reload(result: &'static str) {
    instruments()
        .config_reloads
        .add(1, &[opentelemetry::KeyValue::new("result", result)]);
    record_load_time(result);
}

/// Records the time of the last load of the config.
fn record_load_time(result: &'static str) {
    let now = unix_seconds(std::time::SystemTime::now());
    instruments()
        .config_last_reload
        .record(now, &[opentelemetry::KeyValue::new("result", result)]);
}
