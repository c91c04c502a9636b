//! The endpoints that are served if the config lists none.

use weir_config_file::config_report::{ConfigPath, ConfigProblem, ConfigReport};
use weir_core::Endpoint;
use weir_core::endpoint::EndpointMode;
use weir_core::names::{EndpointId, UpstreamId};

use crate::check::config_defaults::ConfigDefaults;
use crate::checked_config::{Config, UpstreamPlan};
use crate::default_endpoint_path::DEFAULT_ENDPOINT;
use crate::main_config::MainConfig;
use crate::team_grants::TeamGrant;

/// The end of the path of HTTP+SSE, behind the path of its endpoint.
const SSE_SUFFIX: &str = "/sse";

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

/// Reports an endpoint at the path of another's HTTP+SSE, which that one then does not have.
pub(super) fn check_sse_paths(config: &Config, report: &mut ConfigReport) {
    if !config.front.http_sse {
        return;
    }
    let has = |path: &str| config.endpoints.iter().any(|one| one.id.as_str() == path);
    for endpoint in &config.endpoints {
        let id = endpoint.id.as_str();
        let base = match id.strip_suffix(SSE_SUFFIX) {
            Some("") => Some("/"),
            base => base,
        };
        if let Some(base) = base.filter(|base| has(base)) {
            let path = match config.names_endpoints {
                true => ConfigPath::at("endpoints").key(id),
                false => ConfigPath::at("upstreams").key("sse"),
            };
            let message = format!("takes {id}, where clients of {base} expect HTTP+SSE");
            report.add(
                ConfigProblem::warning(path, message)
                    .hint("choose another name, or write http_sse: false"),
            );
        }
    }
}
