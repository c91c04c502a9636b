//! The config in force with the upstreams built from it, for the comparison with the next one.

use std::sync::Arc;

use weir_catalog::Topology;
use weir_config::{Config, UpstreamPlan};
use weir_core::upstream::Upstream;
use weir_singleton::Singletons;
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

/// Builds the upstreams of a config; one with unchanged settings is reused.
pub(super) fn build(
    config: &Config,
    before: &[BuiltUpstream],
    factory: &UpstreamFactory,
    singletons: Option<&Arc<Singletons>>,
) -> Result<Vec<BuiltUpstream>, UpstreamBuildError> {
    let one = |plan: &UpstreamPlan| {
        let same = before.iter().find(|(old, _)| old.settings == plan.settings);
        let upstream = match same {
            Some((_, upstream)) => upstream.clone(),
            None => build_one(plan, factory, singletons)?,
        };
        Ok((plan.clone(), upstream))
    };
    config.upstreams.iter().map(one).collect()
}

/// Builds one upstream. One with `instances: one` is shared with the other replicas, if there are
/// any.
fn build_one(
    plan: &UpstreamPlan,
    factory: &UpstreamFactory,
    singletons: Option<&Arc<Singletons>>,
) -> Result<Arc<dyn Upstream>, UpstreamBuildError> {
    let settings = plan.settings.clone();
    match singletons.filter(|_| settings.is_singleton()) {
        None => factory.build(settings),
        Some(singletons) => {
            let (bounds, fence) = (settings.bounds, singletons.fence());
            let local = factory.build_behind(settings, Some(fence.clone()))?;
            Ok(singletons.share(local, fence, bounds))
        }
    }
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
