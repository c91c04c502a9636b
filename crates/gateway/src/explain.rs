//! Explains to an operator why a sender can use a tool, or cannot: it follows the path of a call,
//! and lists the first cause first.
//!
//! It queries the same rules, limits and lists that requests go through, and consumes no quota. No
//! call is made, and the sender in the question is never used for requests.

mod access_question;
mod call_walk;
mod decision_steps;
mod explanation;
mod tool_lookup;

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::Catalog;
use weir_core::port::Clock;
use weir_policy::limit::PolicyLimiter;
use weir_policy::rules::PolicyAuthorizer;
use weir_store::MemoryCounters;

use crate::admin::OperatorOverrides;
use crate::config::Config;

pub(crate) use access_question::{AccessQuestion, DEFAULT_ENDPOINT};
use call_walk::CallWalk;
pub(crate) use explanation::{Explanation, ExplanationStep, StepEffect};

/// Answers questions about access to tools.
pub(crate) struct Explainer {
    config: ArcSwap<Config>,
    rules: Arc<PolicyAuthorizer>,
    limits: Arc<PolicyLimiter>,
    clock: Arc<dyn Clock>,
    /// The upstreams' lists. `None` if upstreams are not queried.
    catalog: Option<Arc<Catalog>>,
    /// The operators' overrides.
    overrides: Arc<OperatorOverrides>,
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

    /// Follows the path of a call and returns the explanation.
    pub(crate) async fn answer(&self, question: &AccessQuestion) -> Explanation {
        let config = self.config.load_full();
        CallWalk::new(self, &config, question).run().await
    }
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Explainer")
    }
}

#[cfg(test)]
mod tests;
