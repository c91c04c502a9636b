//! The explainer of access to tools: the config, and the components of weir that it queries.

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::Catalog;
use weir_core::port::Clock;
use weir_policy::limit::PolicyLimiter;
use weir_policy::rules::PolicyAuthorizer;
use weir_store::MemoryCounters;

use crate::admin::overrides::OperatorOverrides;
use crate::config::checked_config::Config;

/// Answers questions about access to tools.
pub(crate) struct Explainer {
    pub(super) config: ArcSwap<Config>,
    pub(super) rules: Arc<PolicyAuthorizer>,
    pub(super) limits: Arc<PolicyLimiter>,
    pub(super) clock: Arc<dyn Clock>,
    /// The upstreams' lists. `None` if upstreams are not queried.
    pub(super) catalog: Option<Arc<Catalog>>,
    /// The operators' overrides.
    pub(super) overrides: Arc<OperatorOverrides>,
}

/// The components of a running weir that its explainer queries.
pub(crate) struct ExplainerSources {
    /// The rules of the requests.
    pub(crate) rules: Arc<PolicyAuthorizer>,
    /// The limits of the requests.
    pub(crate) limits: Arc<PolicyLimiter>,
    /// The clock of the limits.
    pub(crate) clock: Arc<dyn Clock>,
    /// The upstreams' lists.
    pub(crate) catalog: Arc<Catalog>,
    /// The operators' overrides.
    pub(crate) overrides: Arc<OperatorOverrides>,
}

impl Explainer {
    /// Creates the explainer of a running weir.
    pub(crate) fn live(config: Arc<Config>, sources: ExplainerSources) -> Self {
        let ExplainerSources {
            rules,
            limits,
            clock,
            catalog,
            overrides,
        } = sources;
        Self {
            config: ArcSwap::new(config),
            rules,
            limits,
            clock,
            catalog: Some(catalog),
            overrides,
        }
    }

    /// Creates an explainer of a config alone. It assumes that every upstream is up and has the
    /// tool in question, and that no limit is used up.
    pub(crate) fn from_config(config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        let counters = Arc::new(MemoryCounters::new(clock.clone()));
        let limits = PolicyLimiter::new(crate::limits::rates(&config), clock.clone(), counters);
        let rules = Arc::new(PolicyAuthorizer::new(config.rules.clone()));
        Self {
            config: ArcSwap::new(config),
            rules,
            limits: Arc::new(limits),
            clock,
            catalog: None,
            overrides: Arc::default(),
        }
    }

    /// Replaces the config. The rules, limits and catalog are updated elsewhere.
    pub(crate) fn set_config(&self, config: Arc<Config>) {
        self.config.store(config);
    }
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Explainer")
    }
}
