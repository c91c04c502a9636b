//! The config that is in force, and what was built of it: what the next one is compared with.

use std::sync::Arc;

use weir_core::catalog::Topology;
use weir_core::upstream::Upstream;
use weir_upstream::{BuildError, Factory};

use crate::config::{Config, UpstreamPlan};

/// What the last config was, and what was built of it.
pub(super) struct Applied {
    /// The config weir started with, for what only a start takes up.
    pub(super) started: Arc<Config>,
    pub(super) config: Arc<Config>,
    pub(super) upstreams: Vec<Built>,
}

/// An upstream, and what it was built of.
pub(super) type Built = (UpstreamPlan, Arc<dyn Upstream>);

/// The upstreams of a config; one whose settings did not change comes as the same object again.
pub(super) fn build(
    config: &Config,
    before: &[Built],
    factory: &Factory,
) -> Result<Vec<Built>, BuildError> {
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

/// What the catalog is told of a config and its upstreams.
pub(super) fn topology(config: &Config, upstreams: &[Built]) -> Topology {
    Topology {
        endpoints: config.endpoints.iter().cloned().map(Arc::new).collect(),
        upstreams: upstreams
            .iter()
            .map(|(plan, upstream)| (upstream.clone(), plan.rules.clone()))
            .collect(),
    }
}

/// What changed in the file and cannot change in the running process.
pub(super) fn unmoved(old: &Config, new: &Config) -> Vec<&'static str> {
    let queue = |config: &Config| config.audit.as_ref().map(|plan| plan.queue);
    let place = |config: &Config| config.admin.as_ref().map(|plan| plan.listen);
    [
        ("listen", old.front.listen != new.front.listen),
        (
            "limits.backlog",
            old.front.limits.backlog != new.front.limits.backlog,
        ),
        (
            "tls (on or off)",
            old.front.tls.is_some() != new.front.tls.is_some(),
        ),
        ("admin.listen", place(old) != place(new)),
        ("keys", old.keys != new.keys),
        ("log", old.log != new.log),
        (
            "telemetry.metrics.enabled",
            old.telemetry.measured != new.telemetry.measured,
        ),
        (
            "audit.queue",
            queue(old)
                .zip(queue(new))
                .is_some_and(|(old, new)| old != new),
        ),
        (
            "first_list_wait or change_window",
            old.catalog != new.catalog,
        ),
    ]
    .into_iter()
    .filter_map(|(name, changed)| changed.then_some(name))
    .collect()
}
