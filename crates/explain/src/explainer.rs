//! The explainer of access to tools: the config, and the components of weir that it queries.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_catalog::Catalog;
use weir_config::Config;
use weir_core::names::UpstreamId;
use weir_core::port::{AuditLog, Clock};
use weir_core::principal::Subject;
use weir_policy::CredentialVerifier;
use weir_policy::limit::PolicyLimiter;
use weir_policy::rules::PolicyAuthorizer;
use weir_store::MemoryCounters;

/// The operators' overrides, as an explanation words them.
pub trait OverrideWords: std::fmt::Debug + Send + Sync {
    /// Describes the change by which an upstream is out of service: operator, begin, end and
    /// reason, for people.
    fn of_upstream(&self, id: &UpstreamId) -> Option<String>;

    /// Describes the change by which a principal is blocked.
    fn of_principal(&self, subject: &Subject) -> Option<String>;
}

/// Answers questions about access to tools.
#[derive(Debug)]
pub struct Explainer {
    pub(crate) config: ArcSwap<Config>,
    pub(crate) rules: Arc<PolicyAuthorizer>,
    pub(crate) limits: Arc<PolicyLimiter>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The upstreams' lists. `None` if upstreams are not queried.
    pub(crate) catalog: Option<Arc<Catalog>>,
    /// The operators' overrides. `None` if no weir runs.
    pub(crate) overrides: Option<Arc<dyn OverrideWords>>,
    /// The verifier of credentials. `None` if no weir runs.
    pub(crate) credentials: Option<Arc<CredentialVerifier>>,
    /// The audit. `None` if no weir runs.
    pub(crate) audit: Option<Arc<dyn AuditLog>>,
}

/// The components of a running weir that its explainer queries.
#[derive(Debug)]
pub struct ExplainerSources {
    /// The rules of the requests.
    pub rules: Arc<PolicyAuthorizer>,
    /// The limits of the requests.
    pub limits: Arc<PolicyLimiter>,
    /// The clock of the limits.
    pub clock: Arc<dyn Clock>,
    /// The upstreams' lists.
    pub catalog: Arc<Catalog>,
    /// The operators' overrides.
    pub overrides: Arc<dyn OverrideWords>,
    /// The verifier of credentials, which has the keys of the issuers.
    pub credentials: Arc<CredentialVerifier>,
    /// The audit of the calls.
    pub audit: Arc<dyn AuditLog>,
}

impl Explainer {
    /// Creates the explainer of a running weir.
    pub fn live(config: Arc<Config>, sources: ExplainerSources) -> Self {
        let ExplainerSources {
            rules,
            limits,
            clock,
            catalog,
            overrides,
            credentials,
            audit,
        } = sources;
        Self {
            config: ArcSwap::new(config),
            rules,
            limits,
            clock,
            catalog: Some(catalog),
            overrides: Some(overrides),
            credentials: Some(credentials),
            audit: Some(audit),
        }
    }

    /// Creates an explainer of a config alone. It assumes that every upstream is up and has the
    /// tool in question, and that no limit is used up.
    pub fn from_config(config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        let counters = Arc::new(MemoryCounters::new(clock.clone()));
        let limits = PolicyLimiter::new(config.limit_settings(), clock.clone(), counters);
        let rules = Arc::new(PolicyAuthorizer::new(config.rules.clone()));
        Self {
            config: ArcSwap::new(config),
            rules,
            limits: Arc::new(limits),
            clock,
            catalog: None,
            overrides: None,
            credentials: None,
            audit: None,
        }
    }

    /// Replaces the config. The rules, limits and catalog are updated elsewhere.
    pub fn set_config(&self, config: Arc<Config>) {
        self.config.store(config);
    }
}
