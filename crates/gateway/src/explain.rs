//! Why can somebody use a tool, or not: the whole way of a call, walked for an operator who asks,
//! with the first cause first.
//!
//! It asks the same rules, limits and lists that requests go through, and takes nothing from them.
//! No call is made of it, and the sender that is asked about is never a sender of requests.

mod gates;
mod question;
mod report;
mod supply;
mod walk;

use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_core::Catalog;
use weir_core::port::Clock;
use weir_policy::limit::Limits;
use weir_policy::rules::Rules;
use weir_store::MemoryCounters;

use crate::admin::Book;
use crate::config::Config;

pub(crate) use question::{ENDPOINT, Question};
pub(crate) use report::{Effect, Explanation, Step};
use walk::Walk;

/// Who answers.
pub(crate) struct Explainer {
    config: ArcSwap<Config>,
    rules: Arc<Rules>,
    limits: Arc<Limits>,
    clock: Arc<dyn Clock>,
    /// What the upstreams have; `None`: they are not looked at.
    catalog: Option<Arc<Catalog>>,
    /// What operators changed.
    book: Arc<Book>,
}

impl Explainer {
    /// Of a running weir.
    pub(crate) fn live(
        config: Arc<Config>,
        (rules, limits): (&Arc<Rules>, &Arc<Limits>),
        (catalog, book): (&Arc<Catalog>, &Arc<Book>),
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            config: ArcSwap::new(config),
            rules: rules.clone(),
            limits: limits.clone(),
            clock: clock.clone(),
            catalog: Some(catalog.clone()),
            book: book.clone(),
        }
    }

    /// By a config alone: every upstream is taken to be up and to have whatever tool is asked for,
    /// and nothing of any limit to be used.
    pub(crate) fn supposing(config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        let counters = Arc::new(MemoryCounters::new(clock.clone()));
        let limits = Limits::new(crate::limits::rates(&config), clock.clone(), counters);
        let rules = Arc::new(Rules::new(config.rules.clone()));
        Self {
            config: ArcSwap::new(config),
            rules,
            limits: Arc::new(limits),
            clock,
            catalog: None,
            book: Arc::default(),
        }
    }

    /// Answers by another config from now on. The rules, limits and catalog have theirs from
    /// elsewhere.
    pub(crate) fn replace(&self, config: Arc<Config>) {
        self.config.store(config);
    }

    /// Walks the way of a call.
    pub(crate) async fn answer(&self, question: &Question) -> Explanation {
        let config = self.config.load_full();
        Walk::new(self, &config, question).go().await
    }
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Explainer")
    }
}

#[cfg(test)]
mod tests;
