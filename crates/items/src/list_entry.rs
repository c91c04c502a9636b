//! One item of an upstream as an endpoint shows it: its names there, its rules, and the operator's
//! overrides.

use std::sync::Arc;

use weir_core::capability::CapabilityClass;
use weir_core::catalog_item::{CallTerms, CatalogItem};
use weir_core::endpoint::{Endpoint, EndpointMode, NamePrefix};
use weir_core::names::exposed_uri;
use weir_core::server_item::ServerItem;
use weir_core::toolset::{ToolHints, ToolNames};
use weir_core::upstream::ListKind;

use crate::overrides::{apply_overrides, link_interface};
use crate::reserved_names::{ReservedNames, expands_to_other, is_of_other};
use crate::resolved_rules::ResolvedRules;

/// An item under the names that it may get.
#[derive(Debug)]
pub struct ListEntry {
    /// The name to take first.
    pub name: Arc<str>,
    /// True if the operator chose the name: then no other tool gets it.
    pub chosen: bool,
    /// The name to take if the first is taken.
    pub otherwise: Option<Arc<str>>,
    /// The item as the endpoint describes it.
    pub tool: Arc<ServerItem>,
    /// The operator's rules for calls.
    pub terms: Arc<CallTerms>,
    /// See [`CatalogItem::listed_without`].
    pub listed_without: CapabilityClass,
}

impl ListEntry {
    /// A tool as the endpoint shows it; absent if the endpoint's selection leaves it out.
    pub fn new(endpoint: &Endpoint, tool: &Arc<ServerItem>, rules: &ResolvedRules) -> Option<Self> {
        let believed = if rules.given.trusted {
            tool.hints
        } else {
            ToolHints::default()
        };
        let (terms, listed_without) = (rules.of(&tool.native), CapabilityClass::BASE);
        let (name, otherwise) = names(endpoint, tool);
        // Without a prefix the page may have a name that another upstream's page has too: then the
        // first upstream in config order keeps it.
        let renames = match &endpoint.mode {
            EndpointMode::Transparent(_) => false,
            EndpointMode::Aggregate {
                prefix: NamePrefix::Always,
                ..
            } => true,
            EndpointMode::Aggregate { upstreams, .. } => upstreams.len() > 1,
        };
        let shown = if renames && tool.kind == ListKind::Tools {
            link_interface(tool)
        } else {
            None
        };
        let tool = shown.as_ref().unwrap_or(tool);
        let set = endpoint.tools.as_ref();
        let (alias, tool, terms) = match set.filter(|_| tool.kind == ListKind::Tools) {
            None => (None, tool.clone(), terms.on_endpoint(&[], believed)),
            Some(set) => {
                let known: Vec<&str> = std::iter::once(&*name)
                    .chain(otherwise.as_deref())
                    .collect();
                let made = set.overrides_for(&ToolNames {
                    names: &known,
                    qualified: &tool.qualified_name(),
                })?;
                let terms = terms.on_endpoint(&made.scopes, made.hints.or(believed));
                let same = made.description.is_none() && made.hints == ToolHints::default();
                let tool = if same {
                    tool.clone()
                } else {
                    apply_overrides(tool, made.description.as_deref(), made.hints)
                };
                (made.alias, tool, terms)
            }
        };
        let chosen = alias.is_some();
        let (name, otherwise) = match alias {
            Some(alias) => (alias, None),
            None => (name, otherwise),
        };
        Some(Self {
            name,
            chosen,
            otherwise,
            tool,
            terms,
            listed_without,
        })
    }
}

impl ListEntry {
    /// The name that the entry gets beside others: the first of its names that is neither taken nor
    /// another tool's alias.
    pub fn first_free_name(
        &self,
        reserved: &ReservedNames,
        is_taken: impl Fn(&str) -> bool,
    ) -> Option<&Arc<str>> {
        std::iter::once(&self.name)
            .chain(&self.otherwise)
            .find(|name| {
                !is_taken(name) && (self.chosen || !reserved.is_alias(self.tool.kind, name))
            })
    }

    /// True if the entry could get this name on the endpoint.
    pub fn may_be_named(&self, name: &str) -> bool {
        *self.name == *name || self.otherwise.as_deref() == Some(name)
    }

    /// The item under this name.
    pub fn named(self, exposed: Arc<str>) -> CatalogItem {
        let Self {
            tool,
            terms,
            listed_without,
            ..
        } = self;
        CatalogItem {
            exposed,
            tool,
            terms,
            listed_without,
        }
    }
}

/// The name that a tool gets by the endpoint's rule, and the one to take if that is taken.
pub fn names(endpoint: &Endpoint, tool: &ServerItem) -> (Arc<str>, Option<Arc<str>>) {
    match &endpoint.mode {
        EndpointMode::Transparent(_) => (tool.native.clone(), None),
        EndpointMode::Aggregate { prefix, .. }
            if matches!(tool.kind, ListKind::Resources | ListKind::Templates) =>
        {
            let exposed = Arc::from(exposed_uri::expose(&tool.upstream, &tool.native));
            let leads_elsewhere = || match tool.kind {
                ListKind::Templates => {
                    expands_to_other(&endpoint.mode, &tool.upstream, &tool.native)
                }
                ListKind::Tools | ListKind::Prompts | ListKind::Resources => {
                    is_of_other(&endpoint.mode, tool, &tool.native)
                }
            };
            match prefix {
                NamePrefix::None if !leads_elsewhere() => (tool.native.clone(), Some(exposed)),
                NamePrefix::Always | NamePrefix::None => (exposed, None),
            }
        }
        EndpointMode::Aggregate {
            naming,
            prefix: NamePrefix::Always,
            ..
        } => (naming.expose(&tool.upstream, &tool.native).into(), None),
        EndpointMode::Aggregate {
            naming,
            prefix: NamePrefix::None,
            ..
        } => {
            let exposed = Arc::from(naming.expose(&tool.upstream, &tool.native));
            // A name that means an item of another upstream is none of this one, also while the
            // other item is not listed.
            if is_of_other(&endpoint.mode, tool, &tool.native) {
                return (exposed, None);
            }
            let bare = naming.bare(&tool.upstream, &tool.native).into();
            (bare, Some(exposed))
        }
    }
}
