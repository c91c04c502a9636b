//! The contribution of one file to the config.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weir_config_file::config_files::ReadFiles;
use weir_config_file::config_tree::ConfigNode;
use weir_core::Endpoint;
use weir_core::secrets::SecretPatterns;
use weir_policy::rules::EndpointRules;

use crate::checked_config::UpstreamPlan;
use crate::waivers::Waivers;

/// The compiled pattern files, shared by all upstreams that name one. `None` for a file with
/// errors.
pub(crate) type PatternFiles = BTreeMap<PathBuf, Option<Arc<SecretPatterns>>>;

/// The settings of the files that were read before a team's file.
#[derive(Clone, Copy, Default)]
pub(crate) struct EarlierFiles<'a> {
    pub(crate) upstreams: &'a [UpstreamPlan],
    pub(crate) endpoints: &'a [Endpoint],
}

/// The contribution of one file (the main one or a team's).
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigPart {
    pub(crate) upstreams: Vec<UpstreamPlan>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The file as a tree. Absent for the main file.
    pub(crate) tree: Option<ConfigNode>,
    /// The policies of single endpoints.
    pub(crate) endpoint_rules: Vec<EndpointRules>,
    /// The policy and pattern files.
    pub(crate) files: ReadFiles,
    /// The compiled patterns of the pattern files.
    pub(crate) patterns: PatternFiles,
    /// The protections that the file gives up explicitly.
    pub(crate) waivers: Waivers,
}
