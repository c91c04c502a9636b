//! What the limiter is told of a config.

use weir_policy::limit::Rates;

use crate::config::Config;

/// The limits of a config. An upstream's places are those that its own settings give it: before
/// them calls wait in turn by principal, instead of being refused by whoever came first.
pub(crate) fn rates(config: &Config) -> Rates {
    let mut rates = config.rates.clone();
    let places = config
        .upstreams
        .iter()
        .map(|plan| (plan.settings.id.clone(), plan.settings.bounds.in_flight));
    rates.concurrency.upstreams = places.collect();
    rates
}
