//! The state of the admin listener: handles on the parts of weir that operators see and change.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use tokio::sync::{mpsc, oneshot};
use weir_catalog::Catalog;
use weir_config::Config;
use weir_core::ParkedCall;
use weir_core::port::{AuditLog, CallParking, Clock, OperatorAction, SharedChanges};
use weir_explain::Explainer;
use weir_front::{FrontOverview, ReplicaPorts};
use weir_handover::MovedOverride;
use weir_policy::limit::PolicyLimiter;
use weir_policy::{BlocklistAuthorizer, CredentialVerifier};
use weir_router::live_calls::{LiveCall, LiveCalls};
use weir_telemetry::{LogControl, Metrics};

use crate::config_history::ConfigHistory;
use crate::inherited;
use crate::operator_auth::{Operator, OperatorAuth, THROUGH_REPLICA};
use crate::overrides::OperatorOverrides;
use crate::replica_overview::ReplicaOverview;
use crate::strictness::Strictness;

/// The handles.
#[derive(Debug)]
pub struct AdminParts {
    /// The metrics, for scrapes.
    pub metrics: Metrics,
    /// The readiness, for probes.
    pub ready: Readiness,
    /// The explainer of access to tools.
    pub explainer: Arc<Explainer>,
    /// The catalog, with the state of the upstreams.
    pub catalog: Arc<Catalog>,
    /// The running calls.
    pub live: Arc<LiveCalls>,
    /// The calls that wait for their clients.
    pub parking: Arc<dyn CallParking>,
    /// The clients, sessions and streams of the client side.
    pub front: FrontOverview,
    /// The limits of requests.
    pub limits: Arc<PolicyLimiter>,
    /// The blocked principals.
    pub blocked: Arc<BlocklistAuthorizer>,
    /// The verifier of clients' credentials.
    pub credentials: Arc<CredentialVerifier>,
    /// The configs in force and refused.
    pub config_history: ConfigHistory,
    /// The credentials of operators.
    pub operator_auth: OperatorAuth,
    /// The changes that replicas share. Absent if the store is not shared.
    pub shared: Option<Arc<dyn SharedChanges>>,
    /// The audit of operators' actions.
    pub audit: Arc<dyn AuditLog>,
    /// The clock of times that are shown.
    pub clock: Arc<dyn Clock>,
    /// The address of the clients' listener.
    pub clients: SocketAddr,
    /// The replicas and their store; `None` if the store is not shared.
    pub replicas: Option<Arc<dyn ReplicaOverview>>,
    /// The way to the other replicas; `None` if the store is not shared.
    pub peers: Option<ReplicaPorts>,
}

/// The state that all handlers of the admin listener share.
#[derive(Debug)]
pub struct AdminState {
    parts: AdminParts,
    /// The operators' changes in force.
    pub(crate) overrides: Arc<OperatorOverrides>,
    controls: OnceLock<ControlHandles>,
    /// True while another process takes over.
    is_handover_begun: AtomicBool,
}

/// The handles by which operators control the process. The binary sets them; an embedded weir has
/// no such handles.
#[derive(Debug)]
pub struct ControlHandles {
    /// The control of the log level.
    pub log: LogControl,
    /// The channel of reload requests.
    pub reload: mpsc::Sender<ReloadRequest>,
}

/// An operator's request to reload the config.
#[derive(Debug)]
pub struct ReloadRequest {
    /// The strictness of this reload: a weaker config is refused or allowed.
    pub strictness: Strictness,
    /// The channel that is completed when the reload is done.
    pub done: oneshot::Sender<()>,
}

impl AdminState {
    /// Returns the state, with the changes that were in force in the previous process.
    pub fn new(parts: AdminParts, overrides: Arc<OperatorOverrides>) -> Self {
        Self {
            parts,
            overrides,
            controls: OnceLock::new(),
            is_handover_begun: AtomicBool::new(false),
        }
    }

    /// Sets the control handles, so that operators can change the log level and reload. Applies a
    /// log level inherited from the previous process.
    pub fn set_controls(&self, controls: ControlHandles) {
        if let Some(Err(error)) = self.overrides.log().map(|level| controls.log.set(&level)) {
            tracing::error!(error, "inherited log level not applied");
        }
        // One process sets them once, so a second call has no effect.
        let _second = self.controls.set(controls);
    }

    /// Refuses changes from now on, and returns those in force for the process that takes over.
    pub fn begin_handover(&self) -> Vec<MovedOverride> {
        self.is_handover_begun.store(true, Ordering::Release);
        inherited::moved_overrides(&self.overrides)
    }

    /// Accepts changes again, after a hand-over that failed.
    pub fn abort_handover(&self) {
        self.is_handover_begun.store(false, Ordering::Release);
    }

    /// Reports if changes are refused because the process that takes over would not know of them.
    pub(super) fn is_handing_over(&self) -> bool {
        self.is_handover_begun.load(Ordering::Acquire)
    }

    pub(super) fn controls(&self) -> Option<&ControlHandles> {
        self.controls.get()
    }

    /// Records a newly applied config, with the settings that wait for a restart.
    pub fn record_applied_config(&self, config: Arc<Config>, unmoved: Vec<&'static str>) {
        self.config_history
            .record_applied(config, unmoved, self.now());
    }

    /// Records that the files have the config in force, after a rejected one or in other words.
    pub fn record_unchanged_config(&self, config: Arc<Config>) {
        self.config_history.record_unchanged(config, self.now());
    }

    /// Records a rejected config.
    pub fn record_rejected_config(&self, why: String) {
        self.config_history.record_rejected(why, self.now());
    }

    /// Reports if there is an upstream of this id.
    pub(super) fn has_upstream(&self, id: &str) -> bool {
        let mut all = self.catalog.status().into_iter();
        all.any(|upstream| upstream.id.as_str() == id)
    }

    /// Returns the running calls, the oldest first; of one upstream only, if it is given.
    pub(super) fn running_calls(&self, upstream: Option<&str>) -> Vec<LiveCall> {
        let mut all = self.live.all();
        all.retain(|call| upstream.is_none_or(|id| call.item.tool.upstream.as_str() == id));
        all
    }

    /// Returns the calls that wait for their clients, filtered in the same way.
    pub(super) fn parked_calls(&self, upstream: Option<&str>) -> Vec<ParkedCall> {
        let mut all = self.parking.waiting();
        all.retain(|call| upstream.is_none_or(|id| call.details.upstream.as_str() == id));
        all
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Logs and audits the action of an operator who sent a request.
    pub(crate) fn record_operator_action(
        &self,
        operator: &Operator,
        what: &str,
        detail: &str,
        done: bool,
    ) {
        if operator.is_forwarded() {
            self.record_action(
                &operator.0,
                what,
                &format!("{detail}{THROUGH_REPLICA}"),
                done,
            );
        } else {
            self.record_action(&operator.0, what, detail, done);
        }
    }

    /// Logs and audits an operator's action.
    pub(crate) fn record_action(&self, who: &str, what: &str, detail: &str, done: bool) {
        tracing::info!(who, what, detail, done, "operator action");
        self.audit.record_operator_action(&OperatorAction {
            actor: who,
            action: what,
            detail,
            took_effect: done,
        });
    }
}

impl std::ops::Deref for AdminState {
    type Target = AdminParts;

    fn deref(&self) -> &AdminParts {
        &self.parts
    }
}

/// The readiness of weir: the config is applied, credentials can be verified, no sealing key of
/// another replica is missing, and weir is not draining.
#[derive(Clone)]
pub struct Readiness {
    wanted: Arc<AtomicBool>,
    credentials: Arc<CredentialVerifier>,
    replicas: Option<Arc<dyn ReplicaOverview>>,
}

impl Readiness {
    /// Returns a readiness that is not set yet.
    /// `replicas` are those that share a store with this one.
    pub fn new(
        credentials: Arc<CredentialVerifier>,
        replicas: Option<Arc<dyn ReplicaOverview>>,
    ) -> Self {
        Self {
            wanted: Arc::default(),
            credentials,
            replicas,
        }
    }

    /// Sets the readiness of weir itself.
    pub fn set(&self, ready: bool) {
        self.wanted.store(ready, Ordering::Release);
    }

    /// Reports if weir is ready for traffic.
    pub fn is_ready(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
            && self.credentials.is_ready()
            && self.missing_key().is_none()
    }

    /// Returns the id of a key that another replica seals with and this one lacks: sessions of that
    /// replica would be lost here.
    pub(crate) fn missing_key(&self) -> Option<u8> {
        self.replicas.as_ref()?.missing_key()
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readiness")
            .field("is_ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}
