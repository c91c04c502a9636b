//! The config file, from text to settings: raw types (as written), then checks (all problems at
//! once, with path, line and hint), then the settings of each crate. The file's format is known in
//! this module only.

mod admin_address;
mod admin_plan;
mod audit_plan;
mod check;
mod checked_config;
mod config_files;
mod config_loader;
mod config_part;
mod config_report;
mod config_secret;
mod config_tree;
mod decode;
mod document;
mod edit;
mod env;
mod foreign;
mod json;
mod line_index;
mod local_host;
mod log_plan;
mod main_config;
mod raw;
mod schema;
mod team_files;
mod team_grants;
mod telemetry_plan;
mod toml;
mod unserved_paths;
mod upstream_slug;
mod waivers;
mod weakenings;

pub(crate) use admin_address::find_admin_address;
pub use admin_plan::{AdminPlan, OperatorKey};
pub use audit_plan::{AuditFilePlan, AuditPlan};
pub(crate) use check::ADMIN as DEFAULT_OPERATORS;
pub use checked_config::{
    CatalogPlan, Config, IncludeErrors, SealingKey, SourceDigest, UpstreamPlan,
};
pub use config_loader::{ConfigLoader, ConfigSource, LoadOutcome};
pub use config_report::{ConfigPath, ConfigProblem, ConfigReport, Severity};
pub use config_secret::ConfigSecret;
pub(crate) use edit::{NewUpstream, json_tree, with_upstream};
pub use env::Environment;
pub(crate) use env::{
    EnvReference, ReferenceError, ReferenceSyntax, TextPiece, WORKSPACE, is_variable, pieces,
};
pub(crate) use foreign::{FoundFile, FoundServer, find, parse_env_file as read_env_file};
pub use foreign::{InputSource, InputVariable};
pub(crate) use json::options as json_options;
pub(crate) use local_host::{is_local, is_local_host};
pub use log_plan::{LogFormat, LogPlan};
pub(crate) use raw::Time;
pub use schema::schema;
pub use team_files::{TeamFile, TeamFileVersion};
pub use telemetry_plan::{OtlpPlan, TelemetryPlan};
pub(crate) use upstream_slug::upstream_slug;
pub use waivers::Waivers;
pub use weakenings::{Protection, Weakening, weakenings};

#[cfg(test)]
mod tests;
