//! The limiter's settings, from a config.

use weir_policy::limit::LimitSettings;

use crate::config::checked_config::Config;

/// Returns the limits of a config. An upstream's concurrency permits are its own `in_flight`: calls
/// queue for them fairly by principal, before the upstream's own bound would refuse calls of any
/// principal.
pub(crate) fn rates(config: &Config) -> LimitSettings {
    let mut rates = config.rates.clone();
    let places = config
        .upstreams
        .iter()
        .map(|plan| (plan.settings.id.clone(), plan.settings.bounds.in_flight));
    rates.concurrency.upstreams = places.collect();
    rates
}
