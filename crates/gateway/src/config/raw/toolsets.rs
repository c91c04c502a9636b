//! `tools:` of an endpoint: which tools it has and how they are shown; and `trust:` of an upstream.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Ordered;

/// Which tools an endpoint has, and how it shows them. Every key takes names as the endpoint would
/// show them without an alias, or `upstream/tool` with the upstream's own name for it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawToolset {
    /// Only these; `*` stands for any text, `?` for one character. Default: all.
    pub(crate) include: Option<Vec<String>>,
    /// Not these, whatever `include` says.
    pub(crate) exclude: Option<Vec<String>>,
    /// Other names, by name.
    pub(crate) alias: Option<Ordered<String>>,
    /// Other descriptions, by name.
    pub(crate) describe: Option<Ordered<String>>,
    /// What tools do, in the operator's own word: clients see it, and rules believe it. By name,
    /// with `*` and `?`.
    pub(crate) annotations: Option<Ordered<RawHints>>,
    /// Scopes a caller has to have, by name, with `*` and `?`; all that fit add up.
    pub(crate) scopes: Option<Ordered<Vec<String>>>,
}

/// What a tool does.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct RawHints {
    /// It changes nothing.
    pub(crate) read_only_hint: Option<bool>,
    /// It may destroy something.
    pub(crate) destructive_hint: Option<bool>,
    /// Calling it again changes nothing more.
    pub(crate) idempotent_hint: Option<bool>,
    /// It reaches out to things beyond its server.
    pub(crate) open_world_hint: Option<bool>,
}

/// Whether rules may believe what a server's tools say of themselves.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawTrust {
    /// They may.
    Trusted,
    /// They do not; clients still see it.
    Untrusted,
}
