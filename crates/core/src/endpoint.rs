//! Endpoints: the paths clients connect to, and the list that each shows.

use std::sync::Arc;
use std::time::Duration;

use crate::call_deadlines::CallDeadlines;
use crate::names::tool_naming::ToolNaming;
use crate::names::{EndpointId, UpstreamId};
use crate::secrets::SecretSearch;
use crate::toolset::Toolset;
use weir_schema::Validation;

/// The settings of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its path.
    pub id: EndpointId,
    /// Its upstreams, and the naming of their tools.
    pub mode: EndpointMode,
    /// The size of the pages that lists are cut into.
    pub page: PageSize,
    /// Time limits of calls through this path; the shorter of these and the tool's own hold.
    pub deadlines: Option<CallDeadlines>,
    /// The selection of the upstreams' tools and their overrides; absent, all are shown unchanged.
    pub tools: Option<Arc<Toolset>>,
    /// True if hidden characters are removed from results, unless the tool's own rule differs.
    pub clean: bool,
}

/// Aggregating or transparent.
#[derive(Clone, Debug, PartialEq)]
pub enum EndpointMode {
    /// Many upstreams behind one list, in config order.
    Aggregate {
        /// The upstreams, in config order.
        upstreams: Vec<UpstreamId>,
        /// The rule for making names.
        naming: ToolNaming,
        /// The rule for putting the upstream's id in front of names.
        prefix: NamePrefix,
    },
    /// One upstream; no name is changed.
    Transparent(UpstreamId),
}

impl EndpointMode {
    /// The upstreams, in config order.
    #[must_use]
    pub fn upstreams(&self) -> &[UpstreamId] {
        match self {
            Self::Aggregate { upstreams, .. } => upstreams,
            Self::Transparent(upstream) => std::slice::from_ref(upstream),
        }
    }

    /// True for one upstream, shown as it is.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        matches!(self, Self::Transparent(_))
    }
}

/// `prefix:` of an aggregating endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NamePrefix {
    /// Every name carries its upstream's id.
    #[default]
    Always,
    /// The first upstream in config order keeps the bare name; the others that have it appear
    /// prefixed.
    None,
}

/// The limits of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Items.
    pub items: usize,
    /// Bytes of items; a page always holds at least one.
    pub bytes: usize,
}

impl Default for PageSize {
    /// Well-known clients read page one only, so one page holds the list of a large federation.
    fn default() -> Self {
        Self {
            items: 1000,
            bytes: 4 << 20,
        }
    }
}

/// The operator's rules for one upstream, as far as they concern the catalog and routing.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamRules {
    /// Time limits of its calls.
    pub deadlines: CallDeadlines,
    /// Schema validation of its tools.
    pub validation: Validation,
    /// Per-tool exceptions, by native name.
    pub tools: Vec<(String, ToolRules)>,
    /// The interval at which its lists are polled if it has no change notifications; jittered.
    pub poll: Duration,
    /// The time for which its last good items stay while it is down.
    pub grace: Duration,
    /// Guards of a walk over its pages.
    pub walk: WalkLimits,
    /// True if rules may believe the annotations of its tools (R279).
    pub trusted: bool,
    /// The search for secrets in its calls.
    pub secrets: Option<Arc<SecretSearch>>,
    /// The bound of its results.
    pub results: Option<ResultLimit>,
}

/// The bound of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimit {
    /// Bytes of the `result` object, as its server spells it.
    pub bytes: usize,
    /// The action on a larger result.
    pub action: OversizedAction,
}

/// The action on a result that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OversizedAction {
    /// The result is replaced by an error.
    Refuse,
    /// A tool's result loses text, and notes how much. A result that cannot be cut is refused.
    Cut,
}

/// The operator's rules for one tool.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ToolRules {
    /// Time limits of its calls.
    pub deadlines: Option<CallDeadlines>,
    /// Schema validation.
    pub validation: Option<Validation>,
    /// Scopes a caller has to have.
    pub scopes: Vec<Arc<str>>,
    /// True if hidden characters are removed from its results, on every endpoint.
    pub clean: Option<bool>,
    /// True if a call may be made a second time after the connection broke during the first.
    pub safe_to_repeat: bool,
}

/// Guards against endless and giant lists (B18, B25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    /// Pages of one walk.
    pub pages: usize,
    /// Items of one walk.
    pub items: usize,
    /// Bytes of one item.
    pub item_bytes: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            pages: 200,
            items: 10_000,
            item_bytes: 256 << 10,
        }
    }
}

impl Default for UpstreamRules {
    fn default() -> Self {
        Self {
            deadlines: CallDeadlines::CALL,
            validation: Validation::default(),
            tools: Vec::new(),
            poll: Duration::from_secs(60),
            grace: Duration::from_secs(300),
            walk: WalkLimits::default(),
            trusted: false,
            secrets: None,
            results: None,
        }
    }
}
