//! The config in force with the upstreams built from it, for the comparison with the next one.

use std::sync::Arc;

use weir_catalog::Topology;
use weir_config::{Config, UpstreamPlan};
use weir_core::upstream::Upstream;
use weir_singleton::{PreparedSingleton, Singletons};
use weir_upstream::{UpstreamBuildError, UpstreamFactory};

/// The config in force, and the upstreams built from it.
pub(super) struct AppliedConfig {
    /// The config of the start, for settings that take effect only at a restart.
    pub started: Arc<Config>,
    pub config: Arc<Config>,
    pub upstreams: Vec<BuiltUpstream>,
}

/// An upstream, with the plan that it was built from.
pub(super) type BuiltUpstream = (UpstreamPlan, Arc<dyn Upstream>);

/// The upstreams of a config before the config is applied.
pub(super) struct BuiltUpstreams {
    /// All upstreams of the config, in its order.
    pub all: Vec<BuiltUpstream>,
    /// The new ones with `instances: one`, to be shared once the config is applied.
    pub to_share: Vec<PreparedSingleton>,
}

/// Builds the upstreams of a config; one with unchanged settings is reused. Those that are new have
/// no effect yet, because the config may still be refused.
pub(super) fn build(
    config: &Config,
    before: &[BuiltUpstream],
    factory: &UpstreamFactory,
    singletons: Option<&Arc<Singletons>>,
) -> Result<BuiltUpstreams, UpstreamBuildError> {
    let mut all = Vec::with_capacity(config.upstreams.len());
    let mut to_share = Vec::new();
    for plan in &config.upstreams {
        let same = before.iter().find(|(old, _)| old.settings == plan.settings);
        let settings = plan.settings.clone();
        let shared_by = singletons.filter(|_| settings.is_singleton());
        let upstream = match (same, shared_by) {
            (Some((_, upstream)), _) => upstream.clone(),
            (None, None) => factory.build(settings)?,
            (None, Some(singletons)) => {
                let (bounds, fence) = (settings.bounds, singletons.fence());
                let local = factory.build_behind(settings, Some(fence.clone()))?;
                let prepared = singletons.prepare(local, fence, bounds);
                let upstream = prepared.upstream();
                to_share.push(prepared);
                upstream
            }
        };
        all.push((plan.clone(), upstream));
    }
    Ok(BuiltUpstreams { all, to_share })
}

/// Returns the catalog's topology of a config and its upstreams.
pub(super) fn topology(config: &Config, upstreams: &[BuiltUpstream]) -> Topology {
    Topology {
        endpoints: config.endpoints.iter().cloned().map(Arc::new).collect(),
        upstreams: upstreams
            .iter()
            .map(|(plan, upstream)| (upstream.clone(), plan.rules.clone()))
            .collect(),
    }
}

/// Returns the changed settings that the running process cannot apply.
pub(super) fn settings_needing_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let queue = |config: &Config| config.audit.as_ref().map(|plan| plan.queue);
    let place = |config: &Config| config.admin.as_ref().map(|plan| plan.listen);
    [
        ("listen", old.front.listen != new.front.listen),
        (
            "limits.backlog",
            old.front.limits.listener.backlog != new.front.limits.listener.backlog,
        ),
        (
            "tls (on or off)",
            old.front.tls.is_some() != new.front.tls.is_some(),
        ),
        ("admin.listen", place(old) != place(new)),
        ("store", old.store != new.store),
        ("cluster", old.cluster != new.cluster),
        ("keys (on or off)", keys_need_restart(old, new)),
        ("forward_proxy", old.forward_proxy != new.forward_proxy),
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

/// Reports if a reload cannot apply the keys of a config: the process began with a generated key, or
/// would go on with one.
pub(super) fn keys_need_restart(started: &Config, config: &Config) -> bool {
    started.keys.is_empty() != config.keys.is_empty()
}
