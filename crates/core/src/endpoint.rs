//! Endpoints: the paths clients connect to, and what each shows.

use std::sync::Arc;
use std::time::Duration;

use crate::names::{EndpointId, Naming, UpstreamId};
use crate::schema::Validation;
use crate::secrets::Secrets;
use crate::toolset::Toolset;
use crate::upstream::Deadlines;

/// What one path shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its path.
    pub id: EndpointId,
    /// Which upstreams, and how their tools are named.
    pub mode: Mode,
    /// How lists are cut into pages.
    pub page: PageSize,
    /// Time limits of calls through this path; the shorter of these and the tool's own hold.
    pub deadlines: Option<Deadlines>,
    /// Which of the upstreams' tools, and how they are shown; `None`: all, as they are.
    pub tools: Option<Arc<Toolset>>,
    /// Whether hidden characters are removed from results, where nothing else is said of the tool.
    pub clean: bool,
}

/// Aggregating or transparent.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Many upstreams behind one list, in config order.
    Aggregate {
        /// Which, in config order.
        upstreams: Vec<UpstreamId>,
        /// How names are made.
        naming: Naming,
        /// Whether names carry the upstream's id.
        prefix: Prefix,
    },
    /// One upstream; nothing is renamed.
    Transparent(UpstreamId),
}

impl Mode {
    /// True for one upstream, shown as it is.
    #[must_use]
    pub const fn is_transparent(&self) -> bool {
        matches!(self, Self::Transparent(_))
    }
}

/// `prefix:` of an aggregating endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefix {
    /// Every name carries its upstream's id.
    #[default]
    Always,
    /// The first upstream in config order keeps the bare name; the others that have it appear
    /// prefixed.
    None,
}

/// How much of a list one page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Items.
    pub items: usize,
    /// Bytes of items; a page always holds at least one.
    pub bytes: usize,
}

impl Default for PageSize {
    /// Well-known clients read page one only, so one page holds what a large federation has.
    fn default() -> Self {
        Self {
            items: 1000,
            bytes: 4 << 20,
        }
    }
}

/// What the operator says of one upstream that concerns the catalog and routing.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamRules {
    /// Time limits of its calls.
    pub deadlines: Deadlines,
    /// Schema validation of its tools.
    pub validation: Validation,
    /// Per-tool exceptions, by native name.
    pub tools: Vec<(String, ToolRules)>,
    /// How often its lists are polled where it does not tell of changes; jittered.
    pub poll: Duration,
    /// How long its last good items stay while it is down.
    pub grace: Duration,
    /// Guards of a walk over its pages.
    pub walk: WalkLimits,
    /// Whether rules may believe what its tools say of themselves (R279).
    pub trusted: bool,
    /// The search for secrets in its calls.
    pub secrets: Option<Arc<Secrets>>,
    /// The bound of its results.
    pub results: Option<ResultLimit>,
}

/// The bound of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLimit {
    /// Bytes of the `result` object, as its server spells it.
    pub bytes: usize,
    /// What happens to one that has more.
    pub over: Oversized,
}

/// The action on a result that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversized {
    /// An error in its place says so.
    Refuse,
    /// A tool's loses text, and says how much. What cannot be cut is refused.
    Cut,
}

/// What the operator says of one tool.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ToolRules {
    /// Time limits of its calls.
    pub deadlines: Option<Deadlines>,
    /// Schema validation.
    pub validation: Option<Validation>,
    /// Scopes a caller has to have.
    pub scopes: Vec<Arc<str>>,
    /// Whether hidden characters are removed from its results, on every endpoint.
    pub clean: Option<bool>,
    /// Whether a call may be made a second time where the connection broke during the first.
    pub safe_to_repeat: bool,
}

/// Guards against endless and giant lists (faults B18, B25).
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
            deadlines: Deadlines::CALL,
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
