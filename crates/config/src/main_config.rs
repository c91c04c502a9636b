//! The checked main file, to which the teams' files are added.

use weir_config_file::config_files::ReadFiles;
use weir_policy::rules::{EndpointRules, PolicyFile};

use crate::check::config_defaults::ConfigDefaults;
use crate::checked_config::Config;
use crate::team_grants::TeamGrants;

/// The checked main file, with the settings that apply to all files.
#[derive(Debug)]
pub(crate) struct MainConfig {
    pub(crate) config: Config,
    pub(crate) defaults: ConfigDefaults,
    pub(crate) include: Option<String>,
    /// The rights of the included files.
    pub(crate) teams: TeamGrants,
    /// Rules for all endpoints.
    pub(crate) common: Vec<PolicyFile>,
    /// Rules for single endpoints.
    pub(crate) endpoint_rules: Vec<EndpointRules>,
    /// The policy and pattern files.
    pub(crate) files: ReadFiles,
    /// True if the file lists its endpoints.
    pub(crate) own_endpoints: bool,
    /// True if `/mcp` is served by default.
    pub(crate) has_default_endpoint: bool,
}
