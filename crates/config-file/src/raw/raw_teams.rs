//! `teams:`: the rights of the files in the `include` folder.

use schemars::JsonSchema;
use serde::Deserialize;

/// The rights of one team's file. A right that is not listed here is not granted. A file that needs
/// it is left out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTeam {
    /// Environment variables that `${NAME}` may name in its file. `*` stands for any text:
    /// `[RED_*]`. Default: an empty list.
    pub env: Option<Vec<String>>,
    /// Allows its upstreams a `command`. Default `no`: such a program runs as weir's own user and
    /// can read weir's environment and files.
    pub commands: Option<RawConsent>,
    /// Hosts of its upstreams' URLs: `name`, `name:port` or `*.domain`. Default: an empty list.
    pub hosts: Option<Vec<String>>,
    /// Hosts of `issuer` and `token_endpoint` in its upstreams' `auth`, written like `hosts`. With
    /// `token_exchange` they receive the tokens of callers. Default: an empty list.
    pub authorization_servers: Option<Vec<String>>,
    /// Paths of its endpoints. `*` stands for any text: `[/mcp/red/*]`. Default: an empty list.
    pub paths: Option<Vec<String>>,
    /// Ids of its upstreams. `*` stands for any text: `[red, red-*]`. Rules, rates and lists of
    /// other files name upstreams by their ids. Default: the team's name, and ids that begin with
    /// its name and `-`.
    pub ids: Option<Vec<String>>,
    /// Upstreams of other files that its endpoints may show, by id. `*` stands for any text.
    /// Default: an empty list.
    pub upstreams: Option<Vec<String>>,
    /// Files that `ca_file`, `policy.files` and `secrets.patterns` may name in its file, spelled as
    /// they are there. `*` stands for any text: `[teams/red/*]`. Default: an empty list.
    pub files: Option<Vec<String>>,
    /// Allows it to declare the behaviour of tools, with `trust: trusted` and `tools.annotations`,
    /// which rules rely on. Default `no`.
    pub trust: Option<RawConsent>,
}

/// The grant of a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawConsent {
    /// The right is granted.
    Yes,
    /// The right is not granted.
    No,
}
