//! The names of an endpoint that mean one item or the items of one upstream, also while no list shows
//! them: aliases, and names that begin like the names of an upstream. No other item gets such a name,
//! and none is found under it.

use std::sync::Arc;

use weir_core::endpoint::{Endpoint, EndpointMode};
use weir_core::fast::FastMap;
use weir_core::names::{UpstreamId, exposed_uri};
use weir_core::server_item::ServerItem;
use weir_core::toolset::NamePattern;
use weir_core::upstream::ListKind;

/// The reserved names of one endpoint.
#[derive(Debug)]
pub struct ReservedNames {
    mode: EndpointMode,
    /// The operator's aliases, each with its tool, if the pattern names the upstream.
    aliases: FastMap<Arc<str>, Option<AliasedTool>>,
}

/// A tool that has an alias: its upstream, and its native name as far as the pattern has it.
#[derive(Debug)]
struct AliasedTool {
    upstream: UpstreamId,
    native: Box<str>,
}

impl ReservedNames {
    /// The reserved names of an endpoint.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Self {
        let aliases = endpoint.tools.iter().flat_map(|tools| &tools.aliases);
        Self {
            mode: endpoint.mode.clone(),
            aliases: aliases
                .map(|(pattern, alias)| (alias.clone(), aliased_tool(&endpoint.mode, pattern)))
                .collect(),
        }
    }

    /// The reserved names of no endpoint.
    pub fn none() -> Self {
        Self {
            mode: EndpointMode::Aggregate {
                upstreams: Vec::new(),
                naming: Default::default(),
                prefix: Default::default(),
            },
            aliases: FastMap::default(),
        }
    }

    /// True if the name is an alias of a tool.
    pub fn is_alias(&self, kind: ListKind, name: &str) -> bool {
        kind == ListKind::Tools && self.aliases.contains_key(name)
    }

    /// The upstream of the tool with this alias, if the config names it.
    pub fn alias_owner(&self, name: &str) -> Option<&UpstreamId> {
        Some(&self.aliases.get(name)?.as_ref()?.upstream)
    }

    /// The native name that a name on the endpoint stands for if it is of this upstream, whose lists
    /// are not known.
    pub fn native_name(&self, upstream: &UpstreamId, kind: ListKind, name: &str) -> Option<String> {
        let EndpointMode::Aggregate { naming, .. } = &self.mode else {
            return Some(name.to_owned());
        };
        if self.is_alias(kind, name) {
            let tool = self.aliases.get(name)?.as_ref()?;
            return (tool.upstream == *upstream).then(|| tool.native.as_ref().to_owned());
        }
        match kind {
            ListKind::Tools | ListKind::Prompts => {
                let native = naming.native_part(upstream, name)?;
                (!native.is_empty()).then(|| native.to_owned())
            }
            ListKind::Resources | ListKind::Templates => {
                let (id, native) = exposed_uri::split_exposed(name)?;
                (id == *upstream).then_some(native)
            }
        }
    }

    /// The aliases in a stable order.
    pub fn sorted_aliases(&self) -> Vec<&str> {
        let mut aliases: Vec<&str> = self.aliases.keys().map(|alias| &**alias).collect();
        aliases.sort_unstable();
        aliases
    }

    /// True if calls find an item under its native name.
    pub fn permits_native(&self, tool: &ServerItem) -> bool {
        !self.is_alias(tool.kind, &tool.native) && !is_of_other(&self.mode, tool, &tool.native)
    }
}

/// True if a name begins like the names of another upstream of the endpoint than the tool's own.
pub fn is_of_other(mode: &EndpointMode, tool: &ServerItem, name: &str) -> bool {
    match (tool.kind, mode) {
        (_, EndpointMode::Transparent(_)) => false,
        (ListKind::Tools | ListKind::Prompts, EndpointMode::Aggregate { naming, .. }) => {
            let mut possible = naming.possible_upstreams(name);
            possible.any(|id| is_other(mode, &tool.upstream, id))
        }
        (ListKind::Resources | ListKind::Templates, EndpointMode::Aggregate { .. }) => {
            is_uri_of_other(mode, &tool.upstream, name)
        }
    }
}

/// True if a URI begins like the URIs of another upstream of the endpoint than this one.
pub fn is_uri_of_other(mode: &EndpointMode, upstream: &UpstreamId, uri: &str) -> bool {
    exposed_uri::upstream_of(uri).is_some_and(|id| is_other(mode, upstream, id))
}

/// True if a URI from the template could begin like the URIs of another upstream of the endpoint
/// than this one.
pub(crate) fn expands_to_other(mode: &EndpointMode, upstream: &UpstreamId, template: &str) -> bool {
    let others = match mode {
        EndpointMode::Transparent(_) => return false,
        EndpointMode::Aggregate { upstreams, .. } => upstreams.iter(),
    };
    others
        .filter(|other| *other != upstream)
        .any(|other| exposed_uri::may_expand_to(template, other))
}

/// True if an id is that of another upstream of the endpoint than this one.
fn is_other(mode: &EndpointMode, upstream: &UpstreamId, id: &str) -> bool {
    let mut known = mode.upstreams().iter();
    known.any(|known| known.as_str() == id && known != upstream)
}

/// The tool that a pattern of one tool names: `upstream/tool`, or the name on the endpoint.
fn aliased_tool(mode: &EndpointMode, pattern: &NamePattern) -> Option<AliasedTool> {
    let name = pattern.as_str();
    let tool = |upstream: &UpstreamId, native: &str| AliasedTool {
        upstream: upstream.clone(),
        native: native.into(),
    };
    if let Some((id, native)) = name.split_once('/') {
        let known = mode.upstreams().iter().find(|known| known.as_str() == id);
        if let Some(upstream) = known {
            return Some(tool(upstream, native));
        }
    }
    match mode {
        EndpointMode::Transparent(upstream) => Some(tool(upstream, name)),
        EndpointMode::Aggregate {
            upstreams, naming, ..
        } => {
            let mut named = upstreams.iter().filter_map(|upstream| {
                let native = naming.native_part(upstream, name)?;
                Some(tool(upstream, native))
            });
            named.next()
        }
    }
}
