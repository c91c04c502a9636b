//! `tools:` of an endpoint, its tools and their presentation; and `trust:` of an upstream.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::raw::OrderedMap;

/// The tools of an endpoint and their presentation. Every key takes names as the endpoint would
/// show them without an alias, or `upstream/tool` with the upstream's own name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawToolset {
    /// Only these tools. `*` stands for any text, `?` for one character. Default: all.
    pub include: Option<Vec<String>>,
    /// Not these tools, even if `include` names them.
    pub exclude: Option<Vec<String>>,
    /// Other names for tools, by name.
    #[schemars(extend("x-protection" = "none below"))]
    pub alias: Option<OrderedMap<String>>,
    /// Other descriptions for tools, by name.
    #[schemars(extend("x-protection" = "none below"))]
    pub describe: Option<OrderedMap<String>>,
    /// The operator's own annotations of tools, by name, with `*` and `?`. Clients see them, and
    /// rules rely on them.
    pub annotations: Option<OrderedMap<RawHints>>,
    /// Scopes that a caller needs, by name, with `*` and `?`. All entries that match add up.
    pub scopes: Option<OrderedMap<Vec<String>>>,
}

/// The annotations of a tool's behaviour.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RawHints {
    /// The tool changes no data.
    // The hints of a pattern count together.
    #[schemars(extend("x-protection" = "none"))]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data.
    #[schemars(extend("x-protection" = "none"))]
    pub destructive_hint: Option<bool>,
    /// Repeated calls have no further effect.
    #[schemars(extend("x-protection" = "none"))]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches out beyond its server.
    #[schemars(extend("x-protection" = "none"))]
    pub open_world_hint: Option<bool>,
}

/// The trust of rules in an upstream's annotations of its tools.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawTrust {
    /// Rules rely on them.
    Trusted,
    /// Rules ignore them. Clients still see them.
    Untrusted,
}
