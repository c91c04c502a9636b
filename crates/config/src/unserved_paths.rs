//! The paths of a team's file that is left out.

use weir_config_file::config_report::ConfigPath;
use weir_config_file::config_tree::ConfigNode;
use weir_config_file::upstream_slug::upstream_slug;
use weir_core::toolset::NamePattern;

use crate::default_endpoint_path::DEFAULT_ENDPOINT;
use crate::team_grants::TeamGrant;

/// Returns the paths of a file that cannot be used: those that it names and its team may have. For
/// a file that cannot be parsed, they are all that its team may have.
pub(super) fn unserved_paths(
    tree: Option<&ConfigNode>,
    grant: &TeamGrant,
    has_default_endpoints: bool,
) -> Vec<NamePattern> {
    let Some(tree) = tree else {
        return grant.paths().to_vec();
    };
    let keys = |section: &str| {
        let entries = tree
            .find(&ConfigPath::at(section))
            .map(ConfigNode::entries)
            .unwrap_or_default();
        entries
            .iter()
            .map(|(key, _)| key.clone())
            .collect::<Vec<_>>()
    };
    let named = keys("endpoints");
    let paths = if named.is_empty() && has_default_endpoints {
        let servers = keys("mcpServers")
            .into_iter()
            .map(|key| upstream_slug(&key));
        keys("upstreams")
            .into_iter()
            .chain(servers)
            .map(|id| format!("{DEFAULT_ENDPOINT}/{id}"))
            .collect()
    } else {
        named
    };
    paths
        .iter()
        .filter(|path| grant.has_path(path))
        .map(|path| NamePattern::new(path))
        .collect()
}
