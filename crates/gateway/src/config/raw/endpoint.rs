//! `endpoints:` and what else says how an endpoint looks.

use schemars::JsonSchema;
use serde::Deserialize;

use super::units::Size;

/// A path clients use: either `upstream` (that one server, unchanged) or `upstreams` (several
/// behind one list).
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawEndpoint {
    /// The one server; its tools keep their names.
    pub(crate) upstream: Option<String>,
    /// The servers, in the order of their tools.
    pub(crate) upstreams: Option<Vec<String>>,
    /// How lists are cut into pages.
    pub(crate) page: Option<RawPage>,
    /// How tools are named.
    pub(crate) naming: Option<RawNaming>,
    /// Time limits of calls through this path: the shorter of these and the tool's own hold.
    pub(crate) deadlines: Option<super::RawDeadlines>,
    /// Which tools it has, and how it shows them.
    pub(crate) tools: Option<super::RawToolset>,
    /// Whether hidden characters are removed from results (docs/outputs.md). Default: `true` with
    /// `upstreams`, `false` with `upstream`.
    pub(crate) clean: Option<bool>,
    /// Scopes everybody who comes here has to have. A reload takes all of them away only where the
    /// file says `[]`.
    pub(crate) scopes: Option<Vec<String>>,
    /// Rules for this path, beside the common ones. A reload takes them away only where the file
    /// says `off`.
    pub(crate) policy: Option<super::OrOff<super::RawPolicy>>,
}

/// How lists are cut into pages.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawPage {
    /// Items of a page. Default 1000: many clients read the first page only.
    pub(crate) items: Option<usize>,
    /// Bytes of a page. Default `4MiB`.
    pub(crate) bytes: Option<Size>,
}

/// How tools are named where several servers are behind one list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawNaming {
    /// Default `always`: every name carries its upstream's id.
    pub(crate) prefix: Option<RawPrefix>,
    /// Between id and name. Default `__`.
    pub(crate) separator: Option<String>,
    /// The longest name: 64 (default) or 128.
    pub(crate) maximum: Option<usize>,
    /// Default `strict`: letters, digits, `_` and `-`.
    pub(crate) alphabet: Option<RawAlphabet>,
}

/// Whether names carry their upstream's id.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawPrefix {
    /// Every name does.
    Always,
    /// Only those that an earlier upstream has too.
    None,
}

/// The characters of a name.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawAlphabet {
    /// Letters, digits, `_` and `-`.
    Strict,
    /// The same and `.`.
    Dotted,
}
