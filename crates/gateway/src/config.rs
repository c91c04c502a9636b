//! The config file, from text to settings: raw types (as written), then checks (all problems at
//! once, with path, line and hint), then the settings of each crate. The file's format is known in
//! this module only.

pub(crate) mod admin_address;
pub(crate) mod admin_plan;
pub(crate) mod audit_plan;
pub(crate) mod check;
pub(crate) mod checked_config;
mod config_files;
pub(crate) mod config_loader;
mod config_part;
pub(crate) mod config_report;
pub(crate) mod config_secret;
mod config_tree;
mod decode;
mod document;
pub(crate) mod edit;
pub(crate) mod env;
pub(crate) mod foreign;
pub(crate) mod json;
mod line_index;
pub(crate) mod local_host;
pub(crate) mod log_plan;
mod main_config;
pub(crate) mod raw;
mod schema;
pub(crate) mod team_files;
pub(crate) mod team_grants;
pub(crate) mod telemetry_plan;
mod toml;
mod unserved_paths;
mod upstream_slug;
pub(crate) mod waivers;
pub(crate) mod weakenings;

pub use admin_plan::{AdminPlan, OperatorKey};
pub use audit_plan::{AuditFilePlan, AuditPlan};
pub use checked_config::{
    CatalogPlan, Config, IncludeErrors, SealingKey, SourceDigest, UpstreamPlan,
};
pub use config_loader::{ConfigLoader, ConfigSource, LoadOutcome};
pub use config_report::{ConfigPath, ConfigProblem, ConfigReport, Severity};
pub use config_secret::ConfigSecret;
pub use env::Environment;
pub(crate) use env::is_variable;
pub use foreign::{InputSource, InputVariable};
pub(crate) use local_host::is_local_host;
pub use log_plan::{LogFormat, LogPlan};
pub use schema::schema;
pub use team_files::{TeamFile, TeamFileVersion};
pub use telemetry_plan::{OtlpPlan, TelemetryPlan};
pub(crate) use upstream_slug::upstream_slug;
pub use waivers::Waivers;
pub use weakenings::{Protection, Weakening, weakenings};

#[cfg(test)]
mod tests;
