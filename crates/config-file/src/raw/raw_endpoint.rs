//! `endpoints:`, and the settings of pages and names that endpoints share.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::raw::Size;

/// A path that clients use. It has either `upstream` (that one upstream, unchanged) or `upstreams`
/// (several in one list).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawEndpoint {
    /// The one upstream. Its tools keep their names.
    #[schemars(extend("x-protection" = "none"))]
    pub upstream: Option<String>,
    /// The upstreams, in the order of their tools.
    #[schemars(extend("x-protection" = "none"))]
    pub upstreams: Option<Vec<String>>,
    /// The size of list pages.
    #[schemars(extend("x-protection" = "none below"))]
    pub page: Option<RawPage>,
    /// The naming of tools.
    #[schemars(extend("x-protection" = "none below"))]
    pub naming: Option<RawNaming>,
    /// Time limits of calls through this endpoint. The shorter of these and the tool's own applies.
    #[schemars(extend("x-protection" = "none below"))]
    pub deadlines: Option<super::RawDeadlines>,
    /// The tools of the endpoint and their presentation.
    pub tools: Option<super::RawToolset>,
    /// Removes hidden characters from results (docs/outputs.md). Default: `true` with `upstreams`,
    /// `false` with `upstream`.
    #[schemars(extend("x-protection" = "none"))]
    pub clean: Option<bool>,
    /// Scopes that every caller of this endpoint needs. A reload removes all of them only if the
    /// file has `[]`.
    pub scopes: Option<Vec<String>>,
    /// Rules for this endpoint, in addition to the common ones. A reload removes them only if the
    /// file has the word `off`.
    pub policy: Option<super::OrOff<super::RawPolicy>>,
}

/// The size of list pages.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawPage {
    /// The number of items on a page. Default 1000: many clients read the first page only.
    pub items: Option<usize>,
    /// The number of bytes of a page. Default `4MiB`.
    pub bytes: Option<Size>,
}

/// The naming of tools on an endpoint with several upstreams.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawNaming {
    /// Puts the upstream's id before names. Default `always`: before every name.
    pub prefix: Option<RawPrefix>,
    /// The text between id and name. Default `__`.
    pub separator: Option<String>,
    /// The longest name in characters: 64 (default) or 128.
    pub maximum: Option<usize>,
    /// The characters that names may have. Default `strict`: letters, digits, `_` and `-`.
    pub alphabet: Option<RawAlphabet>,
}

/// The names that carry their upstream's id.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawPrefix {
    /// Every name.
    Always,
    /// Only names that an earlier upstream has too.
    None,
}

/// The characters of a name.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawAlphabet {
    /// Letters, digits, `_` and `-`.
    Strict,
    /// The same and `.`.
    Dotted,
}
