//! The steps that find the tool: the upstream, its list, and the tool's name on the endpoint.

use std::fmt::Write as _;
use std::sync::Arc;

use weir_catalog::{ListState, ToolPlacement, TracedTool, UpstreamStatus, trace_by_config};
use weir_core::catalog_item::CatalogItem;
use weir_core::endpoint::EndpointMode;
use weir_core::names::UpstreamId;
use weir_core::principal::Principal;
use weir_core::upstream::ListKind;
use weir_core::{CapabilityClass, Endpoint};
use weir_text::count;

use crate::call_walk::{CallWalk, join_with_commas};
use crate::explanation::StepEffect;

/// The most similar names that an answer lists for a possible typing mistake.
const MAX_SIMILAR: usize = 5;

impl CallWalk<'_> {
    pub(super) fn find_tools(&self, endpoint: &Endpoint) -> Vec<TracedTool> {
        match &self.explainer.catalog {
            Some(catalog) => catalog.trace(&endpoint.id, &self.question.tool),
            None => {
                let rules = self
                    .config
                    .upstreams
                    .iter()
                    .map(|plan| (plan.settings.id.clone(), plan.rules.clone()));
                trace_by_config(endpoint, &rules.collect::<Vec<_>>(), &self.question.tool)
            }
        }
    }

    /// Explains that no upstream is known to have such a tool.
    pub(super) fn explain_absent_tool(&mut self, endpoint: &Endpoint) {
        let members = match &endpoint.mode {
            EndpointMode::Aggregate { upstreams, .. } => upstreams.as_slice(),
            EndpointMode::Transparent(upstream) => std::slice::from_ref(upstream),
        };
        let tool = &self.question.tool;
        let named: Vec<&UpstreamId> = members
            .iter()
            .filter(|id| tool.starts_with(id.as_str()))
            .collect();
        let likely: Vec<&UpstreamId> = if named.is_empty() {
            members.iter().collect()
        } else {
            named
        };
        for id in likely {
            self.explain_override(id);
            let Some(status) = self.status(id) else {
                continue;
            };
            let Some(list) = status.lists.first() else {
                continue;
            };
            if !list.state.was_read() {
                let why = status.cause().unwrap_or("it has not answered yet");
                self.add_step(
                    "upstream",
                    StepEffect::Hides,
                    format!(
                        "the tools of `{id}` are not known ({}): {why}",
                        list.state.as_str()
                    ),
                );
            }
            if let Some(guard) = list.truncated {
                self.add_step(
                    "page guard",
                    StepEffect::Hides,
                    format!("the list of `{id}` was truncated ({guard}): the tool may be in the missing part"),
                );
            }
            if list.rejected > 0 {
                let items = count(list.rejected, "item");
                let were = if list.rejected == 1 { "was" } else { "were" };
                self.add_step(
                    "definition",
                    StepEffect::Hides,
                    format!(
                        "{items} of `{id}` {were} left out: malformed, or with a duplicate name"
                    ),
                );
            }
        }
        let similar = self.similar(endpoint);
        let mut why = format!(
            "no upstream of {} has a known tool with this name",
            endpoint.id
        );
        if !similar.is_empty() {
            let _ = write!(why, "; similar names: {}", join_with_commas(similar));
        }
        self.add_step("name", StepEffect::Hides, why);
    }

    /// Returns names on the endpoint that contain the name in question, or are contained in it.
    fn similar(&self, endpoint: &Endpoint) -> Vec<Arc<str>> {
        let view =
            self.explainer.catalog.as_ref().and_then(|catalog| {
                catalog.view(&endpoint.id, ListKind::Tools, CapabilityClass::BASE)
            });
        let wanted = self.question.tool.to_lowercase();
        let fits = |native: &str| {
            let native = native.to_lowercase();
            !native.is_empty()
                && !wanted.is_empty()
                && (native.contains(&wanted) || wanted.contains(&native))
        };
        let items = view.iter().flat_map(|view| view.items.iter());
        items
            .filter(|item| fits(&item.tool.native))
            .map(|item| item.exposed.clone())
            .take(MAX_SIMILAR)
            .collect()
    }

    fn status(&self, id: &UpstreamId) -> Option<UpstreamStatus> {
        self.explainer
            .catalog
            .as_ref()?
            .status()
            .into_iter()
            .find(|status| status.id == *id)
    }

    /// Explains the state of the upstream.
    pub(super) fn explain_upstream(&mut self, id: &UpstreamId) {
        let Some(status) = self.status(id) else {
            return;
        };
        let Some(list) = status.lists.first() else {
            return;
        };
        let why = status.cause().unwrap_or("the cause is not known");
        if status.health.down || list.state == ListState::Down {
            self.add_step(
                "upstream",
                StepEffect::Refuses,
                format!("`{id}` cannot be reached: {why}"),
            );
        } else if list.state == ListState::Stale {
            self.add_step(
                "upstream",
                StepEffect::Notes,
                format!("the list of `{id}` is its last good one: {why}"),
            );
        } else {
            let revision = status
                .health
                .revision
                .map(|revision| format!(" and speaks {revision}"))
                .unwrap_or_default();
            self.add_step(
                "upstream",
                StepEffect::Passes,
                format!(
                    "`{id}` is up{revision}; its list is {}",
                    list.state.as_str()
                ),
            );
        }
        if let Some(guard) = list.truncated {
            self.add_step(
                "page guard",
                StepEffect::Notes,
                format!("the list of `{id}` was truncated ({guard}) after this tool"),
            );
        }
    }

    /// Explains problems of the tool's definition.
    pub(super) fn explain_definition(&mut self, tool: &TracedTool) {
        if let Some(why) = tool.unchecked {
            self.add_step(
                "schema",
                StepEffect::Notes,
                format!("not used, so arguments or results are not checked: {why}"),
            );
        }
    }

    /// Returns the item that a call of the sender by the name in question goes to. `None` if there is
    /// none, and if upstreams are not queried.
    pub(super) fn called_item(
        &self,
        endpoint: &Endpoint,
        principal: &Principal,
    ) -> Option<CatalogItem> {
        let catalog = self.explainer.catalog.as_ref()?;
        let whole = catalog.view(&endpoint.id, ListKind::Tools, CapabilityClass::BASE)?;
        let seen = catalog.visible_part(&endpoint.id, whole.clone(), principal);
        let name = &*self.question.tool;
        let item = seen.find(name).item()?;
        let is_sole = *item.exposed == *name
            || !catalog.has_absent_namesake(&endpoint.id, principal, &whole, item);
        is_sole.then(|| item.clone())
    }

    /// Returns the upstream that keeps the name in question while it is away.
    fn keeper_of_name(&self, endpoint: &Endpoint) -> Option<UpstreamId> {
        let catalog = self.explainer.catalog.as_ref()?;
        let whole = catalog.view(&endpoint.id, ListKind::Tools, CapabilityClass::BASE)?;
        whole.kept_names().get(&*self.question.tool).cloned()
    }

    /// Explains the name of the tool on the endpoint, if it has one. `is_called` tells that the
    /// sender's calls by the name in question go to the tool.
    pub(super) fn explain_name(&mut self, endpoint: &Endpoint, tool: &TracedTool, is_called: bool) {
        let home = format!("{}/{}", tool.upstream, tool.native);
        match tool.place {
            ToolPlacement::NotSelected => {
                let why = format!(
                    "`tools` of {} excludes {home} (include, exclude)",
                    endpoint.id
                );
                return self.add_step("toolset", StepEffect::Hides, why);
            }
            ToolPlacement::Collided => {
                let why = format!(
                    "another tool of {} has the name `{}`, so {home} has none: give it an alias",
                    endpoint.id, tool.name
                );
                return self.add_step("name", StepEffect::Hides, why);
            }
            ToolPlacement::Shown => {}
        }
        if *tool.name == *self.question.tool {
            return self.add_step("name", StepEffect::Passes, format!("it is {home}"));
        }
        match is_called {
            true => {
                let why = format!(
                    "{home} is shown as `{}`; a call by its native name works while the sender sees no other tool of that name",
                    tool.name
                );
                self.add_step("name", StepEffect::Notes, why);
            }
            // The question names the tool as upstream/tool, which clients cannot use. The answers
            // are for the name that clients see.
            false if home == self.question.tool => self.add_step(
                "name",
                StepEffect::Notes,
                format!("clients call it `{}`", tool.name),
            ),
            false => {
                let why = match self.keeper_of_name(endpoint) {
                    Some(id) => format!(
                        "`{}` is the name of a tool of `{id}`, which cannot be reached now; {home} is shown as `{}`",
                        self.question.tool, tool.name
                    ),
                    None => format!(
                        "{home} is shown as `{}`, and a call by another name is answered \"unknown tool\"",
                        tool.name
                    ),
                };
                self.add_step("name", StepEffect::Hides, why);
            }
        }
    }
}
