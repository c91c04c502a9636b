//! Explains the place of a tool on an endpoint, or the reason for its absence, to an operator.
//!
//! It inspects the inputs of the views again, and slowly, as a client sees them that accepts no
//! requests (the base class). No client request uses it.

use std::sync::Arc;

use bytes::Bytes;
use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::{CallTerms, CatalogItem};
use weir_core::endpoint::{Endpoint, EndpointMode, NamePrefix, UpstreamRules};
use weir_core::names::{EndpointId, UpstreamId};
use weir_core::secrets::ArgumentSecret;
use weir_core::server_item::ServerItem;
use weir_core::upstream::ListKind;
use weir_items::{ItemDraft, ListEntry, ResolvedRules, is_of_other, names};
use weir_schema::{
    CheckMode, Mismatch, SchemaCache, SchemaVerdict, TOO_COSTLY_TEXT, ToolSchema, UnusableSchema,
    verdict_of_arguments,
};

use crate::Catalog;
use crate::view::View;

/// A tool that could be meant by a name.
#[derive(Clone, Debug)]
pub struct TracedTool {
    /// Its upstream.
    pub upstream: UpstreamId,
    /// The upstream's own name for it.
    pub native: Arc<str>,
    /// The name it has, or would have.
    pub name: Arc<str>,
    /// Its place on the endpoint.
    pub place: ToolPlacement,
    /// The operator's rules for its calls; for a tool that is not selected, the upstream's rules.
    pub terms: Arc<CallTerms>,
    /// The obstacle to using its input or output schema, if any.
    pub unchecked: Option<UnusableSchema>,
    tool: Arc<ServerItem>,
}

/// The place of a tool in a list, or the reason for its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolPlacement {
    /// It is on the endpoint.
    Shown,
    /// The endpoint's toolset leaves it out.
    NotSelected,
    /// Another tool has its name.
    Collided,
}

impl TracedTool {
    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &ServerItem {
        &self.tool
    }

    /// True if this is the tool of a list's item.
    #[must_use]
    pub fn is_item(&self, item: &CatalogItem) -> bool {
        self.upstream == item.tool.upstream && self.native == item.tool.native
    }

    /// The mismatches between arguments, a JSON object, and the tool's schema, or the obstacle to
    /// checking them. Empty if the operator wants no refusals.
    #[must_use]
    pub fn mismatches(&self, arguments: &[u8]) -> Vec<Mismatch> {
        if let (ToolSchema::Unchecked(why), CheckMode::Enforce) =
            (&self.tool.output, self.terms.validation.output)
        {
            return vec![Mismatch::whole(&format!("its output schema: {why}"))];
        }
        match (&self.tool.input, self.terms.validation.input) {
            (ToolSchema::Checked(schema), mode) if mode.refuses() => {
                match verdict_of_arguments(schema, arguments) {
                    SchemaVerdict::Fails(mismatches) => mismatches,
                    SchemaVerdict::Unreadable(place) => vec![place],
                    SchemaVerdict::Unknown => vec![Mismatch::whole(TOO_COSTLY_TEXT)],
                    SchemaVerdict::Fits => Vec::new(),
                }
            }
            (ToolSchema::Unchecked(why), CheckMode::Enforce) => {
                vec![Mismatch::whole(&why.to_string())]
            }
            _ => Vec::new(),
        }
    }

    /// The first secret in arguments, a JSON object, if its calls are refused for that.
    #[must_use]
    pub fn secret(&self, arguments: &[u8]) -> Option<ArgumentSecret<'_>> {
        self.terms
            .secrets
            .as_ref()
            .and_then(|secrets| secrets.in_arguments(arguments))
    }

    /// `shown` is the tool on the endpoint, if it is there.
    fn new(
        endpoint: &Endpoint,
        tool: &Arc<ServerItem>,
        rules: &ResolvedRules,
        shown: Option<&CatalogItem>,
    ) -> Self {
        let entry = ListEntry::new(endpoint, tool, rules);
        let place = match (&entry, shown) {
            (None, _) => ToolPlacement::NotSelected,
            (Some(_), Some(_)) => ToolPlacement::Shown,
            (Some(_), None) => ToolPlacement::Collided,
        };
        let own = |entry: &ListEntry| entry.name.clone();
        let name = shown
            .map(|item| item.exposed.clone())
            .or_else(|| entry.as_ref().map(own));
        Self {
            upstream: tool.upstream.clone(),
            native: tool.native.clone(),
            name: name.unwrap_or_else(|| names(endpoint, tool).0),
            place,
            terms: entry
                .as_ref()
                .map_or_else(|| rules.of(&tool.native), |entry| entry.terms.clone()),
            unchecked: [&tool.input, &tool.output].into_iter().find_map(
                |contract| match contract {
                    ToolSchema::Unchecked(why) => Some(*why),
                    ToolSchema::None | ToolSchema::Checked(_) => None,
                },
            ),
            tool: tool.clone(),
        }
    }

    /// Ranks the match of `name` with this tool: 0 is best, no value is no match.
    fn rank(&self, endpoint: &Endpoint, name: &str) -> Option<u8> {
        let (own, otherwise) = names(endpoint, &self.tool);
        match () {
            () if *self.name == *name && self.place == ToolPlacement::Shown => Some(0),
            () if *self.name == *name || self.tool.qualified_name() == name => Some(1),
            () if *own == *name || otherwise.as_deref() == Some(name) => Some(2),
            () if *self.native == *name && !is_of_other(&endpoint.mode, &self.tool, name) => {
                Some(3)
            }
            () => None,
        }
    }
}

impl Catalog {
    /// The tools that `name` could mean on an endpoint: the name they have there, would have
    /// without an alias, have at their upstream, or `upstream/tool`. The best match comes first.
    #[must_use]
    pub fn trace(&self, endpoint: &EndpointId, name: &str) -> Vec<TracedTool> {
        let layout = self.layout.load();
        let Some(lists) = layout.endpoint_lists.get(endpoint) else {
            return Vec::new();
        };
        let Some(view) = self.view(endpoint, ListKind::Tools, CapabilityClass::BASE) else {
            return Vec::new();
        };
        let mut found: Vec<(u8, TracedTool)> = Vec::new();
        for source in &lists.sources {
            let (rules, snapshot) = (source.rules(), source.base().snapshot());
            let ranked = snapshot
                .list(ListKind::Tools)
                .items
                .iter()
                .filter_map(|tool| {
                    let traced = TracedTool::new(&lists.endpoint, tool, &rules, shown(&view, tool));
                    Some((traced.rank(&lists.endpoint, name)?, traced))
                });
            found.extend(ranked);
        }
        found.sort_by_key(|(rank, _)| *rank);
        found.into_iter().map(|(_, traced)| traced).collect()
    }
}

/// The tools that `name` would mean on an endpoint if its upstreams had them. The upstreams' real
/// lists are not read.
#[must_use]
pub fn trace_by_config(
    endpoint: &Endpoint,
    upstreams: &[(UpstreamId, UpstreamRules)],
    name: &str,
) -> Vec<TracedTool> {
    let alias = |set: &Arc<weir_core::toolset::Toolset>| {
        let found = set.aliases.iter().find(|(_, alias)| **alias == *name);
        found.map(|(pattern, _)| pattern.as_str().to_owned())
    };
    let name = endpoint
        .tools
        .as_ref()
        .and_then(alias)
        .unwrap_or_else(|| name.to_owned());
    let one = |(id, rules): &(UpstreamId, UpstreamRules)| {
        let native = native(endpoint, id, &name)?;
        let raw = Bytes::from(serde_json::json!({ "name": native }).to_string());
        let tool = ItemDraft::read(ListKind::Tools, raw)
            .ok()?
            .finish(id, &SchemaCache::default());
        let mut traced = TracedTool::new(
            endpoint,
            &Arc::new(tool),
            &ResolvedRules::new(rules.clone()),
            None,
        );
        // Other tools are not known, so none takes its name away.
        if traced.place == ToolPlacement::Collided {
            traced.place = ToolPlacement::Shown;
        }
        Some(traced)
    };
    let is_member = |(id, _): &&(UpstreamId, UpstreamRules)| endpoint.mode.upstreams().contains(id);
    upstreams.iter().filter(is_member).filter_map(one).collect()
}

/// The native name of the tool that an endpoint would show as `name`, if it is of this upstream.
fn native<'a>(endpoint: &Endpoint, id: &UpstreamId, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(id.as_str());
    if let Some(native) = rest.and_then(|rest| rest.strip_prefix('/')) {
        return Some(native);
    }
    match &endpoint.mode {
        EndpointMode::Transparent(_) => Some(name),
        EndpointMode::Aggregate { naming, prefix, .. } => {
            let rest = rest.unwrap_or_default();
            let ends = rest.char_indices().map(|(at, _)| &rest[at..]);
            let native = ends
                .skip(1)
                .find(|native| naming.expose(id, native) == name);
            native.or((*prefix == NamePrefix::None).then_some(name))
        }
    }
}

fn shown<'a>(view: &'a View, tool: &ServerItem) -> Option<&'a CatalogItem> {
    view.items
        .iter()
        .find(|item| item.tool.upstream == tool.upstream && item.tool.native == tool.native)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use weir_core::endpoint::PageSize;
    use weir_core::names::ToolNaming;
    use weir_core::toolset::{NamePattern, Toolset};

    fn endpoint(prefix: NamePrefix, tools: Toolset) -> Endpoint {
        let upstreams = ["files", "web"]
            .map(|id| UpstreamId::new(id).unwrap())
            .to_vec();
        Endpoint {
            id: EndpointId::new("/mcp"),
            mode: EndpointMode::Aggregate {
                upstreams,
                naming: ToolNaming::default(),
                prefix,
            },
            page: PageSize::default(),
            deadlines: None,
            clean: true,
            tools: Some(Arc::new(tools)),
        }
    }

    fn found(endpoint: &Endpoint, name: &str) -> Vec<String> {
        let rules = |id| (UpstreamId::new(id).unwrap(), UpstreamRules::default());
        let traced = trace_by_config(
            endpoint,
            &[rules("files"), rules("web"), rules("other")],
            name,
        );
        traced
            .iter()
            .map(|it| {
                format!(
                    "{}/{} as {} {:?}",
                    it.upstream, it.native, it.name, it.place
                )
            })
            .collect()
    }

    #[test]
    fn name_is_traced_to_a_tool_by_the_config_alone() {
        let tools = Toolset {
            exclude: vec![NamePattern::new("*delete*")],
            aliases: vec![(NamePattern::new("files__read"), "look".into())],
            ..Toolset::default()
        };
        let always = endpoint(NamePrefix::Always, tools.clone());
        assert_eq!(
            found(&always, "files__write"),
            ["files/write as files__write Shown"]
        );
        assert_eq!(
            found(&always, "files/write"),
            ["files/write as files__write Shown"]
        );
        assert_eq!(found(&always, "look"), ["files/read as look Shown"]);
        assert_eq!(found(&always, "files__read"), ["files/read as look Shown"]);
        assert_eq!(
            found(&always, "web__delete_all"),
            ["web/delete_all as web__delete_all NotSelected"]
        );
        for nobodys in ["write", "other__write", "other/write", "files_write", ""] {
            assert!(found(&always, nobodys).is_empty(), "{nobodys}");
        }
        let none = endpoint(NamePrefix::None, tools);
        assert_eq!(
            found(&none, "write"),
            ["files/write as write Shown", "web/write as write Shown"]
        );
    }
}
