//! `tools:` of an endpoint, its tools and their presentation; and `trust:` of an upstream.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::raw::ordered_map::OrderedMap;

/// The tools of an endpoint and their presentation. Every key takes names as the endpoint would
/// show them without an alias, or `upstream/tool` with the upstream's own name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawToolset {
    /// Only these tools. `*` stands for any text, `?` for one character. Default: all.
    pub(crate) include: Option<Vec<String>>,
    /// Not these tools, even if `include` names them.
    pub(crate) exclude: Option<Vec<String>>,
    /// Other names for tools, by name.
    pub(crate) alias: Option<OrderedMap<String>>,
    /// Other descriptions for tools, by name.
    pub(crate) describe: Option<OrderedMap<String>>,
    /// The operator's own annotations of tools, by name, with `*` and `?`. Clients see them, and
    /// rules rely on them.
    pub(crate) annotations: Option<OrderedMap<RawHints>>,
    /// Scopes that a caller needs, by name, with `*` and `?`. All entries that match add up.
    pub(crate) scopes: Option<OrderedMap<Vec<String>>>,
}

/// The annotations of a tool's behaviour.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawHints {
    /// The tool changes no data.
    pub(crate) read_only_hint: Option<bool>,
    /// The tool may destroy data.
    pub(crate) destructive_hint: Option<bool>,
    /// Repeated calls have no further effect.
    pub(crate) idempotent_hint: Option<bool>,
    /// The tool reaches out beyond its server.
    pub(crate) open_world_hint: Option<bool>,
}

/// The trust of rules in an upstream's annotations of its tools.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawTrust {
    /// Rules rely on them.
    Trusted,
    /// Rules ignore them. Clients still see them.
    Untrusted,
}
