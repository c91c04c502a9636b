//! The endpoints that are served if the config lists none.

use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_core::names::{EndpointId, UpstreamId};

use super::super::checked_config::UpstreamPlan;
use super::super::default_endpoint_path::DEFAULT_ENDPOINT;
use super::super::main_config::MainConfig;
use super::super::team_grants::TeamGrant;
use super::config_defaults::ConfigDefaults;

/// Returns the endpoints of a config that lists none: `/mcp` with all upstreams, and each upstream
/// alone under `/mcp/<id>`.
pub(crate) fn default_endpoints(
    upstreams: &[UpstreamPlan],
    defaults: &ConfigDefaults,
) -> Vec<Endpoint> {
    let ids: Vec<UpstreamId> = upstreams
        .iter()
        .map(|plan| plan.settings.id.clone())
        .collect();
    let everything = default_endpoint(
        DEFAULT_ENDPOINT,
        defaults.aggregate_mode(ids.clone()),
        defaults,
    );
    let alone = ids.into_iter().map(|id| {
        default_endpoint(
            &format!("{DEFAULT_ENDPOINT}/{id}"),
            EndpointMode::Transparent(id),
            defaults,
        )
    });
    std::iter::once(everything).chain(alone).collect()
}

fn default_endpoint(path: &str, mode: EndpointMode, defaults: &ConfigDefaults) -> Endpoint {
    let clean = !mode.is_transparent();
    Endpoint {
        id: EndpointId::new(path),
        mode,
        page: defaults.page,
        deadlines: None,
        tools: None,
        clean,
    }
}

/// Adds the upstreams of a file without endpoints to the default ones, as far as their paths are
/// granted.
pub(crate) fn add_to_default_endpoints(
    main: &mut MainConfig,
    added: &[UpstreamPlan],
    grant: &TeamGrant,
) {
    let (endpoints, defaults) = (&mut main.config.endpoints, &main.defaults);
    for id in added.iter().map(|plan| &plan.settings.id) {
        let everything = endpoints
            .iter_mut()
            .find(|endpoint| endpoint.id.as_str() == DEFAULT_ENDPOINT);
        match everything.map(|endpoint| &mut endpoint.mode) {
            Some(EndpointMode::Aggregate { upstreams, .. })
                if main.has_default_endpoint && grant.has_path(DEFAULT_ENDPOINT) =>
            {
                upstreams.push(id.clone());
            }
            None if grant.has_path(DEFAULT_ENDPOINT) => {
                endpoints.push(default_endpoint(
                    DEFAULT_ENDPOINT,
                    defaults.aggregate_mode(vec![id.clone()]),
                    defaults,
                ));
                main.has_default_endpoint = true;
            }
            _ => {}
        }
        let alone = format!("{DEFAULT_ENDPOINT}/{id}");
        let taken = endpoints
            .iter()
            .any(|endpoint| endpoint.id == EndpointId::new(&alone));
        if !taken && grant.has_path(&alone) {
            endpoints.push(default_endpoint(
                &alone,
                EndpointMode::Transparent(id.clone()),
                defaults,
            ));
        }
    }
}
